/* standin.h -- what the stand-in of the CUDA run-time offers beside CUDA's own functions: to kernels compiled for the host, to
 * the stand-ins of other libraries, and to tests, which find it by dlsym.   SPDX-License-Identifier: MIT
 *
 *     STANDIN_CUDA_DEVICES   how many devices there are; 1
 *     STANDIN_CUDA_OLD       the first device of compute capability 7, as all behind it are; none
 *     STANDIN_CUDA_MEMORY    MiB that each has; 8192
 *     STANDIN_CUDA_SEED      which of its orders the work of different streams takes; 1
 *     STANDIN_CUDA_FAULT     D:N  the Nth piece of work of device D ends in cudaErrorIllegalAddress, and all after it
 *     STANDIN_CUDA_DRIVER    what the driver says its CUDA is: 0 (no driver), 12020 (too old)
 *     STANDIN_CUDA_REPORT    1: at the end, how often each function was called that waits for the device */
#ifndef TUTTI_TESTS_STANDIN_H
#define TUTTI_TESTS_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Work for a stream (a cudaStream_t): run(arg) on a thread of the stand-in when the stream comes there, with the devices'
 * memory readable and writable. run frees arg. It may wait for other ranks, not for this process's streams. Returns a
 * cudaError_t; if that is not 0, run is not called, and arg stays the caller's. */
int tutti_standin_enqueue(void *stream, void (*run)(void *arg), void *arg);

/* How often this process has called a function that waits for the device or may, "cudaMalloc"; NULL: all of them.
 * A copy between a device and pageable memory of the host counts as "pageable copy". */
uint64_t tutti_standin_waits(const char *function);

/* From now on everything that is asked of the device fails with this cudaError_t, as after an illegal address. */
void tutti_standin_break(int device, int error);

/* NCCL's: how much there is that this process has not given back, and how often it did what NCCL forbids; `text` says what. */
int tutti_standin_nccl_leaks(char *text, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
