/* trainer.h -- a whole training run around a model and data of the program's own.
 * SPDX-License-Identifier: MIT
 *
 * What `tutti train` does (data-parallel steps, progress, metrics.jsonl, summary.json, TensorBoard, checkpoints, resume,
 * evaluation, signals, elastic runs by shards), for a program that brings its model, its data, its loss, or all of them:
 *
 *     int main(int argc, char **argv)
 *     {
 *         return tutti_trainer_main(argc, argv, &(tutti_trainer_opts){.model = &my_model, .train = train, .test = test});
 *     }
 *
 *     ./my_program --epochs 3 --lr 0.05                          alone
 *     tutti run -n 2 ./my_program --epochs 3 --lr 0.05           by two ranks; also under torchrun, srun, mpirun
 *
 * The arguments are the keys of `tutti train` (docs/train.md), with the same checks and messages, --config and --help.
 * Threads: one thread runs a trainer; ranks may be threads. */
#ifndef TUTTI_TRAINER_H
#define TUTTI_TRAINER_H

#include <tutti/data.h>
#include <tutti/nn.h>

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
    uint64_t reserved[4]; /* zero */
} tutti_trainer_eval;

/* What the program brings; everything is borrowed until tutti_trainer_free. Zero means default. */
typedef struct tutti_trainer_opts {
    const tutti_model_kind *model; /* NULL: what --model says */
    /* The same on all ranks: each takes its share. NULL: what --data says, with its test split. test NULL beside train: no
     * evaluation. */
    const tutti_dataset *train, *test;
    const tutti_dataset_format
        *format; /* beside the library's, for --data; and the default there */
    /* The mean loss over a batch, a scalar, from what the model gives and batch.y. NULL: cross entropy with label_smoothing for
     * labels of classes, else the mean squared error. In an evaluation the last batch of a rank may be shorter, and kernels may add
     * in another order for it: with a loss of the program's own, the last bits of the result may depend on the number of ranks. */
    tutti_tensor *(*loss)(void *self, tutti_tensor *output, tutti_tensor *target);
    /* On rank 0, in the thread of the run: after each line of metrics.jsonl (each log_every steps), and each evaluation. They
     * cannot run another trainer. */
    void (*on_step)(void *self, const tutti_trainer_step *step);
    void (*on_eval)(void *self, const tutti_trainer_eval *eval);
    void *self; /* the first argument of these functions */
    /* The program's own defaults, as arguments: {"--epochs", "3", "--lr=0.05", NULL}. The command line overrides them. */
    const char *const *defaults;
    uint64_t reserved[4]; /* zero */
} tutti_trainer_opts;

/* What a run came to: the same on all ranks, but for rank. NaN: not known. */
typedef struct tutti_trainer_result {
    const char *status; /* "completed", "interrupted", "failed"; "" before the run. Static text */
    int exit_code;      /* that the process should end with: as `tutti train` (docs/train.md) */
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

/* Reads the keys from argv[1] on; argv[0] names the program in messages, and neither is kept. Errors: ARG with the key, its
 * value and what was expected, as tutti train says it; also a model or format that lacks a member, an argument that is NULL,
 * and -n, with the command that starts ranks. opts NULL: {0}. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_trainer_new(tutti_trainer **trainer_p, int argc,
                                                         char *const *argv,
                                                         const tutti_trainer_opts *opts);
/* The run, once, and not within another of this thread (STATE), in the group that the environment describes (group.h; none: alone). Progress goes to standard output on rank
 * 0, which is flushed by line there; what fails has been said on standard error. OK also where a signal ended it after all was
 * saved. With --help it prints the keys, and trains nothing.
 *
 * The process: from the first step on SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the run to stop (the fourth ends the process),
 * SIGPIPE and SIGXFSZ are ignored; what they did before is restored when the run ends. The thread is bound to this rank's share of
 * the cores (TUTTI_PIN=off: not). It never exits. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_trainer_run(tutti_trainer *trainer);
TUTTI_API tutti_trainer_result tutti_trainer_get_result(const tutti_trainer *trainer);
TUTTI_API void tutti_trainer_free(tutti_trainer *trainer);

/* All of it: what a program's main returns; once a process, for signals are not restored. What is wrong with the arguments is said on standard error, once a host. */
TUTTI_API int tutti_trainer_main(int argc, char *const *argv, const tutti_trainer_opts *opts);

/* ---- tutti train --model ./my_model.so --data ./my_data.so ----------------------------------------------------
 * A shared object says what it holds by one of these, at file scope: cc -shared -fPIC my_model.c -o my_model.so. It needs not be
 * linked with the library, for what it calls is the command's own. docs/your-own-model.md, docs/your-own-dataset.md */

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
