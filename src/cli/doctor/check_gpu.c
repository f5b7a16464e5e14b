/* check_gpu.c -- NVIDIA's devices, driver and libraries.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"
#include "device/cuda/module.h"
#include "device/device.h"
#include "train/machine/nvml.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counts /dev/nvidia<N>, and finds the first that this user cannot open. */
static int count_devices(char *closed, size_t bytes)
{
    DIR *dir = opendir("/dev");
    struct dirent *entry;
    int n = 0;

    *closed = '\0';
    while (dir && (entry = readdir(dir))) {
        char path[300];
        int fd;

        if (strncmp(entry->d_name, "nvidia", 6) != 0 || !entry->d_name[6] ||
            strspn(entry->d_name + 6, "0123456789") != strlen(entry->d_name + 6))
            continue;
        n++;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0)
            close(fd);
        else if (!*closed)
            snprintf(closed, bytes, "%s: %s", path, strerror(errno));
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Lists the GPUs by CUDA's driver library: "NVIDIA H200, 139.8 GiB". */
static void list_gpus(tutti__doctor *d, void *cuda)
{
    int (*init)(unsigned), (*count)(int *), (*version)(int *), (*name)(char *, int, int),
        (*memory)(size_t *, int);
    int n = 0, v = 0, error;

    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&count = dlsym(cuda, "cuDeviceGetCount");
    *(void **)&version = dlsym(cuda, "cuDriverGetVersion");
    *(void **)&name = dlsym(cuda, "cuDeviceGetName");
    *(void **)&memory = dlsym(cuda, "cuDeviceTotalMem_v2");
    if (!init || !count || !version || !name || !memory)
        return;
    error = init(0);
    if (error || count(&n) != 0 || n == 0) {
        tutti__find(d, TUTTI__WARNING, "CUDA",
                    "the driver's library finds no GPU (cuInit: error %d)", error);
        tutti__remedy(d, "nvidia-smi says more; in a container, start it with --gpus all; is "
                         "CUDA_VISIBLE_DEVICES empty?");
        return;
    }
    if (version(&v) == 0)
        tutti__find(d, TUTTI__FINE, "CUDA", "the driver supports up to %d.%d; %d GPU%s", v / 1000,
                    v % 1000 / 10, n, n == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        char text[128] = "?", subject[16];
        tutti__size_text a;
        size_t bytes = 0;

        name(text, sizeof text, i);
        memory(&bytes, i);
        snprintf(subject, sizeof subject, "GPU %d", i);
        tutti__find(d, TUTTI__FINE, subject, "%s, %s", text, tutti__size(&a, (double)bytes));
    }
}

void tutti__check_gpus(tutti__doctor *d)
{
    char text[256], closed[320];
    bool driver = tutti__slurp("/proc/driver/nvidia/version", text, sizeof text);
    int n = count_devices(closed, sizeof closed);
    void *cuda;

    if (!driver && n == 0) {
        tutti__find(d, TUTTI__NOTE, "GPU",
                    "none: no NVIDIA driver is loaded and no /dev/nvidia0 is there; ranks compute "
                    "on the CPU");
        return;
    }
    tutti__find(d, TUTTI__FINE, "driver", "%s",
                driver ? tutti__first_line(text) : "its version cannot be read");
    if (n == 0 || *closed) {
        tutti__find(d, TUTTI__WARNING, "devices", "%s",
                    *closed ? closed : "the driver is loaded, but there is no /dev/nvidia0");
        tutti__remedy(d, "%s",
                      *closed ? "chmod 666 /dev/nvidia*, or join the group that owns them"
                              : "nvidia-modprobe -c 0; in a container, start it with --gpus all");
    }
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) {
        tutti__find(d, TUTTI__WARNING, "CUDA",
                    "libcuda.so.1 cannot be loaded, though there is a driver: %s", dlerror());
        tutti__remedy(d, "install the driver's user libraries (libcuda1), of the driver's version");
        return;
    }
    list_gpus(d, cuda);
}

/* ---- By NVIDIA's management library ------------------------------------------------------------ */

enum {
    HOT_C = 88,
    REMEMBERED = 16 /* reports in the kernel's log */
};

