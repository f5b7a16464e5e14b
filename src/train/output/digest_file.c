/* digest_file.c -- lines of digests/rank-%d.jsonl.   SPDX-License-Identifier: MIT */
#include "train/output/digest_file.h"

#include "base/base.h"
#include "checkpoint/json_text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tutti__digest_text_add(tutti__digest_text *text, const char *p, size_t n)
{
    if (text->capacity - text->n < n) {
        const size_t capacity = 2 * text->capacity + n + 4096;
        char *more = realloc(text->p, capacity);

        if (!more) {
            text->failed = true;
            return;
        }
        text->p = more;
        text->capacity = capacity;
    }
    if (n > 0)
        memcpy(text->p + text->n, p, n);
    text->n += n;
}

enum { DIGITS = 12 }; /* of a number */

/* A positive finite one as DIGITS digits and a power of ten: value = digits 10^*power_p, but for rounding. */
static uint64_t decimal(double value, int *power_p)
{
    static const uint64_t too_many = UINT64_C(1000000000000);
    uint64_t digits = too_many;
    int power = (int)floor(log10(value)) - DIGITS; /* or one more */

    while (digits >= too_many) {
        power++;
        /* in two steps, since 10^-power may be more than a double can be */
        digits = (uint64_t)llround(power < -300 ? value * 1e300 * pow(10, -power - 300)
                                                : value * pow(10, -power));
    }
    *power_p = power;
    return digits;
}

/* As JSON, which has no infinity, nor NaN. Not by printf, which takes longer than the digests of a small step. */
static char *add_number(char *to, double value)
{
    char text[DIGITS];
    uint64_t digits;
    int power, n = DIGITS;

    if (!isfinite(value))
        return stpcpy(to, isnan(value) ? ",\"nan\"" : value > 0 ? ",\"inf\"" : ",\"-inf\"");
    if (value == 0)
        return stpcpy(to, ",0.0");
    digits = decimal(fabs(value), &power);
    for (int i = DIGITS; i-- > 0; digits /= 10)
        text[i] = (char)('0' + digits % 10);
    while (n > 2 && text[n - 1] == '0')
        n--;
    *to++ = ',';
    if (value < 0)
        *to++ = '-';
    *to++ = text[0];
    *to++ = '.';
    memcpy(to, text + 1, (size_t)n - 1);
    to += n - 1;
    power += DIGITS - 1;
    return power == 0 ? to : to + sprintf(to, "e%d", power);
}

static char *add_string(char *to, const char *text)
{
    *to++ = '"';
    for (const char *p = tutti__is_utf8(text) ? text : "(not UTF-8)"; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == '"' || *p == '\\')
            to += sprintf(to, "\\u%04x", (unsigned char)*p);
        else
            *to++ = *p;
    }
    *to++ = '"';
    return to;
}

static char *add_digest(char *to, uint64_t digest)
{
    to = stpcpy(to, ",\"");
    for (int shift = 60; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[digest >> shift & 15];
    *to++ = '"';
    return to;
}

enum { NAME = 255, NUMBER = 32 }; /* characters of a name; of a number */

void tutti__digest_entry(tutti__digest_text *entries, const char *kind, const char *name,
                         const tutti__fingerprint *f, int64_t micro_batch)
{
    char text[6 * NAME + 4 * NUMBER], cut[NAME + 1], *to = text;

    snprintf(cut, sizeof cut, "%s", name);
    to = stpcpy(to, entries->n > 0 ? ",[\"" : "[\"");
    to = stpcpy(to, kind);
    to = stpcpy(to, "\",");
    to = add_string(to, cut);
    to = add_digest(to, f->digest);
    to = add_number(to, f->norm);
    to = add_number(to, f->dot);
    if (micro_batch >= 0)
        to += sprintf(to, ",%" PRId64, micro_batch);
    *to++ = ']';
    tutti__digest_text_add(entries, text, (size_t)(to - text));
}

void tutti__digest_line(tutti__digest_text *lines, json_t *object,
                        const tutti__digest_text *entries)
{
    static const char before[] = ",\"entries\":[";
    char *text = tutti__json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(12));

    json_decref(object);
    lines->failed |= !text || (entries && entries->failed);
    if (text && entries) {
        tutti__digest_text_add(lines, text, strlen(text) - 1); /* without its brace */
        tutti__digest_text_add(lines, before, sizeof before - 1);
        tutti__digest_text_add(lines, entries->p, entries->n);
        tutti__digest_text_add(lines, "]}\n", 3);
    } else if (text) {
        tutti__digest_text_add(lines, text, strlen(text));
        tutti__digest_text_add(lines, "\n", 1);
    }
    free(text);
}

/* A line that could not be written whole is taken back. */
static tutti_status append(const char *path, const char *text, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    const off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    tutti_status status;

    if (fd < 0)
        return tutti__fail_errno(errno, "cannot open %s", path);
    status = tutti__write_all(fd, path, text, bytes);
    if (status != TUTTI_OK && end >= 0)
        (void)!ftruncate(fd, end);
    close(fd);
    return status;
}

tutti_status tutti__digest_file_append(const char *run_dir, int rank,
                                       const tutti__digest_text *lines)
{
    char folder[4096], path[4096 + 32];
    tutti_status status;

    snprintf(folder, sizeof folder, "%s/digests", run_dir);
    snprintf(path, sizeof path, "%s/rank-%d.jsonl", folder, rank);
    status = append(path, lines->p, lines->n);
    if (status == TUTTI_ERR_NOT_FOUND) { /* its first lines */
        status = tutti__make_dirs(folder);
        if (status == TUTTI_OK)
            status = append(path, lines->p, lines->n);
    }
    return status;
}
