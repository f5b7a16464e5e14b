/* pipeline.h -- a model cut into stages, one or more a rank, that compute micro-batches one after the other.
 * SPDX-License-Identifier: MIT
 *
 * A schedule is data: for each rank a list of actions, which it does in order. The library makes four kinds, and checks and runs
 * tables of others, such as those of a file. Gradients of a parameter are added in the order of micro-batches, so that they have the
 * bits of as many accumulated batches on one rank, whatever the schedule and the number of stages. docs/design/pipeline.md
 * Threads: the context's thread. */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H

#include <tutti/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Schedules ------------------------------------------------------------------------------------------- */

typedef enum tutti_pipeline_kind {
    TUTTI_PIPELINE_1F1B,  /* the default: as few micro-batches in flight as keep all ranks busy */
    TUTTI_PIPELINE_GPIPE, /* all forwards, then all backwards */
    TUTTI_PIPELINE_INTERLEAVED, /* 1F1B of several stages a rank: a smaller bubble, more messages */
    TUTTI_PIPELINE_ZERO_BUBBLE  /* 1F1B whose gradients of weights fill the bubble */
} tutti_pipeline_kind;

typedef enum tutti_pipeline_pass {
    TUTTI_PIPELINE_FORWARD,
    TUTTI_PIPELINE_BACKWARD, /* all of it */
    TUTTI_PIPELINE_INPUT,    /* backward, without the gradients of the weights of matrix products */
    TUTTI_PIPELINE_WEIGHT    /* those */
} tutti_pipeline_pass;

/* Chunk c of rank r is stage c * ranks + r. What an action needs of other ranks it receives, and what they need it sends. */
typedef struct tutti_pipeline_action {
    tutti_pipeline_pass pass;
    int chunk, micro_batch;
} tutti_pipeline_action;

#define TUTTI_MAX_STAGES        1024
#define TUTTI_MAX_MICRO_BATCHES 65536

typedef struct tutti_pipeline_table {
    int ranks, chunks, micro_batches;            /* chunks: stages of each rank */
    const size_t *n;                             /* [ranks] */
    const tutti_pipeline_action *const *actions; /* [ranks][n] */
    uint64_t reserved[2];
} tutti_pipeline_table;

/* chunks is 1 unless the kind is interleaved (0: 1, interleaved 2). ARG with the value and what is expected. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_pipeline_table_new(tutti_pipeline_table **table_p,
                                                                tutti_pipeline_kind kind, int ranks,
                                                                int chunks, int micro_batches);
/* From text: a line per rank, actions separated by commas, each a stage, a letter (F forward, B backward, I and W its two parts) and
 * a micro-batch: "0F0,0F1,0B0,0B1". Empty ones are skipped, so that tables of torch.distributed.pipelining's CSV files that have
 * computations only can be read. FORMAT with line and action; not checked yet. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_pipeline_table_read(tutti_pipeline_table **table_p,
                                                                 const char *text);
/* Of the two above, not of a program's own tables. NULL is fine. */
TUTTI_API void tutti_pipeline_table_free(tutti_pipeline_table *table);

typedef struct tutti_pipeline_facts {
    /* Most micro-batches, of all its chunks, of which a rank keeps activations: from forward to the end of backward, or of
     * WEIGHT. The most of any rank, and the rank. */
    int peak, peak_rank;
    double seconds;       /* of a step with the given times */
    double bubble;        /* the part of ranks * seconds in which ranks wait */
    uint64_t reserved[4]; /* zero */
} tutti_pipeline_facts;

/* Seconds of a micro-batch in stage s; NULL: 1, and 2 for BACKWARD. */
typedef struct tutti_pipeline_times {
    const double *forward, *input, *weight; /* [ranks * chunks]; BACKWARD: input + weight */
    double
        message; /* from a rank to the next or the previous one, one after the other on its way */
    uint64_t reserved[1]; /* zero */
} tutti_pipeline_times;

/* That every stage has every micro-batch's passes once; that it gets what it needs if ranks do their lists in order and wait only for
 * what they receive; that the passes of each stage are in the order of micro-batches. FORMAT with the first action that is
 * wrong. times, facts_p: may be NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_pipeline_table_check(const tutti_pipeline_table *table,
                                                                  const tutti_pipeline_times *times,
                                                                  tutti_pipeline_facts *facts_p);

/* ---- A pipeline -------------------------------------------------------------------------------------------- */

