/* where.c -- y = a where the condition is not zero, else b, of real numbers or integers.   SPDX-License-Identifier: MIT
 * The condition is the last source, because the result has the dtype of the first. */
#include "tensor/broadcast.h"
#include "tensor/op/elementwise.h"

static tutti_status where_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    static const char *const names[] = {"a", "b", "condition"};

    (void)dtype;
    return tutti__broadcast_named(p, names, y);
}

/* ---- Integers -------------------------------------------------------------------------------- */

static tutti_status integers_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    static const char *const names[] = {"a", "b", "condition"};

    *dtype = TUTTI_I64;
    TUTTI_TRY(tutti_op_check_source(p, 0, "a", NULL, TUTTI_I64));
    TUTTI_TRY(tutti_op_check_source(p, 1, "b", NULL, TUTTI_I64));
    TUTTI_TRY(tutti_op_check_source(p, 2, "condition", NULL, TUTTI_F32));
    return tutti__broadcast_shapes(p, names, y);
}

static void integers_forward(const tutti_op_args *p)
{
    const int64_t *a = p->src[0], *b = p->src[1];
    const float *condition = p->src[2];
    tutti__broadcast of[3];

    for (int k = 0; k < 3; k++)
        of[k] = tutti__broadcast_of(p->sources[k]->shape, p->shape);
    for (int64_t i = 0; i < p->count; i++)
        p->indices[i] = condition[tutti__broadcast_at(&of[2], i)] != 0
                            ? a[tutti__broadcast_at(&of[0], i)]
                            : b[tutti__broadcast_at(&of[1], i)];
}

tutti_tensor *tutti_where(tutti_tensor *condition, tutti_tensor *a, tutti_tensor *b)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("where", where, .shape = where_shape,
                                                   .activations = 3, .autocast = TUTTI_OP_WIDEST);
    static const tutti__op integers = {.plain = {.name = "where",
                                                 .shape = integers_shape,
                                                 .forward = integers_forward,
                                                 .no_grad = true}};
    const bool are_integers = a && a->dtype == TUTTI_I64;

    if (condition)
        condition = tutti_cast(condition, TUTTI_F32);
    return tutti__op_run(are_integers ? &integers : &op, (tutti_tensor *[]){a, b, condition}, 3,
                         NULL, 0);
}
