/* values.h -- numbers for collectives of every dtype: small integers of both signs, whose sums and products are exact, so that
 * the order of a sum does not matter.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_VALUES_H
#define TUTTI_TESTS_VALUES_H

#include "base/half.h"

#include <tutti/device.h>

/* Element i of `rank`'s contribution. */
static inline int test_value(tutti_dtype dtype, int rank, size_t i)
{
    int v = (int)((i * 5 + (size_t)rank * 3) % 7);

    return dtype == TUTTI_U8 || dtype == TUTTI_U16 || dtype == TUTTI_U32 || dtype == TUTTI_U64
               ? v
               : v - 3;
}

static inline void test_put(tutti_dtype dtype, void *p, size_t i, double x)
{
    switch (dtype) {
    case TUTTI_F32:
        ((float *)p)[i] = (float)x;
        break;
    case TUTTI_F64:
        ((double *)p)[i] = x;
        break;
    case TUTTI_F16:
        ((uint16_t *)p)[i] = tutti__f16_of_f32((float)x);
        break;
    case TUTTI_BF16:
        ((uint16_t *)p)[i] = tutti__bf16_of_f32((float)x);
        break;
    case TUTTI_I8:
        ((int8_t *)p)[i] = (int8_t)x;
        break;
    case TUTTI_U8:
        ((uint8_t *)p)[i] = (uint8_t)x;
        break;
    case TUTTI_I16:
        ((int16_t *)p)[i] = (int16_t)x;
        break;
    case TUTTI_U16:
        ((uint16_t *)p)[i] = (uint16_t)x;
        break;
    case TUTTI_U32:
        ((uint32_t *)p)[i] = (uint32_t)x;
        break;
    case TUTTI_U64:
        ((uint64_t *)p)[i] = (uint64_t)x;
        break;
    case TUTTI_I32:
        ((int32_t *)p)[i] = (int32_t)x;
        break;
    case TUTTI_I64:
        ((int64_t *)p)[i] = (int64_t)x;
        break;
    }
}

#endif
