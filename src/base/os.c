/* os.c -- time, cores, memory, files.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

/* cgroup v2's CPU quota in whole cores, rounded up; 0: none. */
static int cgroup_cores(void)
{
    double quota, period;
    int cores = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");

    if (!file)
        return 0;
    if (fscanf(file, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
        cores = (int)((quota + period - 1) / period);
    fclose(file);
    return cores;
}

int tutti__cores(void)
{
    cpu_set_t set;
    int cores = 1, limit = cgroup_cores();

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cores = CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (limit > 0 && limit < cores)
        cores = limit;
    return cores > 0 ? cores : 1;
}

void *tutti__alloc_unset(size_t bytes)
{
    size_t alignment = bytes < LARGE ? 64 : HUGE_PAGE;
    size_t rounded = bytes ? (bytes + alignment - 1) / alignment * alignment : alignment;
    void *p = rounded < bytes ? NULL : aligned_alloc(alignment, rounded);

    if (p && bytes >= LARGE)
        madvise(p, rounded, MADV_HUGEPAGE); /* a wish */
    return p;
}

/* Large memory is zero because its pages are given back unread, not because it is written: whoever fills it touches it first. */
void *tutti__alloc(size_t bytes)
{
    void *p = tutti__alloc_unset(bytes);

    if (!p)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    else if (bytes < LARGE || madvise(p, bytes, MADV_DONTNEED) != 0)
        memset(p, 0, (bytes + 63) / 64 * 64);
    return p;
}

tutti_status tutti__make_dirs(const char *path)
{
    char part[4096];
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof part)
        return tutti__fail(TUTTI_ERR_ARG, "folder \"%.60s\": the path is empty or too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return tutti__fail_errno(errno, "cannot make folder %s", part);
    }
    return TUTTI_OK;
}

tutti_status tutti__write_all(int fd, const char *path, const void *p, size_t bytes)
{
    const char *next = p;

    while (bytes > 0) {
        ssize_t n = write(fd, next, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tutti__fail_errno(errno, "cannot write %s", path);
        next += n;
        bytes -= (size_t)n;
    }
    return TUTTI_OK;
}

/* A device or a pipe stays what it is, and takes the bytes; a pipe that nobody reads is an error, not a wait. */
static tutti_status write_special(const char *path, const void *p, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    tutti_status status;

    if (fd < 0)
        return tutti__fail_errno(errno, "cannot write %s", path);
    status = tutti__write_all(fd, path, p, bytes);
    close(fd);
    return status;
}

tutti_status tutti__write_file(const char *path, const void *p, size_t bytes)
{
    char temporary[4096], target[PATH_MAX];
    struct stat info;
    tutti_status status;
    int fd;

    if (stat(path, &info) == 0) {
        if (!S_ISREG(info.st_mode))
            return write_special(path, p, bytes);
        if (realpath(path, target)) /* a link stays, and the file that it names is replaced */
            path = target;
    }
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        return tutti__fail(TUTTI_ERR_ARG, "file %.60s...: the path is too long", path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot write %s", temporary);
    status = tutti__write_all(fd, temporary, p, bytes);
    if (close(fd) != 0 && status == TUTTI_OK)
        status = tutti__fail_errno(errno, "cannot write %s", temporary);
    if (status == TUTTI_OK && rename(temporary, path) != 0)
        status = tutti__fail_errno(errno, "cannot rename %s to %s", temporary, path);
    if (status != TUTTI_OK)
        unlink(temporary);
    return status;
}
