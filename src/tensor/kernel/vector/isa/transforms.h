/* transforms.h -- Winograd's one-dimensional transforms, on vectors.   SPDX-License-Identifier: MIT
 *
 * Each reads i[0], i[1], ... and writes o[0], o[1], ...; the caller applies them to columns, then to rows. A convolution
 * with a kernel g of size 3 is y = A((G g) * (B x)), its gradient for g is G'((A' dy) * (B x)): the Toom-Cook algorithm,
 * transposed:
 *
 *     stride 1    F(4, 3): 6 points 0, +-a, +-b, infinity; y[s] = g[0] x[s] + g[1] x[s+1] + g[2] x[s+2]
 *                 F(3, 3): the points but 0, F(2, 3): +-a and +-b, with the same G: a point's distance to 0 is in B then
 *     stride 2    9 points: y[s] = g[0] x[2s] + g[2] x[2s+2] is F(4, 2) of the even x, 5 points +-a, +-b, infinity;
 *                 + g[1] x[2s+1] is 4 products of the odd x, untransformed, all with the sixth transformed weight */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_TRANSFORMS_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_TRANSFORMS_H

#include "tensor/kernel/vector/isa/vector.h"

#include <string.h>

/* Points that keep rounding errors near those of direct convolution (Barabasz et al. 2020 study the choice). */
#define A1 0.625f
#define B1 1.5f
#define A2 (A1 * A1)
#define B2 (B1 * B1)
#define A3 (A1 * A2)
#define B3 (B1 * B2)
/* 1 / the product of a point's distances to the others, with 0 and without */
#define NA (1.0f / (2 * A2 * (A2 - B2)))
#define NB (1.0f / (2 * B2 * (B2 - A2)))
#define KA (1.0f / (2 * A1 * (A2 - B2)))
#define KB (1.0f / (2 * B1 * (B2 - A2)))

/* ---- Stride 1 -------------------------------------------------------------------------------------------------- */

/* B: 6 to 6 */
INLINE void input_1(vec *o, const vec *i)
{
    const vec u = axpy(-B2, i[2], i[4]), w = axpy(-B2, i[1], i[3]);
    const vec u2 = axpy(-A2, i[2], i[4]), w2 = axpy(-A2, i[1], i[3]);

    o[0] = axpy(A2 * B2, i[0], axpy(-(A2 + B2), i[2], i[4]));
    o[1] = axpy(A1, w, u);
    o[2] = axpy(-A1, w, u);
    o[3] = axpy(B1, w2, u2);
    o[4] = axpy(-B1, w2, u2);
    o[5] = axpy(A2 * B2, i[1], axpy(-(A2 + B2), i[3], i[5]));
}

/* B of F(2, 3): 4 to the points 1 to 4 */
INLINE void input_1_of_2(vec *o, const vec *i)
{
    const vec u = axpy(-B2, i[0], i[2]), w = axpy(-B2, i[1], i[3]);
    const vec u2 = axpy(-A2, i[0], i[2]), w2 = axpy(-A2, i[1], i[3]);

    o[1] = axpy(A1, w, A2 * u);
    o[2] = axpy(-A1, w, A2 * u);
    o[3] = axpy(B1, w2, B2 * u2);
    o[4] = axpy(-B1, w2, B2 * u2);
}

/* B of F(3, 3): 5 to the points 1 to 5 */
INLINE void input_1_of_3(vec *o, const vec *i)
{
    input_1_of_2(o, i);
    o[5] = axpy(A2 * B2, i[0], axpy(-(A2 + B2), i[2], i[4]));
}

/* A: 6 to 4 */
INLINE void output_1(vec *o, const vec *i)
{
    const vec s = i[1] + i[2], d = i[1] - i[2], s2 = i[3] + i[4], d2 = i[3] - i[4];

    o[0] = i[0] + s + s2;
    o[1] = axpy(A1, d, B1 * d2);
    o[2] = axpy(A2, s, B2 * s2);
    o[3] = axpy(A3, d, axpy(B3, d2, i[5]));
}

/* A of F(2, 3): the points 1 to 4 to 2 */
INLINE void output_1_of_2(vec *o, const vec *i)
{
    o[0] = i[1] + i[2] + (i[3] + i[4]);
    o[1] = axpy(A1, i[1] - i[2], B1 * (i[3] - i[4]));
}

