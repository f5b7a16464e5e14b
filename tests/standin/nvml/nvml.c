/* nvml.c -- a stand-in of NVIDIA's management library.   SPDX-License-Identifier: MIT
 *
 *     STANDIN_GPUS   devices; default 2
 *     STANDIN_XIDS   "1:79,0:31": Xid 79 of device 1, then 31 of device 0; each set of events gets them once
 *     STANDIN_NVML   "off": its first call fails; "lost": device 1 has fallen off the bus; "bare": nothing is supported
 * With OLD defined it has only the functions of the first versions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };

typedef struct gpu *device;
static struct gpu {
    char padding;
} gpus[16];

static int is(const char *word)
{
    const char *text = getenv("STANDIN_NVML");

    return text && strcmp(text, word) == 0;
}

static unsigned n_gpus(void)
{
    const char *text = getenv("STANDIN_GPUS");

    return text ? (unsigned)atoi(text) : 2;
}

static unsigned number(device d)
{
    return (unsigned)(d - gpus);
}

#define DEVICE(name, ...)                                                                          \
    int name(device d, __VA_ARGS__);                                                               \
    int name(device d, __VA_ARGS__)
#define PLAIN(name, ...)                                                                           \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

PLAIN(nvmlInit_v2, void)
{
    return is("off") ? NOT_LOADED : OK;
}

PLAIN(nvmlShutdown, void)
{
    return OK;
}

PLAIN(nvmlDeviceGetCount_v2, unsigned *n)
{
    *n = n_gpus();
    return OK;
}

PLAIN(nvmlDeviceGetHandleByIndex_v2, unsigned i, device *d)
{
    if (i >= n_gpus())
        return INVALID;
    if (i == 1 && is("lost"))
        return LOST;
    *d = &gpus[i];
    return OK;
}

DEVICE(nvmlDeviceGetUtilizationRates, unsigned u[2])
{
    u[0] = number(d) == 0 ? 40 : 70;
    u[1] = 5;
    return OK;
}

DEVICE(nvmlDeviceGetMemoryInfo, unsigned long long m[3])
{
    (void)d;
    m[0] = 1000;
    m[1] = 750;
    m[2] = 250;
    return OK;
}

DEVICE(nvmlDeviceGetTemperature, int sensor, unsigned *t)
{
    (void)d;
    *t = 61;
    return sensor ? INVALID : OK;
}

DEVICE(nvmlDeviceGetPowerUsage, unsigned *milliwatts)
{
    *milliwatts = 123456;
    return number(d) == 0 ? OK : UNSUPPORTED;
}

#ifndef OLD

/* Domain, bus, device, function: 4 or 8 digits of domain are one address. */
PLAIN(nvmlDeviceGetHandleByPciBusId_v2, const char *text, device *d)
{
    unsigned domain, bus, slot, function;

    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return INVALID;
    if (domain || slot || function || bus < 0x10 || bus >= 0x10 + n_gpus())
        return NOT_FOUND;
    *d = &gpus[bus - 0x10];
    return OK;
}

DEVICE(nvmlDeviceGetIndex, unsigned *i)
{
    *i = number(d);
    return OK;
}

DEVICE(nvmlDeviceGetPciInfo_v3, char *pci)
{
    memset(pci, 0, 68);
    snprintf(pci + 36, 32, "%08X:%02X:00.0", 0U, 0x10 + number(d));
    return OK;
}

DEVICE(nvmlDeviceGetName, char *text, unsigned bytes)
{
    snprintf(text, bytes, "Stand-in %u", number(d));
    return OK;
}

DEVICE(nvmlDeviceGetCudaComputeCapability, int *major, int *minor)
{
    *major = number(d) == 0 ? 9 : 7;
    *minor = 0;
    return OK;
}

DEVICE(nvmlDeviceGetEnforcedPowerLimit, unsigned *milliwatts)
{
    (void)d;
    *milliwatts = 700000;
    return is("bare") ? UNSUPPORTED : OK;
}

DEVICE(nvmlDeviceGetEccMode, int *current, int *pending)
{
    *current = *pending = number(d) == 0;
    return is("bare") ? UNSUPPORTED : OK;
}

DEVICE(nvmlDeviceGetTotalEccErrors, int type, int counter, unsigned long long *n)
{
    (void)d;
    *n = getenv("STANDIN_ECC") ? 3 : 0;
    return type == 1 && counter == 0 ? OK : INVALID;
}

DEVICE(nvmlDeviceGetNvLinkState, unsigned link, int *active)
{
    (void)d;
    *active = 1;
    return is("bare") ? UNSUPPORTED : link < 4 ? OK : INVALID;
}

DEVICE(nvmlDeviceGetP2PStatus, device other, int what, int *status)
{
    (void)d;
    (void)other;
    *status = is("bare");
    return what == 0 ? OK : INVALID;
}

PLAIN(nvmlSystemGetDriverVersion, char *text, unsigned bytes)
{
    snprintf(text, bytes, "580.82.07");
    return OK;
}

/* ---- Events -------------------------------------------------------------------------------------------- */

typedef struct set {
    unsigned watched; /* a bit a device */
    const char *left;
} set;
typedef struct event {
    device gpu;
    unsigned long long type, data;
    unsigned instance, compute_instance;
} event;

PLAIN(nvmlEventSetCreate, set **s)
{
    if (is("bare"))
        return UNSUPPORTED;
    *s = calloc(1, sizeof **s);
    (*s)->left = getenv("STANDIN_XIDS");
    return OK;
}

DEVICE(nvmlDeviceRegisterEvents, unsigned long long types, set *s)
{
    s->watched |= 1U << number(d);
    return types == 8 ? OK : INVALID;
}

PLAIN(nvmlEventSetWait_v2, set *s, event *e, unsigned ms)
{
    (void)ms;
    while (s->left && *s->left) {
        unsigned gpu = 0, xid = 0;

        sscanf(s->left, "%u:%u", &gpu, &xid);
        s->left += strcspn(s->left, ",");
        s->left += *s->left == ',';
        if (gpu >= n_gpus() || !(s->watched & 1U << gpu))
            continue;
        *e = (event){&gpus[gpu], 8, xid, 0, 0};
        return OK;
    }
    return TIMEOUT;
}

PLAIN(nvmlEventSetFree, set *s)
{
    free(s);
    return OK;
}

#endif
