/* state.c -- reads state.json, and checks its digest.   SPDX-License-Identifier: MIT */
#include "checkpoint/state.h"

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/json_text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_STATE = 64 << 20 }; /* a table of 65536 columns takes up to 22 MiB */
enum { MOST_RANKS = 1 << 20 };
#define MOST_STEPS ((json_int_t)1 << 50)

tutti_status tutti__state_digest(const json_t *state, char text[33])
{
    json_t *rest = json_copy((json_t *)(uintptr_t)state);
    char *dump = NULL;

    /* json_copy leaves out members that it has no memory for */
    if (rest && json_object_size(rest) == json_object_size(state)) {
        json_object_del(rest, "digest");
        dump = tutti__json_text(rest, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    }
    json_decref(rest);
    if (!dump)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    snprintf(text, 33, "%016llx", (unsigned long long)tutti__hash64(dump, strlen(dump)));
    free(dump);
    return TUTTI_OK;
}

/* Checkpoints of earlier versions have no digest. */
static tutti_status check_digest(const json_t *state, const char *path)
{
    const json_t *said = json_object_get(state, "digest");
    char digest[33];

    TUTTI_TRY(tutti__state_digest(state, digest));
    if (!said || (json_is_string(said) && strcmp(json_string_value(said), digest) == 0))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s is damaged: its contents have digest %s, and it says %.40s", path,
                       digest, json_is_string(said) ? json_string_value(said) : "something else");
}

int tutti__state_set_ranges(json_t *state, const float *ranges, size_t n)
{
    json_t *list = json_array();
    int failed = 0;

    for (size_t i = 0; i < n; i++)
        failed |= json_array_append_new(list, json_real((double)ranges[i]));
    return failed | json_object_set_new(state, "ranges", list);
}

tutti_status tutti__state_ranges(const json_t *state, const char *folder, float **ranges_p,
                                 size_t *n_p)
{
    const json_t *list = json_object_get(state, "ranges");

    *n_p = json_array_size(list);
    *ranges_p = tutti__alloc((*n_p + 1) * sizeof **ranges_p);
    if (!*ranges_p)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < *n_p; i++) {
        const float range = (float)json_number_value(json_array_get(list, i));

        if (!isfinite(range) || range <= 0)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s/state.json is damaged: number %zu of its ranges is not above 0",
                               folder, i);
        (*ranges_p)[i] = range;
    }
    return TUTTI_OK;
}

json_t *tutti__json_read(const char *path, size_t flags, json_error_t *error)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL; /* json_loadfd would read byte by byte */
    const char *fault = NULL;
    json_t *json = NULL;
    struct stat st;

    if (!file || fstat(fd, &st) != 0)
        fault = strerror(errno);
    else if (!S_ISREG(st.st_mode))
        fault = "it is not a regular file";
    else
        json = json_loadf(file, flags, error);
    if (fault && error)
        snprintf(error->text, sizeof error->text, "%s", fault);
    if (file)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return json;
}

tutti_status tutti__state_read(json_t **state_p, const char *folder)
{
    char path[TUTTI__CHECKPOINT_PATH + 32];
    json_error_t error = {.line = 0};
    const json_t *data;
    tutti_status status;
    struct stat st;

    *state_p = NULL;
    snprintf(path, sizeof path, "%s/state.json", folder);
    if (stat(path, &st) != 0 || access(path, R_OK) != 0)
        return tutti__fail_errno(errno, "cannot read %s", path);
    if (!S_ISREG(st.st_mode))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a regular file", path);
    errno = 0;
    *state_p =
        st.st_size < MAX_STATE ? tutti__json_read(path, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (!*state_p && errno == ENOMEM)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
    if (!*state_p)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is damaged: %s", path,
                           st.st_size < MAX_STATE ? error.text : "too large");
    data = json_object_get(*state_p, "data");
    if (json_integer_value(json_object_get(*state_p, "format")) != 1)
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s is of a format that this version does not read",
                             path);
    else if (data && !json_is_object(data))
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s is damaged: \"data\" is not an object", path);
    else
        status = check_digest(*state_p, path);
    if (status != TUTTI_OK) {
        json_decref(*state_p);
        *state_p = NULL;
    }
    return status;
}

/* Checks that the position is possible within the keys' ranges. */
static tutti_status check_ranges(const json_t *state, const char *folder)
{
    static const struct {
        const char *key;
        json_int_t min, max;
        bool younger; /* missing in the oldest version's files */
    } ranges[] = {{"step", 0, MOST_STEPS, false},
                  {"epoch", 1, 1000001, false},
                  {"start", 0, MOST_STEPS, true},
                  {"batch", 0, MOST_STEPS, false},
                  {"epochs_done", 0, 1000000, false},
                  {"forwards", 0, MOST_STEPS, false},
                  {"world_size", 1, MOST_RANKS, false},
                  {"data_ranks", 1, MOST_RANKS, true},
                  {"shards", 0, 4096, true},
                  {"samples", 0, MOST_STEPS, true},
                  {"evaluated", 0, MOST_STEPS, true}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(ranges); i++) {
        const json_t *value = json_object_get(state, ranges[i].key);
        const json_int_t n = json_integer_value(value);

        if (!value && ranges[i].younger)
            continue;
        if (!json_is_integer(value) || n < ranges[i].min || n > ranges[i].max)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s/state.json is damaged: %s is not an integer from %lld to %lld",
                               folder, ranges[i].key, (long long)ranges[i].min,
                               (long long)ranges[i].max);
    }
    return TUTTI_OK;
}

tutti_status tutti__state_check_run(const json_t *state, const char *folder)
{
    TUTTI_TRY(check_ranges(state, folder));
    if (!json_is_object(json_object_get(state, "config")) ||
        !json_is_object(json_object_get(state, "sums")) ||
        !json_is_string(json_object_get(state, "model_digest")))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s/state.json is damaged: config, sums or model_digest is missing",
                           folder);
    return TUTTI_OK;
}
