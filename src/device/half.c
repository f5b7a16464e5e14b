/* half.c -- arrays of BF16 and F16, to F32 and back.   SPDX-License-Identifier: MIT */
#include "base/half.h"
#include "base/base.h"
#include "device/device.h"

TUTTI__CLONES static void widen_bf16(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = tutti__f32_of_bf16(from[i]);
}

TUTTI__CLONES static void widen_f16(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = tutti__f32_of_f16(from[i]);
}

TUTTI__CLONES static void narrow_bf16(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = tutti__bf16_of_f32(from[i]);
}

TUTTI__CLONES static void narrow_f16(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = tutti__f16_of_f32(from[i]);
}

void tutti__half_to_f32(float *to, const uint16_t *from, size_t n, tutti_dtype dtype)
{
    if (dtype == TUTTI_BF16)
        widen_bf16(to, from, n);
    else
        widen_f16(to, from, n);
}

void tutti__half_from_f32(uint16_t *to, const float *from, size_t n, tutti_dtype dtype)
{
    if (dtype == TUTTI_BF16)
        narrow_bf16(to, from, n);
    else
        narrow_f16(to, from, n);
}
