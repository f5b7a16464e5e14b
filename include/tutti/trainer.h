/* trainer.h -- a complete training run with a program's own model and data.
 * SPDX-License-Identifier: MIT
 *
 * What `tutti train` does (data-parallel steps, progress, metrics.jsonl, summary.json, TensorBoard, checkpoints, resume,
 * evaluation, signals, elastic runs by shards), for a program with its own model, data or loss, or all of them:
 *
 *     int main(int argc, char **argv)
 *     {
 *         return tutti_trainer_main(argc, argv, &(tutti_trainer_opts){.model = &my_model, .train = train, .test = test});
 *     }
 *
 *     ./my_program --epochs 3 --lr 0.05                          alone
 *     tutti run -n 2 ./my_program --epochs 3 --lr 0.05           by two ranks; also under torchrun, srun, mpirun
 *     ./my_program --eval runs/mine                              evaluates its weights, does not train
 *     ./my_program --predict runs/mine --out logits.csv          writes the model's output for each sample
 *
 * The arguments are the keys of `tutti train` (docs/train.md), with the same checks and messages, --config and --help; with --eval
 * PATH or --predict PATH, the flags of `tutti eval` and `tutti predict` (docs/eval.md), with the same output.
 * Threads: one thread runs a trainer; ranks may be threads. */
#ifndef TUTTI_TRAINER_H
#define TUTTI_TRAINER_H

#include <tutti/data.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line of metrics.jsonl: means since the line before, over all ranks. */
typedef struct tutti_trainer_step {
    uint64_t step;                            /* optimizer steps done */
    int64_t epoch;                            /* from 1 */
    double loss, lr, grad_norm, images_per_s; /* images_per_s: samples, whatever they are */
    double seconds;                           /* since the run began */
    uint64_t reserved[4];                     /* zero */
} tutti_trainer_step;

/* An evaluation of the whole test set, over all ranks. */
typedef struct tutti_trainer_eval {
    uint64_t step;
    int64_t epoch;
    double loss, accuracy; /* accuracy: a fraction; NaN where there are no classes */
    double seconds;
    const double *metrics; /* of tutti_trainer_opts.metrics, in their order; NULL: none */
    uint64_t reserved[3];  /* zero */
} tutti_trainer_eval;

/* ---- A metric of the program's own ---- */

#define TUTTI_MAX_METRICS     8  /* of a program */
#define TUTTI_MAX_METRIC_SUMS 16 /* of a metric */

/* A figure of an evaluation, computed from sums over the test set's samples. It is shown with the loss, and is in the eval objects of
 * metrics.jsonl, in summary.json and the loggers (TensorBoard: NAME/validation) and in tutti_trainer_eval. */
typedef struct tutti_metric {
    /* 1 to 31 of a-z, 0-9 and _, beginning with a letter; not a name of docs/metrics.md. NULL ends a list of metrics */
    const char *name;
    int n_sums; /* numbers to add; 0: one */
    /* What a sample adds: writes n_sums numbers, which are 0 before. output: the model's, F32; target: its y; both in host memory,
     * without the batch's dimension. Called on all ranks, each with its own samples. Numbers are added exactly, so that the result
     * is the same for any number of ranks. */
    void (*add)(void *self, tutti_array output, tutti_array target, double *sums);
    /* The metric, from the sums over all samples; NULL: sums[0] / samples. Called on all ranks. NaN: not known. */
    double (*finish)(void *self, const double *sums, uint64_t samples);
    void *self;           /* the first argument of both */
    uint64_t reserved[4]; /* zero */
} tutti_metric;

/* An optimizer step, on each rank. */
typedef struct tutti_trainer_update {
    uint64_t step; /* its number, from 1 */
    int64_t epoch; /* from 1 */
    double
        loss; /* mean over the step's samples of all ranks; NaN if amp=fp16 skips the step because of them */
    double lr;
    int rank, world_size;
    tutti_module *module; /* the model's root: parameters, gradients, buffers */
    tutti_optim *optim;
    tutti_ema *ema;       /* of --ema; NULL: none */
    uint64_t reserved[4]; /* zero */
} tutti_trainer_update;

/* Called on every rank, on the run's thread, with the same arguments but for `rank`; the same functions on all ranks. What they do
 * must be the same on all ranks, too, or the replicas differ, which the end of the run reports. A status other than OK ends the run
 * with the thread's message (tutti_fail). They cost one small all_reduce each step.
 * With shards (elastic runs) a step whose group is lost is computed again, and a worker that joins, or gets a step from another, has
 * not been called for it. So on_gradients depends on nothing but its arguments and the gradients, keeps nothing, and makes no
 * collective; on_update does not change the model. */
typedef struct tutti_trainer_hooks {
    /* The gradients are the mean over all ranks, not clipped yet; the function may change them. With amp=fp16 they are without the
     * loss's scale, and infinite or NaN in a step that is skipped then. Not with zero=1 and fixed ranks, where each rank has its
     * share of the mean. */
    tutti_status (*on_gradients)(void *self, const tutti_trainer_update *update);
    /* The optimizer and the average (ema) have been updated; the gradients are still there. */
    tutti_status (*on_update)(void *self, const tutti_trainer_update *update);
    uint64_t reserved[6]; /* zero */
} tutti_trainer_hooks;

