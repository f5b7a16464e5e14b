/* lamb.c -- LAMB: Adam's direction, and a rate per parameter that follows its norm.   SPDX-License-Identifier: MIT
 *
 *   exp_avg    += (1 - beta1) * (g - exp_avg)
 *   exp_avg_sq  = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   u = exp_avg / (1 - beta1^step) / (sqrt(exp_avg_sq / (1 - beta2^step)) + eps) + weight_decay * p
 *   p -= lr * (||p|| / ||u||) * u                    the ratio is 1 if either norm is 0, or without weight decay
 *
 * Algorithm 2 of You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (arXiv:1904.00962v5). */
#include "optim/optim.h"
#include "base/real.h"

#include <math.h>

/* u: what Adam makes of a copy of p with the decay as p's factor and a rate of -1. */
static tutti_status direction(tutti_stream *stream, const tutti__flat_run *run)
{
    const tutti__optim_options *o = run->options;
    const tutti__adam c = {
        .keep = (float)o->weight_decay,
        .fresh1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .fresh2 = (float)(1 - o->beta2),
        .rate = (float)(-1 / (1 - tutti__power(o->beta1, run->step))),
        .root = (float)sqrt(1 - tutti__power(o->beta2, run->step)),
        .eps = tutti__optim_eps(o->eps),
    };

    TUTTI_TRY(tutti__copy(stream, run->direction, run->p, run->n * sizeof *run->p));
    return stream->ops->flat->adam(stream, run->direction, run->g, run->state[0], run->state[1],
                                   run->n, &c);
}

static tutti_status follow(tutti_stream *stream, const tutti__flat_run *run)
{
    return stream->ops->flat->sgd(stream, run->p, run->direction, NULL, run->n,
                                  &(tutti__sgd){.lr = (float)run->lr});
}

static tutti_status propose(tutti_optim *optim, tutti__flat_run *run)
{
    return tutti__optim_elementwise(optim, direction, run);
}

static tutti_status apply(tutti_optim *optim, tutti__flat_run *run, double of_p, double of_u)
{
    const bool adapts = run->options->weight_decay != 0 || run->options->always_adapt;

    if (adapts && of_p > 0 && of_u > 0)
        run->lr *= of_p / of_u;
    return tutti__optim_elementwise(optim, follow, run);
}

static tutti_status update(tutti_optim *optim, const tutti__flat_run *given)
{
    tutti__flat_run run = *given;
    double of_p, of_u;

    TUTTI_TRY(tutti__optim_scratch(optim, run.n, &run.direction));
    TUTTI_TRY(propose(optim, &run));
    TUTTI_TRY(tutti__optim_norm(optim, run.p, run.n, &of_p));
    TUTTI_TRY(tutti__optim_norm(optim, run.direction, run.n, &of_u));
    return apply(optim, &run, of_p, of_u);
}

static tutti_status check(const tutti__optim_options *o)
{
    return tutti__adam_check("lamb", o);
}

static const tutti__divided_rule in_parts = {.propose = propose, .apply = apply};

static const tutti__optim_rule lamb = {.name = "lamb",
                                       .state_names = {"exp_avg", "exp_avg_sq"},
                                       .update_whole = update,
                                       .divided = &in_parts,
                                       .check = check,
                                       .has = TUTTI__HAS_BETAS | TUTTI__HAS_EPS};

tutti_status tutti_lamb_new(tutti_optim **optim_p, tutti_module *m, const tutti_lamb_opts *opts)
{
    const tutti_lamb_opts zero = {0}, *given = opts ? opts : &zero;
    const tutti__optim_options options = {.beta1 = tutti__optim_option(given->beta1, 0.9),
                                          .beta2 = tutti__optim_option(given->beta2, 0.999),
                                          .eps = tutti__optim_option(given->eps, 1e-6),
                                          .weight_decay =
                                              tutti__optim_option(given->weight_decay, 0.01),
                                          .always_adapt = given->always_adapt};

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_lamb_opts, opts));
    TUTTI_TRY(check(&options));
    return tutti__optim_new(optim_p, m, &lamb, (float)tutti__or((double)given->lr, 1e-3), &options);
}
