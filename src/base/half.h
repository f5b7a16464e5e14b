/* half.h -- f16 and bf16 to f32 and back, rounding to nearest even.   SPDX-License-Identifier: MIT
 *
 * Branch-free, so that compilers vectorise loops over them. */
#ifndef TUTTI_BASE_HALF_H
#define TUTTI_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float tutti__float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t tutti__bits_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float tutti__f32_of_bf16(uint16_t h)
{
    return tutti__float_of_bits((uint32_t)h << 16);
}

static inline uint16_t tutti__bf16_of_f32(float x)
{
    uint32_t bits = tutti__bits_of_float(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40u; /* stays a NaN, quiet */

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float tutti__f32_of_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
    /* The product moves the exponent from bias 15 to 127 and normalises subnormals exactly. */
    uint32_t finite = tutti__bits_of_float(tutti__float_of_bits(magnitude) * 0x1p112f);

    return tutti__float_of_bits(sign |
                                ((h & 0x7fffu) >= 0x7c00u ? magnitude | 0x7f800000u : finite));
}

static inline uint16_t tutti__f16_of_f32(float x)
{
    uint32_t bits = tutti__bits_of_float(x), sign = (bits >> 16) & 0x8000u, a = bits & 0x7fffffffu;
    /* Normal results: change the bias, round off 13 bits. */
    uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13;
    /* Subnormal results: adding 0.5 leaves the result in the sum's low bits, rounded by the addition. */
    uint32_t subnormal = tutti__bits_of_float(tutti__float_of_bits(a) + 0.5f) - 0x3f000000u;
    uint32_t special = a > 0x7f800000u ? 0x7e00u : 0x7c00u;

    return (uint16_t)(sign | (a >= 0x477ff000u ? special : a < 0x38800000u ? subnormal : normal));
}

#endif
