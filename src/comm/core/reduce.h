/* reduce.h -- combines the contributions of several ranks.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_CORE_REDUCE_H
#define TUTTI_COMM_CORE_REDUCE_H

#include <stddef.h>
#include <tutti/group.h>

/* dst[i] = src[0][i] op src[1][i] op ... in this order, divided by n_src for AVG, for count elements, then copied to the
 * other destinations. 16-bit types accumulate in f32. A destination may be one of the sources. */
void tutti__reduce(tutti_dtype dtype, tutti_redop op, void *const *dst, size_t n_dst,
                   const void *const *src, size_t n_src, size_t count);

/* The same for one destination: the sum divided by `divisor`, whatever n_src. */
void tutti__average(tutti_dtype dtype, size_t divisor, void *dst, const void *const *src,
                    size_t n_src, size_t count);

/* dst[i] = factor * src[i], of floats; 16-bit types are multiplied in f32. dst is src, or does not overlap it. */
void tutti__scale(tutti_dtype dtype, double factor, void *dst, const void *src, size_t count);

#endif
