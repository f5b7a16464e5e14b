/* kl_div.c -- the Kullback-Leibler divergence of x, log-probabilities, from target: t (log t - x), or with log_target e^t (t - x).
 * SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"
#include "tensor/op/loss.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

tutti_tensor *tutti_kl_div(tutti_tensor *x, tutti_tensor *target, const tutti_kl_div_opts *opts)
{
    static const tutti__loss_op plain = {.each = TUTTI__ELEMENTWISE(
                                             "kl_div", kl_div, .shape = shape, .activations = 3,
                                             .autocast = TUTTI_OP_F32)},
                                of_logs = {.each = TUTTI__ELEMENTWISE(
                                               "kl_div", kl_div_of_logs, .shape = shape,
                                               .activations = 3, .autocast = TUTTI_OP_F32)};

    if (x && TUTTI__CHECK_RESERVED(tutti_kl_div_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(opts && opts->log_target ? &of_logs : &plain,
                           (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, NULL, 0);
}
