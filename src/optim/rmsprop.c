/* rmsprop.c -- RMSprop, as torch.optim.RMSprop.   SPDX-License-Identifier: MIT
 *
 *   g += weight_decay * p
 *   square_avg = alpha * square_avg + (1 - alpha) * g * g
 *   centered: grad_avg += (1 - alpha) * (g - grad_avg)
 *   a = sqrt(square_avg - grad_avg * grad_avg) + eps            a difference that rounding makes negative counts as 0
 *   momentum_buffer = momentum * momentum_buffer + g / a
 *   p -= lr * momentum_buffer                                   without momentum: p -= lr * g / a */
#include "optim/optim.h"

#include <math.h>

static tutti_status pass(tutti_stream *stream, const tutti__flat_run *run, float *mean,
                         float *buffer)
{
    const tutti__optim_options *o = run->options;
    const tutti__rmsprop c = {.lr = (float)run->lr,
                              .decay = (float)o->weight_decay,
                              .alpha = (float)o->alpha,
                              .fresh = (float)(1 - o->alpha),
                              .momentum = (float)o->momentum,
                              .eps = tutti__optim_eps(o->eps)};

    return stream->ops->flat->rmsprop(stream, run->p, run->g, run->state[0], mean, buffer, run->n,
                                      &c);
}

static tutti_status update(tutti_stream *stream, const tutti__flat_run *run)
{
    return pass(stream, run, run->state[1], NULL);
}

static tutti_status update_momentum(tutti_stream *stream, const tutti__flat_run *run)
{
    return pass(stream, run, run->state[2], run->options->momentum == 0 ? NULL : run->state[1]);
}

static tutti_status check(const tutti__optim_options *o)
{
    TUTTI_TRY(tutti__optim_check("rmsprop", "alpha", o->alpha, 0, 1));
    TUTTI_TRY(tutti__optim_check("rmsprop", "eps", o->eps, 0, INFINITY));
    TUTTI_TRY(tutti__optim_check("rmsprop", "momentum", o->momentum, 0, INFINITY));
    return tutti__optim_check("rmsprop", "weight_decay", o->weight_decay, 0, INFINITY);
}

enum { HAS = TUTTI__HAS_MOMENTUM | TUTTI__HAS_EPS | TUTTI__HAS_ALPHA };

static const tutti__optim_rule with_momentum = {.name = "rmsprop",
                                                .state_names = {"square_avg", "momentum_buffer"},
                                                .update = update_momentum,
                                                .check = check,
                                                .has = HAS};
static const tutti__optim_rule plain = {.name = "rmsprop",
                                        .state_names = {"square_avg"},
                                        .update = update,
                                        .check = check,
                                        .has = HAS,
                                        .with_more = &with_momentum};
static const tutti__optim_rule centered_momentum = {
    .name = "rmsprop",
    .state_names = {"square_avg", "momentum_buffer", "grad_avg"},
    .update = update_momentum,
    .check = check,
    .has = HAS};
static const tutti__optim_rule centered = {.name = "rmsprop",
                                           .state_names = {"square_avg", "grad_avg"},
                                           .update = update,
                                           .check = check,
                                           .has = HAS,
                                           .with_more = &centered_momentum};

tutti_status tutti_rmsprop_new(tutti_optim **optim_p, tutti_module *m,
                               const tutti_rmsprop_opts *opts)
{
    const tutti_rmsprop_opts zero = {0}, *given = opts ? opts : &zero;
    const tutti__optim_options options = {.alpha = tutti__optim_option(given->alpha, 0.99),
                                          .eps = tutti__optim_option(given->eps, 1e-8),
                                          .momentum = tutti__optim_option(given->momentum, 0),
                                          .weight_decay =
                                              tutti__optim_option(given->weight_decay, 0),
                                          .centered = given->centered};
    const tutti__optim_rule *rule = given->centered ? &centered : &plain;

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_rmsprop_opts, opts));
    TUTTI_TRY(check(&options));
    return tutti__optim_new(optim_p, m, options.momentum > 0 ? rule->with_more : rule,
                            (float)tutti__or((double)given->lr, 1e-2), &options);
}
