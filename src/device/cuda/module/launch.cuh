/* launch.cuh -- how kernels are written, once, and launched, on a GPU and on the host.   SPDX-License-Identifier: MIT
 *
 *     template <class T> KERNEL void twice(T *p, int64_t n)       nvcc: a __global__ function; a block of THREADS
 *     {                                                           host (TUTTI_CUDA_HOST, any C++17 compiler): a function,
 *         EACH_THREAD(t)                                                called once a block
 *         {
 *             const int64_t i = block_index() * THREADS + t;      device: what thread t does
 *             if (i < n)                                          host: a loop over the block's threads
 *                 p[i] *= 2;
 *         }
 *     }
 *     launch(device, stream, blocks, twice<float>, p, n);
 *
 * A variable that a thread keeps from one EACH_THREAD to the next is an Own<T>; what the block shares is SHARED; between the two comes
 * block_barrier(). On the host all threads have left one EACH_THREAD when the next begins. Reductions are in reduce.cuh.
 *
 * On the host a launch is queued in the stand-in's stream, which runs it in order. */
#ifndef TUTTI_DEVICE_CUDA_MODULE_LAUNCH_CUH
#define TUTTI_DEVICE_CUDA_MODULE_LAUNCH_CUH

#include "device/cuda/module/shared.h"

#include <math.h>
#include <stdint.h>

static constexpr int THREADS = 256, WARP = 32;

#ifdef TUTTI_CUDA_HOST

#include <new>
#include <tuple>

#define UNROLL
#define KERNEL static
#define DEVICE static inline
#define METHOD inline        /* of a type */
#define BOTH   static inline /* called by kernels, and around them */
#define SHARED
#define EACH_THREAD(t) for (int t = 0; t < THREADS; t++)

/* Of the CUDA run-time's stand-in: submits run(arg) to the stream; returns a cudaError_t. */
extern "C" int tutti_standin_enqueue(void *stream, void (*run)(void *arg), void *arg);

inline thread_local int64_t tutti_block_index;

DEVICE int64_t block_index()
{
    return tutti_block_index;
}
DEVICE void block_barrier()
{
}

template <class T>
struct Own {
    T of[THREADS];
    T &operator[](int t)
    {
        return of[t];
    }
};

template <class... A>
struct Launch {
    void (*kernel)(A...);
    int64_t blocks;
    std::tuple<A...> arguments;

    static void run(void *self)
    {
        Launch *l = (Launch *)self;

        for (tutti_block_index = 0; tutti_block_index < l->blocks; tutti_block_index++)
            std::apply(l->kernel, l->arguments);
        delete l;
    }
};

template <class... A, class... B>
static tutti_status launch(int device, void *stream, int64_t blocks, void (*kernel)(A...),
                           B... arguments)
{
    (void)device;
    if (blocks <= 0)
        return TUTTI_OK;
    auto *l = new (std::nothrow) Launch<A...>{kernel, blocks, {arguments...}};
    if (!l)
        return TUTTI_ERR_MEMORY;
    const int error = tutti_standin_enqueue(stream, Launch<A...>::run, l);
    if (error)
        delete l;
    return tutti__cuda_result(error, "launch of a kernel");
}

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL         static __global__ __launch_bounds__(THREADS)
#define DEVICE         static __device__ __forceinline__
#define UNROLL         _Pragma("unroll 4") /* several loads in flight */
#define METHOD         __device__ __forceinline__
#define BOTH           static __host__ __device__ __forceinline__
#define SHARED         __shared__
#define EACH_THREAD(t) for (int t = (int)threadIdx.x, once = 1; once; once = 0)

DEVICE int64_t block_index()
{
    return blockIdx.x;
}
DEVICE void block_barrier()
{
    __syncthreads();
}

template <class T>
struct Own {
    T of;
    METHOD T &operator[](int)
    {
        return of;
    }
};

template <class... A, class... B>
static tutti_status launch(int device, void *stream, int64_t blocks, void (*kernel)(A...),
                           B... arguments)
{
    if (blocks <= 0)
        return TUTTI_OK;
    if (blocks > INT32_MAX)
        return tutti__cuda_result(cudaErrorInvalidConfiguration,
                                  "launch of a kernel with more than 2^31 - 1 blocks");
    const tutti_status status = tutti__cuda_use(device);
    if (status != TUTTI_OK)
        return status;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.stream = (cudaStream_t)stream;
    /* The launch's own result: cudaGetLastError might return an older error. */
    return tutti__cuda_result(cudaLaunchKernelEx(&config, kernel, arguments...),
                              "launch of a kernel");
}

#endif

/* Blocks needed for n elements. */
BOTH int64_t blocks_of(int64_t n, int64_t in_a_block)
{
    return (n + in_a_block - 1) / in_a_block;
}

#endif
