/* cast_kernel.c -- row-major tensors from one real dtype to another.   SPDX-License-Identifier: MIT */
#include "tensor/kernel.h"

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

tutti_status tutti__cast_row_major(tutti_tensor *dst, tutti_tensor *src)
{
    const int64_t n = tutti_shape_count(src->shape);
    const void *p;

    TUTTI_TRY(tutti__tensor_row_major(src, &p));
    TUTTI_TRY(tutti__tensor_alloc(dst, NULL));
    if (dst->dtype == src->dtype)
        memcpy(dst->data, p, (size_t)n * tutti_dtype_size(src->dtype));
    else if (dst->dtype == TUTTI_F32)
        tutti__half_to_f32(dst->data, p, (size_t)n, src->dtype);
    else if (src->dtype == TUTTI_F32)
        tutti__half_from_f32(dst->data, p, (size_t)n, dst->dtype);
    else
        exchange(dst->data, dst->dtype, p, src->dtype, n);
    return TUTTI_OK;
}
