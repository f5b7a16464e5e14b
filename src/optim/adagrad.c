/* adagrad.c -- Adagrad, as torch.optim.Adagrad.   SPDX-License-Identifier: MIT
 *
 *   g += weight_decay * p
 *   sum += g * g                                     it begins at initial_accumulator_value
 *   p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum) + eps) */
#include "optim/optim.h"

#include <math.h>

static tutti_status update(tutti_stream *stream, const tutti__flat_run *run)
{
    const tutti__optim_options *o = run->options;
    const tutti__adagrad c = {.rate =
                                  (float)(run->lr / (1 + (double)(run->step - 1) * o->lr_decay)),
                              .decay = (float)o->weight_decay,
                              /* the sum is zero before the first update */
                              .start = run->step == 1 ? (float)o->initial : 0,
                              .eps = tutti__optim_eps(o->eps)};

    return stream->ops->flat->adagrad(stream, run->p, run->g, run->state[0], run->n, &c);
}

static tutti_status check(const tutti__optim_options *o)
{
    TUTTI_TRY(tutti__optim_check("adagrad", "lr_decay", o->lr_decay, 0, INFINITY));
    TUTTI_TRY(tutti__optim_check("adagrad", "eps", o->eps, 0, INFINITY));
    TUTTI_TRY(tutti__optim_check("adagrad", "initial_accumulator_value", o->initial, 0, INFINITY));
    return tutti__optim_check("adagrad", "weight_decay", o->weight_decay, 0, INFINITY);
}

static const tutti__optim_rule adagrad = {.name = "adagrad",
                                          .state_names = {"sum"},
                                          .update = update,
                                          .check = check,
                                          .has = TUTTI__HAS_EPS | TUTTI__HAS_LR_DECAY};

tutti_status tutti_adagrad_new(tutti_optim **optim_p, tutti_module *m,
                               const tutti_adagrad_opts *opts)
{
    const tutti_adagrad_opts zero = {0}, *given = opts ? opts : &zero;
    const tutti__optim_options options = {
        .lr_decay = tutti__optim_option(given->lr_decay, 0),
        .eps = tutti__optim_option(given->eps, 1e-10),
        .initial = tutti__optim_option(given->initial_accumulator_value, 0),
        .weight_decay = tutti__optim_option(given->weight_decay, 0)};

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_adagrad_opts, opts));
    TUTTI_TRY(check(&options));
    return tutti__optim_new(optim_p, m, &adagrad, (float)tutti__or((double)given->lr, 1e-2),
                            &options);
}
