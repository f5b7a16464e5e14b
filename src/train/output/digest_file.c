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

/* JSON has no infinity, nor NaN. */
static json_t *number(double value)
{
    if (isnan(value))
        return json_string("nan");
    return isinf(value) ? json_string(value > 0 ? "inf" : "-inf") : json_real(value);
}

json_t *tutti__digest_entry(const char *kind, const char *name, const tutti__fingerprint *f,
                            int64_t micro_batch)
{
    json_t *entry = json_array();
    char digest[17];
    int failed = 0;

    snprintf(digest, sizeof digest, "%016" PRIx64, f->digest);
    failed |= json_array_append_new(entry, json_string(kind));
    failed |=
        json_array_append_new(entry, json_string(tutti__is_utf8(name) ? name : "(not UTF-8)"));
    failed |= json_array_append_new(entry, json_string(digest));
    failed |= json_array_append_new(entry, number(f->norm));
    failed |= json_array_append_new(entry, number(f->dot));
    if (micro_batch >= 0)
        failed |= json_array_append_new(entry, json_integer(micro_batch));
    return tutti__json_complete(entry, failed);
}

/* All lines, one behind the other. */
static char *text_of(const json_t *lines, size_t *bytes_p)
{
    FILE *out;
    char *all = NULL;
    bool good = lines;
    size_t i;
    json_t *line;

    out = open_memstream(&all, bytes_p);
    if (!out)
        return NULL;
    json_array_foreach(lines, i, line)
    {
        char *text = tutti__json_text(line, JSON_COMPACT | JSON_REAL_PRECISION(12));

        good &= text && fprintf(out, "%s\n", text) > 0;
        free(text);
    }
    if (fclose(out) != 0 || !good) {
        free(all);
        return NULL;
    }
    return all;
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

tutti_status tutti__digest_file_append(const char *run_dir, int rank, const json_t *lines)
{
    char folder[4096], path[4096 + 32];
    size_t bytes;
    char *text = text_of(lines, &bytes);
    tutti_status status;

    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for lines of digests");
    snprintf(folder, sizeof folder, "%s/digests", run_dir);
    snprintf(path, sizeof path, "%s/rank-%d.jsonl", folder, rank);
    status = append(path, text, bytes);
    if (status == TUTTI_ERR_NOT_FOUND) { /* its first lines */
        status = tutti__make_dirs(folder);
        if (status == TUTTI_OK)
            status = append(path, text, bytes);
    }
    free(text);
    return status;
}