/* A of F(3, 3): the points 1 to 5 to 3 */
INLINE void output_1_of_3(vec *o, const vec *i)
{
    output_1_of_2(o, i);
    o[2] = axpy(A2, i[1] + i[2], axpy(B2, i[3] + i[4], i[5]));
}

/* A': 4 to 6 */
INLINE void gradient_1(vec *o, const vec *i)
{
    const vec e = axpy(A2, i[2], i[0]), d = axpy(A1, i[1], A3 * i[3]);
    const vec e2 = axpy(B2, i[2], i[0]), d2 = axpy(B1, i[1], B3 * i[3]);

    o[0] = i[0];
    o[1] = e + d;
    o[2] = e - d;
    o[3] = e2 + d2;
    o[4] = e2 - d2;
    o[5] = i[3];
}

/* A' of F(3, 3): 3 to the points 1 to 5 */
INLINE void gradient_1_of_3(vec *o, const vec *i)
{
    const vec e = axpy(A2, i[2], i[0]), e2 = axpy(B2, i[2], i[0]);

    o[1] = axpy(A1, i[1], e);
    o[2] = axpy(-A1, i[1], e);
    o[3] = axpy(B1, i[1], e2);
    o[4] = axpy(-B1, i[1], e2);
    o[5] = i[2];
}

/* A' of F(2, 3): 2 to the points 1 to 4 */
INLINE void gradient_1_of_2(vec *o, const vec *i)
{
    o[1] = axpy(A1, i[1], i[0]);
    o[2] = axpy(-A1, i[1], i[0]);
    o[3] = axpy(B1, i[1], i[0]);
    o[4] = axpy(-B1, i[1], i[0]);
}

/* G: 3 to 6 */
INLINE void weights_1(vec *o, const vec *i)
{
    const vec e = axpy(A2, i[2], i[0]), e2 = axpy(B2, i[2], i[0]);

    o[0] = i[0] * (1.0f / (A2 * B2));
    o[1] = NA * axpy(A1, i[1], e);
    o[2] = NA * axpy(-A1, i[1], e);
    o[3] = NB * axpy(B1, i[1], e2);
    o[4] = NB * axpy(-B1, i[1], e2);
    o[5] = i[2];
}

/* G': 6 to 3 */
INLINE void weights_gradient_1(vec *o, const vec *i)
{
    const vec s = NA * (i[1] + i[2]), d = NA * (i[1] - i[2]);
    const vec s2 = NB * (i[3] + i[4]), d2 = NB * (i[3] - i[4]);

    o[0] = axpy(1.0f / (A2 * B2), i[0], s + s2);
    o[1] = axpy(A1, d, B1 * d2);
    o[2] = axpy(A2, s, axpy(B2, s2, i[5]));
}

/* ---- Stride 2 -------------------------------------------------------------------------------------------------- */

/* F(4, 2): 5 to 5, from i[0], i[step], ... */
INLINE void input_half(vec *o, const vec *i, int step)
{
    const vec u = axpy(-B2, i[step], i[3 * step]), w = axpy(-B2, i[0], i[2 * step]);
    const vec u2 = axpy(-A2, i[step], i[3 * step]), w2 = axpy(-A2, i[0], i[2 * step]);

    o[0] = axpy(A1, w, u);
    o[1] = axpy(-A1, w, u);
    o[2] = axpy(B1, w2, u2);
    o[3] = axpy(-B1, w2, u2);
    o[4] = axpy(A2 * B2, i[0], axpy(-(A2 + B2), i[2 * step], i[4 * step]));
}

/* B: 9 to 9 */
INLINE void input_2(vec *o, const vec *i)
{
    input_half(o, i, 2);
    for (int k = 0; k < 4; k++)
        o[5 + k] = i[1 + 2 * k];
}

/* A: 9 to 4 */
INLINE void output_2(vec *o, const vec *i)
{
    const vec s = i[0] + i[1], d = i[0] - i[1], s2 = i[2] + i[3], d2 = i[2] - i[3];

    o[0] = s + s2 + i[5];
    o[1] = axpy(A1, d, axpy(B1, d2, i[6]));
    o[2] = axpy(A2, s, axpy(B2, s2, i[7]));
    o[3] = axpy(A3, d, axpy(B3, d2, i[4] + i[8]));
}

/* A': 4 to 9 */
INLINE void gradient_2(vec *o, const vec *i)
{
    const vec e = axpy(A2, i[2], i[0]), d = axpy(A1, i[1], A3 * i[3]);
    const vec e2 = axpy(B2, i[2], i[0]), d2 = axpy(B1, i[1], B3 * i[3]);

    o[0] = e + d;
    o[1] = e - d;
    o[2] = e2 + d2;
    o[3] = e2 - d2;
    o[4] = i[3];
    for (int k = 0; k < 4; k++)
        o[5 + k] = i[k];
}

