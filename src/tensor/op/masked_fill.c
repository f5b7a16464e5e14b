/* masked_fill.c -- y = value where the mask is not zero, else x, of real numbers or integers.   SPDX-License-Identifier: MIT */
#include "tensor/broadcast.h"
#include "tensor/op/elementwise.h"

static tutti_status masked_fill_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    static const char *const names[] = {"x", "mask"};

    (void)dtype;
    return tutti__broadcast_named(p, names, y);
}

/* ---- Integers -------------------------------------------------------------------------------- */

static tutti_status integers_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    static const char *const names[] = {"x", "mask"};
    const double value = *(const double *)p->attributes;

    *dtype = TUTTI_I64;
    TUTTI_TRY(tutti_op_check_source(p, 1, "mask", NULL, TUTTI_F32));
    if (!(value >= -0x1p53 && value <= 0x1p53 && value == (double)(int64_t)value))
        return tutti__fail(TUTTI_ERR_ARG,
                           "value is %g, expected an integer up to 2^53, since x is I64", value);
    return tutti__broadcast_shapes(p, names, y);
}

static void integers_forward(const tutti_op_args *p)
{
    const int64_t *x = p->src[0], value = (int64_t) * (const double *)p->attributes;
    const float *mask = p->src[1];
    const tutti__broadcast of_x = tutti__broadcast_of(p->sources[0]->shape, p->shape);
    const tutti__broadcast of_mask = tutti__broadcast_of(p->sources[1]->shape, p->shape);

    for (int64_t i = 0; i < p->count; i++)
        p->indices[i] =
            mask[tutti__broadcast_at(&of_mask, i)] != 0 ? value : x[tutti__broadcast_at(&of_x, i)];
}

tutti_tensor *tutti_masked_fill(tutti_tensor *x, tutti_tensor *mask, double value)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("masked_fill", masked_fill,
                                                   .shape = masked_fill_shape, .activations = 1);
    static const tutti_op integers = {.name = "masked_fill",
                                      .shape = integers_shape,
                                      .forward = integers_forward,
                                      .no_grad = true};
    const tutti__constants a = {(float)value, 0};

    if (mask)
        mask = tutti_cast(mask, TUTTI_F32);
    if (x && x->dtype == TUTTI_I64)
        return tutti_op_run(&integers, (tutti_tensor *[]){x, mask}, 2, &value, sizeof value);
    return tutti__op_run(&op, (tutti_tensor *[]){x, mask}, 2, &a, sizeof a);
}
