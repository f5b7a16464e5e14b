/* convert.h -- converts arrays from one dtype to another.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_CONVERT_H
#define TUTTI_CHECKPOINT_CONVERT_H

#include "base/base.h"
#include <tutti/tensor.h>

/* F32, F64, F16, BF16 */
bool tutti__is_real(tutti_dtype dtype);
/* Whether elements of `from` may be read as `to`: reals as reals, whole numbers of any dtype as I64, every dtype as itself. */
bool tutti__can_convert(tutti_dtype from, tutti_dtype to);
/* Converts n elements, which must not overlap; rounds to nearest even, via F32. Reals as I64 must be whole (find_fraction). */
void tutti__convert(void *dst, tutti_dtype to, const void *src, tutti_dtype from, size_t n);
/* The first of n reals that is NaN or infinite; n: none. */
size_t tutti__find_nonfinite(const void *p, tutti_dtype dtype, size_t n);
/* The first of n numbers that is not a whole number of I64; n: none. */
size_t tutti__find_fraction(const void *p, tutti_dtype dtype, size_t n);

#endif
