/* philox.cuh -- the generator of base/rng.c, for dropout.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_MODULE_PHILOX_CUH
#define TUTTI_TENSOR_KERNEL_CUDA_MODULE_PHILOX_CUH

#include "device/cuda/module/launch.cuh"
#include "tensor/kernel/cuda/own.h"

DEVICE uint32_t high(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

/* Block `block` of the generator: Philox4x32-10. */
DEVICE void philox(const tutti__cuda_mask &c, uint32_t block, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)c.key, k1 = (uint32_t)(c.key >> 32);
    uint32_t c0 = c.step, c1 = c.shard, c2 = c.call, c3 = block;

    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = high(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const uint32_t high1 = high(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;

        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

DEVICE bool drops(uint32_t word, float p)
{
    return (float)(word >> 8) * (1.0f / 16777216) < p;
}

#endif
