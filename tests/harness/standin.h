/* standin.h -- tests of CUDA code, with the stand-in of its run-time.   SPDX-License-Identifier: MIT
 *
 * The stand-in reads its environment once per process, so each case is a separate process. */
#ifndef TUTTI_TESTS_HARNESS_STANDIN_H
#define TUTTI_TESTS_HARNESS_STANDIN_H

#include "standin/standin.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a case: prints the failed condition, and ends it. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,         \
                    tutti_last_error());                                                           \
            fflush(NULL);                                                                          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call)     CHECK((call) == TUTTI_OK)
#define CHECK_SAYS(text)   CHECK(strstr(tutti_last_error(), (text)) != NULL)
#define CHECK_SILENT(text) CHECK(strstr(tutti_last_error(), (text)) == NULL)

/* BUILD_DIR/FILE, or NULL where it was not built. */
static inline const char *built(const char *file)
{
    static char path[4096];
    const char *build = getenv("BUILD_DIR");

    snprintf(path, sizeof path, "%s/%s", build ? build : ".", file);
    return access(path, R_OK) == 0 ? path : NULL;
}

/* Skips the test if the module over stand-ins was not built; else sets TUTTI_CUDA_MODULE to it. */
static inline void use_standin(void)
{
    const char *path = built("tests/standin/libtutti_cuda.so");

    if (!path) {
        printf(
            "skipped: this build has no CUDA module: NVIDIA's toolkit and cuDNN were not found\n");
        exit(77);
    }
    setenv("TUTTI_CUDA_MODULE", path, 1);
}

/* Runs body in a separate process, with NAME=VALUE of `environment` (NULL-terminated) set. Whether it succeeded. */
static inline bool in_process(void (*body)(void), const char *const *environment)
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        for (; environment && *environment; environment++)
            putenv((char *)(uintptr_t)*environment);
        body();
        fflush(NULL);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* Functions of the stand-in, once the module is loaded. */
static inline void *standin_symbol(const char *name)
{
    void *library = dlopen(built("tests/standin/libstandin_cudart.so"), RTLD_NOW | RTLD_NOLOAD);

    return library ? dlsym(library, name) : NULL;
}

static inline uint64_t standin_waits(const char *function)
{
    uint64_t (*waits)(const char *) = NULL;

    *(void **)&waits = standin_symbol("tutti_standin_waits");
    return waits ? waits(function) : 0;
}

static inline void standin_enqueue(void *stream, void (*run)(void *arg), void *arg)
{
    int (*enqueue)(void *, void (*)(void *), void *) = NULL;

    *(void **)&enqueue = standin_symbol("tutti_standin_enqueue");
    if (!enqueue || enqueue(stream, run, arg) != 0) {
        fprintf(stderr, "the stand-in takes no work\n");
        _exit(1);
    }
}

/* Work that lasts until the gate opens: later work in its stream waits for it. */
typedef struct gate {
    _Atomic bool open;
} gate;

static inline void gate_run(void *arg)
{
    gate *g = arg;

    while (!g->open)
        usleep(100);
}

#endif
