/* export_weights.c -- writes the tensors of one file of weights to others, one tensor at a time.   SPDX-License-Identifier: MIT */
#include "cli/export_weights.h"

#include "checkpoint/convert.h"
#include "checkpoint/json_text.h"
#include "checkpoint/pytorch.h"
#include "checkpoint/weights_parts.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tutti__export_is_pytorch(const char *path)
{
    return tutti__ends_in(path, ".pt") || tutti__ends_in(path, ".pth");
}

tutti_status tutti__export_open(tutti__export *e, const char *path, int dtype,
                                const tutti__tick *tick)
{
    *e = (tutti__export){.dtype = dtype, .tick = tick};
    TUTTI_TRY(tutti__weights_open(&e->file, path));
    return tutti__adapters_open(&e->adapters, e->file);
}

void tutti__export_close(tutti__export *e)
{
    tutti__adapters_close(e->adapters);
    tutti__weights_close(e->file);
    free(e->sources);
    free(e->place);
    free(e->pairs);
}

/* ---- What there is ----------------------------------------------------------------------------------------------- */

/* Room for all names of the file; those that it only refers to. */
static tutti_status make_room(tutti__export *e)
{
    const size_t n = tutti__weights_count(e->file);
    const char *to;

    while (tutti__weights_tied(e->file, e->n_pairs, &to))
        e->n_pairs++;
    e->sources = tutti__alloc((n + 1) * sizeof *e->sources);
    e->pairs = tutti__alloc((1 + e->n_pairs + n) * sizeof *e->pairs);
    e->place = tutti__alloc((n + 1) * sizeof *e->place);
    if (!e->sources || !e->pairs || !e->place)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < e->n_pairs; i++) {
        e->pairs[1 + i].key = tutti__weights_tied(e->file, i, &to);
        e->pairs[1 + i].value = to;
    }
    e->pairs[0] = (tutti__safetensors_pair){"format", "pt"};
    e->n_pairs++;
    return TUTTI_OK;
}

tutti_status tutti__export_list(tutti__export *to)
{
    const tutti__weights *file = to->file;

    TUTTI_TRY(make_room(to));
    for (size_t i = 0; i < tutti__weights_count(file); i++) {
        const size_t first = tutti__weights_first(file, i);
        const tutti__safetensors_entry *e = tutti__weights_at(file, i);
        tutti_dtype dtype =
            to->dtype >= 0 && tutti__is_real(e->dtype) ? (tutti_dtype)to->dtype : e->dtype;

        if (tutti__adapters_hold(to->adapters, i))
            continue;
        if (!e->readable)
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "%s: tensor \"%.100s\" is %s, which is not "
                               "written in this version",
                               tutti__weights_path(file), e->name, e->dtype_text);
        if (!tutti__is_utf8(e->name))
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s: the name of tensor \"%.100s\" is not UTF-8, as names in "
                               "PyTorch and safetensors are",
                               tutti__weights_path(file), e->name);
        if (first != i) {
            to->pairs[to->n_pairs++] =
                (tutti__safetensors_pair){e->name, tutti__weights_at(file, first)->name};
            continue;
        }
        to->place[to->n] = i;
        to->sources[to->n++] = (tutti__safetensors_source){e->name, {NULL, e->shape, dtype}};
    }
    return TUTTI_OK;
}

