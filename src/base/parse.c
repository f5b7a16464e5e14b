/* parse.c -- reading text as numbers and as one of several names.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool tutti__parse_size(const char *text, size_t length, int64_t *bytes_p)
{
    static const char units[] = "KMG";
    char number[24];
    const char *unit;
    int shift = 0;

    if (length == 0 || length >= sizeof number)
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    unit = strchr(units, number[length - 1] & ~0x20);
    if (unit && *unit) {
        shift = 10 * (int)(unit - units + 1);
        number[length - 1] = '\0';
    }
    if (!tutti__parse_int64(number, bytes_p) || *bytes_p < 1 ||
        *bytes_p > (INT64_C(1) << 40) >> shift)
        return false;
    *bytes_p <<= shift;
    return true;
}

bool tutti__word_in(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (; *list; list += strcspn(list, " "), list += *list == ' ')
        if (n > 0 && strcspn(list, " ") == n && memcmp(list, word, n) == 0)
            return true;
    return false;
}

const char *tutti__words_text(const char *list, const char *last, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    while (*list && used < size) {
        int n = (int)strcspn(list, " ");
        const char *rest = list + n + (list[n] == ' ');
        const char *after = rest + strcspn(rest, " ");
        const char *glue = !*rest ? "" : after[strspn(after, " ")] ? ", " : last;

        used += (size_t)snprintf(text + used, size - used, "%.*s%s", n, list, glue);
        list = rest;
    }
    return text;
}
