/* sgd.c -- stochastic gradient descent with momentum, as torch.optim.SGD.   SPDX-License-Identifier: MIT
 *
 *   g += weight_decay * p
 *   buffer = momentum * buffer + (1 - dampening) * g        the first time: buffer = g
 *   p -= lr * (nesterov ? g + momentum * buffer : buffer) */
#include "optim/optim.h"

#include <math.h>

tutti_status tutti__sgd_update(tutti_stream *stream, const tutti__flat_run *run)
{
    const tutti__optim_options *o = run->options;
    const tutti__sgd c = {
        .lr = (float)run->lr,
        .decay = (float)o->weight_decay,
        .momentum = (float)o->momentum,
        /* The buffer is zero before the first update, so a factor of 1 for g makes it g. */
        .fresh = run->step == 1 ? 1 : (float)(1 - o->dampening),
        .nesterov = o->nesterov};

    return stream->ops->flat->sgd(stream, run->p, run->g, o->momentum == 0 ? NULL : run->state[0],
                                  run->n, &c);
}

static tutti_status check(const tutti__optim_options *o)
{
    TUTTI_TRY(tutti__optim_check("sgd", "momentum", o->momentum, 0, INFINITY));
    TUTTI_TRY(tutti__optim_check("sgd", "dampening", o->dampening, -INFINITY, INFINITY));
    TUTTI_TRY(tutti__optim_check("sgd", "weight_decay", o->weight_decay, 0, INFINITY));
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "sgd: nesterov with momentum %g and dampening %g, expected momentum > 0 "
                           "and dampening 0",
                           o->momentum, o->dampening);
    return TUTTI_OK;
}

static const tutti__optim_rule sgd_momentum = {.name = "sgd",
                                               .state_names = {"momentum_buffer"},
                                               .update = tutti__sgd_update,
                                               .check = check,
                                               .has = TUTTI__HAS_MOMENTUM | TUTTI__HAS_DAMPENING};
static const tutti__optim_rule sgd = {.name = "sgd",
                                      .update = tutti__sgd_update,
                                      .check = check,
                                      .has = TUTTI__HAS_MOMENTUM | TUTTI__HAS_DAMPENING,
                                      .with_more = &sgd_momentum};

tutti_status tutti_sgd_new(tutti_optim **optim_p, tutti_module *m, const tutti_sgd_opts *opts)
{
    const tutti_sgd_opts zero = {0}, *given = opts ? opts : &zero;
    const tutti__optim_options options = {.momentum = tutti__optim_option(given->momentum, 0),
                                          .dampening = tutti__optim_option(given->dampening, 0),
                                          .weight_decay =
                                              tutti__optim_option(given->weight_decay, 0),
                                          .nesterov = given->nesterov};

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_sgd_opts, opts));
    TUTTI_TRY(check(&options));
    return tutti__optim_new(optim_p, m, options.momentum > 0 ? &sgd_momentum : &sgd,
                            (float)tutti__or((double)given->lr, 1e-3), &options);
}
