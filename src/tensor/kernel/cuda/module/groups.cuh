/* groups.cuh -- a row for each group of threads: a warp, or if the row is long a block.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_MODULE_GROUPS_CUH
#define TUTTI_TENSOR_KERNEL_CUDA_MODULE_GROUPS_CUH

#include "device/cuda/module/launch.cuh"

static constexpr int64_t LONG = 1024; /* from this length on a row is processed by a block */

/* The row of thread t in groups of G threads. */
template <int G>
DEVICE int64_t row_of(int t)
{
    return block_index() * (THREADS / G) + t / G;
}

#endif