/* The program's parts; everything is borrowed until tutti_trainer_free. Zero means default. */
typedef struct tutti_trainer_opts {
    const tutti_model_kind *model; /* NULL: from --model */
    /* The same on all ranks; each uses its share. train NULL: from --data, with its test split. train without test: no
     * evaluation. Images of bytes are augmented with --augment only: labels may depend on positions. */
    const tutti_dataset *train, *test;
    /* for --data, in addition to the library's; also its default */
    const tutti_dataset_format *format;
    /* The mean loss of a batch, a scalar, from the model's output and batch.y. NULL: by the keys task and loss. In an evaluation a rank's last batch may be shorter, and kernels may then add in
     * another order: with your own loss, the last bits of the evaluation's result may depend on the number of ranks. */
    tutti_tensor *(*loss)(void *self, tutti_tensor *output, tutti_tensor *target);
    /* Called on rank 0, on the run's thread: after each line of metrics.jsonl (every log_every steps), and after each evaluation.
     * They cannot run another trainer. */
    void (*on_step)(void *self, const tutti_trainer_step *step);
    void (*on_eval)(void *self, const tutti_trainer_eval *eval);
    void *self; /* the first argument of these functions */
    /* The program's own defaults, as arguments: {"--epochs", "3", "--lr=0.05", NULL}. The command line overrides them. */
    const char *const *defaults;
    /* Changes samples as they are read, in training (sample->train) and in evaluations; see tutti_augment_opts.own, in data.h. It
     * must be a function of the sample alone, or a resumed run is not the same. */
    tutti_status (*augment)(void *self, tutti_sample *sample);
    const tutti_metric *metrics; /* up to TUTTI_MAX_METRICS, then one without a name; NULL: none */
    const tutti_trainer_hooks *hooks; /* NULL: none */
    uint64_t reserved[1];             /* zero */
} tutti_trainer_opts;

/* The result of a run: the same on all ranks, except rank. NaN: not known. */
typedef struct tutti_trainer_result {
    const char *status; /* "completed", "interrupted", "failed"; "" before the run. Static text */
    int exit_code; /* with which the process should end, as `tutti train` does (docs/train.md) */
    int rank, world_size;
    uint64_t steps;
    int64_t epochs;
    double train_loss, val_loss, val_accuracy; /* of the last epoch; of the last evaluation */
    double images_per_s, seconds;
    int64_t parameters;
    char parameter_digest[33]; /* tutti_module_digest; "" of a failed run */
    const char *run_dir;       /* where its files are, until tutti_trainer_free */
    uint64_t reserved[4];      /* zero */
} tutti_trainer_result;

typedef struct tutti_trainer tutti_trainer;

/* Reads the keys from argv[1] on; argv[0] names the program in messages. argv is not kept. opts NULL: {0}. Errors: ARG with the
 * key, its value and what was expected, as in tutti train; also for a model or format that lacks a member, for a NULL argument,
 * and for -n, with the command that starts ranks. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_trainer_new(tutti_trainer **trainer_p, int argc,
                                                         char *const *argv,
                                                         const tutti_trainer_opts *opts);
/* Runs it, once, in the group that the environment describes (group.h; none: alone). STATE a second time, or within another run
 * of this thread. Rank 0 shows progress on standard output, flushed by line; failures are reported on standard error. OK also if a
 * signal ended the run after everything was saved. With --help it prints the keys, and does not train. With --eval it
 * evaluates, and with --predict it also writes the outputs: it does not call on_step and on_eval, and the result has no steps,
 * digest or run folder.
 *
 * Effects on the process: from the first step on, SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the run to stop (the fourth signal ends
 * the process), and SIGPIPE and SIGXFSZ are ignored; the previous handlers are restored when the run ends. The thread is bound to
 * this rank's share of the cores (unless TUTTI_PIN=off). It never calls exit. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_trainer_run(tutti_trainer *trainer);
TUTTI_API tutti_trainer_result tutti_trainer_get_result(const tutti_trainer *trainer);
TUTTI_API void tutti_trainer_free(tutti_trainer *trainer);

/* Ends the run that this thread is in, as completed, after this step: with the evaluation, the checkpoint and the results of a last
 * step. To be called by the program's functions of any rank, such as on_eval; one rank is enough, and all end after the same step.
 * (With shards call it on all ranks alike, in a hook: the wish of a worker that dies is lost.) A resumed run does nothing then.
 * why: for summary.json and the console, at most 127 bytes; NULL: no reason. STATE if the thread is in no training run. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_trainer_stop(const char *why);

/* All of the above; main returns its result. Once per process, because signals are not restored. Errors in the arguments are
 * reported on standard error, once per host. */
TUTTI_API int tutti_trainer_main(int argc, char *const *argv, const tutti_trainer_opts *opts);

/* ---- tutti train --model ./my_model.so --data ./my_data.so ----------------------------------------------------
 * A shared object declares its model or format with one of these, at file scope: cc -shared -fPIC my_model.c -o my_model.so. It
 * need not be linked with the library: it uses the command's. docs/your-own-model.md, docs/your-own-dataset.md */

typedef struct tutti_shared_part {
    const char *version; /* of the headers */
    size_t bytes;        /* of what `part` points to */
    const void *part;
} tutti_shared_part;

#define TUTTI_SHARED_MODEL(kind) TUTTI_SHARED_PART_(tutti_shared_model, tutti_model_kind, kind)
#define TUTTI_SHARED_DATA(format)                                                                  \
    TUTTI_SHARED_PART_(tutti_shared_data, tutti_dataset_format, format)
#define TUTTI_SHARED_PART_(symbol, type, value)                                                    \
    extern TUTTI_API const tutti_shared_part symbol;                                               \
    const tutti_shared_part symbol = {TUTTI_VERSION, sizeof(type), 1 ? &(value) : (const type *)0}

#ifdef __cplusplus
}
#endif
#endif
