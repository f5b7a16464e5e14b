/* cuda_load.c -- finds the CUDA module and loads it.   SPDX-License-Identifier: MIT
 *
 * Only if there is a driver: NVIDIA's libraries are large, and `auto` would load them on every machine. */
#include "device/cuda/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define MODULE  "libtutti_cuda.so"
#define OR_ELSE "or use --device cpu (auto chooses it by itself)"

static struct loaded {
    pthread_once_t once;
    const tutti__cuda *cuda;
    tutti_status status;
    char message[1024];
} loaded = {.once = PTHREAD_ONCE_INIT};

static tutti_status find(char *path, size_t capacity)
{
    const char *asked = tutti__env_text(TUTTI__ENV_CUDA_MODULE);

    if (*asked) { /* a stand-in needs no driver */
        snprintf(path, capacity, "%s", asked);
        return TUTTI_OK;
    }
    if (!tutti__module_find(MODULE, path, capacity))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "device cuda: there is no " MODULE " in %s: build Tutti where NVIDIA's "
                           "toolkit and cuDNN are (docs/gpu.md), name the module's path in "
                           "TUTTI_CUDA_MODULE, " OR_ELSE,
                           path);
    if (!dlopen("libcuda.so.1", RTLD_LAZY))
        return tutti__fail(TUTTI_ERR_DEVICE,
                           "device cuda: no NVIDIA driver (%s): install it, " OR_ELSE, dlerror());
    return TUTTI_OK;
}

static tutti_status load(const tutti__cuda **cuda_p)
{
    char path[1088];
    const tutti__cuda *cuda;
    void *library;

    TUTTI_TRY(find(path, sizeof path));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return tutti__fail(TUTTI_ERR_DEVICE,
                           "device cuda: the module %s cannot be loaded: %s; install what is "
                           "missing, name its folder in LD_LIBRARY_PATH, " OR_ELSE,
                           path, dlerror());
    cuda = dlsym(library, TUTTI__CUDA_SYMBOL);
    if (!cuda || cuda->table != TUTTI__CUDA_TABLE || strcmp(cuda->version, TUTTI_VERSION) != 0) {
        (void)tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "device cuda: %s is not a module of Tutti %s, but of %s%s; install both from "
            "one build",
            path, TUTTI_VERSION, cuda ? cuda->version : "something else",
            cuda && strcmp(cuda->version, TUTTI_VERSION) == 0 ? ", of another build" : "");
        dlclose(library);
        return TUTTI_ERR_UNSUPPORTED;
    }
    tutti_log(TUTTI_LOG_DEBUG, "device", "%s, module %s", cuda->describe(), path);
    *cuda_p = cuda;
    return TUTTI_OK;
}

static void load_once(void)
{
    loaded.status = load(&loaded.cuda);
    if (loaded.status != TUTTI_OK)
        snprintf(loaded.message, sizeof loaded.message, "%s", tutti_last_error());
}

tutti_status tutti__cuda_load(const tutti__cuda **cuda_p)
{
    pthread_once(&loaded.once, load_once);
    *cuda_p = loaded.cuda;
    return loaded.status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(loaded.status, loaded.message);
}

const tutti__cuda *tutti__cuda_module(void)
{
    return loaded.cuda;
}
