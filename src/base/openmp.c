/* openmp.c -- undoes OpenMP's binding for threads that are not its own.   SPDX-License-Identifier: MIT
 *
 * If the environment asks for binding, OpenMP (as used by oneDNN) binds the thread that loads it to its first place, often one
 * core. Threads and processes started by that thread would inherit this. */
#include "base/thread.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef struct openmp {
    int (*places)(void);
    int (*count)(int place);
    void (*ids)(int place, int *ids);
} openmp;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static openmp found; /* empty: no OpenMP, or no binding was asked for */

/* ISO C has no cast from an object pointer to a function's. */
static void find(void *function_p, const char *name)
{
    *(void **)function_p = dlsym(RTLD_DEFAULT, name);
}

static void find_openmp(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                        "KMP_AFFINITY"};
    bool asked = false;

    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++)
        asked = asked || getenv(names[i]);
    if (!asked)
        return;
    find(&found.count, "omp_get_place_num_procs");
    find(&found.ids, "omp_get_place_proc_ids");
    if (found.count && found.ids)
        find(&found.places, "omp_get_num_places");
}

static cpu_set_t cpus_of(int place)
{
    const int n = found.count(place);
    int *ids = n > 0 ? malloc((size_t)n * sizeof *ids) : NULL;
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (ids)
        found.ids(place, ids);
    for (int i = 0; ids && i < n; i++)
        if (ids[i] >= 0 && ids[i] < CPU_SETSIZE)
            CPU_SET((size_t)ids[i], &cpus);
    free(ids);
    return cpus;
}

bool tutti__openmp_binds(cpu_set_t *cpus_p)
{
    bool bound = false;
    cpu_set_t mine;
    int n;

    pthread_once(&once, find_openmp);
    n = found.places ? found.places() : 0;
    CPU_ZERO(cpus_p);
    if (n < 2 || sched_getaffinity(0, sizeof mine, &mine) != 0)
        return false;
    for (int i = 0; i < n; i++) {
        const cpu_set_t place = cpus_of(i);

        bound = bound || CPU_EQUAL(&place, &mine);
        CPU_OR(cpus_p, cpus_p, &place);
    }
    return bound && !CPU_EQUAL(cpus_p, &mine);
}
