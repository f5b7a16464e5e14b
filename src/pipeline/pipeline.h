/* pipeline.h -- shared by the pipeline's files.   SPDX-License-Identifier: MIT
 *     schedule.c, schedule_check.c   tables of actions
 *     stages.c      which blocks, parameters and memory a rank has
 *     messages.c    activations and their gradients from stage to stage
 *     pipeline.c    does the actions
 *     shared.c      a table of vectors that two stages have
 *     planned.c     a stage without the others, for plans */
#ifndef TUTTI_PIPELINE_PIPELINE_H
#define TUTTI_PIPELINE_PIPELINE_H

#include "nn/nn.h"
#include "tensor/tensor.h"
#include <tutti/pipeline.h>

/* What a stage gets from the one before: learnt in the first step. */
typedef struct tutti__boundary {
    bool known;
    tutti_shape shape; /* d[0]: of any number of samples */
    tutti_dtype dtype;
    bool needs_grad;        /* a stage before trains: its gradient is sent back */
    tutti_shape tokens;     /* of which each rank of the stage has its rows; n 0: none */
    bool rows;              /* and these are such rows */
    uint32_t dropout_calls; /* by the stages before */
} tutti__boundary;

/* Memory for one message, which grows. */
typedef struct tutti__message {
    void *p;
    size_t bytes;
    tutti_work *work; /* in flight; NULL: none */
    bool posted;      /* it is, or it has arrived and is used */
} tutti__message;

/* A micro-batch in a stage of this rank, from its forward to the end of its backward. */
typedef struct tutti__micro_batch {
    tutti__parked step;
    int chunk, micro_batch;  /* chunk -1: free */
    tutti_tensor *x, *y;     /* what the stage gets; its result, or the loss */
    tutti__message in, back; /* received: the elements of x; the gradient of y */
    tutti_work *sending
        [3]; /* of memory of the step: y, the gradient of x, that of a shared table's vectors */
    bool weights_left, shared_left; /* what backward has left out */
    bool computed;                  /* all of backward */
    bool sends;                     /* and it had something to send */
    size_t computed_at;             /* in this action */
} tutti__micro_batch;

typedef struct tutti__own_stage {
    int stage, first, end;     /* blocks first to end - 1 */
    tutti_tensor **parameters; /* listed anew when adapters have been added */
    size_t n;
    tutti__boundary in, out;
    tutti__message eval; /* received by tutti_pipeline_forward */
} tutti__own_stage;

/* A parameter of two stages: the first block looks up vectors in it, a later one multiplies by it. */
typedef struct tutti__shared_table {
    tutti_tensor *t;        /* on the two ranks; NULL: none */
    int first, last;        /* the two stages, on different ranks */
    int next;               /* micro-batch whose parts are added next */
    tutti__message rows[2]; /* gradients of the vectors of micro-batches next and next + 1 */
    tutti__parked step;
} tutti__shared_table;

struct tutti_pipeline {
    tutti_ctx *cx;
    tutti_group *group;
    int rank, ranks, chunks, stages;
    tutti_pipeline_opts opts; /* without cuts */
    tutti_model_block *blocks;
    int n_blocks;
    int *cuts; /* [stages + 1]: the first block of each stage */
    tutti__own_stage *chunk;
    char *state; /* patterns of this rank's parameters and buffers */
    tutti_model *model;
    tutti_model *whole; /* tutti_root.whole of it */
    tutti_module *module;
    tutti_ddp *ddp;
    tutti_pipeline_table *made; /* for the last number of micro-batches; NULL: none yet */
    tutti__micro_batch **slots;
    size_t n_slots;
    tutti__shared_table shared;
    /* of the step that runs */
    const tutti_pipeline_step *step;
    const tutti_pipeline_table *table;
    uint64_t before;    /* steps of the context */
    size_t averaging;   /* the action in which gradients are averaged; SIZE_MAX: after all */
    size_t listed;      /* 1 + parameters of the module when the stages' were listed; 0: not yet */
    uint64_t steps;     /* done */
    uint64_t waited_ns; /* in the step, for messages */
    uint64_t evaluated; /* 1 + serial of the last step with a tutti_pipeline_forward */
    bool planned;       /* no other ranks exist */
    /* The table's, as if a forward took 1 and a backward 2; not used: ends NULL. */
    struct {
        double *ends; /* of the table's actions: tutti__table_ends */
        double now;   /* when this rank's next action can begin */
        size_t at;    /* which it is */
    } clock;
};

