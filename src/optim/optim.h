/* optim.h -- the struct of an optimizer.   SPDX-License-Identifier: MIT
 *
 * State is flat, with the parameters' own offsets. A step walks the parameters by ascending offset, merges neighbours that have
 * a gradient, the same group and the same number of updates into one run, and passes each run to the rule: usually a single
 * pass over everything. device/flat.h has the rules' arithmetic; the gaps between parameters are zero and stay so.
 *
 * If flat memory is sharded over ranks (nn.h), state has only this rank's ranges, back to back, and runs are cut to them:
 *
 *     flat memory   | ....[range 0].......[range 1]....[range 2] |      not sharded: one range, all of it
 *     state         | range 0 | range 1 | range 2 |                                                                    */
#ifndef TUTTI_OPTIM_OPTIM_H
#define TUTTI_OPTIM_OPTIM_H

#include "device/flat.h"
#include "nn/nn.h"
#include <tutti/optim.h>

#define TUTTI__OPTIM_STATES 3

/* Options as decimal numbers: PyTorch computes 1 - beta2 in double from 0.999, not from the float nearest to it. */
typedef struct tutti__optim_options {
    double momentum, dampening, weight_decay;
    double beta1, beta2, eps;
    double alpha;             /* rmsprop */
    double lr_decay, initial; /* adagrad */
    bool nesterov, centered, always_adapt;
    /* muon: for matrices, and the rate, and momentum by sgd, of the others */
    double ns_eps, ns[3], adamw_lr_factor, others_momentum;
    bool normalize;
    int ns_steps;
    tutti_adjust_lr adjust_lr;
} tutti__optim_options;

/* A range of flat memory to update. */
typedef struct tutti__flat_run {
    float *p;
    const float *g;
    float *state[TUTTI__OPTIM_STATES];
    float *direction; /* of a rule with update_whole: room for what is then applied */
    bool here;        /* p is in host memory already, of offloaded parameters */
    size_t n;
    uint64_t step; /* number of this update of its parameters, from 1 */
    double lr;     /* of their group, as its options */
    const tutti__optim_options *options;
    const tutti_tensor *
        parameter; /* of a rule with update_whole: the run is this one, without what follows it; else NULL */
} tutti__flat_run;

typedef tutti_status tutti__update(tutti_stream *stream, const tutti__flat_run *run);

/* Options that a group may have of its own, besides rate and weight decay. */
enum {
    TUTTI__HAS_MOMENTUM = 1,
    TUTTI__HAS_DAMPENING = 2,
    TUTTI__HAS_BETAS = 4,
    TUTTI__HAS_EPS = 8,
    TUTTI__HAS_ALPHA = 16,
    TUTTI__HAS_LR_DECAY = 32
};

/* An update that depends on the whole parameter, where ranks have parts of it (divided.c). */
typedef struct tutti__divided_rule {
    /* Whether that of this parameter is elementwise nevertheless: then `propose` makes it, and nothing is left to do. NULL: of none. */
    bool (*is_elementwise)(const tutti_optim *optim, const tutti_tensor *parameter);
    /* Of a part: run->direction becomes its part of the direction. */
    tutti_status (*propose)(tutti_optim *optim, tutti__flat_run *run);
    /* Of a whole direction what is to be applied; run: of any part. NULL: itself. */
    tutti_status (*turn)(tutti_optim *optim, const tutti__flat_run *run, float *whole);
    /* Then, with the norms of the whole parameter and, without turn, the whole direction. */
    tutti_status (*apply)(tutti_optim *optim, tutti__flat_run *run, double of_p, double of_u);
} tutti__divided_rule;

typedef struct tutti__optim_rule {
    const char *name;
    const char *state_names[TUTTI__OPTIM_STATES]; /* PyTorch's; NULL past the end */
    tutti__update *update;                        /* elementwise: of any part of a parameter */
    /* Instead, if a parameter's update depends on all of it: of one parameter, on the calling thread. */
    tutti_status (*update_whole)(tutti_optim *optim, const tutti__flat_run *run);
    const tutti__divided_rule *divided; /* with update_whole */
    tutti_status (*check)(const tutti__optim_options *options);
    unsigned has; /* TUTTI__HAS_... */
    /* this rule with state, if an option needs it; NULL: itself */
    const struct tutti__optim_rule *with_more;
} tutti__optim_rule;

