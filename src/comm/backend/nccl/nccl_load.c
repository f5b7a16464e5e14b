/* nccl_load.c -- finds the module for NCCL, and checks the NCCL that it loads.   SPDX-License-Identifier: MIT */
#include "comm/backend/backend.h"
#include "comm/backend/nccl/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static struct process {
    pthread_mutex_t lock;
    const tutti__nccl *nccl; /* NULL: not loaded */
    tutti__nccl_library library;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define OR_NATIVE "; or use backend native, which copies through host memory"

static void version_text(int version, char *text, size_t capacity)
{
    snprintf(text, capacity, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static tutti_status find(char *path, size_t capacity)
{
    const char *asked = tutti__env_text(TUTTI__ENV_NCCL_MODULE);

    if (*asked) {
        snprintf(path, capacity, "%s", asked);
        return TUTTI_OK;
    }
    if (tutti__module_find("libtutti_nccl.so", path, capacity))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "backend nccl: there is no module libtutti_nccl.so in %s; build Tutti where "
                       "CUDA and NCCL are installed (libnccl-dev)" OR_NATIVE,
                       path);
}

static tutti_status check(const char *path, const tutti__nccl *nccl, tutti__nccl_library *library)
{
    char there[32], header[32];
    const char *why;

    if (!nccl || nccl->table != TUTTI__NCCL_TABLE || strcmp(nccl->version, TUTTI_VERSION) != 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "backend nccl: %s is not a module of Tutti %s, but of %s", path,
                           TUTTI_VERSION, nccl ? nccl->version : "something else");
    why = nccl->start(library);
    version_text(library->version, there, sizeof there);
    version_text(nccl->header, header, sizeof header);
    if (why)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "backend nccl: NCCL %s cannot be used: %s; Tutti was built with %s: "
                           "name the folder of a suitable one in LD_LIBRARY_PATH" OR_NATIVE,
                           there, why, header);
    tutti_log(library->version < nccl->header ? TUTTI_LOG_INFO : TUTTI_LOG_DEBUG, "comm",
              "NCCL %s (Tutti was built with %s): %s", there, header,
              library->windows     ? "memory in windows"
              : library->registers ? "memory registered, without windows, which 2.27.3 has"
                                   : "memory not registered, which 2.19.3 can");
    return TUTTI_OK;
}

static tutti_status load(void)
{
    const tutti__nccl *nccl;
    char path[1100];
    void *library;

    TUTTI_TRY(find(path, sizeof path));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "backend nccl: the module cannot be loaded: %s; is NCCL 2 installed here "
            "(libnccl2), and does LD_LIBRARY_PATH name its folder?" OR_NATIVE,
            dlerror());
    nccl = dlsym(library, TUTTI__NCCL_SYMBOL);
    if (check(path, nccl, &process.library) != TUTTI_OK) {
        dlclose(library);
        return TUTTI_ERR_UNSUPPORTED;
    }
    process.nccl = nccl; /* never unloaded */
    return TUTTI_OK;
}

tutti_status tutti__nccl_load(const tutti__nccl **nccl_p, tutti__nccl_library *library_p)
{
    tutti_status status = TUTTI_OK;

    pthread_mutex_lock(&process.lock);
    if (!process.nccl)
        status = load();
    *nccl_p = process.nccl;
    *library_p = process.library;
    pthread_mutex_unlock(&process.lock);
    return status;
}