/* ---- planned.c: a stage without the others, and the table's clock ---- */

/* What goes from each block to the next, by a forward of the whole model in a planned context, of a batch; the caller frees it, also after
 * a failure. */
tutti_status tutti__plan_boundaries(tutti__boundary **after_p, const tutti_pipeline *p,
                                    tutti_array x, tutti_dtype autocast);
/* Makes p, whose group is planned, one that gets these. */
tutti_status tutti__pipeline_plan(tutti_pipeline *p, const tutti__boundary *after);
bool tutti__plan_is_sending(const tutti_pipeline *p, const tutti__micro_batch *slot);
/* Begins a step, if what a rank does must not depend on when a message arrives: planned, or with ranks that gather parameters together. Then before
 * action `at`, and whether the rows of a shared table's micro-batch have come by the clock before it. */
tutti_status tutti__clock_begin(tutti_pipeline *p);
void tutti__clock_act(tutti_pipeline *p, size_t at);
bool tutti__clock_has_rows(const tutti_pipeline *p, int micro_batch);
/* What arenas of its micro-batches have used. */
size_t tutti__pipeline_arenas(const tutti_pipeline *p);
/* schedule_check.c: when each pass is done, [3 passes][stage][micro-batch], if a forward takes 1 and a backward 2. */
tutti_status tutti__table_ends(const tutti_pipeline_table *table, double *ends);

static inline int tutti__stage_of(const tutti_pipeline *p, int chunk)
{
    return chunk * p->ranks + p->rank;
}

/* The two halves of tutti_pipeline_new: alone, which frees what it made if it fails; then collectively, which ranks whose first half
 * failed take part in with its status. */
tutti_status tutti__pipeline_new_alone(tutti_pipeline **pipeline_p, tutti_ctx *cx,
                                       tutti_group *group, const char *model,
                                       const tutti_model_opts *model_opts,
                                       const tutti_pipeline_opts *opts);
tutti_status tutti__pipeline_agree(const tutti_pipeline *p, tutti_group *group,
                                   tutti_status status);
/* Seconds for which the last step's actions waited for messages. */
static inline double tutti__pipeline_waited(const tutti_pipeline *p)
{
    return (double)p->waited_ns * 1e-9;
}

/* The table that two stages have: elements of it that are counted by another rank. */
static inline int64_t tutti__pipeline_counted_elsewhere(const tutti_pipeline *p)
{
    return p->shared.t && p->shared.last % p->ranks == p->rank
               ? tutti__whole_count(tutti__state_of(p->shared.t))
               : 0;
}

/* ---- stages.c ---- */

/* Blocks, cuts, and this rank's part of the model. */
tutti_status tutti__pipeline_open(tutti_pipeline *p, const char *model,
                                  const tutti_model_opts *model_opts, const char *cuts);
void tutti__pipeline_close(tutti_pipeline *p);
/* The parameters of each stage, if there are others than before. */
tutti_status tutti__pipeline_list(tutti_pipeline *p);
/* The first block of each of n stages, cuts[n] the number of blocks, so that the largest sum of costs is the smallest. */
void tutti__cut_evenly(const double *costs, int n_blocks, int *cuts, int n);

/* ---- messages.c ---- */

/* A slot for a micro-batch of a chunk: the one that has it, or a free one. NULL with the message set. */
tutti__micro_batch *tutti__slot_find(const tutti_pipeline *p, int chunk, int micro_batch);
tutti__micro_batch *tutti__slot_take(tutti_pipeline *p, int chunk, int micro_batch);
/* Ends the step of a slot whose backward is computed and whose messages have been sent; `wait`: waits for them. */
tutti_status tutti__slot_end(tutti_pipeline *p, tutti__micro_batch *slot, bool wait);
/* Waits for whatever is in flight, whatever comes of it. */
void tutti__slot_abandon(tutti_pipeline *p, tutti__micro_batch *slot);
void tutti__message_drop(tutti__message *message);
void tutti__message_free(const tutti_ctx *cx, tutti__message *message);

