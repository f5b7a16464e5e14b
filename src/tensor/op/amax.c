/* amax.c -- the largest and smallest elements over dimensions; equal ones share the gradient.   SPDX-License-Identifier: MIT
 * NaN if there is one, as in PyTorch. Kept, by backward: how many are equal. */
#include "tensor/op/reduction.h"

#include <math.h>

static void max_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, tutti__max_slice);
}

static void min_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, tutti__min_slice);
}

TUTTI__SPREAD(share, true, true, true, x == y ? dy / kept : y == y ? 0 : y)

static void backward(const tutti_op_args *p)
{
    tutti__count_ties(p, false);
    tutti__spread(p, share, 0);
}

static tutti_status device_max(const tutti_op_args *p)
{
    return tutti__fold_on_device(p, (tutti__fold_args){.kind = TUTTI__FOLD_MAX}, p->y, TUTTI_F32);
}

static tutti_status device_min(const tutti_op_args *p)
{
    return tutti__fold_on_device(p, (tutti__fold_args){.kind = TUTTI__FOLD_MIN}, p->y, TUTTI_F32);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const tutti__fold_args equal = {.kind = TUTTI__FOLD_EQUAL, .given = p->y};

    TUTTI_TRY(tutti__fold_on_device(p, equal, p->kept, TUTTI_F32));
    return tutti__spread_on_device(p, TUTTI__FORMULA_spread_ties, 0, p->kept);
}

tutti_tensor *tutti_amax(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "amax",
                                           .shape = tutti__reduction_shape_some,
                                           .forward = max_forward,
                                           .backward = backward,
                                           .keeps = tutti__keeps_one,
                                           .backward_reads = 1 << 0 | TUTTI_OP_RESULT,
                                           .activations = 1},
                                 .device_forward = device_max,
                                 .device_backward = device_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}

tutti_tensor *tutti_amin(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "amin",
                                           .shape = tutti__reduction_shape_some,
                                           .forward = min_forward,
                                           .backward = backward,
                                           .keeps = tutti__keeps_one,
                                           .backward_reads = 1 << 0 | TUTTI_OP_RESULT,
                                           .activations = 1},
                                 .device_forward = device_min,
                                 .device_backward = device_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}
