/* lanes.cuh -- element types, several elements at a time, and kernels that map them one by one.   SPDX-License-Identifier: MIT
 *
 * A thread takes LANES elements: 16 bytes of a 16-bit type, or 2 x 16 of floats. 16 bytes are the widest load.
 * Arithmetic is in F32. */
#ifndef TUTTI_DEVICE_CUDA_MODULE_LANES_CUH
#define TUTTI_DEVICE_CUDA_MODULE_LANES_CUH

#include "base/half.h"
#include "device/cuda/module/launch.cuh"

static constexpr int LANES = 8;

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

DEVICE float wide(float x)
{
    return x;
}
#ifdef TUTTI_CUDA_HOST
DEVICE float wide(bf16 x)
{
    return tutti__f32_of_bf16(x.bits);
}
DEVICE float wide(f16 x)
{
    return tutti__f32_of_f16(x.bits);
}
DEVICE void narrow(bf16 *to, float x)
{
    to->bits = tutti__bf16_of_f32(x);
}
DEVICE void narrow(f16 *to, float x)
{
    to->bits = tutti__f16_of_f32(x);
}
#else
DEVICE float wide(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
DEVICE float wide(f16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}
DEVICE void narrow(bf16 *to, float x)
{
    to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
DEVICE void narrow(f16 *to, float x)
{
    to->bits = __half_as_ushort(__float2half_rn(x));
}
#endif
DEVICE void narrow(float *to, float x)
{
    *to = x;
}

/* ---- Several at a time ---- */

template <int V>
struct Lanes {
    float v[V];
    METHOD float &operator[](int k)
    {
        return v[k];
    }
    METHOD const float &operator[](int k) const
    {
        return v[k];
    }
};

template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Pack {
    T v[V];
};

/* p is aligned as a Pack of them. */
template <int V, class T>
DEVICE Lanes<V> load(const T *p)
{
    const Pack<T, V> pack = *(const Pack<T, V> *)p;
    Lanes<V> x;

    for (int k = 0; k < V; k++)
        x[k] = wide(pack.v[k]);
    return x;
}

template <int V, class T>
DEVICE void store(T *p, const Lanes<V> &x)
{
    Pack<T, V> pack;

    for (int k = 0; k < V; k++)
        narrow(&pack.v[k], x[k]);
    *(Pack<T, V> *)p = pack;
}

/* Whether all pointers are aligned for load and store of LANES elements; NULL counts as aligned. */
template <class... P>
static inline bool aligned(P... p)
{
    return ((((uintptr_t)p & 15) == 0) && ...);
}

/* ---- Element by element ---- */

/* f.run<V>(i) handles V elements from i on; called for all n. */
template <int V, class F>
KERNEL void map_kernel(const F f, const int64_t n)
{
    EACH_THREAD(t)
    {
        const int64_t i = (block_index() * THREADS + t) * V;

        if (i + V <= n)
            f.template run<V>(i);
        else
            for (int64_t k = i; k < n; k++)
                f.template run<1>(k);
    }
}

template <class F>
static tutti_status map(int device, void *stream, const F &f, int64_t n, bool vectors)
{
    if (vectors)
        return launch(device, stream, blocks_of(n, THREADS * LANES), map_kernel<LANES, F>, f, n);
    return launch(device, stream, blocks_of(n, THREADS), map_kernel<1, F>, f, n);
}

/* f(T{}) with the type of dtype: F32, BF16 or F16. */
template <class F>
static tutti_status with_type(tutti_dtype dtype, const F &f)
{
    switch (dtype) {
    case TUTTI_F32:
        return f(float{});
    case TUTTI_BF16:
        return f(bf16{});
    case TUTTI_F16:
        return f(f16{});
    default:
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "kernels know F32, BF16 and F16");
    }
}

#endif
