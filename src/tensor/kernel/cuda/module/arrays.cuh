/* arrays.cuh -- elements of a dtype that is known when a kernel runs.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_MODULE_ARRAYS_CUH
#define TUTTI_TENSOR_KERNEL_CUDA_MODULE_ARRAYS_CUH

#include "device/cuda/module/lanes.cuh"
#include "tensor/kernel/cuda/own.h"

/* As load and store of lanes.cuh. */
template <int V>
DEVICE Lanes<V> load_of(const tutti__cuda_array &x, int64_t i)
{
    if (x.dtype == TUTTI_F32)
        return load<V>((const float *)x.p + i);
    if (x.dtype == TUTTI_BF16)
        return load<V>((const bf16 *)x.p + i);
    return load<V>((const f16 *)x.p + i);
}

template <int V>
DEVICE void store_to(const tutti__cuda_array &x, int64_t i, const Lanes<V> &v)
{
    if (x.dtype == TUTTI_F32)
        store<V>((float *)x.p + i, v);
    else if (x.dtype == TUTTI_BF16)
        store<V>((bf16 *)x.p + i, v);
    else
        store<V>((f16 *)x.p + i, v);
}

DEVICE float element(const tutti__cuda_array &x, int64_t i)
{
    return load_of<1>(x, i)[0];
}

/* Where element i of n dimensions is. */
DEVICE int64_t strided(int64_t i, int n, const int64_t *size, const int64_t *stride)
{
    int64_t at = 0;

    if (i <= INT32_MAX) { /* 32-bit divisions are much faster */
        uint32_t rest = (uint32_t)i;

        for (int k = n - 1; k > 0; k--) {
            at += (int64_t)(rest % (uint32_t)size[k]) * stride[k];
            rest /= (uint32_t)size[k];
        }
        return n > 0 ? at + (int64_t)rest * stride[0] : 0;
    }
    for (int k = n - 1; k > 0; k--) {
        at += i % size[k] * stride[k];
        i /= size[k];
    }
    return n > 0 ? at + i * stride[0] : 0;
}

#endif
