/* reduce.cuh -- reductions over the threads of a warp or block.   SPDX-License-Identifier: MIT
 *
 * In the same tree on GPU and host: pairs at a distance of 16, 8, 4, 2, 1 threads within a warp, then the warps in
 * order. So the bits depend only on the values. */
#ifndef TUTTI_DEVICE_CUDA_MODULE_REDUCE_CUH
#define TUTTI_DEVICE_CUDA_MODULE_REDUCE_CUH

#include "device/cuda/module/launch.cuh"

struct Sum {
    template <class T>
    METHOD T operator()(T a, T b) const
    {
        return a + b;
    }
};
struct Max {
    template <class T>
    METHOD T operator()(T a, T b) const
    {
        return b > a ? b : a;
    }
};

#ifdef TUTTI_CUDA_HOST
template <class T, class Op>
DEVICE void reduce_warps(Own<T> &x, Op op)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const Own<T> before = x;

        for (int t = 0; t < THREADS; t++)
            x.of[t] = op(before.of[t], before.of[t ^ distance]);
    }
}
#else
template <class T, class Op>
DEVICE void reduce_warps(Own<T> &x, Op op)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        x.of = op(x.of, __shfl_xor_sync(0xffffffffu, x.of, distance));
}
#endif

/* Each thread's x becomes the reduction over its group of G threads: a warp, or the block. */
template <int G, class T, class Op>
DEVICE void reduce(Own<T> &x, Op op)
{
    static_assert(G == WARP || G == THREADS, "a warp, or the block");
    reduce_warps(x, op);
    if (G == THREADS) {
        SHARED T warps[THREADS / WARP];

        EACH_THREAD(t)
        {
            if (t % WARP == 0)
                warps[t / WARP] = x[t];
        }
        block_barrier();
        EACH_THREAD(t)
        {
            T all = warps[0];

            for (int i = 1; i < THREADS / WARP; i++)
                all = op(all, warps[i]);
            x[t] = all;
        }
        block_barrier();
    }
}

#endif
