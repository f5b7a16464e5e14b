/* os.c -- time, cores, memory.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/thread.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define LARGE     (2 * HUGE_PAGE)

uint64_t tutti__now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t tutti__now_coarse_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double tutti__now_ms(void)
{
    return (double)tutti__now_ns() * 1e-6;
}

uint64_t tutti__wall_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double tutti__wall_seconds(void)
{
    return (double)tutti__wall_ns() * 1e-9;
}

double tutti__cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void tutti__local_time(double seconds, const char *format, char text[64])
{
    const time_t whole = (time_t)seconds;
    struct tm tm;

    if (!localtime_r(&whole, &tm) || strftime(text, 64, format, &tm) == 0)
        text[0] = '\0';
}

int tutti__cores(void)
{
    cpu_set_t set;
    double quota = tutti__cpu_quota();
    int cores = 1;

    if (tutti__openmp_binds(&set) || sched_getaffinity(0, sizeof set, &set) == 0)
        cores = CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (quota > 0 && quota < cores)
        cores = (int)quota + (quota > (int)quota);
    return cores > 0 ? cores : 1;
}

void tutti__host_and_core(char *text, size_t bytes)
{
    char host[65] = "";

    gethostname(host, sizeof host - 1);
    snprintf(text, bytes, "host %s, core %d", host, sched_getcpu());
}

void *tutti__alloc_unset(size_t bytes)
{
    size_t alignment = bytes < LARGE ? 64 : HUGE_PAGE;
    size_t rounded = bytes ? (bytes + alignment - 1) / alignment * alignment : alignment;
    void *p = rounded < bytes ? NULL : aligned_alloc(alignment, rounded);

    if (p && bytes >= LARGE)
        madvise(p, rounded, MADV_HUGEPAGE); /* best effort */
    return p;
}

/* Whether memory that asks for huge pages gets them. */
static bool has_huge_pages(void)
{
    static _Atomic int known; /* 0: not yet; 1: no; 2: yes */
    char text[128];

    if (known == 0)
        known =
            1 + (tutti__slurp("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) &&
                 !strstr(text, "[never]"));
    return known == 2;
}

size_t tutti__alloc_takes(size_t bytes)
{
    return bytes < LARGE || !has_huge_pages() ? bytes
                                              : (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

bool tutti__fits_memory(size_t bytes)
{
    const long pages = sysconf(_SC_PHYS_PAGES); /* 0: a sandbox does not tell */

    return pages <= 0 || bytes / (size_t)sysconf(_SC_PAGESIZE) < (size_t)pages;
}

/* Large memory is zeroed by giving its pages back, not by writing it: the thread that fills it touches it first (NUMA). */
void *tutti__alloc(size_t bytes)
{
    void *p = tutti__alloc_unset(bytes);

    if (!p)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    else if (bytes < LARGE || madvise(p, bytes, MADV_DONTNEED) != 0)
        memset(p, 0, (bytes + 63) / 64 * 64);
    return p;
}
