/* proc.c -- reads /proc and /sys.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tutti__slurp_int64(const char *path, int64_t *value_p)
{
    char text[64];

    return tutti__slurp(path, text, sizeof text) && tutti__parse_int64(text, value_p);
}

bool tutti__boot_text(char text[64])
{
    return tutti__slurp("/proc/sys/kernel/random/boot_id", text, 64) && *text;
}

uint64_t tutti__boot_id(void)
{
    const uint64_t here[2] = {tutti__now_ns(), (uint64_t)getpid()};
    char boot[64];

    return tutti__boot_text(boot) ? tutti__hash64(boot, strlen(boot))
                                  : tutti__hash64(here, sizeof here);
}

bool tutti__executable(char *path, size_t bytes)
{
    const ssize_t n = readlink("/proc/self/exe", path, bytes - 1);

    path[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* "4711 (name) T PARENT GROUP ...": the name may contain anything; field 22 is the start time. */
bool tutti__proc_stat_read(tutti__proc_stat *stat, const char *path)
{
    char text[1024];
    const char *rest;
    unsigned long long start = 0;

    *stat = (tutti__proc_stat){.state = '?'};
    if (!tutti__slurp(path, text, sizeof text) || !(rest = strrchr(text, ')')) ||
        sscanf(rest,
               ") %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &stat->state, &stat->parent, &stat->group, &start) < 3)
        return false;
    stat->start = start;
    return true;
}

/* Lines "Name:  N kB". */
int64_t tutti__meminfo(const char *name)
{
    const size_t n = strlen(name);
    char text[8192], *line = text;

    if (!tutti__slurp("/proc/meminfo", text, sizeof text))
        return -1;
    while (line && (strncmp(line, name, n) != 0 || line[n] != ':'))
        if ((line = strchr(line, '\n')))
            line++;
    return line ? strtoll(line + n + 1, NULL, 10) * 1024 : -1;
}
