/* rotations.h -- rotary positions (op/rope.c): x [N][T][heads][2][half].   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_JOB_ROTATIONS_H
#define TUTTI_TENSOR_JOB_ROTATIONS_H

#include "base/real.h"

typedef struct tutti__job_rotations {
    int64_t N, T, heads, half;
    int64_t position; /* of row 0 */
    float sign;       /* -1: back */
    const float *frequencies, *from;
    float *to;
} tutti__job_rotations;

/* Of an angle below 2^19. */
TUTTI__FORMULA void tutti__turn(float angle, float sign, float *cosine, float *sine)
{
    const double shifted = (double)angle * (2 / TUTTI__PI) + 0x1.8p52;
    uint64_t bits;
    int32_t quarter;
    double rest;

    memcpy(&bits, &shifted, sizeof bits);
    quarter = (int32_t)(uint32_t)bits;
    rest = tutti__angle_rest((double)angle, quarter);
    *cosine = (float)tutti__cos_of_rest(rest, quarter);
    *sine = sign * (float)tutti__cos_of_rest(rest, quarter - 1);
}

/* The pair of from[0] and from[apart]. */
TUTTI__FORMULA void tutti__rotate_pair(float *to, const float *from, int64_t apart, float cosine,
                                       float sine)
{
    const float a = from[0], b = from[apart];

    to[0] = a * cosine - b * sine;
    to[apart] = b * cosine + a * sine;
}

/* Pair i % half of row i / half, in all samples and heads. */
TUTTI__FORMULA void tutti__do_rotate(const tutti__job_rotations *r, int64_t i)
{
    const int64_t t = i / r->half, width = r->heads * 2 * r->half;
    float cosine, sine;

    tutti__turn((float)(r->position + t) * r->frequencies[i % r->half], r->sign, &cosine, &sine);
    for (int64_t h = 0; h < r->N * r->heads; h++) {
        const int64_t at =
            (h / r->heads * r->T + t) * width + h % r->heads * 2 * r->half + i % r->half;

        tutti__rotate_pair(r->to + at, r->from + at, r->half, cosine, sine);
    }
}

#endif