/* Parameters with their own options; the first group has the optimizer's options and all other parameters. */
typedef struct tutti__optim_group {
    tutti__optim_options options;
    double lr_factor;
    double length; /* of its own schedule: tutti__optim_lengths; 0: it has the optimizer's rate */
    double own_lr; /* by that schedule */
    double lr;     /* of this step */
    size_t n;      /* parameters, not counted for the first */
    uint64_t members; /* a hash of their indices */
    size_t made_from; /* by a list of names: from this group */
} tutti__optim_group;

/* A run before it is cut to ranges: [begin, end) of flat memory. */
typedef struct tutti__stretch {
    size_t begin, end;
    uint64_t step;
    size_t group;
    const tutti_tensor *first; /* parameter */
} tutti__stretch;

struct tutti_optim {
    tutti__optim_entry entry;
    const tutti__optim_rule *rule;
    tutti_module *module;
    tutti_ctx *cx;
    float lr;
    tutti__optim_group *groups;
    size_t n_groups;
    size_t *group_of; /* group of parameter i < n_group_of; others: the first */
    size_t n_group_of;
    bool *matrix; /* muon: whether parameter i < n_matrix is updated as a matrix; others by AdamW */
    size_t n_matrix;
    float *scratch; /* of n_scratch elements, on the device: tutti__optim_scratch */
    size_t n_scratch;
    bool offloaded;         /* state is host memory, and updates are computed there (offload.c) */
    float *parts;           /* pinned: two parts of parameters and gradients; NULL: not yet */
    size_t n_part;          /* elements of each */
    tutti__event *there[2]; /* a part is in host memory */

    /* NULL before the first step, or if the rule has less state */
    float *state[TUTTI__OPTIM_STATES];
    size_t n_state;                  /* elements of each */
    uint64_t *steps;                 /* updates so far of each parameter of the root, by index */
    size_t *offsets;                 /* the layout of state */
    tutti__stretch *runs;            /* room for one per parameter */
    uint64_t layouts;                /* the root's count for that layout */
    const tutti__sharding *sharding; /* whose ranges state has; NULL: not sharded */
    /* All ranks' state, gathered on this rank until the next step, in host memory; else NULL. */
    float *whole[TUTTI__OPTIM_STATES];
    /* State that is read when its layout is known, before the next update, on all ranks together. load NULL: none. */
    struct {
        tutti_status (*load_updates)(void *self,
                                     tutti_optim *optim); /* before the layout; NULL: done */
        tutti_status (*load)(void *self, tutti_optim *optim);
        void (*free)(void *self);
        void *self;
    } later;
};

/* Checks the module and makes the optimizer with this rule. */
tutti_status tutti__optim_new(tutti_optim **optim_p, tutti_module *m, const tutti__optim_rule *rule,
                              float lr, const tutti__optim_options *options);
/* The stream of the state's memory, in whose order it is updated. */
static inline tutti_stream *tutti__optim_stream(const tutti_optim *optim)
{
    return optim->offloaded ? &tutti__cpu_stream : optim->cx->stream;
}
/* An elementwise update of a run, on the host by the context's threads; the bits are those of one thread. p and g are memory of the
 * state's stream. */
tutti_status tutti__optim_elementwise(const tutti_optim *optim, tutti__update *update,
                                      const tutti__flat_run *run);
/* *sum += the squares of all spans, on the host by the context's threads. A norm is computed by it alone: the bits depend
 * neither on threads, nor on the layout of memory, nor on the division into spans and ranks (device/squares.h). */
tutti_status tutti__add_squares(tutti_ctx *cx, const tutti__flat_span *spans, size_t n,
                                tutti__squares *sum);
/* Each of n sums becomes the sum of all ranks' sums; size 0: there are none. */
tutti_status tutti__add_peers_squares(const tutti_peers *peers, tutti__squares *sums, size_t n);
/* The L2 norm of n elements. */
tutti_status tutti__optim_norm(const tutti_optim *optim, const float *p, size_t n, double *norm_p);
/* The ranges that this rank updates: the sharding's, or *all for everything. */
size_t tutti__optim_ranges(const tutti_optim *optim, tutti__range *all,
                           const tutti__range **ranges_p);
/* The part of a run in a range, whose state begins at `at`; false: there is none. */
bool tutti__optim_part(const tutti_optim *optim, const tutti__stretch *stretch,
                       const tutti__range *range, size_t at, tutti__flat_run *run);
/* The updates of n_runs runs by a rule with update_whole, some of whose parameters ranks have parts of. sharding NULL: their layers are
 * divided. Collective. */
