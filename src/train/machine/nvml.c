/* nvml.c -- NVIDIA's management library, loaded if there is one.   SPDX-License-Identifier: MIT
 *
 * Its few functions and structs are declared here from NVIDIA's reference: the names' _v2 fixes the ABI, so
 * that no particular version of the header is needed. 0 is success. */
#include "train/machine/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void *device;
typedef struct utilization {
    unsigned gpu, memory; /* percent of time */
} utilization;
typedef struct memory {
    unsigned long long total, free, used;
} memory;
typedef struct pci {
    char legacy_bus[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char text[32];
} pci;
typedef struct event {
    device gpu;
    unsigned long long type, data; /* of an Xid: its number */
    unsigned instance, compute_instance;
} event;
enum {
    TEMPERATURE_GPU = 0,
    EVENT_XID = 8,
    ERROR_UNCORRECTED = 1,
    SINCE_DRIVER = 0,
    P2P_READ = 0,
    MOST_LINKS = 36
};

/* FUNCTION(needed, name, NVML's name, parameters) */
#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(true, init, "nvmlInit_v2", (void))                                                    \
    FUNCTION(true, shutdown, "nvmlShutdown", (void))                                               \
    FUNCTION(true, count, "nvmlDeviceGetCount_v2", (unsigned *))                                   \
    FUNCTION(true, handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, device *))                  \
    FUNCTION(true, utilization, "nvmlDeviceGetUtilizationRates", (device, utilization *))          \
    FUNCTION(true, memory, "nvmlDeviceGetMemoryInfo", (device, memory *))                          \
    FUNCTION(true, temperature, "nvmlDeviceGetTemperature", (device, int, unsigned *))             \
    FUNCTION(true, power, "nvmlDeviceGetPowerUsage", (device, unsigned *)) /* milliwatts */        \
    FUNCTION(false, at_bus, "nvmlDeviceGetHandleByPciBusId_v2", (const char *, device *))          \
    FUNCTION(false, number, "nvmlDeviceGetIndex", (device, unsigned *))                            \
    FUNCTION(false, set_new, "nvmlEventSetCreate", (void **))                                      \
    FUNCTION(false, set_add, "nvmlDeviceRegisterEvents", (device, unsigned long long, void *))     \
    FUNCTION(false, set_wait, "nvmlEventSetWait_v2", (void *, event *, unsigned))                  \
    FUNCTION(false, set_free, "nvmlEventSetFree", (void *))                                        \
    FUNCTION(false, name, "nvmlDeviceGetName", (device, char *, unsigned))                         \
    FUNCTION(false, pci, "nvmlDeviceGetPciInfo_v3", (device, pci *))                               \
    FUNCTION(false, capability, "nvmlDeviceGetCudaComputeCapability", (device, int *, int *))      \
    FUNCTION(false, power_limit, "nvmlDeviceGetEnforcedPowerLimit", (device, unsigned *))          \
    FUNCTION(false, ecc, "nvmlDeviceGetEccMode", (device, int *, int *))                           \
    FUNCTION(false, ecc_errors, "nvmlDeviceGetTotalEccErrors",                                     \
             (device, int, int, unsigned long long *))                                             \
    FUNCTION(false, link, "nvmlDeviceGetNvLinkState", (device, unsigned, int *))                   \
    FUNCTION(false, peers, "nvmlDeviceGetP2PStatus", (device, device, int, int *))                 \
    FUNCTION(false, driver, "nvmlSystemGetDriverVersion", (char *, unsigned))

struct tutti__nvml {
    void *library;
#define FUNCTION(needed, name, theirs, parameters) int(*name) parameters;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    void *set;                 /* the event set; NULL: nothing is watched */
    int xid[TUTTI__MOST_GPUS]; /* the latest Xid of each device; 0: none */
};

static bool find_functions(tutti__nvml *nvml)
{
#define FUNCTION(needed, name, theirs, parameters)                                                 \
    *(void **)&nvml->name = dlsym(nvml->library, theirs);                                          \
    if ((needed) && !nvml->name)                                                                   \
        return false;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    return true;
}

