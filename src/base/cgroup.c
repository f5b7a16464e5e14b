/* cgroup.c -- limits that control groups set.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether the list "cpu,cpuacct" has that name. */
static bool has(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strncmp(list, name, n) == 0 && (list[n] == ',' || !list[n]))
            return true;
    return false;
}

/* Appends the texts of the files of that folder whose names `names` lists, with spaces between. False: it lacks the first. */
static bool read_files(const char *folder, const char *names, char *text, size_t bytes)
{
    char whole[PATH_MAX + 256];
    size_t used = 0;

    for (const char *name = names; *name; name += strspn(name, " ")) {
        int n = (int)strcspn(name, " ");

        snprintf(whole, sizeof whole, "%s/%.*s", folder, n, name);
        if (!tutti__slurp(whole, text + used, bytes - used) && name == names)
            return false;
        used += strlen(text + used);
        name += n;
        if (*name && used + 2 < bytes)
            text[used++] = ' ', text[used] = '\0';
    }
    return true;
}

/* The path after "0::" of version 2, or after ":...controller...:" of version 1; else "/", which is a container's own cgroup. */
static void cgroup_path(const char *controller, bool v2, char *path, size_t bytes)
{
    char text[4096], *save = NULL;

    snprintf(path, bytes, "/");
    if (!tutti__slurp("/proc/self/cgroup", text, sizeof text))
        return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':'), *end = list ? strchr(list + 1, ':') : NULL;

        if (!end)
            continue;
        *end = '\0';
        if (v2 ? list[1] != '\0' : !has(list + 1, controller))
            continue;
        snprintf(path, bytes, "%s", strstr(end + 1, "/..") ? "/" : end + 1);
        return;
    }
}

void tutti__visit_cgroups(const char *file, const char *controller, const char *file_v1,
                          void (*visit)(void *user, const char *text), void *user)
{
    bool v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    char path[PATH_MAX], folder[PATH_MAX + 64], text[4096];

    cgroup_path(controller, v2, path, sizeof path);
    for (;;) {
        char *slash = strrchr(path, '/');

        snprintf(folder, sizeof folder, "/sys/fs/cgroup/%s%s", v2 ? "" : controller,
                 path[1] ? path : "");
        if (read_files(folder, v2 ? file : file_v1, text, sizeof text))
            visit(user, text);
        if (!slash || !path[1])
            return;
        slash[slash == path] = '\0';
    }
}

/* "QUOTA PERIOD"; without a period, the kernel's default, 100 ms. */
static void note_quota(void *user, const char *text)
{
    double *least = user, quota, period = 1e5;

    if (sscanf(text, "%lf %lf", &quota, &period) < 1 || quota <= 0 || period <= 0)
        return; /* "max", -1 */
    if (*least == 0 || quota / period < *least)
        *least = quota / period;
}

double tutti__cpu_quota(void)
{
    double least = 0;

    tutti__visit_cgroups("cpu.max", "cpu", "cpu.cfs_quota_us cpu.cfs_period_us", note_quota,
                         &least);
    return least;
}

typedef struct room {
    int64_t limit, used;
} room;

/* "LIMIT USED". Version 1 writes a very large number for no limit, version 2 "max". */
static void note_room(void *user, const char *text)
{
    room *least = user;
    long long limit, used;

    if (sscanf(text, "%lld %lld", &limit, &used) == 2 && limit > 0 && limit < (1ll << 60) &&
        (least->limit == 0 || limit < least->limit))
        *least = (room){limit, used};
}

bool tutti__cgroup_room(const char *files, const char *controller, const char *files_v1,
                        int64_t *limit_p, int64_t *used_p)
{
    room least = {0};

    tutti__visit_cgroups(files, controller, files_v1, note_room, &least);
    *limit_p = least.limit;
    *used_p = least.used;
    return least.limit > 0;
}

bool tutti__cgroup_memory(int64_t *limit_p, int64_t *used_p)
{
    return tutti__cgroup_room("memory.max memory.current", "memory",
                              "memory.limit_in_bytes memory.usage_in_bytes", limit_p, used_p);
}
