/* pow.c -- y = a^b with broadcasting, and pow_scalar: y = x^exponent.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tensor/op/elementwise.h"
#include "tensor/op/formulas.h"

TUTTI__CLONES static void powers(float *restrict y, const float *restrict a,
                                 const float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tutti__power_f32(a[i], b[i]);
}

/* Any exponent, repeated for the loop over tensors: with one outside the loop, gcc makes branches of its cases. */
static void powers_of_any(float *y, const float *x, int64_t n, float b)
{
    float exponents[256];

    for (int i = 0; i < 256; i++)
        exponents[i] = b;
    for (int64_t i = 0; i < n; i += 256)
        powers(y + i, x + i, exponents, n - i < 256 ? n - i : 256);
}

static void powers_of(float *y, const float *x, int64_t n, float b)
{
    if (b == 1)
        memcpy(y, x, (size_t)n * sizeof *y);
    else if (b == 2)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * x[i];
    else if (b == 3)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * x[i] * x[i];
    else if (b == 0.5f)
        for (int64_t i = 0; i < n; i++)
            y[i] = sqrtf(x[i]);
    else
        powers_of_any(y, x, n, b);
}

static void scalar_forward(const tutti_op_args *p)
{
    powers_of(p->y, p->src[0], p->count, *(const float *)p->attributes);
}

static void scalar_backward(const tutti_op_args *p)
{
    const float b = *(const float *)p->attributes;
    float *dx = p->dsrc[0];

    powers_of(dx, p->src[0], p->count, b - 1);
    for (int64_t i = 0; i < p->count; i++)
        dx[i] = b == 0 ? 0 : p->dy[i] * (b * dx[i]);
}

tutti_tensor *tutti_pow(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("pow", pow, .activations = 3, .autocast = TUTTI_OP_F32);

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}

tutti_tensor *tutti_pow_scalar(tutti_tensor *x, float exponent)
{
    static const tutti__op op = {.plain = {.name = "pow_scalar",
                                           .forward = scalar_forward,
                                           .backward = scalar_backward,
                                           .elementwise = true,
                                           .backward_reads = TUTTI__READS_pow_scalar,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .formula = TUTTI__FORMULA_pow_scalar};

    return tutti__op_run(&op, &x, 1, &(tutti__constants){exponent, 0}, sizeof(tutti__constants));
}
