/* cast_kernel.c -- row-major tensors from one real dtype to another.   SPDX-License-Identifier: MIT */
#include "tensor/kernel.h"
#include "tensor/parallel.h"

#include <string.h>

/* BF16 <-> F16 go through F32, piece by piece: F32 holds both exactly, so values are rounded once. */
static void exchange(uint16_t *to, tutti_dtype to_dtype, const uint16_t *from,
                     tutti_dtype from_dtype, int64_t n)
{
    float wide[256];

    for (int64_t i = 0; i < n; i += 256) {
        const size_t m = (size_t)(n - i < 256 ? n - i : 256);

        tutti__half_to_f32(wide, from + i, m, from_dtype);
        tutti__half_from_f32(to + i, wide, m, to_dtype);
    }
}

#define PART ((int64_t)1 << 14) /* elements of a job */

typedef struct conversion {
    void *to;
    const void *from;
    tutti_dtype to_dtype, from_dtype;
    int64_t count;
} conversion;

static void convert_job(void *arg, int64_t job, int member)
{
    const conversion *c = arg;
    const int64_t at = job * PART, n = c->count - at < PART ? c->count - at : PART;
    const void *from = (const char *)c->from + (size_t)at * tutti_dtype_size(c->from_dtype);
    void *to = (char *)c->to + (size_t)at * tutti_dtype_size(c->to_dtype);

    (void)member;
    if (c->to_dtype == c->from_dtype)
        memcpy(to, from, (size_t)n * tutti_dtype_size(c->to_dtype));
    else if (c->to_dtype == TUTTI_F32)
        tutti__half_to_f32(to, from, (size_t)n, c->from_dtype);
    else if (c->from_dtype == TUTTI_F32)
        tutti__half_from_f32(to, from, (size_t)n, c->to_dtype);
    else
        exchange(to, c->to_dtype, from, c->from_dtype, n);
}

tutti_status tutti__cast_row_major(tutti_tensor *dst, tutti_tensor *src)
{
    conversion c = {
        .to_dtype = dst->dtype, .from_dtype = src->dtype, .count = tutti_shape_count(src->shape)};

    TUTTI_TRY(tutti__tensor_row_major(src, &c.from));
    TUTTI_TRY(tutti__tensor_alloc(dst, NULL));
    c.to = dst->data;
    tutti__parallel(dst->cx, convert_job, &c, (c.count + PART - 1) / PART);
    return TUTTI_OK;
}
