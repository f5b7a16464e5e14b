/* tile.h -- the innermost part of matrix products: a tile of the result in registers.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_TILE_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_TILE_H

#include "tensor/kernel/vector/isa/vector.h"

#if TUTTI__LANES == 16
#define TILE_ROWS    8
#define EACH_ROWS(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8)
#else
#define TILE_ROWS    6 /* for 16 registers */
#define EACH_ROWS(f) f(1) f(2) f(3) f(4) f(5) f(6)
#endif

typedef struct register_tile {
    const float *a, *b;
    float *c;
    int64_t a_row, a_k, b_k, c_row, inner;
    bool add;
    bool streams; /* c is aligned to vectors, and nobody reads it soon: stored past the cache */
} register_tile;

/* `fetches`: a panel that is read in place lies W * vectors before the next one, which is prefetched.
 * sum[r][i] += sum over k of a[r * a_row + k * a_k] * vector i of b[k * b_k ..] */
INLINE void add_products(vec sum[TILE_ROWS][2], const register_tile *t, int rows, int vectors,
                         bool fetches)
{
    const float *a = t->a, *b = t->b;
    const int64_t a_row = t->a_row, a_k = t->a_k, b_k = t->b_k;
    vec y[2];

    for (int64_t k = t->inner; k > 0; k--, a += a_k, b += b_k) {
        EACH (i, vectors) {
            y[i] = *(const vec_at *)(b + i * W);
            if (fetches && i * W % 16 == 0)
                __builtin_prefetch(b + (vectors + i) * W, 0, 2);
        }
        EACH (r, rows)
            EACH (i, vectors)
                sum[r][i] = axpy(a[r * a_row], y[i], sum[r][i]);
    }
}

/* c[r][0 .. vectors * W) = or += those sums */
INLINE void multiply_tile(const register_tile *t, int rows, int vectors)
{
    vec sum[TILE_ROWS][2];
    float *const c = t->c;
    const int64_t c_row = t->c_row;

    EACH (r, rows)
        EACH (i, vectors)
            sum[r][i] = (vec){0};
    add_products(sum, t, rows, vectors, true);
    if (t->add)
        EACH (r, rows)
            EACH (i, vectors)
                sum[r][i] += *(const vec_at *)(c + r * c_row + i * W);
    if (t->streams)
        EACH (r, rows)
            EACH (i, vectors)
                stream(c + r * c_row + i * W, sum[r][i]);
    else
        EACH (r, rows)
            EACH (i, vectors)
                *(vec_at *)(c + r * c_row + i * W) = sum[r][i];
}

#define MULTIPLY(rows)                                                                             \
    static __attribute__((noinline)) void multiply_##rows##_1(const register_tile *t)              \
    {                                                                                              \
        multiply_tile(t, rows, 1);                                                                 \
    }                                                                                              \
    static __attribute__((noinline)) void multiply_##rows##_2(const register_tile *t)              \
    {                                                                                              \
        multiply_tile(t, rows, 2);                                                                 \
    }
#define NAMES(rows) {multiply_##rows##_1, multiply_##rows##_2},

EACH_ROWS(MULTIPLY)
static void (*const multiply_rows[TILE_ROWS][2])(const register_tile *t) = {EACH_ROWS(NAMES)};

#endif
