/* log.c -- one line a message, to standard error, filtered by TUTTI_LOG.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const LEVELS[] = {"error", "warn", "info", "debug", "trace"};
static _Thread_local int log_rank = -1;

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

/* The level that `rules` ("warn,comm:debug") gives to area; the rule that names the area wins. */
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

        if (colon == rules || !level_of(word, length - (size_t)(word - rules), &level))
            return tutti__fail(TUTTI_ERR_ARG,
                               "TUTTI_LOG: \"%.*s\" is not LEVEL or AREA:LEVEL, where LEVEL is "
                               "error, warn, info, debug or trace",
                               (int)(length < 60 ? length : 60), rules);
        rules += length + (rules[length] == ',');
    }
    return TUTTI_OK;
}

void tutti_log(tutti_log_level level, const char *area, const char *format, ...)
{
    char line[2304];
    int n;
    va_list args;

    if (level > limit_for(tutti__env_text(TUTTI__ENV_LOG), area))
        return;
    if (log_rank >= 0)
        n = snprintf(line, sizeof line, "tutti[%d] %s %s: ", log_rank, LEVELS[level], area);
    else
        n = snprintf(line, sizeof line, "tutti %s %s: ", LEVELS[level], area);
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    /* One write, so that lines of several ranks do not mix. */
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
}