/* G: 3 to 6; the last is for all four odd x */
INLINE void weights_2(vec *o, const vec *i)
{
    o[0] = KA * axpy(A1, i[2], i[0]);
    o[1] = -KA * axpy(-A1, i[2], i[0]);
    o[2] = KB * axpy(B1, i[2], i[0]);
    o[3] = -KB * axpy(-B1, i[2], i[0]);
    o[4] = i[2];
    o[5] = i[1];
}

/* G': 6 to 3 */
INLINE void weights_gradient_2(vec *o, const vec *i)
{
    o[0] = axpy(KA, i[0] - i[1], KB * (i[2] - i[3]));
    o[1] = i[5];
    o[2] = axpy(KA * A1, i[0] + i[1], axpy(KB * B1, i[2] + i[3], i[4]));
}

/* The gradient for x: of 8 x, the even ones (with padding 1) are g[1] dy[s], the odd ones g[2] dy[s] + g[0] dy[s+1], which
 * is forward's with the kernel reversed. 5 to 9 */
INLINE void spread_input_2(vec *o, const vec *i)
{
    input_half(o, i, 1);
    for (int k = 0; k < 4; k++)
        o[5 + k] = i[k];
}

/* 9 to 8 */
INLINE void spread_output_2(vec *o, const vec *i)
{
    const vec s = i[0] + i[1], d = i[0] - i[1], s2 = i[2] + i[3], d2 = i[2] - i[3];

    o[1] = s + s2;
    o[3] = axpy(A1, d, B1 * d2);
    o[5] = axpy(A2, s, B2 * s2);
    o[7] = axpy(A3, d, axpy(B3, d2, i[4]));
    for (int k = 0; k < 4; k++)
        o[2 * k] = i[5 + k];
}

/* ---- Weights in memory ------------------------------------------------------------------------------------------- */

/* They are [M][C][3][3]. A square is W outputs by W inputs, 9 vectors per row. */

/* square[input * 9 + tap], one lane per output */
INLINE void load_square(vec *square, const float *w, int64_t row)
{
    for (int k = 0; k < 9; k++) {
        vec lanes[W];

        for (int m = 0; m < W; m++)
            lanes[m] = *(const vec_at *)(w + m * row + k * W);
        transpose(lanes);
        for (int i = 0; i < W; i++)
            square[k * W + i] = lanes[i];
    }
}

/* square[output * 9 + tap], one lane per input */
INLINE void turn_square(vec *square)
{
    for (int k = 0; k < 9; k++) {
        vec lanes[W];

        for (int c = 0; c < W; c++)
            lanes[c] = square[c * 9 + k];
        transpose(lanes);
        for (int m = 0; m < W; m++)
            square[m * 9 + k] = lanes[m];
    }
}

INLINE void store_square(float *dw, int64_t row, const vec *square, bool add)
{
    for (int k = 0; k < 9; k++) {
        vec lanes[W];

        for (int i = 0; i < W; i++)
            lanes[i] = square[k * W + i];
        transpose(lanes);
        for (int m = 0; m < W; m++) {
            vec_at *to = (vec_at *)(dw + m * row + k * W);

            if (add)
                lanes[m] += *to;
            *to = lanes[m];
        }
    }
}

/* The same of weights that have only `inputs` of them from w on, if that is less than W; the others are zeros. */
static void load_some(vec *square, const float *w, int64_t row, int64_t inputs)
{
    float part[W][9 * W] = {{0}};

    if (inputs >= W) {
        load_square(square, w, row);
        return;
    }
    for (int m = 0; m < W; m++)
        memcpy(part[m], w + m * row, (size_t)inputs * 9 * sizeof(float));
    load_square(square, part[0], 9 * W);
}

static void store_some(float *dw, int64_t row, const vec *square, bool add, int64_t inputs)
{
    float part[W][9 * W];

    if (inputs >= W) {
        store_square(dw, row, square, add);
        return;
    }
    store_square(part[0], 9 * W, square, false);
    for (int m = 0; m < W; m++)
        for (int64_t k = 0; k < inputs * 9; k++)
            dw[m * row + k] = add ? dw[m * row + k] + part[m][k] : part[m][k];
}

#endif
