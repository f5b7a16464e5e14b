/* standin.h -- functions of the CUDA run-time's stand-in in addition to CUDA's own: for kernels compiled for the host,
 * the stand-ins of other libraries, and tests, which find them by dlsym.   SPDX-License-Identifier: MIT
 *
 *     STANDIN_CUDA_DEVICES   number of devices; 1
 *     STANDIN_CUDA_OLD       the first device with compute capability 7, which all later ones have too; none
 *     STANDIN_CUDA_PAGE      bytes of a page of mapped memory; 4096, so that small tests have many (real ones: 2 MiB)
 *     STANDIN_CUDA_MEMORY    MiB of each; 8192
 *     STANDIN_CUDA_SEED      seed of the order between streams; 1
 *     STANDIN_CUDA_FAULT     D:N  the Nth piece of work of device D fails with cudaErrorIllegalAddress, and all after it
 *     STANDIN_CUDA_DRIVER    the driver's CUDA version: 0 (no driver), 12020 (too old)
 *     STANDIN_CUDA_REPORT    1: at the end prints the number of calls of each function that waits for the device */
#ifndef TUTTI_TESTS_STANDIN_H
#define TUTTI_TESTS_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Submits work to a stream (a cudaStream_t): run(arg) on a thread of the stand-in, with the devices'
 * memory readable and writable. run frees arg. It may wait for other ranks, not for this process's streams. Returns a
 * cudaError_t; if that is not 0, run is not called, and arg still belongs to the caller. */
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
