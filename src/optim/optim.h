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

#define TUTTI__OPTIM_STATES 2

/* Options as decimal numbers: PyTorch computes 1 - beta2 in double from 0.999, not from the float nearest to it. */
typedef struct tutti__optim_options {
    double momentum, dampening, weight_decay;
    double beta1, beta2, eps;
    bool nesterov;
} tutti__optim_options;

/* A range of flat memory to update. */
typedef struct tutti__flat_run {
    float *p;
    const float *g;
    float *state[TUTTI__OPTIM_STATES];
    size_t n;
    uint64_t step; /* number of this update of its parameters, from 1 */
    double lr;     /* of their group, as its options */
    const tutti__optim_options *options;
} tutti__flat_run;

typedef struct tutti__optim_rule {
    const char *name;
    const char *state_names[TUTTI__OPTIM_STATES]; /* PyTorch's; NULL past the end */
    tutti_status (*update)(tutti_stream *stream, const tutti__flat_run *run);
    tutti_status (*check)(const tutti__optim_options *options);
    bool has_betas; /* else momentum and dampening */
    /* this rule with state, if an option needs it; NULL: itself */
    const struct tutti__optim_rule *with_more;
} tutti__optim_rule;

/* Parameters with their own options; the first group has the optimizer's options and all other parameters. */
typedef struct tutti__optim_group {
    tutti__optim_options options;
    double lr_factor;
    double lr;        /* of this step */
    size_t n;         /* parameters, not counted for the first */
    uint64_t members; /* a hash of their indices */
} tutti__optim_group;

/* A run before it is cut to ranges: [begin, end) of flat memory. */
typedef struct tutti__stretch {
    size_t begin, end;
    uint64_t step;
    size_t group;
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
};

/* Checks the module and makes the optimizer with this rule. */
tutti_status tutti__optim_new(tutti_optim **optim_p, tutti_module *m, const tutti__optim_rule *rule,
                              float lr, const tutti__optim_options *options);
/* The group of the root's parameter i. */
static inline size_t tutti__optim_group_of(const tutti_optim *optim, size_t i)
{
    return i < optim->n_group_of ? optim->group_of[i] : 0;
}
/* ARG, naming rule and option, if value is not in [low, high). */
tutti_status tutti__optim_check(const char *rule, const char *option, double value, double low,
                                double high);
/* The shortest decimal that is this float: 0.999f is 0.999, though as a double it is 0.99900001287. */
double tutti__optim_decimal(float value);
/* The same for an option with a default: tutti__or. */
double tutti__optim_option(float value, double by_default);
/* Hyper-parameter i as text, "lr 0.1 of sgd"; false past the last. */
bool tutti__optim_describe(const tutti_optim *optim, size_t i, char *text, size_t bytes);
/* Allocates state, or moves it to the parameters' current layout: this rank's share, or with sharding NULL all of it. */
tutti_status tutti__optim_prepare(tutti_optim *optim, const tutti__sharding *sharding);
/* The gradients below m in creation order. Valid until the next call for the same root. */
tutti_status tutti__gradient_spans(const tutti_module *m, const tutti__flat_span **spans_p,
                                   size_t *n_p);
/* As tutti_optim_state_read, but asynchronously, in the order of a stream of the optimizer's device. */
tutti_status tutti__optim_state_copy(const tutti_optim *optim, size_t k,
                                     const tutti_tensor *parameter, tutti_stream *stream,
                                     float *dst);
/* Frees the gathered state. */
void tutti__optim_free_whole(tutti_optim *optim);
/* With sharded state. take_whole: the gathered state replaces this rank's share, unsharded until the next step. drop_share:
 * drops the share, as if there had been no step; true, unless there is no state. */
tutti_status tutti__optim_take_whole(tutti_optim *optim);
bool tutti__optim_drop_share(tutti_optim *optim);

#endif
