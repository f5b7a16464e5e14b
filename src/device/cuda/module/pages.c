/* pages.c -- addresses and memory apart: the driver's virtual memory.   SPDX-License-Identifier: MIT
 *
 * Its functions are found through the run-time, so that nothing is linked with libcuda. */
#include "device/cuda/module/shared.h"

#include <cuda.h>
#include <pthread.h>
#include <string.h>

/* The functions are as in CUDA 12.0, the oldest that the module is built with. */
#if CUDART_VERSION >= 12050
#define GET(name, p, result)                                                                       \
    cudaGetDriverEntryPointByVersion(name, p, 12000, cudaEnableDefault, result)
#else
#define GET(name, p, result) cudaGetDriverEntryPoint(name, p, cudaEnableDefault, result)
#endif

static struct driver {
    pthread_once_t once;
    const char *missing; /* NULL: all are there */
    CUresult (*cuGetErrorName)(CUresult error, const char **name_p);
    CUresult (*cuDeviceGetAttribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*cuMemGetAllocationGranularity)(size_t *bytes, const CUmemAllocationProp *properties,
                                              CUmemAllocationGranularity_flags option);
    CUresult (*cuMemAddressReserve)(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr at,
                                    unsigned long long flags);
    CUresult (*cuMemAddressFree)(CUdeviceptr p, size_t bytes);
    CUresult (*cuMemCreate)(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags);
    CUresult (*cuMemRelease)(CUmemGenericAllocationHandle handle);
    CUresult (*cuMemMap)(CUdeviceptr p, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags);
    CUresult (*cuMemSetAccess)(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access,
                               size_t n);
    CUresult (*cuMemUnmap)(CUdeviceptr p, size_t bytes);
} driver = {.once = PTHREAD_ONCE_INIT};

static void find(void *function_p, const char *name)
{
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    void *p = NULL;

    if (GET(name, &p, &result) != cudaSuccess || result != cudaDriverEntryPointSuccess || !p) {
        (void)cudaGetLastError();
        driver.missing = name;
        return;
    }
    memcpy(function_p, &p, sizeof p);
}

static void find_all(void)
{
#define FIND(name) find(&driver.name, #name)
    FIND(cuGetErrorName);
    FIND(cuDeviceGetAttribute);
    FIND(cuMemGetAllocationGranularity);
    FIND(cuMemAddressReserve);
    FIND(cuMemAddressFree);
    FIND(cuMemCreate);
    FIND(cuMemRelease);
    FIND(cuMemMap);
    FIND(cuMemSetAccess);
    FIND(cuMemUnmap);
#undef FIND
}

static tutti_status result(CUresult error, const char *what)
{
    const char *name = NULL;

    if (error == CUDA_SUCCESS)
        return TUTTI_OK;
    (void)driver.cuGetErrorName(error, &name);
    return tutti__cuda_fail(error == CUDA_ERROR_OUT_OF_MEMORY ? TUTTI_ERR_MEMORY : TUTTI_ERR_DEVICE,
                            "%.*s: %s", (int)strcspn(what, "("), what, name ? name : "unknown");
}

#define CALL(call) result(driver.call, #call)

static CUmemAllocationProp properties_of(int device)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

tutti_status tutti__cuda_page_bytes(int device, size_t *bytes_p)
{
    const CUmemAllocationProp properties = properties_of(device);
    int supported = 0;
    tutti_status status;

    pthread_once(&driver.once, find_all);
    if (driver.missing)
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "the NVIDIA driver has no %s",
                                driver.missing);
    if ((status = tutti__cuda_use(device)) != TUTTI_OK ||
        (status = CALL(cuDeviceGetAttribute(
             &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))) !=
            TUTTI_OK)
        return status;
    if (!supported)
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED,
                                "the device, or its driver, has no virtual memory management");
    return CALL(
        cuMemGetAllocationGranularity(bytes_p, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

tutti_status tutti__cuda_reserve(int device, size_t bytes, void **p)
{
    CUdeviceptr at = 0;
    tutti_status status = tutti__cuda_use(device);

    if (status == TUTTI_OK)
        status = CALL(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    *p = (void *)(uintptr_t)at;
    return status;
}

tutti_status tutti__cuda_unreserve(int device, void *p, size_t bytes)
{
    (void)device;
    return CALL(cuMemAddressFree((CUdeviceptr)(uintptr_t)p, bytes));
}

tutti_status tutti__cuda_page_new(int device, size_t bytes, uint64_t *page_p)
{
    const CUmemAllocationProp properties = properties_of(device);
    CUmemGenericAllocationHandle handle = 0;
    tutti_status status = tutti__cuda_use(device);

    if (status == TUTTI_OK)
        status = CALL(cuMemCreate(&handle, bytes, &properties, 0));
    *page_p = handle;
    return status;
}

tutti_status tutti__cuda_page_free(int device, uint64_t page)
{
    (void)device;
    return CALL(cuMemRelease(page));
}

tutti_status tutti__cuda_map(int device, void *p, size_t bytes, uint64_t page)
{
    tutti_status status = tutti__cuda_use(device);

    return status == TUTTI_OK ? CALL(cuMemMap((CUdeviceptr)(uintptr_t)p, bytes, 0, page, 0))
                              : status;
}

tutti_status tutti__cuda_open(int device, void *p, size_t bytes)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    tutti_status status = tutti__cuda_use(device);

    return status == TUTTI_OK ? CALL(cuMemSetAccess((CUdeviceptr)(uintptr_t)p, bytes, &access, 1))
                              : status;
}

tutti_status tutti__cuda_unmap(int device, void *p, size_t bytes)
{
    tutti_status status = tutti__cuda_use(device);

    return status == TUTTI_OK ? CALL(cuMemUnmap((CUdeviceptr)(uintptr_t)p, bytes)) : status;
}