tutti__nvml *tutti__nvml_open(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    tutti__nvml *nvml;
    unsigned count = 0;

    if (!library)
        return NULL;
    nvml = calloc(1, sizeof *nvml);
    if (nvml)
        nvml->library = library;
    if (!nvml || !find_functions(nvml) || nvml->init() != 0) {
        free(nvml);
        dlclose(library);
        return NULL;
    }
    if (nvml->count(&count) == 0 && count > 0)
        return nvml;
    tutti__nvml_close(nvml);
    return NULL;
}

int tutti__nvml_count(const tutti__nvml *nvml)
{
    unsigned count = 0;

    return nvml->count(&count) == 0 ? (int)count : 0;
}

static const tutti__gpu_metrics nothing_known = {
    .percent = NAN, .memory_percent = NAN, .temperature_c = NAN, .power_w = NAN};

static void read_device(const tutti__nvml *nvml, device gpu, tutti__gpu_metrics *m)
{
    utilization busy;
    memory room;
    unsigned number;

    *m = nothing_known;
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
    const size_t count = (size_t)tutti__nvml_count(nvml);
    tutti__xid ignored;

    if (n > count)
        n = count;
    while (tutti__nvml_next_xid(nvml, 0, &ignored))
        ;
    for (size_t i = 0; i < n; i++) {
        device gpu;

        gpus[i] = nothing_known;
        if (nvml->handle((unsigned)i, &gpu) == 0)
            read_device(nvml, gpu, &gpus[i]);
        if (i < TUTTI__MOST_GPUS)
            gpus[i].xid = nvml->xid[i];
    }
    return n;
}

void tutti__nvml_close(tutti__nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->set && nvml->set_free)
        nvml->set_free(nvml->set);
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

static int number_of(const tutti__nvml *nvml, device gpu)
{
    unsigned i;

    return nvml->number && nvml->number(gpu, &i) == 0 && i < TUTTI__MOST_GPUS ? (int)i : -1;
}

int tutti__nvml_find(tutti__nvml *nvml, const char *bus)
{
    device gpu;

    return *bus && nvml->at_bus && nvml->at_bus(bus, &gpu) == 0 ? number_of(nvml, gpu) : -1;
}

/* ---- Xids ---------------------------------------------------------------------------------------------- */

bool tutti__nvml_watch(tutti__nvml *nvml, int gpu)
{
    device handle;

    if (gpu < 0 || !nvml->set_new || !nvml->set_add || !nvml->set_wait ||
        nvml->handle((unsigned)gpu, &handle) != 0)
        return false;
    if (!nvml->set && nvml->set_new(&nvml->set) != 0) {
        nvml->set = NULL;
        return false;
    }
    return nvml->set_add(handle, EVENT_XID, nvml->set) == 0;
}

bool tutti__nvml_next_xid(tutti__nvml *nvml, int wait_ms, tutti__xid *xid_p)
{
    event e = {.gpu = NULL};

    if (!nvml->set || nvml->set_wait(nvml->set, &e, (unsigned)wait_ms) != 0 || e.type != EVENT_XID)
        return false;
    *xid_p = (tutti__xid){.gpu = number_of(nvml, e.gpu), .number = (int)e.data};
    if (xid_p->gpu >= 0)
        nvml->xid[xid_p->gpu] = xid_p->number;
    return true;
}

