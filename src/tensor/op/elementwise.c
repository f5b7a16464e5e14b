/* elementwise.c -- loops over the rows of elementwise.def.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"
#include "base/base.h"
#include "tensor/op/formulas.h"

static float constant(const tutti_op_args *p, int i)
{
    return p->attributes ? ((const float *)p->attributes)[i] : 0;
}

/* The loop for one gradient, an expression of what the row reads. */
#define GRADIENT(name, reads, k, gradient)                                                         \
    TUTTI__CLONES static void name##_gradient_##k(                                                 \
        float *restrict out, const float *restrict s0, const float *restrict s1,                   \
        const float *restrict s2, const float *restrict of, const float *restrict dy, int64_t n,   \
        float k0, float k1)                                                                        \
    {                                                                                              \
        (void)s0, (void)s1, (void)s2, (void)of, (void)dy, (void)k0, (void)k1;                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float a = (reads)&1 ? s0[i] : 0, b = (reads)&2 ? s1[i] : 0;                      \
            const float c = (reads)&4 ? s2[i] : 0, d = dy[i];                                      \
            const float y = (reads)&TUTTI_OP_RESULT ? of[i] : 0;                                   \
                                                                                                   \
            (void)a, (void)b, (void)c, (void)d, (void)y;                                           \
            out[i] = gradient;                                                                     \
        }                                                                                          \
    }

#define RUN(name, sources, k)                                                                      \
    if (sources > k && p->dsrc[k])                                                                 \
        name##_gradient_##k(p->dsrc[k], p->src[0], sources > 1 ? p->src[1] : NULL,                 \
                            sources > 2 ? p->src[2] : NULL, p->y, p->dy, p->count, k0, k1);

#define ROW(name, sources, reads, forward, da, db, dc)                                             \
    TUTTI__CLONES static void name##_values(float *restrict out, const float *restrict s0,         \
                                            const float *restrict s1, const float *restrict s2,    \
                                            int64_t n, float k0, float k1)                         \
    {                                                                                              \
        (void)s1, (void)s2, (void)k0, (void)k1;                                                    \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float a = s0[i], b = sources > 1 ? s1[i] : 0, c = sources > 2 ? s2[i] : 0;       \
                                                                                                   \
            (void)b, (void)c;                                                                      \
            out[i] = forward;                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    void tutti__##name##_forward(const tutti_op_args *p)                                           \
    {                                                                                              \
        name##_values(p->y, p->src[0], sources > 1 ? p->src[1] : NULL,                             \
                      sources > 2 ? p->src[2] : NULL, p->count, constant(p, 0), constant(p, 1));   \
    }                                                                                              \
                                                                                                   \
    GRADIENT(name, reads, 0, da)                                                                   \
    GRADIENT(name, reads, 1, db)                                                                   \
    GRADIENT(name, reads, 2, dc)                                                                   \
                                                                                                   \
    void tutti__##name##_backward(const tutti_op_args *p)                                          \
    {                                                                                              \
        const float k0 = constant(p, 0), k1 = constant(p, 1);                                      \
                                                                                                   \
        RUN(name, sources, 0)                                                                      \
        RUN(name, sources, 1)                                                                      \
        RUN(name, sources, 2)                                                                      \
    }

#define OWN_ROW(...)
#include "tensor/op/elementwise.def"
