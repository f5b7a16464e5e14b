/* adam.c -- Adam and AdamW, as torch.optim.Adam and AdamW.   SPDX-License-Identifier: MIT
 *
 *   Adam:  g += weight_decay * p                            AdamW: p *= 1 - lr * weight_decay
 *   exp_avg    += (1 - beta1) * (g - exp_avg)
 *   exp_avg_sq  = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   p -= lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + eps) */
#include "optim/optim.h"
#include "base/real.h"

#include <math.h>

static tutti_status update(tutti_stream *stream, const tutti__flat_run *run, bool decoupled)
{
    const tutti__optim_options *o = run->options;
    const double lr = run->lr;
    const tutti__adam c = {
        .keep = decoupled ? (float)(1 - lr * o->weight_decay) : 1,
        .decay = decoupled ? 0 : (float)o->weight_decay,
        .fresh1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .fresh2 = (float)(1 - o->beta2),
        .rate = (float)(lr / (1 - tutti__power(o->beta1, run->step))),
        .root = (float)sqrt(1 - tutti__power(o->beta2, run->step)),
        .eps = tutti__optim_eps(o->eps),
    };

    return stream->ops->flat->adam(stream, run->p, run->g, run->state[0], run->state[1], run->n,
                                   &c);
}

static tutti_status update_adam(tutti_stream *stream, const tutti__flat_run *run)
{
    return update(stream, run, false);
}

tutti_status tutti__adamw_update(tutti_stream *stream, const tutti__flat_run *run)
{
    return update(stream, run, true);
}

tutti_status tutti__adam_check(const char *rule, const tutti__optim_options *o)
{
    TUTTI_TRY(tutti__optim_check(rule, "beta1", o->beta1, 0, 1));
    TUTTI_TRY(tutti__optim_check(rule, "beta2", o->beta2, 0, 1));
    TUTTI_TRY(tutti__optim_check(rule, "eps", o->eps, 0, INFINITY));
    return tutti__optim_check(rule, "weight_decay", o->weight_decay, 0, INFINITY);
}

static tutti_status check_adam(const tutti__optim_options *o)
{
    return tutti__adam_check("adam", o);
}

static tutti_status check_adamw(const tutti__optim_options *o)
{
    return tutti__adam_check("adamw", o);
}

static const tutti__optim_rule adam = {.name = "adam",
                                       .state_names = {"exp_avg", "exp_avg_sq"},
                                       .update = update_adam,
                                       .check = check_adam,
                                       .has = TUTTI__HAS_BETAS | TUTTI__HAS_EPS};
static const tutti__optim_rule adamw = {.name = "adamw",
                                        .state_names = {"exp_avg", "exp_avg_sq"},
                                        .update = tutti__adamw_update,
                                        .check = check_adamw,
                                        .has = TUTTI__HAS_BETAS | TUTTI__HAS_EPS};

static tutti_status adam_new(tutti_optim **optim_p, tutti_module *m, const tutti_adam_opts *opts,
                             const tutti__optim_rule *rule)
{
    const tutti_adam_opts zero = {0}, *given = opts ? opts : &zero;
    const tutti__optim_options options = {.beta1 = tutti__optim_option(given->beta1, 0.9),
                                          .beta2 = tutti__optim_option(given->beta2, 0.999),
                                          .eps = tutti__optim_option(given->eps, 1e-8),
                                          .weight_decay =
                                              tutti__optim_option(given->weight_decay, 0)};

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_adam_opts, opts));
    TUTTI_TRY(rule->check(&options));
    return tutti__optim_new(optim_p, m, rule, (float)tutti__or((double)given->lr, 1e-3), &options);
}

tutti_status tutti_adam_new(tutti_optim **optim_p, tutti_module *m, const tutti_adam_opts *opts)
{
    return adam_new(optim_p, m, opts, &adam);
}

tutti_status tutti_adamw_new(tutti_optim **optim_p, tutti_module *m, const tutti_adam_opts *opts)
{
    return adam_new(optim_p, m, opts, &adamw);
}
