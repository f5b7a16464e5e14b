/* doctor_look.c -- how checks read files, cgroups and PATH.   SPDX-License-Identifier: MIT */
#include "cli/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tutti__slurp(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n = 0;

    while (fd >= 0 && used < bytes - 1 && (n = read(fd, text + used, bytes - 1 - used)) > 0)
        used += (size_t)n;
    if (fd >= 0)
        close(fd);
    if (used > 0 && text[used - 1] == '\n')
        used--;
    text[used] = '\0';
    return fd >= 0 && n >= 0;
}

bool tutti__slurp_int64(const char *path, int64_t *value_p)
{
    char text[64];

    return tutti__slurp(path, text, sizeof text) && tutti__parse_int64(text, value_p);
}

/* The path after "0::" of version 2, or after ":...controller...:" of version 1. */
static bool cgroup_path(const char *controller, bool v2, char *path, size_t bytes)
{
    char text[4096], *save = NULL;

    if (!tutti__slurp("/proc/self/cgroup", text, sizeof text))
        return false;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':'), *end = list ? strchr(list + 1, ':') : NULL;

        if (!end)
            continue;
        *end = '\0';
        if (v2 ? list[1] != '\0' : !strstr(list + 1, controller))
            continue;
        snprintf(path, bytes, "%s", strstr(end + 1, "/..") ? "/" : end + 1);
        return true;
    }
    return false;
}

void tutti__visit_cgroups(const char *file, const char *controller, const char *file_v1,
                          void (*visit)(void *user, const char *text), void *user)
{
    bool v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    char path[PATH_MAX], whole[PATH_MAX + 256], text[4096];

    if (!cgroup_path(controller, v2, path, sizeof path))
        return;
    for (;;) {
        char *slash = strrchr(path, '/');

        snprintf(whole, sizeof whole, "/sys/fs/cgroup/%s%s/%s", v2 ? "" : controller,
                 path[1] ? path : "", v2 ? file : file_v1);
        if (tutti__slurp(whole, text, sizeof text))
            visit(user, text);
        if (!slash || !path[1])
            return;
        slash[slash == path] = '\0';
    }
}

bool tutti__find_program(const char *name, char *path, size_t bytes)
{
    const char *list = getenv("PATH");
    char whole[PATH_MAX];

    for (const char *item = list ? list : ""; *item;) {
        size_t n = strcspn(item, ":");
        int length = snprintf(whole, sizeof whole, "%.*s/%s", (int)n, item, name);

        if (length > 0 && (size_t)length < sizeof whole && (size_t)length < bytes &&
            access(whole, X_OK) == 0) {
            memcpy(path, whole, (size_t)length + 1);
            return true;
        }
        item += n + (item[n] == ':');
    }
    return false;
}

const char *tutti__size(tutti__size_text *text, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;

    while (bytes >= 1024 && unit + 1 < TUTTI__COUNT_OF(units)) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text->text, sizeof text->text, "%.*f %s", unit > 0 && bytes < 100 ? 1 : 0, bytes,
             units[unit]);
    return text->text;
}

const char *tutti__first_line(char *text)
{
    text[strcspn(text, "\r\n")] = '\0';
    if (strlen(text) > 160)
        text[160] = '\0';
    return text;
}
