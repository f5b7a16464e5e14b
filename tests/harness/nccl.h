/* nccl.h -- tests that run on the stand-ins of CUDA and NCCL (tests/standin).   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_NCCL_H
#define TUTTI_TESTS_NCCL_H

#include "ranks.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From now on groups have backend nccl, and there are `devices` GPUs; skips the test if the stand-ins were not
 * built. Before anything of Tutti. */
static inline void nccl_stand_in(int devices)
{
    const char *build = getenv("BUILD_DIR");
    char path[1024], number[16];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/tests/standin/libtutti_%s.so", build ? build : ".",
                 i ? "nccl" : "cuda");
        if (access(path, R_OK) != 0) {
            printf("skipped: there is no %s, which is built where CUDA's toolkit and NCCL are\n",
                   path);
            exit(77);
        }
        setenv(i ? "TUTTI_NCCL_MODULE" : "TUTTI_CUDA_MODULE", path, 1);
    }
    snprintf(number, sizeof number, "%d", devices);
    setenv("STANDIN_CUDA_DEVICES", number, 1);
    setenv("TUTTI_BACKEND", "nccl", 1);
}

/* Of the stand-in's library, if it is loaded. */
static inline int nccl_leaks(char *text, size_t capacity)
{
    void *library = dlopen("libstandin_nccl.so", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "tutti_standin_nccl_leaks") : NULL;
    int (*leaks)(char *, size_t);

    memcpy(&leaks, &symbol, sizeof leaks);
    text[0] = '\0';
    return leaks ? leaks(text, capacity) : 0;
}

/* For bodies: NCCL was used correctly. */
static inline int nccl_is_clean(const tutti_group *group)
{
    char text[200];

    (void)nccl_leaks(text, sizeof text);
    if (!*text || strstr(text, "; 0 misuses"))
        return 0;
    fprintf(stderr, "rank %d: %s\n", tutti_group_rank(group), text);
    return 1;
}

#endif
