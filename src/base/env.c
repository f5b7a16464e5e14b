/* env.c -- the table of env.def, and reading text as numbers.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const tutti__env_row tutti__env_table[TUTTI__N_ENV] = {
#define ENV(name, type, value, help) {"TUTTI_" #name, type, value, help},
#include "base/env.def"
#undef ENV
};

const char *tutti__env_text(tutti__env_id id)
{
    const char *text = getenv(tutti__env_table[id].name);

    return text && *text ? text : tutti__env_table[id].value;
}

tutti_status tutti__env_int(tutti__env_id id, long low, long high, long *value_p)
{
    return tutti__parse_variable(tutti__env_table[id].name, tutti__env_text(id), low, high,
                                 value_p);
}

tutti_status tutti__env_choice(tutti__env_id id, const char *const *names, size_t n,
                               size_t *choice_p)
{
    const char *text = tutti__env_text(id);

    for (size_t i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0) {
            *choice_p = i;
            return TUTTI_OK;
        }
    return tutti__fail_choice(tutti__env_table[id].name, text, names, n);
}

static bool known(const char *name)
{
    for (int i = 0; i < TUTTI__N_ENV; i++)
        if (strcmp(name, tutti__env_table[i].name) == 0)
            return true;
    return false;
}

tutti_status tutti__env_check(void)
{
    static const char *const colors[] = {"auto", "always", "never"};
    const char *names[TUTTI__N_ENV];
    size_t color;

    TUTTI_TRY(tutti__env_choice(TUTTI__ENV_COLOR, colors, TUTTI__COUNT_OF(colors), &color));
    for (int i = 0; i < TUTTI__N_ENV; i++)
        names[i] = tutti__env_table[i].name;
    for (char **entry = environ; *entry; entry++) {
        char name[64];
        size_t bytes = strcspn(*entry, "=");
        const char *nearest;

        snprintf(name, sizeof name, "%.*s", (int)(bytes < 63 ? bytes : 63), *entry);
        /* the tests' own */
        if (strncmp(name, "TUTTI_", 6) != 0 || known(name) || strncmp(name, "TUTTI_TEST_", 11) == 0)
            continue;
        nearest = tutti__nearest(name, names, TUTTI__N_ENV);
        tutti_log(TUTTI_LOG_WARN, "env",
                  "%s is not a variable of Tutti and is ignored%s%s%s (tutti run --env lists them)",
                  name, nearest ? "; did you mean " : "", nearest ? nearest : "",
                  nearest ? "?" : "");
    }
    return TUTTI_OK;
}

bool tutti__ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

bool tutti__wants_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

bool tutti__parse_int64(const char *text, int64_t *value_p)
{
    char *end;
    long long value;

    if (!*text || *text == ' ' || *text == '\t')
        return false;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || *end)
        return false;
    *value_p = value;
    return true;
}

tutti_status tutti__parse_variable(const char *name, const char *text, long low, long high,
                                   long *value_p)
{
    int64_t value;

    if (!tutti__parse_int64(text, &value) || value < low || value > high)
        return tutti__fail(TUTTI_ERR_ARG, "%s is \"%.40s\", expected an integer from %ld to %ld",
                           name, text, low, high);
    *value_p = (long)value;
    return TUTTI_OK;
}

bool tutti__parse_double(const char *text, double *value_p)
{
    char *end;
    double value;

    if (!*text || *text == ' ' || *text == '\t')
        return false;
    errno = 0;
    value = strtod(text, &end);
    if (*end || (errno && (value > 1 || value < -1)))
        return false;
    *value_p = value;
    return true;
}

static bool is_same(char a, char b)
{
    return a == b || (a == '-' && b == '_') || (a == '_' && b == '-');
}

/* Levenshtein's distance, at most 63 characters of each; two swapped neighbours are one edit. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t d[64][64], n = strnlen(a, 63), m = strnlen(b, 63);

    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = d[i - 1][j - 1] + !is_same(a[i - 1], b[j - 1]);
            if (d[i - 1][j] + 1 < d[i][j])
                d[i][j] = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < d[i][j])
                d[i][j] = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]) &&
                d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    return d[n][m];
}

/* True if `name` begins with `text`, '-' and '_' are the same. */
static bool begins_with(const char *name, const char *text)
{
    while (*text && is_same(*name, *text))
        name++, text++;
    return !*text;
}

const char *tutti__nearest(const char *text, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t limit = strlen(text) / 3 + 1, best_distance = limit + 1;

    for (size_t i = 0; i < n && strlen(text) >= 3; i++)
        if (begins_with(candidates[i], text))
            return candidates[i];
    for (size_t i = 0; i < n; i++) {
        size_t distance = edit_distance(text, candidates[i]);

        if (distance < best_distance) {
            best_distance = distance;
            best = candidates[i];
        }
    }
    return best;
}

const char *tutti__choice_text(const char *text, const char *const *names, size_t n, char *out,
                               size_t size)
{
    const char *near = tutti__nearest(text, names, n);
    size_t used = 0;

    *out = '\0';
    for (size_t i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i == 0      ? ""
                                 : i < n - 1 ? ", "
                                             : " or ",
                                 names[i]);
    if (near && used < size)
        snprintf(out + used, size - used, " (did you mean %s?)", near);
    return out;
}

tutti_status tutti__fail_choice(const char *what, const char *text, const char *const *names,
                                size_t n)
{
    char expected[256];

    return tutti__fail(TUTTI_ERR_ARG, "%s is \"%.60s\", expected %s", what, text,
                       tutti__choice_text(text, names, n, expected, sizeof expected));
}
