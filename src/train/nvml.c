/* nvml.c -- NVIDIA's management library, loaded where there is one.   SPDX-License-Identifier: MIT
 *
 * Its few functions and structs are declared here after NVIDIA's reference: their names' _v2 fixes the binary interface, so
 * that no header of a certain version is needed. 0 is success everywhere. */
#include "train/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

typedef void *device;
typedef struct utilization {
    unsigned gpu, memory; /* percent of time */
} utilization;
typedef struct memory {
    unsigned long long total, free, used;
} memory;
enum { TEMPERATURE_GPU = 0 };

struct tutti__nvml {
    void *library;
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, device *);
    int (*utilization)(device, utilization *);
    int (*memory)(device, memory *);
    int (*temperature)(device, int, unsigned *);
    int (*power)(device, unsigned *); /* milliwatts */
};

static bool find(void *library, const char *name, void *function_p)
{
    *(void **)function_p = dlsym(library, name);
    return *(void **)function_p != NULL;
}

tutti__nvml *tutti__nvml_open(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    tutti__nvml n = {.library = library}, *nvml;
    int (*init)(void);
    unsigned count = 0;

    if (!library)
        return NULL;
    nvml = malloc(sizeof *nvml);
    if (!nvml || !find(library, "nvmlInit_v2", &init) ||
        !find(library, "nvmlShutdown", &n.shutdown) ||
        !find(library, "nvmlDeviceGetCount_v2", &n.count) ||
        !find(library, "nvmlDeviceGetHandleByIndex_v2", &n.handle) ||
        !find(library, "nvmlDeviceGetUtilizationRates", &n.utilization) ||
        !find(library, "nvmlDeviceGetMemoryInfo", &n.memory) ||
        !find(library, "nvmlDeviceGetTemperature", &n.temperature) ||
        !find(library, "nvmlDeviceGetPowerUsage", &n.power) || init() != 0) {
        free(nvml);
        dlclose(library);
        return NULL;
    }
    *nvml = n;
    if (n.count(&count) == 0 && count > 0)
        return nvml;
    tutti__nvml_close(nvml);
    return NULL;
}

static void read_device(const tutti__nvml *nvml, device gpu, tutti__gpu_metrics *m)
{
    utilization busy;
    memory room;
    unsigned number;

    *m = (tutti__gpu_metrics){
        .percent = NAN, .memory_percent = NAN, .temperature_c = NAN, .power_w = NAN};
    if (nvml->utilization(gpu, &busy) == 0)
        m->percent = busy.gpu;
    if (nvml->memory(gpu, &room) == 0 && room.total > 0) {
        m->memory_bytes = (int64_t)room.used;
        m->memory_percent = 100 * (double)room.used / (double)room.total;
    }
    if (nvml->temperature(gpu, TEMPERATURE_GPU, &number) == 0)
        m->temperature_c = number;
    if (nvml->power(gpu, &number) == 0)
        m->power_w = number * 1e-3;
}

size_t tutti__nvml_read(tutti__nvml *nvml, tutti__gpu_metrics *gpus, size_t n)
{
    unsigned count = 0;
    size_t done = 0;

    if (nvml->count(&count) != 0)
        return 0;
    for (unsigned i = 0; i < count && done < n; i++) {
        device gpu;

        if (nvml->handle(i, &gpu) == 0)
            read_device(nvml, gpu, &gpus[done++]);
    }
    return done;
}

void tutti__nvml_close(tutti__nvml *nvml)
{
    if (!nvml)
        return;
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}
