/* device.c -- devices, errors, start and end.   SPDX-License-Identifier: MIT */
#include "standin/cudart/cudart.h"

struct standin s = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

_Thread_local int standin_current;
static _Thread_local cudaError_t last_error;

/* ---- Beginning and end ----------------------------------------------------------------------------------- */

static long long number(const char *name, long long by_default)
{
    const char *text = getenv(name);

    return text && *text ? atoll(text) : by_default;
}

/* As with CUDA itself, a process forked after initialisation has no device, and none of the streams' threads. */
static void be_forked(void)
{
    pthread_mutex_init(&s.lock, NULL);
    s.forked = true;
}

static void begin(void)
{
    const char *fault = getenv("STANDIN_CUDA_FAULT"), *colon = fault ? strchr(fault, ':') : NULL;

    standin_cond_init(&s.done);
    s.devices = (int)number("STANDIN_CUDA_DEVICES", 1);
    s.devices = s.devices < MOST_DEVICES ? s.devices : MOST_DEVICES;
    s.memory = (size_t)number("STANDIN_CUDA_MEMORY", 8192) << 20;
    s.seed = (uint64_t)number("STANDIN_CUDA_SEED", 1);
    s.driver = (int)number("STANDIN_CUDA_DRIVER", CUDART_VERSION);
    s.old = (int)number("STANDIN_CUDA_OLD", MOST_DEVICES);
    s.report = number("STANDIN_CUDA_REPORT", 0) != 0;
    s.fault_device = colon ? atoi(fault) : -1;
    s.fault_at = colon ? (uint64_t)atoll(colon + 1) : 0;
    standin_reserve();
    pthread_atfork(NULL, NULL, be_forked);
}

void standin_enter(void)
{
    pthread_once(&s.once, begin);
    pthread_mutex_lock(&s.lock);
}

cudaError_t standin_leave(cudaError_t error)
{
    pthread_mutex_unlock(&s.lock);
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

/* Of its compute capability. */
static int major_of(int index)
{
    return index < s.old ? 9 : 7;
}

/* Before a call on a device: its sticky error. */
cudaError_t standin_broken(int index)
{
    if (s.forked)
        return cudaErrorInitializationError;
    if (s.driver == 0 || s.driver < CUDART_VERSION / 1000 * 1000)
        return cudaErrorInsufficientDriver;
    if (index < 0 || index >= s.devices)
        return s.devices == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice;
    return s.device[index].error;
}

void standin_count_wait(const char *function)
{
    for (int i = 0; i < MOST_NAMES; i++)
        if (!s.waits[i].function || strcmp(s.waits[i].function, function) == 0) {
            s.waits[i].function = function;
            s.waits[i].n++;
            return;
        }
}

uint64_t tutti_standin_waits(const char *function)
{
    uint64_t n = 0;

    standin_enter();
    for (int i = 0; i < MOST_NAMES && s.waits[i].function; i++)
        if (!function || strcmp(s.waits[i].function, function) == 0)
            n += s.waits[i].n;
    standin_leave(cudaSuccess);
    return n;
}

void tutti_standin_break(int index, int error)
{
    standin_enter();
    s.device[index].error = (cudaError_t)error;
    standin_leave(cudaSuccess);
}

/* Starts no more work; running work may end. */
__attribute__((destructor)) static void end(void)
{
    struct timespec until;

    if (!s.region || s.forked)
        return;
    standin_enter();
    s.ending = true;
    for (struct CUstream_st *x = s.streams; x; x = x->next)
        pthread_detach(x->thread); /* running work may never end */
    standin_wake_all();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 2;
    while (s.open > 0 && pthread_cond_timedwait(&s.done, &s.lock, &until) == 0)
        ;
    for (int i = 0; s.report && i < MOST_NAMES && s.waits[i].function; i++)
        fprintf(stderr, "standin cuda: %s %llu\n", s.waits[i].function,
                (unsigned long long)s.waits[i].n);
    standin_leave(cudaSuccess);
}

/* ---- Devices and errors ------------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *n)
{
    standin_enter();
    *n = s.forked || standin_broken(0) == cudaErrorInsufficientDriver ? 0 : s.devices;
    return standin_leave(*n > 0 ? cudaSuccess : standin_broken(0));
}

cudaError_t cudaSetDevice(int index)
{
    cudaError_t error;

    standin_enter();
    error = standin_broken(index);
    if (error == cudaSuccess)
        standin_current = index;
    return standin_leave(error);
}

cudaError_t cudaGetDevice(int *index)
{
    *index = standin_current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int index)
{
    cudaError_t error;

    standin_enter();
    error = standin_broken(index);
    if (error != cudaSuccess)
        return standin_leave(error);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "stand-in GPU");
    p->totalGlobalMem = s.memory;
    p->major = major_of(index);
    p->multiProcessorCount = 4;
    p->pciBusID = 0x10 + index;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int index)
{
    *value = attr == cudaDevAttrComputeCapabilityMajor ? major_of(index)
             : attr == cudaDevAttrMultiProcessorCount  ? 4
                                                       : 0;
    standin_enter();
    return standin_leave(standin_broken(index));
}

cudaError_t cudaDriverGetVersion(int *version)
{
    standin_enter();
    *version = s.driver;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unknown error";
}
