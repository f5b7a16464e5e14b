/* attention_rows.h -- rows of attention's scores, in F32.   SPDX-License-Identifier: MIT
 *
 * Exponentials are powers of 2: scores are in units of log 2, multiplied by log2(e). */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_ATTENTION_ROWS_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_ATTENTION_ROWS_H

#include "base/base.h"
#include "base/real.h"
#include "tensor/attention.h"
#include "tensor/kernel/vector/isa/pack.h"

#include <math.h>

#define LOG2_E 1.44269504f

INLINE int64_t whole(int64_t n)
{
    return (n + W - 1) / W * W;
}

#define AT(p) (*(vec *)(p))

INLINE vec all(float x)
{
    return x - (vec){0};
}

INLINE vec larger(vec a, vec b)
{
    const veci is = a > b;

    return (vec)((is & (veci)a) | (~is & (veci)b));
}

INLINE vec plus(vec a, vec b)
{
    return a + b;
}

/* Joins the lanes of v, in each of them. */
#define OTHER_LANE(lane, s) (((lane) ^ (s)) & (W - 1))
#define ACROSS(v, join)                                                                            \
    do {                                                                                           \
        v = join(v, TUTTI__SHUFFLE(v, v, OTHER_LANE, 1));                                          \
        v = join(v, TUTTI__SHUFFLE(v, v, OTHER_LANE, 2));                                          \
        if (W >= 8)                                                                                \
            v = join(v, TUTTI__SHUFFLE(v, v, OTHER_LANE, 4));                                      \
        if (W >= 16)                                                                               \
            v = join(v, TUTTI__SHUFFLE(v, v, OTHER_LANE, 8));                                      \
    } while (0)

typedef uint32_t vec_bits __attribute__((vector_size(W * 4)));

/* 2^x, within 2 ulp, of x < 127; 0 if that is less than 2^-125; NaN of NaN. The polynomial approximates 2^r for |r| <= 1/2. */
INLINE vec power_of_2(vec x)
{
    const vec shifted = x + 0x1.8p23f, r = x - (shifted - 0x1.8p23f);
    vec p = multiply_add(all(0x1.5bba14p-10f), r, all(0x1.3cea88p-7f));

    p = multiply_add(p, r, all(0x1.c6b752p-5f));
    p = multiply_add(p, r, all(0x1.ebf9bcp-3f));
    p = multiply_add(p, r, all(0x1.62e42ap-1f));
    p = multiply_add(p, r, all(1));
    /* the last bits of `shifted` are the exponent; of what is 0 or NaN the sum overflows */
    return (vec)(((vec_bits)p + ((vec_bits)shifted << 23)) & ~(vec_bits)(x < -125));
}

/* The scores s of query i, row `row`, for n keys from j on, n rounded up to whole vectors: adds the mask; -infinity for those that it
 * does not see. */
static void mask_row(const tutti__attention *a, float *s, int64_t row, int64_t i, int64_t j,
                     int64_t n)
{
    const float *mask = tutti__attention_mask(a, row);
    const int64_t seen = tutti__attention_keys(a, i) - j;
    const int64_t step = a->mask_step;

    for (int64_t k = 0; mask && k < n; k++)
        s[k] += LOG2_E * mask[(j + k) * step];
    for (int64_t k = seen < 0 ? 0 : min(seen, n); k < whole(n); k++)
        s[k] = -INFINITY;
}

/* Replaces scores by powers relative to the largest so far. Returns what earlier powers are to be multiplied by. */
static float weigh_row(float *s, int64_t n, float *largest, float *sum)
{
    vec top = all(*largest), total = {0};
    float base, less;

    for (int64_t k = 0; k < n; k += W)
        top = larger(AT(s + k), top);
    ACROSS(top, larger);
    base = top[0] == -INFINITY ? 0 : top[0];
    for (int64_t k = 0; k < n; k += W) {
        AT(s + k) = power_of_2(AT(s + k) - base);
        total += AT(s + k);
    }
    ACROSS(total, plus);
    less = power_of_2(all(*largest - base))[0];
    *sum = *sum * less + total[0];
    *largest = top[0];
    return less;
}

static void multiply_row(float *to, const float *factor, int64_t n)
{
    for (int64_t k = 0; k < n; k += W)
        AT(to + k) *= AT(factor + k);
}

/* The log-sum-exp of a row, from its largest score and the sum of powers relative to it. */
INLINE float lse_of(float largest, float sum)
{
    return sum == 0 ? INFINITY
                    : (float)((double)largest / (double)LOG2_E + tutti__log((double)sum));
}

/* s becomes p, and dp becomes ds = p (dp - less); factor: dropout's of p and dp, NULL: none */
static void backward_row(float *s, float *dp, int64_t n, float lse, float less, const float *factor)
{
    for (int64_t k = 0; k < n; k += W) {
        const vec p = power_of_2(multiply_add(all(lse), all(-LOG2_E), AT(s + k)));

        if (factor) {
            AT(s + k) = p * AT(factor + k);
            AT(dp + k) = p * (AT(dp + k) * AT(factor + k) - less);
        } else {
            AT(s + k) = p;
            AT(dp + k) = p * (AT(dp + k) - less);
        }
    }
}

#endif