tutti_status tutti__optim_update_divided(tutti_optim *optim, const tutti__sharding *sharding,
                                         size_t n_runs);
/* Whether there are such; and whether ranks have parts of the root's parameter i because its layer is divided. */
bool tutti__optim_is_divided(const tutti_optim *optim);
bool tutti__optim_is_split(const tutti_optim *optim, size_t i);
/* The same of a run with p and g on the device, and offloaded state. */
tutti_status tutti__optim_update_offloaded(tutti_optim *optim, const tutti__flat_run *run);
void tutti__optim_free_parts(tutti_optim *optim);
/* Memory of the device for n elements, until the next call. */
tutti_status tutti__optim_scratch(tutti_optim *optim, size_t n, float **p);
/* AdamW's update with state 0 and 1, and the checks of its options. */
tutti__update tutti__adamw_update;
tutti_status tutti__adam_check(const char *rule, const tutti__optim_options *options);
/* SGD's, with state 0. */
tutti__update tutti__sgd_update;
/* "PATTERN=LENGTH,...", as tutti_optim_lr_groups: schedules of their own, of lengths in the caller's unit. tutti__optim_set_length_lr sets the
 * rates by the schedule of a length, of which tutti__optim_length tells the i-th, 0 past the last. */
tutti_status tutti__optim_lengths(tutti_optim *optim, const char *patterns);
double tutti__optim_length(const tutti_optim *optim, size_t i);
void tutti__optim_set_length_lr(tutti_optim *optim, double length, double lr);
/* The group of the root's parameter i. */
static inline size_t tutti__optim_group_of(const tutti_optim *optim, size_t i)
{
    return i < optim->n_group_of ? optim->group_of[i] : 0;
}
/* Its learning rate, by the optimizer's as it is set. */
double tutti__optim_rate(const tutti_optim *optim, size_t i);
/* ARG, naming rule and option, if value is not in [low, high). */
tutti_status tutti__optim_check(const char *rule, const char *option, double value, double low,
                                double high);
/* The shortest decimal that is this float: 0.999f is 0.999, though as a double it is 0.99900001287. */
double tutti__optim_decimal(float value);
/* The same for an option with a default: tutti__or. */
double tutti__optim_option(float value, double by_default);
/* For a divisor: TUTTI_ZERO is absorbed in every sum except with 0: so 0 / 0, of an element that has never had a gradient and of
 * the gaps between parameters, becomes 0. */
static inline float tutti__optim_eps(double eps)
{
    return eps == 0 ? TUTTI_ZERO : (float)eps;
}
/* Hyper-parameter i as text, "lr 0.1 of sgd"; false past the last. */
bool tutti__optim_describe(const tutti_optim *optim, size_t i, char *text, size_t bytes);
/* Allocates state, or moves it to the parameters' current layout: this rank's share, or with sharding NULL all of it. */
tutti_status tutti__optim_prepare(tutti_optim *optim, const tutti__sharding *sharding);
/* The gradients below m in creation order, as far as this rank has memory for them. Valid until the next call for the same root. */
tutti_status tutti__gradient_spans(const tutti_module *m, const tutti__flat_span **spans_p,
                                   size_t *n_p);
/* Multiplies them by it. */
tutti_status tutti__scale_gradients(const tutti_module *m, float factor);
/* As tutti_optim_state_read, but asynchronously, in the order of a stream of the optimizer's device. */
tutti_status tutti__optim_state_copy(const tutti_optim *optim, size_t k,
                                     const tutti_tensor *parameter, tutti_stream *stream,
                                     float *dst);
/* Reads of what was left for later how often each parameter was updated. Collective. */
tutti_status tutti__optim_know_updates(tutti_optim *optim);
/* Reads what was left for later now, in the present layout. Collective. */
tutti_status tutti__optim_load_now(tutti_optim *optim);
/* The update that tutti_optim_step failed to begin, of this rank's ranges, without telling other ranks. */
tutti_status tutti__optim_update_alone(tutti_optim *optim);
/* Frees the gathered state. */
void tutti__optim_free_whole(tutti_optim *optim);
/* With sharded state. take_whole: the gathered state replaces this rank's share, unsharded until the next step. drop_share:
 * drops the share, as if there had been no step; true, unless there is no state. */
tutti_status tutti__optim_take_whole(tutti_optim *optim);
bool tutti__optim_drop_share(tutti_optim *optim);

#endif
