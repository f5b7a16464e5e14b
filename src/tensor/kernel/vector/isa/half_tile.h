/* half_tile.h -- the innermost part of products of BF16, by AVX-512's BF16 instructions, and how their factors are packed.
 * SPDX-License-Identifier: MIT
 *
 * An instruction adds two products to each of 16 sums in F32. Its factors are pairs of numbers that are neighbours along the inner
 * dimension, each in 32 bits. */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_HALF_TILE_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_HALF_TILE_H

#include "tensor/kernel/vector/isa/pack.h"

#include <string.h>

#if defined __x86_64__ && TUTTI__LANES == 16 && !defined __clang__
#define TUTTI__HAS_BF16 1

#define BF16        __attribute__((target("avx512bf16,avx512bw,avx512vl")))
#define BF16_INLINE __attribute__((always_inline)) BF16 static inline

typedef short halves __attribute__((vector_size(64)));
typedef short half_vec __attribute__((vector_size(32)));
typedef uint16_t narrow __attribute__((vector_size(32)));
typedef uint32_t wide __attribute__((vector_size(64)));
typedef narrow narrow_at __attribute__((aligned(2), may_alias));
typedef halves halves_at __attribute__((aligned(2), may_alias));
typedef half_vec half_vec_at __attribute__((aligned(2), may_alias));
typedef int32_t pair_at __attribute__((aligned(2), may_alias));

#define HALF_ROWS 8 /* of a tile */

/* ---- Packing ------------------------------------------------------------------------------------------------- */

/* x, then y, as BF16 */
BF16_INLINE halves round_both(vec x, vec y)
{
    return (halves)__builtin_ia32_cvtne2ps2bf16_v32hi(y, x);
}

