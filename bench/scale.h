/* scale.h -- what a process holds, for comm_scale.c and peer/mpi_scale.c.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_BENCH_SCALE_H
#define TUTTI_BENCH_SCALE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Calls of each kind whose median is taken. */
enum { SCALE_CALLS = 9 };

static double scale_now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int scale_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double scale_median(double *values)
{
    qsort(values, SCALE_CALLS, sizeof *values, scale_by_value);
    return values[SCALE_CALLS / 2];
}

/* Descriptors, sockets among them, and KiB of memory that no other process has. */
static void scale_holds(double out[3])
{
    char path[300], to[64], line[128];
    DIR *fds = opendir("/proc/self/fd");
    FILE *file = fopen("/proc/self/smaps_rollup", "r");

    out[0] = out[1] = out[2] = 0;
    for (struct dirent *e; fds && (e = readdir(fds)) != NULL;) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        n = readlink(path, to, sizeof to - 1);
        if (n <= 0)
            continue;
        to[n] = '\0';
        out[0] += 1;
        out[1] += strncmp(to, "socket:", 7) == 0;
    }
    if (fds) {
        closedir(fds);
        out[0] -= 1; /* its own */
    }
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "Private_", 8) == 0)
            out[2] += atof(strchr(line, ':') + 1);
    if (file)
        fclose(file);
}

static void scale_say(double first_ms, const double us[4], const double most[3])
{
    printf("first %.1f\n4 %.1f\n4096 %.1f\n1048576 %.1f\nall_to_all %.1f\ndescriptors %g\n"
           "sockets %g\nprivate_kib %g\n",
           first_ms, us[0], us[1], us[2], us[3], most[0], most[1], most[2]);
    fflush(stdout);
}

#endif