static void add(char *text, size_t bytes, const char *format, ...) TUTTI_PRINTF(3, 4);
static void add(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

static void say_gpu(tutti__doctor *d, const char *subject, const tutti__nvml_about *a)
{
    tutti__size_text used, all;
    char text[400] = "";

    add(text, sizeof text, "%s, %s", a->name, a->bus);
    if (a->major > 0)
        add(text, sizeof text, ", compute capability %d.%d", a->major, a->minor);
    if (a->memory_bytes > 0)
        add(text, sizeof text, ", %s of %s used", tutti__size(&used, (double)a->now.memory_bytes),
            tutti__size(&all, (double)a->memory_bytes));
    if (!isnan(a->now.temperature_c))
        add(text, sizeof text, ", %.0f C", a->now.temperature_c);
    if (!isnan(a->now.power_w) && !isnan(a->power_limit_w))
        add(text, sizeof text, ", %.0f of %.0f W", a->now.power_w, a->power_limit_w);
    if (a->ecc >= 0)
        add(text, sizeof text, ", ECC %s", a->ecc ? "on" : "off");
    if (a->nvlinks > 0)
        add(text, sizeof text, ", %d NVLinks", a->nvlinks);
    tutti__find(d, TUTTI__FINE, subject, "%s", text);
}

static void judge_gpu(tutti__doctor *d, const char *subject, const tutti__nvml_about *a)
{
    if (a->major > 0 && a->major < TUTTI__CUDA_OLDEST_MAJOR) {
        tutti__find(d, TUTTI__WARNING, subject,
                    "compute capability %d.%d: Tutti's CUDA module needs %d.0 (A100) or newer",
                    a->major, a->minor, TUTTI__CUDA_OLDEST_MAJOR);
        tutti__remedy(d, "leave it out with CUDA_VISIBLE_DEVICES, or train on the CPU");
    }
    if (a->bad_memory > 0) {
        tutti__find(d, TUTTI__WARNING, subject,
                    "%lld uncorrectable ECC memory errors since the driver was "
                    "loaded",
                    (long long)a->bad_memory);
        tutti__remedy(d, "reset it (nvidia-smi -r) or reboot; if they come again, replace it");
    }
    if (a->now.temperature_c >= HOT_C) {
        tutti__find(d, TUTTI__WARNING, subject, "%.0f C: it is throttled", a->now.temperature_c);
        tutti__remedy(d, "check the cooling; nvidia-smi -q -d PERFORMANCE says more");
    }
}

/* Reports pairs whose copies go through the host. */
static void judge_peers(tutti__doctor *d, const tutti__nvml *nvml, int n)
{
    int pairs = 0, without = 0;

    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const int peers = tutti__nvml_peers(nvml, a, b);

            pairs += peers >= 0;
            without += peers == 0;
        }
    if (pairs == 0)
        return;
    if (without == 0)
        tutti__find(d, TUTTI__FINE, "peer access", "between all pairs of GPUs");
    else
        tutti__find(d, TUTTI__NOTE, "peer access",
                    "%d of %d pairs of GPUs have none: their copies go through the host "
                    "(nvidia-smi topo -p2p r)",
                    without, pairs);
}

void tutti__check_gpu_state(tutti__doctor *d)
{
    tutti__nvml *nvml = tutti__nvml_open();
    char text[96];
    int n;

    if (!nvml)
        return;
    if (tutti__nvml_driver(nvml, text, sizeof text))
        tutti__find(d, TUTTI__FINE, "driver version", "%s", text);
    n = tutti__nvml_count(nvml);
    for (int i = 0; i < n; i++) {
        tutti__nvml_about about;
        char subject[32];

        snprintf(subject, sizeof subject, "NVML %d", i);
        if (!tutti__nvml_describe(nvml, i, &about)) {
            tutti__find(d, TUTTI__PROBLEM, subject, "the driver cannot reach it any more");
            tutti__remedy(d, "`dmesg` says why (Xid 79: it has fallen off the bus); reboot");
            continue;
        }
        say_gpu(d, subject, &about);
        judge_gpu(d, subject, &about);
    }
    judge_peers(d, nvml, n);
    tutti__nvml_close(nvml);
}

/* ---- The driver's reports in the kernel's log ---------------------------------------------------- */

typedef struct reports {
    struct report {
        char gpu[32];
        int xid, times;
    } list[REMEMBERED];
    size_t n;
} reports;

