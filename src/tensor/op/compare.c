/* compare.c -- eq, ne, lt, le, gt, ge: 1 where the comparison holds, else 0, of two tensors or of a tensor and a number.
 * SPDX-License-Identifier: MIT
 * Integers are compared with integers exactly, and with real numbers as F32. There is no gradient. */
#include "tensor/broadcast.h"
#include "tensor/op/elementwise.h"

static tutti_status integers_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__broadcast_shapes(p, (const char *const[]){"a", "b"}, y);
}

static tutti_tensor *compare(const tutti__op *op, const tutti_op *integers, tutti_tensor *a,
                             tutti_tensor *b)
{
    const bool a_integer = a && a->dtype == TUTTI_I64, b_integer = b && b->dtype == TUTTI_I64;

    if (a_integer && !b_integer)
        a = tutti_cast(a, TUTTI_F32);
    else if (b_integer && !a_integer)
        b = tutti_cast(b, TUTTI_F32);
    if (a_integer && b_integer)
        return tutti_op_run(integers, (tutti_tensor *[]){a, b}, 2, NULL, 0);
    return tutti__op_run(op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}

static tutti_tensor *compare_scalar(const tutti__op *op, tutti_tensor *x, float value)
{
    if (x && x->dtype == TUTTI_I64)
        x = tutti_cast(x, TUTTI_F32);
    return tutti__op_run(op, &x, 1, &(tutti__constants){value, 0}, sizeof(tutti__constants));
}

/* The two functions of the comparison `name`, which is `is` in C. */
#define COMPARISON(called, is)                                                                     \
    static void called##_integers(const tutti_op_args *p)                                          \
    {                                                                                              \
        const int64_t *a = p->src[0], *b = p->src[1];                                              \
        const tutti__broadcast of_a = tutti__broadcast_of(p->sources[0]->shape, p->shape);         \
        const tutti__broadcast of_b = tutti__broadcast_of(p->sources[1]->shape, p->shape);         \
                                                                                                   \
        for (int64_t i = 0; i < p->count; i++)                                                     \
            p->y[i] =                                                                              \
                a[tutti__broadcast_at(&of_a, i)] is b[tutti__broadcast_at(&of_b, i)] ? 1.f : 0.f;  \
    }                                                                                              \
                                                                                                   \
    tutti_tensor *tutti_##called(tutti_tensor *a, tutti_tensor *b)                                 \
    {                                                                                              \
        static const tutti__op op = TUTTI__ELEMENTWISE(                                            \
            #called, called, .no_grad = true, .activations = 3, .autocast = TUTTI_OP_WIDEST);      \
        static const tutti_op integers = {.name = #called,                                         \
                                          .shape = integers_shape,                                 \
                                          .forward = called##_integers,                            \
                                          .no_grad = true};                                        \
                                                                                                   \
        return compare(&op, &integers, a, b);                                                      \
    }                                                                                              \
                                                                                                   \
    tutti_tensor *tutti_##called##_scalar(tutti_tensor *x, float value)                            \
    {                                                                                              \
        static const tutti__op op = TUTTI__ELEMENTWISE(#called "_scalar", called##_scalar,         \
                                                       .no_grad = true, .activations = 1);         \
                                                                                                   \
        return compare_scalar(&op, x, value);                                                      \
    }

COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)
