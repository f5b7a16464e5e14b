/* sin.c -- y = sin x, and cos: y = cos x.   SPDX-License-Identifier: MIT
 * The sine is the cosine of a quarter turn less. */
#include "base/base.h"
#include "base/real.h"
#include "tensor/op/elementwise.h"
#include "tensor/op/formulas.h"

#include <math.h>

/* y = cos(x + turns pi / 2) of all |x| < TUTTI__FAR_ANGLE; 0 of others. Returns whether there are others. */
TUTTI__CLONES static bool turned(float *restrict y, const float *restrict x, int64_t n,
                                 int32_t turns)
{
    int32_t far = 0;

    for (int64_t i = 0; i < n; i++) {
        const float near = fabsf(x[i]) < TUTTI__FAR_ANGLE ? x[i] : 0;
        const double angle = (double)near, shifted = angle * (2 / TUTTI__PI) + 0x1.8p52;
        uint64_t bits;
        int32_t quarter;

        memcpy(&bits, &shifted, sizeof bits);
        quarter = (int32_t)(uint32_t)bits;
        y[i] = (float)tutti__cos_of_rest(tutti__angle_rest(angle, quarter), quarter + turns);
        far |= !(fabsf(x[i]) < TUTTI__FAR_ANGLE);
    }
    return far;
}

/* y = cos(x + turns pi / 2) */
static void cosines(float *y, const float *x, int64_t n, int32_t turns)
{
    if (!turned(y, x, n, turns))
        return;
    for (int64_t i = 0; i < n; i++) {
        int32_t quarter;
        double rest;

        if (fabsf(x[i]) < TUTTI__FAR_ANGLE)
            continue;
        y[i] = NAN;
        if (!isfinite(x[i]))
            continue;
        rest = tutti__angle_rest_far(x[i], &quarter);
        y[i] = (float)tutti__cos_of_rest(rest, quarter + turns);
    }
}

/* dx = dy cos(x + turns pi / 2) */
static void times_cosines(const tutti_op_args *p, int32_t turns)
{
    float *dx = p->dsrc[0];

    cosines(dx, p->src[0], p->count, turns);
    for (int64_t i = 0; i < p->count; i++)
        dx[i] *= p->dy[i];
}

static void sin_forward(const tutti_op_args *p)
{
    cosines(p->y, p->src[0], p->count, -1);
}

static void sin_backward(const tutti_op_args *p)
{
    times_cosines(p, 0);
}

static void cos_forward(const tutti_op_args *p)
{
    cosines(p->y, p->src[0], p->count, 0);
}

static void cos_backward(const tutti_op_args *p)
{
    times_cosines(p, 1);
}

tutti_tensor *tutti_sin(tutti_tensor *x)
{
    static const tutti__op op = {.plain = {.name = "sin",
                                           .forward = sin_forward,
                                           .backward = sin_backward,
                                           .elementwise = true,
                                           .backward_reads = TUTTI__READS_sin,
                                           .activations = 1},
                                 .formula = TUTTI__FORMULA_sin};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}

tutti_tensor *tutti_cos(tutti_tensor *x)
{
    static const tutti__op op = {.plain = {.name = "cos",
                                           .forward = cos_forward,
                                           .backward = cos_backward,
                                           .elementwise = true,
                                           .backward_reads = TUTTI__READS_cos,
                                           .activations = 1},
                                 .formula = TUTTI__FORMULA_cos};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