/* "...NVRM: Xid (PCI:0000:65:00): 79, pid=..." */
static void take_report(reports *r, const char *line)
{
    char gpu[32];
    int xid;

    line = strstr(line, "NVRM: Xid (PCI:");
    if (!line || sscanf(line, "NVRM: Xid (PCI:%31[0-9a-fA-F:.]): %d", gpu, &xid) != 2)
        return;
    for (size_t i = 0; i < r->n; i++)
        if (r->list[i].xid == xid && strcmp(r->list[i].gpu, gpu) == 0) {
            r->list[i].times++;
            return;
        }
    if (r->n == REMEMBERED)
        return;
    r->list[r->n] = (struct report){.xid = xid, .times = 1};
    strcpy(r->list[r->n++].gpu, gpu);
}

/* A read returns a record or more; overwritten ones (EPIPE) are skipped. */
static void read_reports(int fd, reports *r)
{
    char text[8192 + 1], *save;
    ssize_t n;

    while ((n = read(fd, text, sizeof text - 1)) > 0 || (n < 0 && errno == EPIPE)) {
        text[n > 0 ? n : 0] = '\0';
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            take_report(r, line);
    }
}

void tutti__check_gpu_reports(tutti__doctor *d)
{
    const int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    reports r = {.n = 0};

    if (fd < 0)
        return; /* needs root on most machines */
    read_reports(fd, &r);
    close(fd);
    for (size_t i = 0; i < r.n; i++) {
        char subject[32];

        snprintf(subject, sizeof subject, "Xid %d", r.list[i].xid);
        tutti__find(d, TUTTI__WARNING, subject, "%s, %d time%s since the machine started: %s",
                    r.list[i].gpu, r.list[i].times, r.list[i].times == 1 ? "" : "s",
                    tutti__xid_text(r.list[i].xid));
        tutti__remedy(
            d, "`dmesg | grep Xid` has the whole report; NVIDIA's list of Xids has the remedy");
    }
}

/* ---- Libraries ------------------------------------------------------------------------------------------ */

typedef struct library {
    const char *name, *files[3], *version;
    bool plain; /* the function returns the version itself, not through a pointer */
} library;

/* Whether the library can be loaded, and its version number. */
static bool load(const library *l, long *version_p)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(l->files) && l->files[i]; i++) {
        void *handle = dlopen(l->files[i], RTLD_LAZY);
        void *symbol = handle ? dlsym(handle, l->version) : NULL;
        size_t (*plain)(void);
        int (*by_pointer)(int *), number = 0;

        if (!handle)
            continue;
        *version_p = 0;
        if (symbol && l->plain) {
            memcpy(&plain, &symbol, sizeof plain);
            *version_p = (long)plain();
        } else if (symbol) {
            memcpy(&by_pointer, &symbol, sizeof by_pointer);
            *version_p = by_pointer(&number) == 0 ? number : 0;
        }
        return true;
    }
    return false;
}

/* Reports whether ranks would get a GPU, and which. */
static void check_module(tutti__doctor *d, bool gpu)
{
    tutti__device_info info;
    tutti_device device;

    if (tutti_device_parse(&device, "cuda", 0) != TUTTI_OK) {
        tutti__find(d, gpu ? TUTTI__WARNING : TUTTI__NOTE, "Tutti's own", "%s", tutti_last_error());
        if (gpu)
            tutti__remedy(d,
                          "docs/gpu.md says how to build the CUDA module, and where it is searched "
                          "for");
        return;
    }
    if (tutti__device_describe(device, &info) == TUTTI_OK)
        tutti__find(d, TUTTI__FINE, "Tutti's own",
                    "--device cuda computes on %s, %s for the first rank", info.name, info.bus);
}

void tutti__check_gpu_libraries(tutti__doctor *d)
{
    static const library libraries[] = {
        {"CUDA runtime",
         {"libcudart.so.13", "libcudart.so.12", NULL},
         "cudaRuntimeGetVersion",
         false},
        {"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12", NULL}, "cublasLtGetVersion", true},
        {"cuDNN", {"libcudnn.so.9", "libcudnn.so.8", NULL}, "cudnnGetVersion", true},
        {"NCCL", {"libnccl.so.2", NULL}, "ncclGetVersion", false},
    };
    char closed[320];
    bool gpu = count_devices(closed, sizeof closed) > 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(libraries); i++) {
        long version = 0;

        if (load(&libraries[i], &version))
            tutti__find(d, TUTTI__FINE, libraries[i].name, "can be loaded, version %ld", version);
        else if (gpu)
            tutti__find(d, TUTTI__NOTE, libraries[i].name,
                        "is not installed, or not in the library search path");
    }
    check_module(d, gpu);
}
