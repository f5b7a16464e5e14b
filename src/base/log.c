/* log.c -- one line a message, to standard error or the program's callback, filtered by TUTTI_LOG.
 * SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const LEVELS[] = {"error", "warn", "info", "debug", "trace"};
static _Thread_local int log_rank = -1;

/* Where lines go, for the whole process, as standard error is. A callback runs under the read lock, so that it has returned
 * when it has been replaced. The lock prefers writers: many lines do not delay a new callback. */
static struct sink {
    pthread_rwlock_t lock;
    tutti_log_callback callback; /* NULL: standard error */
    void *user;
} sink = {PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP, NULL, NULL};
static _Thread_local bool in_callback;

void tutti__log_set_rank(int rank)
{
    log_rank = rank;
}

int tutti__log_rank(void)
{
    return log_rank;
}

static bool level_of(const char *text, size_t length, tutti_log_level *level_p)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(LEVELS); i++)
        if (strlen(LEVELS[i]) == length && memcmp(LEVELS[i], text, length) == 0) {
            *level_p = (tutti_log_level)i;
            return true;
        }
    return false;
}

/* The level of an area by `rules` ("warn,comm:debug"); a rule that names the area wins. */
static tutti_log_level limit_for(const char *rules, const char *area)
{
    tutti_log_level limit = TUTTI_LOG_WARN, level;
    bool named = false;

    while (*rules) {
        size_t length = strcspn(rules, ",");
        const char *colon = memchr(rules, ':', length);

        if (!colon && !named && level_of(rules, length, &level))
            limit = level;
        if (colon && strlen(area) == (size_t)(colon - rules) &&
            memcmp(area, rules, (size_t)(colon - rules)) == 0 &&
            level_of(colon + 1, length - (size_t)(colon + 1 - rules), &level)) {
            limit = level;
            named = true;
        }
        rules += length + (rules[length] == ',');
    }
    return limit;
}

tutti_status tutti__log_check(void)
{
    const char *rules = tutti__env_text(TUTTI__ENV_LOG);
    tutti_log_level level;

    while (*rules) {
        size_t length = strcspn(rules, ",");
        const char *colon = memchr(rules, ':', length), *word = colon ? colon + 1 : rules;

        if (colon == rules || !level_of(word, length - (size_t)(word - rules), &level)) {
            char given[60], levels[80];

            snprintf(given, sizeof given, "%.*s", (int)(length - (size_t)(word - rules)), word);
            return tutti__fail(
                TUTTI_ERR_ARG, "TUTTI_LOG: \"%.*s\" is not LEVEL or AREA:LEVEL, where LEVEL is %s",
                (int)(length < 60 ? length : 60), rules,
                tutti__choice_text(given, LEVELS, TUTTI__COUNT_OF(LEVELS), levels, sizeof levels));
        }
        rules += length + (rules[length] == ',');
    }
    return TUTTI_OK;
}

void tutti_log_set_callback(tutti_log_callback callback, void *user)
{
    if (in_callback) {
        tutti_log(TUTTI_LOG_ERROR, "log",
                  "tutti_log_set_callback from inside the callback changes nothing; call it "
                  "outside");
        return;
    }
    pthread_rwlock_wrlock(&sink.lock);
    sink.callback = callback;
    sink.user = user;
    pthread_rwlock_unlock(&sink.lock);
}

/* Passes the line to the callback; false: there is none, or the callback itself logs this line. */
static bool call_back(tutti_log_level level, const char *area, const char *text)
{
    bool called;

    if (in_callback)
        return false;
    pthread_rwlock_rdlock(&sink.lock);
    called = sink.callback != NULL;
    if (called) {
        in_callback = true;
        sink.callback(sink.user, level, area, log_rank, text);
        in_callback = false;
    }
    pthread_rwlock_unlock(&sink.lock);
    return called;
}

void tutti_log(tutti_log_level level, const char *area, const char *format, ...)
{
    char raw[2048], text[2048], line[2304];
    int n;
    va_list args;

    if (!area)
        area = "";
    if (level > limit_for(tutti__env_text(TUTTI__ENV_LOG), area))
        return;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    tutti__printable(raw, text, sizeof text);
    if (call_back(level, area, text))
        return;
    if (log_rank >= 0)
        n = snprintf(line, sizeof line - 1, "tutti[%d] %s %s: %s", log_rank, LEVELS[level], area,
                     text);
    else
        n = snprintf(line, sizeof line - 1, "tutti %s %s: %s", LEVELS[level], area, text);
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    /* One write, so that lines of several ranks do not mix. */
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
}
