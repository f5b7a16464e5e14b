/* error_files.c -- workers' messages about their failure, in torchrun's format.   SPDX-License-Identifier: MIT
 *
 *     {"message": "...", "timestamp": 1700000000}
 *     {"message": {"message": "...", "extraInfo": {"timestamp": "1700000000"}}}
 *
 * The content is written by a worker, hence untrusted. */
#include "launch/process/error_files.h"
#include "launch/process/job_files.h"

#include "checkpoint/json_text.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, LATE_S = 2, AHEAD_S = 30 };

/* Reads up to READ_BYTES of the file, which must be a regular one; the caller frees. */
static char *read_text(const char *path, size_t *bytes_p, struct stat *info)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    char *text = NULL;
    size_t n = 0;
    ssize_t got = 1;

    if (fd < 0)
        return NULL;
    if (fstat(fd, info) == 0 && S_ISREG(info->st_mode) && info->st_size > 0)
        text = malloc(READ_BYTES + 1);
    while (text && n < READ_BYTES && (got = read(fd, text + n, READ_BYTES - n)) > 0)
        n += (size_t)got;
    close(fd);
    if (text)
        text[n] = '\0';
    *bytes_p = n;
    return text;
}

static double number(const json_t *value)
{
    return json_is_string(value) ? strtod(json_string_value(value), NULL)
                                 : json_number_value(value);
}

/* *stamp_p: seconds since 1970, or 0. */
static void find_reason(const json_t *root, const char **text_p, double *stamp_p, bool *permanent_p)
{
    const json_t *message = json_object_get(root, "message"), *extra;

    *text_p = json_string_value(message);
    *stamp_p = number(json_object_get(root, "timestamp"));
    if (!json_is_object(message))
        return;
    extra = json_object_get(message, "extraInfo");
    *text_p = json_string_value(json_object_get(message, "message"));
    *stamp_p = number(json_object_get(extra, "timestamp"));
    *permanent_p = json_is_true(json_object_get(extra, "permanent"));
}

/* The file's own time is more precise than the timestamp in whole seconds, which is used if the two differ: then the file was
 * written late, or is not meant to be the first. */
static void set_time(tutti__reason *reason, const struct stat *info, double stamp)
{
    double written = (double)info->st_mtim.tv_sec + (double)info->st_mtim.tv_nsec * 1e-9, age;

    reason->effect = stamp > written + AHEAD_S;
    age = tutti__wall_seconds() - (stamp > 0 && stamp + LATE_S < written ? stamp : written);
    reason->at_ns = tutti__now_ns();
    if (age > 0 && age * 1e9 < (double)reason->at_ns)
        reason->at_ns -= (uint64_t)(age * 1e9);
}

bool tutti__reason_read(const char *path, tutti__reason *reason)
{
    char *text;
    const char *said = NULL;
    struct stat info;
    double stamp = 0;
    size_t bytes = 0, n;
    json_t *root;

    if (!(text = read_text(path, &bytes, &info)))
        return false;
    reason->permanent = false;
    root = json_loadb(text, bytes, 0, NULL);
    if (root)
        find_reason(root, &said, &stamp, &reason->permanent);
    /* else not torchrun's format: used as text */
    tutti__printable_lines(said ? said : text, reason->text, sizeof reason->text);
    for (n = strlen(reason->text); n > 0 && reason->text[n - 1] == '\n'; n--)
        reason->text[n - 1] = '\0';
    set_time(reason, &info, stamp);
    json_decref(root);
    free(text);
    return *reason->text != '\0';
}

bool tutti__error_file_read(const tutti__worker *worker, tutti__reason *reason)
{
    char path[PATH_MAX];

    if (!worker->job || !tutti__error_file_path(worker->job, worker->rank, path, sizeof path) ||
        !tutti__reason_read(path, reason))
        return false;
    /* a program may have handled it, and failed in another way */
    reason->permanent =
        reason->permanent && !worker->running &&
        (tutti__worker_exit_code(worker) == 2 || tutti__worker_exit_code(worker) == 3);
    return true;
}

void tutti__error_file_pass_on(const tutti__worker *worker, const char *how)
{
    const char *ours = getenv("TORCHELASTIC_ERROR_FILE");
    char path[PATH_MAX], *text = NULL, *out = NULL;
    struct stat info;
    size_t bytes = 0;
    json_t *root, *message;

    if (!ours || !*ours)
        return;
    if (tutti__error_file_path(worker->job, worker->rank, path, sizeof path))
        text = read_text(path, &bytes, &info);
    root = text ? json_loadb(text, bytes, 0, NULL) : NULL;
    message = json_object_get(root, "message");
    if (json_is_object(message)) { /* torchrun adds it too */
        json_object_set_new(message, "errorCode", json_integer(tutti__worker_exit_code(worker)));
        out = tutti__json_text(root, 0);
    }
    if (out)
        (void)tutti__write_file(ours, out, strlen(out));
    else if (json_is_string(message))
        (void)tutti__write_file(ours, text, bytes);
    else
        tutti__error_file_write(true, how);
    json_decref(root);
    free(text);
    free(out);
}
