/* gelu.c -- y = x P(x), where P is the normal distribution's cumulative function: the Gaussian error linear unit.
 * SPDX-License-Identifier: MIT
 * Hendrycks, Gimpel: "Gaussian Error Linear Units", 2016; both forms are PyTorch's. */
#include "tensor/op/elementwise.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_gelu_form form = *(const tutti_gelu_form *)p->attributes;

    if (form != TUTTI_GELU_EXACT && form != TUTTI_GELU_TANH)
        return tutti__fail(TUTTI_ERR_ARG,
                           "form is %d, expected TUTTI_GELU_EXACT or TUTTI_GELU_TANH", (int)form);
    return tutti_op_broadcast(p, y, dtype);
}

#define GELU(row)                                                                                  \
    {                                                                                              \
        .plain = {.name = "gelu",                                                                  \
                  .shape = shape,                                                                  \
                  .forward = tutti__##row##_forward,                                               \
                  .backward = tutti__##row##_backward,                                             \
                  .elementwise = true,                                                             \
                  .backward_reads = TUTTI__READS_##row,                                            \
                  .activations = 1},                                                               \
        .formula = TUTTI__FORMULA_##row, .keeps_zeros = true, .again = true                        \
    }

tutti_tensor *tutti_gelu(tutti_tensor *x, tutti_gelu_form form)
{
    static const tutti__op exact = GELU(gelu), by_tanh = GELU(gelu_tanh);

    return tutti__op_run(form == TUTTI_GELU_TANH ? &by_tanh : &exact, &x, 1, &form, sizeof form);
}
