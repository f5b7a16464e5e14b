/* doctor_gpu.c -- NVIDIA's devices, driver and libraries.   SPDX-License-Identifier: MIT */
#include "cli/doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <tutti/device.h>
#include <unistd.h>

/* How many /dev/nvidia<N> there are, and the first that this user cannot open. */
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

/* What CUDA's driver library says: "NVIDIA H200, 139.8 GiB". */
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

/* ---- Libraries ------------------------------------------------------------------------------------------ */

typedef struct library {
    const char *name, *files[3], *version;
} library;

/* Whether the library is there, and the number it gives for its version. */
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
        if (symbol && strcmp(l->name, "cuDNN") == 0) {
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

void tutti__check_gpu_libraries(tutti__doctor *d)
{
    static const library libraries[] = {
        {"CUDA runtime", {"libcudart.so.13", "libcudart.so.12", NULL}, "cudaRuntimeGetVersion"},
        {"NCCL", {"libnccl.so.2", NULL}, "ncclGetVersion"},
        {"cuDNN", {"libcudnn.so.9", "libcudnn.so.8", NULL}, "cudnnGetVersion"},
    };
    char closed[320];
    bool gpu = count_devices(closed, sizeof closed) > 0;
    tutti_device device;

    for (size_t i = 0; i < TUTTI__COUNT_OF(libraries); i++) {
        long version = 0;

        if (load(&libraries[i], &version))
            tutti__find(d, TUTTI__FINE, libraries[i].name, "can be loaded, version %ld", version);
        else if (gpu)
            tutti__find(d, TUTTI__NOTE, libraries[i].name,
                        "is not installed, or not where libraries are looked for");
    }
    if (tutti_device_parse(&device, "cuda", 0) != TUTTI_OK)
        tutti__find(d, TUTTI__NOTE, "Tutti's own", "%s", tutti_last_error());
}