const char *tutti__xid_text(int number)
{
#define PROGRAM "an error of a kernel or its memory accesses, rarely of the GPU"
#define RESET   "; end what uses the GPU and reset it (nvidia-smi -r), else reboot"
#define REPLACE "; if it happens again, replace the GPU"
    static const struct {
        int number;
        const char *text;
    } table[] = {
        {13, "a kernel failed (illegal instruction or address): " PROGRAM},
        {31, "a page fault of the GPU's memory: " PROGRAM},
        {32, "commands to the GPU arrived damaged: look at the PCIe link and the host's memory"},
        {43, "the GPU stopped the program's work: " PROGRAM},
        {45, "a program's work was cleaned away, as when it is killed or after an earlier Xid"},
        {48, "the GPU's memory has an error that ECC cannot correct" RESET REPLACE},
        {61, "the GPU's microcontroller failed" RESET REPLACE},
        {62, "the GPU's microcontroller halted" RESET REPLACE},
        {63, "a bad row of the GPU's memory will be mapped out at the next reset" RESET},
        {64, "a bad row of the GPU's memory could not be mapped out: replace the GPU"},
        {69, "the GPU refused a command: " PROGRAM},
        {74, "an NVLink connection failed: look at `nvidia-smi nvlink -e`" RESET REPLACE},
        {79, "the GPU has fallen off the bus: look at its power, heat and slot; reboot" REPLACE},
        {92, "the GPU's memory has many errors that ECC corrects" REPLACE},
        {94,
         "an error of the GPU's memory, contained: only the program that used it is lost" RESET},
        {95, "an error of the GPU's memory, not contained: all that runs there is lost" RESET},
        {109, "the GPU did not switch between programs in time" RESET},
        {119, "the GPU's system processor does not answer" RESET},
        {120, "the GPU's system processor failed" RESET},
        {140, "an error of the GPU's memory was not recovered" RESET REPLACE},
        {149, "the NVLink fabric reports an error: look at the fabric manager's log"},
    };
#undef PROGRAM
#undef RESET
#undef REPLACE
    for (size_t i = 0; i < TUTTI__COUNT_OF(table); i++)
        if (table[i].number == number)
            return table[i].text;
    return "see NVIDIA's list of Xids, and `dmesg`";
}

/* ---- Constant properties ------------------------------------------------------------------------------ */

bool tutti__nvml_describe(const tutti__nvml *nvml, int gpu, tutti__nvml_about *about)
{
    int pending, active;
    unsigned milliwatts;
    unsigned long long errors;
    memory room;
    device d;
    pci place;

    *about = (tutti__nvml_about){.power_limit_w = NAN, .ecc = -1};
    if (nvml->handle((unsigned)gpu, &d) != 0)
        return false;
    read_device(nvml, d, &about->now);
    if (nvml->memory(d, &room) == 0)
        about->memory_bytes = (size_t)room.total;
    if (!nvml->name || nvml->name(d, about->name, sizeof about->name) != 0)
        strcpy(about->name, "?");
    if (nvml->pci && nvml->pci(d, &place) == 0)
        snprintf(about->bus, sizeof about->bus, "%.31s", place.text);
    if (nvml->capability && nvml->capability(d, &about->major, &about->minor) != 0)
        about->major = about->minor = 0;
    if (nvml->power_limit && nvml->power_limit(d, &milliwatts) == 0)
        about->power_limit_w = milliwatts * 1e-3;
    if (nvml->ecc && nvml->ecc(d, &about->ecc, &pending) != 0)
        about->ecc = -1;
    if (about->ecc == 1 && nvml->ecc_errors &&
        nvml->ecc_errors(d, ERROR_UNCORRECTED, SINCE_DRIVER, &errors) == 0)
        about->bad_memory = (int64_t)errors;
    for (unsigned i = 0; nvml->link && i < MOST_LINKS; i++)
        about->nvlinks += nvml->link(d, i, &active) == 0 && active == 1;
    return true;
}

bool tutti__nvml_driver(const tutti__nvml *nvml, char *text, size_t bytes)
{
    return nvml->driver && nvml->driver(text, (unsigned)bytes) == 0;
}

int tutti__nvml_peers(const tutti__nvml *nvml, int a, int b)
{
    device first, second;
    int status;

    if (!nvml->peers || nvml->handle((unsigned)a, &first) != 0 ||
        nvml->handle((unsigned)b, &second) != 0 ||
        nvml->peers(first, second, P2P_READ, &status) != 0)
        return -1;
    return status == 0;
}