/* Tensor i of the file in this dtype, with its adapter. */
static tutti_status read_one(const tutti__export *to, size_t i, const tutti_array *a, void *dst)
{
    const tutti__weights *file = to->file;
    const size_t n = (size_t)tutti_shape_count(a->shape);
    float *values;
    tutti_status status;

    if (!tutti__adapters_change(to->adapters, i))
        return tutti__weights_read_as(file, i, a->dtype, dst);
    values = tutti__alloc(n * sizeof *values);
    if (!values)
        return TUTTI_ERR_MEMORY;
    status = tutti__weights_read_as(file, i, TUTTI_F32, values);
    if (status == TUTTI_OK)
        status = tutti__adapters_merge(to->adapters, i, values);
    if (status == TUTTI_OK)
        tutti__convert(dst, a->dtype, values, TUTTI_F32, n);
    free(values);
    return status;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* Some of the sources, from `first` on. */
typedef struct some {
    const tutti__export *e;
    size_t first, done;
} some;

static tutti_status fetch(void *arg, size_t i, void *room)
{
    some *s = arg;
    const tutti__export *e = s->e;
    const size_t k = s->first + i;

    TUTTI_TRY(tutti__tick_call(e->tick, s->first + s->done++, e->n));
    return read_one(e, e->place[k], &e->sources[k].array, room);
}

tutti_status tutti__export_file(const tutti__export *e, const char *path)
{
    some all = {.e = e};
    const tutti__fetch each = {fetch, &all};

    return tutti__export_is_pytorch(path)
               ? tutti__pytorch_write(path, e->sources, e->n, e->pairs + 1, e->n_pairs - 1, &each)
               : tutti__safetensors_write_each(path, e->sources, e->n, e->pairs, e->n_pairs, &each);
}

/* ---- Several files -------------------------------------------------------------------------------------------- */

static size_t bytes_of(const tutti__export *e, size_t i)
{
    const tutti_array *a = &e->sources[i].array;

    return (size_t)tutti_shape_count(a->shape) * tutti_dtype_size(a->dtype);
}

/* Behind the last of the neighbours from `first` on that fit one file: at least one of them. */
static size_t end_of_part(const tutti__export *e, size_t first, uint64_t most)
{
    uint64_t bytes = 0;
    size_t i = first;

    for (; i < e->n && (i == first || bytes + bytes_of(e, i) <= most); i++)
        bytes += bytes_of(e, i);
    return i;
}

static void name_of_part(char name[64], size_t part, size_t n)
{
    snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", part + 1, n);
}

/* With the further names of its tensors. */
static tutti_status write_part(const tutti__export *e, size_t first, size_t end, const char *path)
{
    tutti__safetensors_pair *pairs = tutti__alloc(e->n_pairs * sizeof *pairs);
    some of = {.e = e, .first = first};
    const tutti__fetch each = {fetch, &of};
    size_t n = 0;
    tutti_status status;

    if (!pairs)
        return TUTTI_ERR_MEMORY;
    pairs[n++] = e->pairs[0];
    for (size_t k = 1; k < e->n_pairs; k++)
        for (size_t i = first; i < end; i++)
            if (strcmp(e->sources[i].name, e->pairs[k].value) == 0)
                pairs[n++] = e->pairs[k];
    status = tutti__safetensors_write_each(path, e->sources + first, end - first, pairs, n, &each);
    free(pairs);
    return status;
}

/* {"metadata": {"total_size": bytes}, "weight_map": {name: file}} */
static tutti_status write_index(const tutti__export *e, const char *path, uint64_t most,
                                size_t n_parts)
{
    json_t *map = json_object(), *json;
    json_int_t total = 0;
    char *text, name[64];
    int failed = 0;
    tutti_status status;

    for (size_t part = 0, first = 0, end; first < e->n; first = end, part++) {
        end = end_of_part(e, first, most);
        name_of_part(name, part, n_parts);
        for (size_t i = first; i < end; i++) {
            failed |= json_object_set_new(map, e->sources[i].name, json_string(name));
            total += (json_int_t)bytes_of(e, i);
        }
    }
    json = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", total, "weight_map", map);
    text = failed ? NULL : tutti__json_text(json, JSON_INDENT(2));
    status = text ? tutti__write_file(path, text, strlen(text))
                  : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", path);
    free(text);
    json_decref(json);
    return status;
}

void tutti__export_remove_parts(const char *folder, size_t but)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    char end[64], path[4400];

    if (!dir)
        return;
    name_of_part(end, 0, but);
    while ((entry = readdir(dir)) != NULL) {
        if (!tutti__is_part_name(entry->d_name, "model") ||
            (but > 0 && tutti__ends_in(entry->d_name, strstr(end, "-of-"))))
            continue;
        snprintf(path, sizeof path, "%.4000s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    closedir(dir);
}

tutti_status tutti__export_parts(const tutti__export *e, const char *folder, int64_t most)
{
    char whole[4200], index[4200], path[4200], name[64];
    size_t n = 0;

    snprintf(whole, sizeof whole, "%.4000s/model.safetensors", folder);
    snprintf(index, sizeof index, "%.4000s/" TUTTI__WEIGHTS_INDEX, folder);
    for (size_t first = 0; first < e->n; n++)
        first = end_of_part(e, first, (uint64_t)most);
    if (n <= 1) {
        TUTTI_TRY(tutti__export_file(e, whole));
        (void)unlink(index);
        tutti__export_remove_parts(folder, 0);
        return TUTTI_OK;
    }
    for (size_t part = 0, first = 0, end; part < n; part++, first = end) {
        end = end_of_part(e, first, (uint64_t)most);
        name_of_part(name, part, n);
        snprintf(path, sizeof path, "%.4000s/%s", folder, name);
        TUTTI_TRY(write_part(e, first, end, path));
    }
    TUTTI_TRY(write_index(e, index, (uint64_t)most, n));
    (void)unlink(whole); /* which readers would prefer */
    tutti__export_remove_parts(folder, n);
    return TUTTI_OK;
}
