/* runtime.c -- devices, memory, streams and events of CUDA.   SPDX-License-Identifier: MIT */
#include "device/cuda/module/shared.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY_USE(device)                                                                            \
    do {                                                                                           \
        tutti_status status_ = tutti__cuda_use(device);                                            \
        if (status_ != TUTTI_OK)                                                                   \
            return status_;                                                                        \
    } while (0)

/* ---- Devices ----------------------------------------------------------------------------------------------- */

/* The driver's version is the newest CUDA that it supports; 0: no driver. */
static tutti_status no_device(cudaError_t error)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0, runtime = 0;

    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return tutti__cuda_fail(TUTTI_ERR_DEVICE, "no NVIDIA driver (libcuda.so.1): install it");
    if (error == cudaErrorInsufficientDriver)
        return tutti__cuda_fail(TUTTI_ERR_DEVICE,
                                "the NVIDIA driver knows CUDA up to %d.%d, but Tutti was built "
                                "with CUDA %d.%d: install "
                                "a newer driver, or build Tutti with CUDA %d",
                                driver / 1000, driver % 1000 / 10, runtime / 1000,
                                runtime % 1000 / 10, driver / 1000);
    if (error == cudaErrorNoDevice && visible)
        return tutti__cuda_fail(TUTTI_ERR_DEVICE,
                                "no device is visible: CUDA_VISIBLE_DEVICES is \"%.60s\"; unset "
                                "it, or name a device in it",
                                visible);
    if (error == cudaErrorNoDevice)
        return tutti__cuda_fail(
            TUTTI_ERR_DEVICE, "there is a driver, but it sees no device: nvidia-smi tells more; a "
                              "container needs --gpus all");
    return tutti__cuda_fail(TUTTI_ERR_DEVICE, "CUDA does not start: %s (%s)",
                            cudaGetErrorString(error), cudaGetErrorName(error));
}

static tutti_status count(int *count_p)
{
    cudaError_t error;

    *count_p = 0;
    error = cudaGetDeviceCount(count_p);
    if (error == cudaSuccess && *count_p == 0)
        error = cudaErrorNoDevice;
    if (error == cudaSuccess)
        return TUTTI_OK;
    *count_p = 0;
    return no_device(error);
}

static tutti_status attribute(int *value_p, enum cudaDeviceAttr attr, int device)
{
    return TUTTI__CALL(cudaDeviceGetAttribute(value_p, attr, device));
}

static tutti_status properties(int device, tutti__cuda_properties *p)
{
    struct cudaDeviceProp all;
    tutti_status status = TUTTI__CALL(cudaGetDeviceProperties(&all, device));

    memset(p, 0, sizeof *p);
    if (status != TUTTI_OK)
        return status;
    snprintf(p->name, sizeof p->name, "%.127s", all.name);
    snprintf(p->bus, sizeof p->bus, "%04x:%02x:%02x.0", all.pciDomainID & 0xffff,
             all.pciBusID & 0xff, all.pciDeviceID & 0xff);
    p->memory_bytes = all.totalGlobalMem;
    if ((status = attribute(&p->major, cudaDevAttrComputeCapabilityMajor, device)) != TUTTI_OK ||
        (status = attribute(&p->minor, cudaDevAttrComputeCapabilityMinor, device)) != TUTTI_OK)
        return status;
    return attribute(&p->processors, cudaDevAttrMultiProcessorCount, device);
}

