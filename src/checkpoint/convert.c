/* convert.c -- conversion between dtypes.   SPDX-License-Identifier: MIT */
#include "checkpoint/convert.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

bool tutti__is_real(tutti_dtype dtype)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

bool tutti__can_convert(tutti_dtype from, tutti_dtype to)
{
    return from == to || to == TUTTI_I64 || (tutti__is_real(from) && tutti__is_real(to));
}

static float real_at(const void *p, tutti_dtype dtype, size_t i)
{
    switch (dtype) {
    case TUTTI_F64:
        return (float)((const double *)p)[i];
    case TUTTI_F16:
        return tutti__f32_of_f16(((const uint16_t *)p)[i]);
    case TUTTI_BF16:
        return tutti__f32_of_bf16(((const uint16_t *)p)[i]);
    default:
        return ((const float *)p)[i];
    }
}

/* F64 keeps all its bits. */
static double wide_at(const void *p, tutti_dtype dtype, size_t i)
{
    return dtype == TUTTI_F64 ? ((const double *)p)[i] : (double)real_at(p, dtype, i);
}

static int64_t whole_at(const void *p, tutti_dtype dtype, size_t i)
{
    switch (dtype) {
    case TUTTI_I8:
        return ((const int8_t *)p)[i];
    case TUTTI_U8:
        return ((const uint8_t *)p)[i];
    case TUTTI_I16:
        return ((const int16_t *)p)[i];
    case TUTTI_U16:
        return ((const uint16_t *)p)[i];
    case TUTTI_I32:
        return ((const int32_t *)p)[i];
    case TUTTI_U32:
        return ((const uint32_t *)p)[i];
    case TUTTI_U64:
        return (int64_t)((const uint64_t *)p)[i];
    case TUTTI_I64:
        return ((const int64_t *)p)[i];
    default:
        return (int64_t)wide_at(p, dtype, i);
    }
}

static void put_real(void *dst, tutti_dtype dtype, size_t i, float x)
{
    switch (dtype) {
    case TUTTI_F64:
        ((double *)dst)[i] = (double)x;
        break;
    case TUTTI_F16:
        ((uint16_t *)dst)[i] = tutti__f16_of_f32(x);
        break;
    case TUTTI_BF16:
        ((uint16_t *)dst)[i] = tutti__bf16_of_f32(x);
        break;
    default:
        ((float *)dst)[i] = x;
        break;
    }
}

void tutti__convert(void *dst, tutti_dtype to, const void *src, tutti_dtype from, size_t n)
{
    if (from == to) {
        if (n > 0)
            memcpy(dst, src, n * tutti_dtype_size(to));
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (tutti__is_real(to))
            put_real(dst, to, i, real_at(src, from, i));
        else
            ((int64_t *)dst)[i] = whole_at(src, from, i);
}

size_t tutti__find_nonfinite(const void *p, tutti_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n && tutti__is_real(dtype); i++)
        if (!isfinite(wide_at(p, dtype, i)))
            return i;
    return n;
}

size_t tutti__find_fraction(const void *p, tutti_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n && dtype == TUTTI_U64; i++)
        if (((const uint64_t *)p)[i] > INT64_MAX)
            return i;
    for (size_t i = 0; i < n && tutti__is_real(dtype); i++) {
        const double x = wide_at(p, dtype, i);

        if (!(x >= -0x1p63 && x < 0x1p63 && x == floor(x)))
            return i;
    }
    return n;
}
