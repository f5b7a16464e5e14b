/* optim.h -- the inside of an optimizer.   SPDX-License-Identifier: MIT
 *
 * State lies flat, with the parameters' own offsets. A step walks the parameters by rising offset, joins neighbours that
 * have a gradient, the same group and the same number of updates behind them into one run, and hands each run to the rule:
 * usually a single pass over everything. What a rule computes is device/flat.h's; the gaps between parameters are zeros and stay so.
 *
 * Where flat memory is shared out between ranks (nn.h), state is that of the ranges of this rank, one after the other, and
 * runs are cut to them:
 *
 *     flat memory   | ....[range 0].......[range 1]....[range 2] |      one range, all of it, where nothing is shared out
 *     state         | range 0 | range 1 | range 2 |                                                                    */
#ifndef TUTTI_OPTIM_OPTIM_H
#define TUTTI_OPTIM_OPTIM_H

#include "device/flat.h"
#include "nn/nn.h"
#include <tutti/optim.h>

#define TUTTI__OPTIM_STATES 2

/* Numbers as they were written: PyTorch computes 1 - beta2 in double from 0.999, not from the float nearest to it. */
typedef struct tutti__optim_options {
    double momentum, dampening, weight_decay;
    double beta1, beta2, eps;
    bool nesterov;
} tutti__optim_options;

/* A stretch of flat memory to update. */
typedef struct tutti__run {
    float *p;
    const float *g;
    float *state[TUTTI__OPTIM_STATES];
    size_t n;
    uint64_t step; /* of its parameters: 1 in their first update */
    double lr;     /* of their group, as its options */
    const tutti__optim_options *options;
} tutti__run;

typedef struct tutti__optim_rule {
    const char *name;
    const char *state_names[TUTTI__OPTIM_STATES]; /* PyTorch's; NULL past the end */
    tutti_status (*update)(tutti_stream *stream, const tutti__run *run);
    tutti_status (*check)(const tutti__optim_options *options);
    bool has_betas; /* else momentum and dampening */
    const struct tutti__optim_rule
        *with_more; /* the rule for options that need state; NULL: this one */
} tutti__optim_rule;

/* Parameters with options of their own; the first group is the optimizer's, and has the rest. */
typedef struct tutti__optim_group {
    tutti__optim_options options;
    double lr_factor;
    double lr;        /* of this step */
    size_t n;         /* parameters, of all but the first */
    uint64_t members; /* a hash of which */
} tutti__optim_group;

/* A run before it is cut: [begin, end) of flat memory. */
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
    size_t *group_of; /* of parameter i < n_group_of; else the first */
    size_t n_group_of;

    float *state[TUTTI__OPTIM_STATES]; /* NULL before the first step, or not this rule's */
    size_t n_state;                    /* elements of each */
    uint64_t *steps;                   /* updates behind each parameter of the root, by index */
    size_t *offsets;                   /* the layout that state has */
    tutti__stretch *runs;              /* room for one a parameter */
    uint64_t layouts;                  /* the root's count then */
    const tutti__sharding *sharding;   /* whose ranges state has; NULL: it is whole */
    /* All ranks' state, gathered here until the next step, in memory of the host; else NULL. */
    float *whole[TUTTI__OPTIM_STATES];
};

/* Checks the module and takes the options over. */
tutti_status tutti__optim_new(tutti_optim **optim_p, tutti_module *m, const tutti__optim_rule *rule,
                              float lr, const tutti__optim_options *options);
/* Gives each group its rate of this step. */
void tutti__optim_set_rates(tutti_optim *optim);
/* The group of the root's parameter i. */
static inline size_t tutti__optim_group_of(const tutti_optim *optim, size_t i)
{
    return i < optim->n_group_of ? optim->group_of[i] : 0;
}
/* Refuses what is not in [low, high), naming rule and option. */
tutti_status tutti__optim_check(const char *rule, const char *option, double value, double low,
                                double high);
/* The shortest decimal that is this float: 0.999f is 0.999, though as a double it is 0.99900001287. */
double tutti__optim_decimal(float value);
/* The same of an option, with its default: tutti__or. */
double tutti__optim_option(float value, double by_default);
/* Hyper-parameter i in words, "lr 0.1 of sgd"; false past the last. */
bool tutti__optim_describe(const tutti_optim *optim, size_t i, char *text, size_t bytes);
/* Makes state exist and lie as the parameters do: this rank's share of it, or with sharding NULL all. */
tutti_status tutti__optim_prepare(tutti_optim *optim, const tutti__sharding *sharding);
/* Where the gradients below m lie, in the order of creation. Good until the next call for the same root. */
tutti_status tutti__gradient_spans(const tutti_module *m, const tutti__flat_span **spans_p,
                                   size_t *n_p);
/* tutti_optim_state_read in the order of a stream of the optimizer's device: dst is there when it has come so far. */
tutti_status tutti__optim_state_copy(const tutti_optim *optim, size_t k,
                                     const tutti_tensor *parameter, tutti_stream *stream,
                                     float *dst);
/* Forgets what was gathered. */
void tutti__optim_free_whole(tutti_optim *optim);
/* Where state is in shares: what was gathered takes this rank's place, and is whole until the next step; or the share is dropped, and
 * it is as if there had been no step: true, unless there is no state. */
tutti_status tutti__optim_take_whole(tutti_optim *optim);
bool tutti__optim_drop_share(tutti_optim *optim);

#endif
