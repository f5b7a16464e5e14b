/* h100.c -- preloaded before the real cuDNN (LD_PRELOAD), lets it plan for a GPU that is not present.   SPDX-License-Identifier: MIT
 *
 * cuDNN can plan from a description of a device instead of a handle. When the module passes a handle, this passes the
 * description of an H100; execution, which needs the GPU, does nothing. It has the functions of the CUDA run-time that planning
 * calls. */
#include <cudnn.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char h100[] =
    "{\"deviceName\": \"NVIDIA H100 80GB HBM3\", \"deviceVer\": 900, \"driverVer\": 13000, "
    "\"cudaDeviceId\": 0, \"pciDeviceId\": 0, \"multiProcessorCount\": 132, "
    "\"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, \"l2CacheSize\": 52428800, "
    "\"totalGlobalMem\": 85899345920, \"warpSize\": 32, \"regsPerBlock\": 65536, "
    "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
    "\"supportCoopLaunch\": 1}";

static cudnnBackendDescriptor_t gpu;

typedef cudnnStatus_t set_attribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                    cudnnBackendAttributeType_t, int64_t, const void *);

static cudnnStatus_t set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    static set_attribute *real;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "cudnnBackendSetAttribute");
    return real ? real(d, name, type, n, values) : CUDNN_STATUS_NOT_INITIALIZED;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &gpu);

    *handle = (cudnnHandle_t)&gpu;
    if (status == CUDNN_STATUS_SUCCESS)
        status = set(gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     (int64_t)strlen(h100), h100);
    return status == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(gpu) : status;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    cudnnStatus_t status;

    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) /* the device is given instead */
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return set(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
    status = set(d, name, type, n, values);
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH && status == CUDNN_STATUS_SUCCESS)
        status = set(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
    return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    return handle && plan && pack ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    (void)handle;
    return cudnnBackendDestroyDescriptor(gpu);
}

cudaError_t cudaSetDevice(int device)
{
    (void)device;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}