typedef struct tutti_pipeline tutti_pipeline;

/* Zero means default. */
typedef struct tutti_pipeline_opts {
    tutti_pipeline_kind kind;
    int chunks; /* stages of each of several ranks: of interleaved schedules; 0: 2 there, else 1 */
    /* Actions of the program's own, instead of the kind's: for as many ranks and micro-batches. Borrowed. */
    const tutti_pipeline_table *table;
    /* The first block of each stage but the first one, separated by commas: "h.4,h.8". NULL or "": stages of about equal cost,
     * counted in operations and bytes of each block. */
    const char *cuts;
    uint64_t reserved[4]; /* zero */
} tutti_pipeline_opts;

/* Makes the blocks of this rank's stages of a model (tutti_model_new), with the values that they have in the whole model; the ranks of
 * the group are the stages. With model_opts->parallel each stage has several ranks, which divide its layers, and each of them its own pipeline: a
 * mesh of pipeline and tensor. Collective: ARG, the same on all ranks: a model that is no list of blocks (tutti_model_kind.block), fewer
 * blocks than stages, a stage without parameters, cuts that are no blocks. Borrows context and group. Random numbers and batch norm's
 * statistics are those of accumulation. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_pipeline_new(tutti_pipeline **pipeline_p,
                                                          tutti_ctx *cx, tutti_group *group,
                                                          const char *model,
                                                          const tutti_model_opts *model_opts,
                                                          const tutti_pipeline_opts *opts);
TUTTI_API void tutti_pipeline_free(tutti_pipeline *pipeline);
/* This rank's part, of the pipeline: what optimizer and DDP (over the ranks with the same stages) are made for. Its names are the whole
 * model's. */
TUTTI_API tutti_model *tutti_pipeline_model(tutti_pipeline *pipeline);
/* The DDP over that module, paused and resumed in each step; NULL: none. Borrowed. */
TUTTI_API void tutti_pipeline_set_ddp(tutti_pipeline *pipeline, tutti_ddp *ddp);
TUTTI_API int tutti_pipeline_stages(const tutti_pipeline *pipeline);   /* of all ranks */
TUTTI_API bool tutti_pipeline_is_last(const tutti_pipeline *pipeline); /* it has the last stage */
/* The blocks of stage s, 0 to stages - 1, for a person: "h.4 to h.7"; "" past the last one. Valid until the next call of the thread. */
TUTTI_API const char *tutti_pipeline_stage(const tutti_pipeline *pipeline, int s);

typedef struct tutti_pipeline_step {
    int micro_batches;
    const tutti_array
        *x; /* [micro_batches], on all ranks: the inputs, of which the first dimension may differ */
    /* The mean loss of micro-batch m, on the rank with the last stage. */
    tutti_tensor *(*loss)(void *self, int m, tutti_tensor *output);
    /* On that rank, after its backward is computed, or before: tutti_item of the loss may be read here. NULL: nothing. */
    tutti_status (*computed)(void *self, int m, tutti_tensor *loss);
    void *self;
    tutti_dtype autocast;
    uint64_t reserved[4]; /* zero */
} tutti_pipeline_step;

/* Forward and backward of all micro-batches: adds to the gradients of this rank's parameters those of the mean loss over all samples,
 * divided among micro-batches by their sizes, after tutti_module_zero_grad; averages them by the DDP. Ranks of its group have as many micro-batches, of the same
 * sizes (MISMATCH). The same bits as accumulation: between two micro-batches what was added up is multiplied by the ratio of their sizes, and at the end by the last one's part of
 * all. Errors: the first cause, on all ranks; a rank that waits for another names the stage and the micro-batch. The group is dead
 * afterwards, and the DDP's. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_pipeline_run(tutti_pipeline *pipeline,
                                                          const tutti_pipeline_step *step);
/* Within a step (tutti_step_opts.eval, or no_grad) that all ranks have open, once (STATE): *y_p is the model's output on the rank with the last stage,
 * NULL on others. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_pipeline_forward(tutti_pipeline *pipeline,
                                                              tutti_array x, tutti_tensor **y_p);

#ifdef __cplusplus
}
#endif
#endif
