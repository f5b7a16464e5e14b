/* build.c -- what the bits of a process's results depend on, as text.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <pthread.h>
#include <string.h>

#if defined(__clang__)
#define COMPILER "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__)
#else
#define COMPILER "gcc " TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__)
#endif
#define TEXT(x)  TEXT_(x)
#define TEXT_(x) #x

static struct {
    pthread_mutex_t mutex;
    char text[TUTTI__BUILD_TEXT];
} build = {PTHREAD_MUTEX_INITIALIZER, TUTTI_VERSION ", " COMPILER};

static bool has_part(const char *part)
{
    const size_t n = strlen(part);

    for (const char *at = build.text; (at = strstr(at, part)); at++)
        if (at >= build.text + 2 && memcmp(at - 2, ", ", 2) == 0 && (at[n] == ',' || !at[n]))
            return true;
    return false;
}

void tutti__build_uses(const char *part)
{
    pthread_mutex_lock(&build.mutex);
    if (!has_part(part)) {
        const size_t n = strlen(build.text);

        snprintf(build.text + n, sizeof build.text - n, ", %s", part);
    }
    pthread_mutex_unlock(&build.mutex);
}

const char *tutti__build_text(void)
{
    static _Thread_local char copy[TUTTI__BUILD_TEXT];

    pthread_mutex_lock(&build.mutex);
    memcpy(copy, build.text, sizeof copy);
    pthread_mutex_unlock(&build.mutex);
    return copy;
}