static tutti_status memory(int device, size_t *free_bytes_p, size_t *total_bytes_p)
{
    TRY_USE(device);
    return TUTTI__CALL(cudaMemGetInfo(free_bytes_p, total_bytes_p));
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static tutti_status device_alloc(int device, size_t bytes, void **p)
{
    *p = NULL;
    TRY_USE(device);
    return TUTTI__CALL(cudaMalloc(p, bytes));
}

static tutti_status device_free(int device, void *p)
{
    TRY_USE(device);
    return TUTTI__CALL(cudaFree(p));
}

/* Portable: any device can copy from it. */
static tutti_status host_alloc(int device, size_t bytes, void **p)
{
    *p = NULL;
    TRY_USE(device);
    return TUTTI__CALL(cudaHostAlloc(p, bytes, cudaHostAllocPortable));
}

static tutti_status host_free(void *p)
{
    return TUTTI__CALL(cudaFreeHost(p));
}

/* ---- Streams and events -------------------------------------------------------------------------------------- */

static tutti_status stream_new(int device, void **stream_p)
{
    *stream_p = NULL;
    TRY_USE(device);
    return TUTTI__CALL(cudaStreamCreateWithFlags((cudaStream_t *)stream_p, cudaStreamNonBlocking));
}

/* Works for any device, also for one that has failed. */
static tutti_status stream_free(void *stream)
{
    return TUTTI__CALL(cudaStreamDestroy(stream));
}

static tutti_status stream_wait(int device, void *stream)
{
    TRY_USE(device);
    return TUTTI__CALL(cudaStreamSynchronize(stream));
}

static tutti_status event_new(int device, void **event_p)
{
    *event_p = NULL;
    TRY_USE(device);
    return TUTTI__CALL(cudaEventCreateWithFlags((cudaEvent_t *)event_p, cudaEventDisableTiming));
}

static tutti_status event_free(void *event)
{
    return TUTTI__CALL(cudaEventDestroy(event));
}

static tutti_status event_record(int device, void *event, void *stream)
{
    TRY_USE(device);
    return TUTTI__CALL(cudaEventRecord(event, stream));
}

static tutti_status event_wait(int device, void *event, void *stream)
{
    TRY_USE(device);
    return TUTTI__CALL(cudaStreamWaitEvent(stream, event, 0));
}

static tutti_status event_passed(int device, void *event, bool *passed_p)
{
    cudaError_t error;

    *passed_p = false;
    TRY_USE(device);
    error = cudaEventQuery(event);
    *passed_p = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return TUTTI_OK;
    }
    return tutti__cuda_result((int)error, "cudaEventQuery");
}

/* ---- Copies -------------------------------------------------------------------------------------------------- */

static tutti_status move(int device, void *stream, void *dst, const void *src, size_t bytes,
                         enum cudaMemcpyKind kind)
{
    if (bytes == 0)
        return TUTTI_OK;
    TRY_USE(device);
    return TUTTI__CALL(cudaMemcpyAsync(dst, src, bytes, kind, stream));
}

static tutti_status copy_in(int device, void *stream, void *dst, const void *host_src, size_t bytes)
{
    return move(device, stream, dst, host_src, bytes, cudaMemcpyHostToDevice);
}

static tutti_status copy_out(int device, void *stream, void *host_dst, const void *src,
                             size_t bytes)
{
    return move(device, stream, host_dst, src, bytes, cudaMemcpyDeviceToHost);
}

static tutti_status copy(int device, void *stream, void *dst, const void *src, size_t bytes)
{
    return move(device, stream, dst, src, bytes, cudaMemcpyDeviceToDevice);
}

static tutti_status zero(int device, void *stream, void *p, size_t bytes)
{
    if (bytes == 0)
        return TUTTI_OK;
    TRY_USE(device);
    return TUTTI__CALL(cudaMemsetAsync(p, 0, bytes, stream));
}

/* ---- For profilers ------------------------------------------------------------------------------------------- */

static pthread_once_t nvtx = PTHREAD_ONCE_INIT;

static void nvtx_begin(void)
{
    nvtxInitialize(NULL);
}

/* Initialised once, because NVTX's lazy initialisation would set pointers that other threads read at that time. */
static void range_push(const char *name)
{
    pthread_once(&nvtx, nvtx_begin);
    (void)nvtxRangePushA(name);
}

static void range_pop(void)
{
    (void)nvtxRangePop();
}

const tutti__cuda_runtime tutti__cuda_runtime_table = {
    .count = count,
    .use = tutti__cuda_use,
    .properties = properties,
    .memory = memory,
    .alloc = device_alloc,
    .free = device_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .page_bytes = tutti__cuda_page_bytes,
    .reserve = tutti__cuda_reserve,
    .unreserve = tutti__cuda_unreserve,
    .page_new = tutti__cuda_page_new,
    .page_free = tutti__cuda_page_free,
    .map = tutti__cuda_map,
    .open = tutti__cuda_open,
    .unmap = tutti__cuda_unmap,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_wait = stream_wait,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_passed = event_passed,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .zero = zero,
    .range_push = range_push,
    .range_pop = range_pop,
};
