/* resident.c -- memory of this process.   SPDX-License-Identifier: MIT */
#include "train/forecast/footprint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of "Name:   N kB" in a text; 0: there is none. */
static size_t field(const char *text, const char *name)
{
    const size_t n = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && line[n] == ':')
            return (size_t)strtoull(line + n + 1, NULL, 10) * 1024;
    }
    return 0;
}

/* VmHWM counts a page that ranks share in each of them. What they share is mapped until the end: so at the peak as now. */
tutti__resident tutti__resident_now(void)
{
    tutti__resident r = {0, 0};
    char status[8192], rollup[4096];
    size_t shared, parts;

    if (!tutti__slurp("/proc/self/status", status, sizeof status))
        return r;
    r.now = field(status, "VmRSS");
    r.most = field(status, "VmHWM");
    shared = field(status, "RssShmem");
    if (!tutti__slurp("/proc/self/smaps_rollup", rollup, sizeof rollup))
        return r;
    parts = field(rollup, "Pss_Shmem");
    if (parts <= shared && shared - parts <= r.now) {
        r.now -= shared - parts;
        r.most -= shared - parts;
    }
    return r;
}