/* Number i of the lower and of the upper half become pair i. */
INLINE halves interleave(halves both)
{
    return __builtin_shuffle(both, (halves){0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                            21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                            11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
}

/* 16 pairs from 16 numbers each at low and at high, of which n exist. NULL: zeros */
BF16_INLINE halves pairs_of(const void *low, const void *high, int64_t n, bool f32)
{
    if (f32)
        return interleave(
            round_both(low ? some_of(low, n) : (vec){0}, high ? some_of(high, n) : (vec){0}));
    if (n >= 16) {
        narrow x = {0}, y = {0};

        if (low)
            x = *(const narrow_at *)low;
        if (high)
            y = *(const narrow_at *)high;
        return (halves)(__builtin_convertvector(x, wide) | __builtin_convertvector(y, wide) << 16);
    }
    uint16_t both[32] __attribute__((aligned(64))) = {0};
    const size_t bytes = n > 0 ? (size_t)n * 2 : 0;

    if (low)
        memcpy(both, low, bytes);
    if (high)
        memcpy(both + 16, high, bytes);
    return interleave(*(const halves_at *)both);
}

/* 32 numbers along the inner dimension, of which n exist, as pairs */
BF16_INLINE vec along(const void *from, int64_t n, bool f32)
{
    if (f32) {
        const vec x = some_of(from, n);
        const vec y = n > 16 ? some_of((const float *)from + 16, n - 16) : (vec){0};

        return (vec)round_both(x, y);
    }
    if (n >= 32)
        return (vec) * (const halves_at *)from;
    uint16_t some[32] __attribute__((aligned(64))) = {0};

    memcpy(some, from, (size_t)n * 2);
    return (vec) * (const halves_at *)some;
}

#define AHEAD 16 /* rows that are requested before they are packed */

/* One panel [pair][PANEL] of n columns, which are contiguous, for `inner` rows, `step` apart. */
BF16_INLINE void pack_half_rows(int32_t *to, const void *from, int64_t step, int64_t inner,
                                int64_t n, bool f32)
{
    const int64_t size = f32 ? 4 : 2;
    const char *b = from;

    for (int64_t k = 0; k < inner; k += 2, to += PANEL, b += 2 * step * size) {
        for (int64_t at = 0; at < PANEL * size; at += 64) { /* may be beyond the end */
            __builtin_prefetch(b + AHEAD * step * size + at);
            __builtin_prefetch(b + (AHEAD + 1) * step * size + at);
        }
        for (int64_t j = 0; j < PANEL; j += 16) {
            const char *low = j < n ? b + j * size : NULL;
            const char *high = j < n && k + 1 < inner ? low + step * size : NULL;

            *(halves *)(to + j) = pairs_of(low, high, n - j, f32);
        }
    }
}

/* The same of n columns each of which is contiguous, `step` apart. */
BF16_INLINE void pack_half_columns(int32_t *to, const void *from, int64_t step, int64_t inner,
                                   int64_t n, bool f32)
{
    const int64_t size = f32 ? 4 : 2, pairs = (inner + 1) / 2;

    for (int64_t j = 0; j < PANEL; j += 16)
        for (int64_t k = 0; k < pairs; k += 16) {
            const char *b = (const char *)from + (j * step + 2 * k) * size;
            vec lanes[W];

            for (int i = 0; i < W; i++)
                lanes[i] =
                    j + i < n ? along(b + i * step * size, min(32, inner - 2 * k), f32) : (vec){0};
            transpose(lanes);
            for (int i = 0; i < W; i++)
                if (k + i < pairs)
                    *(vec *)(to + (k + i) * PANEL + j) = lanes[i];
        }
}

/* to[0 .. n) = x, then y, of which n numbers exist, as BF16 */
BF16_INLINE void put_halves(uint16_t *to, vec x, vec y, int64_t n)
{
    const halves h = round_both(x, y);

    if (n >= 32)
        *(halves_at *)to = h;
    else
        memcpy(to, &h, (size_t)n * 2);
}

/* ---- Tiles --------------------------------------------------------------------------------------------------- */

typedef struct half_tile {
    const uint16_t *a; /* pair k of row r is at a[r * a_row + k * a_pair] */
    const int32_t *b;  /* [pairs][PANEL] */
    float *c;          /* rows c_row apart, aligned to vectors */
    int64_t a_row, a_pair, pairs, c_row;
    bool add;
} half_tile;

/* c[r][0 .. vectors * W) = or += the sums of products */
BF16_INLINE void multiply_half_tile(const half_tile *t, int rows)
{
    const uint16_t *a = t->a;
    const int32_t *b = t->b;
    const int64_t a_row = t->a_row, a_pair = t->a_pair, c_row = t->c_row;
    float *const c = t->c;
    vec sum[HALF_ROWS][2];

    EACH (r, rows)
        EACH (i, 2)
            sum[r][i] = t->add ? *(const vec *)(c + r * c_row + i * W) : (vec){0};
    for (int64_t k = t->pairs; k > 0; k--, a += a_pair, b += PANEL) {
        const halves y0 = *(const halves *)b, y1 = *(const halves *)(b + W);

        EACH (r, rows) {
            const veci x = *(const pair_at *)(a + r * a_row) - (veci){0};

            sum[r][0] = __builtin_ia32_dpbf16ps_v16sf(sum[r][0], (halves)x, y0);
            sum[r][1] = __builtin_ia32_dpbf16ps_v16sf(sum[r][1], (halves)x, y1);
        }
    }
    EACH (r, rows)
        EACH (i, 2)
            *(vec *)(c + r * c_row + i * W) = sum[r][i];
}

#define HALF_TILE(rows)                                                                            \
    BF16 static __attribute__((noinline)) void half_##rows(const half_tile *t)                     \
    {                                                                                              \
        multiply_half_tile(t, rows);                                                               \
    }
#define HALF_NAME(rows) half_##rows,
#define EACH_HALF(f)    f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8)

EACH_HALF(HALF_TILE)
static void (*const half_rows[HALF_ROWS])(const half_tile *t) = {EACH_HALF(HALF_NAME)};

#endif
#endif
