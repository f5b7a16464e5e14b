/* look.c -- how checks read files, cgroups and PATH.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
