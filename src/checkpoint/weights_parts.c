/* weights_parts.c -- opens the files that an index names.   SPDX-License-Identifier: MIT
 *
 * An index is untrusted: it may name files beside it only. */
#include "checkpoint/weights_parts.h"

#include "checkpoint/state.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 4096 };

bool tutti__weights_is_index(const char *path, const unsigned char *head)
{
    return head[0] == '{' && tutti__ends_in(path, ".json");
}

static tutti_status malformed(const char *index, const char *why, const char *name)
{
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s is not an index of safetensors files: %s%s%.100s%s; expected "
                       "{\"weight_map\": {\"TENSOR\": \"FILE.safetensors\", ...}}",
                       index, why, *name ? " (\"" : "", name, *name ? "\")" : "");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files' names, each once; free() the list. */
static tutti_status list_files(const char *index, json_t *map, const char ***names_p, size_t *n_p)
{
    const char *tensor, **names = tutti__alloc((json_object_size(map) + 1) * sizeof *names);
    size_t n = 0, kept = 0;
    json_t *value;

    *names_p = names;
    if (!names)
        return TUTTI_ERR_MEMORY;
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);

        if (!name || !*name || strchr(name, '/') || name[0] == '.')
            return malformed(index, "the file of a tensor is not a name in its folder", tensor);
        names[n++] = name;
    }
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(names[i], names[kept - 1]) != 0)
            names[kept++] = names[i];
    *n_p = kept;
    if (kept == 0 || kept > MAX_PARTS)
        return malformed(index, kept ? "it names too many files" : "it names no tensor", "");
    return TUTTI_OK;
}

static tutti_status open_files(const char *index, const char *const *names, size_t n,
                               tutti__safetensors **parts, size_t *n_p)
{
    char copy[4096], path[4096 + 256];

    snprintf(copy, sizeof copy, "%s", index);
    const char *folder = dirname(copy);

    for (size_t i = 0; i < n; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) >= (int)sizeof path)
            return malformed(index, "a file's name is too long", names[i]);
        TUTTI_TRY(tutti__safetensors_open(&parts[i], path));
        (*n_p)++;
    }
    return TUTTI_OK;
}

/* That each tensor is in its file; what another file holds of the same name is passed over. */
static tutti_status apply_map(const char *index, json_t *map, const char *const *names, size_t n,
                              tutti__safetensors *const *parts)
{
    const char *tensor;
    json_t *value;

    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        const char *const *at = bsearch(&name, names, n, sizeof *names, by_text);

        if (!tutti__safetensors_find(parts[at - names], tensor))
            return tutti__fail(
                TUTTI_ERR_FORMAT,
                "%s: tensor \"%.100s\" is not in %.100s, as the index says; expected "
                "the files that were saved with it",
                index, tensor, name);
    }
    for (size_t k = 0; k < n; k++)
        for (size_t i = tutti__safetensors_count(parts[k]); i-- > 0;) {
            const char *name =
                json_string_value(json_object_get(map, tutti__safetensors_at(parts[k], i)->name));

            if (name && strcmp(name, names[k]) != 0)
                tutti__safetensors_pass_over(parts[k], i);
        }
    return TUTTI_OK;
}

tutti_status tutti__weights_open_parts(const char *index, tutti__safetensors ***parts_p,
                                       size_t *n_p)
{
    json_error_t error = {.line = 0};
    const char **names = NULL;
    json_t *json, *map;
    tutti_status status;
    size_t n = 0;

    *parts_p = NULL;
    *n_p = 0;
    errno = 0;
    json = tutti__json_read(index, JSON_REJECT_DUPLICATES, &error);
    if (!json && errno == ENOMEM)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", index);
    map = json_object_get(json, "weight_map");
    if (!json_is_object(map))
        status = malformed(index, json ? "it has no \"weight_map\"" : error.text, "");
    else
        status = list_files(index, map, &names, &n);
    if (status == TUTTI_OK) {
        *parts_p = tutti__alloc(n * sizeof **parts_p);
        status = *parts_p ? open_files(index, names, n, *parts_p, n_p) : TUTTI_ERR_MEMORY;
    }
    if (status == TUTTI_OK)
        status = apply_map(index, map, names, n, *parts_p);
    free(names);
    json_decref(json);
    return status;
}
