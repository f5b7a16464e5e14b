/* waiting.c -- when to log which ranks are missing.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/waiting.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double TIMES_S[] = {5, 30, 120};

tutti__waiting tutti__waiting_begin(void)
{
    return (tutti__waiting){.begin_ms = tutti__now_ms()};
}

double tutti__waiting_next(const tutti__waiting *waiting)
{
    int last = (int)TUTTI__COUNT_OF(TIMES_S) - 1;
    double seconds =
        waiting->said <= last ? TIMES_S[waiting->said] : TIMES_S[last] * (waiting->said - last + 1);

    return waiting->begin_ms + seconds * 1e3;
}

bool tutti__waiting_due(tutti__waiting *waiting)
{
    bool due = tutti__now_ms() >= tutti__waiting_next(waiting);

    waiting->said += due;
    return due;
}

double tutti__waiting_seconds(const tutti__waiting *waiting)
{
    return (tutti__now_ms() - waiting->begin_ms) / 1e3;
}

/* If containers with one host name count processes separately, this may see another process; that only affects the wording. */
const char *tutti__waiting_state(const char *host, int64_t pid)
{
    tutti__proc_stat stat;
    char self[64] = "", path[64];

    gethostname(self, sizeof self - 1);
    if (strncmp(self, host, sizeof self) != 0)
        return "";
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    tutti__proc_stat_read(&stat, path);
    return stat.state == 'T' || stat.state == 't' ? ", which is stopped (SIGSTOP, a debugger)" : "";
}
