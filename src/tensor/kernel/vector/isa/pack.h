/* pack.h -- factors of products in the order in which tiles read them.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_PACK_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_PACK_H

#include "tensor/kernel/vector/isa/tile.h"

#define PANEL (2 * W) /* columns of a tile */

INLINE int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* from[0 .. n), then zeros */
INLINE vec some_of(const float *from, int64_t n)
{
    vec v = {0};

    if (n >= W)
        return *(const vec_at *)from;
    for (int i = 0; i < n; i++)
        v[i] = from[i];
    return v;
}

INLINE void put_some(float *to, vec v, int64_t n)
{
    if (n >= W)
        *(vec_at *)to = v;
    else
        for (int i = 0; i < n; i++)
            to[i] = v[i];
}

/* Packs one panel [k][width] of n columns, which are b_column apart, and zeros. */
INLINE void pack_columns(float *to, const float *b, int64_t b_column, int64_t inner, int64_t n,
                         int64_t width)
{
    for (int64_t j = 0; j < width; j += W)
        for (int64_t k = 0; k < inner; k += W) {
            vec lanes[W];

            for (int i = 0; i < W; i++)
                lanes[i] = j + i < n ? some_of(b + (j + i) * b_column + k, inner - k) : (vec){0};
            transpose(lanes);
            for (int i = 0; i < W; i++)
                if (k + i < inner)
                    *(vec *)(to + (k + i) * width + j) = lanes[i];
        }
}

#endif