/* Starts to receive what the next actions of the table need; `at` is the first of them. */
tutti_status tutti__receive_ahead(tutti_pipeline *p, size_t at);
/* slot->in: what the stage before has sent; then as a tensor of the open step. slot->back: the gradient of y. */
tutti_status tutti__receive_input(tutti_pipeline *p, tutti__micro_batch *slot);
tutti_tensor *tutti__input_of(const tutti_pipeline *p, const tutti__micro_batch *slot);
tutti_status tutti__receive_gradient(tutti_pipeline *p, tutti__micro_batch *slot);
/* F32 [shape] from stage `from`: the gradients of vectors of a shared table. */
tutti_status tutti__receive_rows(tutti_pipeline *p, tutti__message *message, tutti_shape shape,
                                 int stage, int from, int micro_batch, bool wait);
/* Of a step of slot that is the context's. */
tutti_status tutti__send_output(tutti_pipeline *p, tutti__micro_batch *slot);
tutti_status tutti__send_gradient(tutti_pipeline *p, tutti__micro_batch *slot);
/* Outside of the slots: with a description of x each time. */
tutti_status tutti__eval_receive(tutti_pipeline *p, tutti__own_stage *chunk, int64_t samples,
                                 tutti_tensor **x_p);
tutti_status tutti__eval_send(const tutti_pipeline *p, const tutti__own_stage *chunk,
                              tutti_tensor *y);
/* Room for `bytes`. */
tutti_status tutti__message_room(const tutti_ctx *cx, tutti__message *message, size_t bytes);
/* A tensor of the open step over received elements. NULL with the message set. */
tutti_tensor *tutti__received(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype, void *elements);
/* Which messages a stage gets. */
typedef enum tutti__tag {
    TUTTI__TAG_HEAD, /* how the next one looks */
    TUTTI__TAG_INPUT,
    TUTTI__TAG_GRADIENT,
    TUTTI__TAG_ROWS,  /* gradients of a shared table's vectors */
    TUTTI__TAG_TABLE, /* its gradient */
    TUTTI__N_TAGS
} tutti__tag;
/* What y is, a result of the forward that runs, or such a description. */
tutti__boundary tutti__boundary_of(const tutti_module *m, tutti_shape shape, tutti_dtype dtype,
                                   tutti_shape tokens);
int tutti__tag_of(const tutti_pipeline *p, int stage, tutti__tag what);
/* Sends elements of t, row-major, to a stage. */
tutti_status tutti__send_tensor(const tutti_pipeline *p, tutti_tensor *t, int stage,
                                tutti__tag what, tutti_work **work_p);

/* ---- shared.c ---- */

/* Finds the parameter that two stages have. ARG: it cannot be one of two ranks. */
tutti_status tutti__shared_find(tutti_pipeline *p);
/* Whether there is one, and it is not frozen. */
bool tutti__shared_trains(const tutti_pipeline *p);
/* After backward of a micro-batch, whose step is the context's; before each action, and with `all` at the end of the step. */
tutti_status tutti__shared_computed(tutti_pipeline *p, tutti__micro_batch *slot);
tutti_status tutti__shared_add(tutti_pipeline *p, bool all);
/* At the end of the step: both ranks get the sum. */
tutti_status tutti__shared_exchange(tutti_pipeline *p);

/* Multiplies the gradients of parameters by what accumulation would before micro-batch m; of those whose gradients are computed later
 * (divided products), or of the others. Not of those that are apart. */
tutti_status tutti__scale_between(const tutti_pipeline *p, tutti_tensor *const *parameters,
                                  size_t n, int m, bool later);
tutti_status tutti__scale_gradient(const tutti_pipeline *p, const tutti_tensor *t, int m);

#endif
