/* weights_parts.c -- opens the files that an index names.   SPDX-License-Identifier: MIT
 *
 * An index is untrusted: it may name files beside it only. */
#include "checkpoint/weights_parts.h"

#include "checkpoint/state.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        const tutti_status status = tutti__safetensors_open(&parts[i], path);

        if (status == TUTTI_ERR_NOT_FOUND)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s is missing, one of the %zu files that %s names", path, n, index);
        TUTTI_TRY(status);
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

/* That the files are those that were written with the index, if it says which: not of another step or run. */
static tutti_status check_headers(const char *index, const json_t *json, const char *const *names,
                                  size_t n, tutti__safetensors *const *parts)
{
    const json_t *metadata = json_object_get(json, "metadata");
    const json_t *digests = json_object_get(metadata, TUTTI__PARTS_DIGESTS);
    const json_t *step = json_object_get(metadata, "step");

    for (size_t i = 0; digests && i < n; i++) {
        const char *said = json_string_value(json_object_get(digests, names[i]));
        const char *of = tutti__safetensors_metadata(parts[i], "step");
        char digest[24];

        snprintf(digest, sizeof digest, "%016" PRIx64, tutti__safetensors_header_digest(parts[i]));
        if (said && strcmp(said, digest) == 0)
            continue;
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%.100s beside %s is another file than the one that was written with it: "
            "its header, of step %.20s, has digest %s, and the index, of step %lld, "
            "says %.20s",
            names[i], index, of ? of : "unknown", digest, (long long)json_integer_value(step),
            said ? said : "nothing of it");
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
        status = check_headers(index, json, names, n, *parts_p);
    if (status == TUTTI_OK)
        status = apply_map(index, map, names, n, *parts_p);
    free(names);
    json_decref(json);
    return status;
}

/* ---- Of a checkpoint ------------------------------------------------------------------------------------------- */

bool tutti__is_part_name(const char *name, const char *stem)
{
    static const char form[] = "-00000-of-00000.safetensors";
    const size_t n = strlen(name), end = sizeof form - 1;

    if (n <= end || (*stem && (n - end != strlen(stem) || strncmp(name, stem, n - end) != 0)))
        return false;
    for (size_t i = 0; i < end; i++) {
        const char c = name[n - end + i];

        if (form[i] == '0' ? c < '0' || c > '9' : c != form[i])
            return false;
    }
    return true;
}

bool tutti__tensor_files_path(const char *folder, const char *stem, char path[4096])
{
    static const char *const ends[] = {".safetensors", TUTTI__PARTS_INDEX};

    for (size_t i = 0; i < TUTTI__COUNT_OF(ends); i++)
        if (snprintf(path, 4096, "%s/%s%s", folder, stem, ends[i]) < 4096 &&
            access(path, F_OK) == 0)
            return true;
    snprintf(path, 4096, "%s/%s.safetensors", folder, stem);
    return false;
}

static tutti_status of_other_step(const char *path, json_int_t step, json_int_t now)
{
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s is of step %lld, and state.json beside it of step %lld: expected the "
                       "files of one checkpoint",
                       path, (long long)step, (long long)now);
}

/* One file, if it says its step; one that cannot be read is reported by what reads its tensors. */
static tutti_status check_step_of_file(const char *path, json_int_t now)
{
    tutti__safetensors *file = NULL;
    const char *text;
    int64_t step;
    tutti_status status = TUTTI_OK;

    if (tutti__safetensors_open(&file, path) != TUTTI_OK)
        return TUTTI_OK;
    text = tutti__safetensors_metadata(file, "step");
    if (text && (!tutti__parse_int64(text, &step) || step != now))
        status = of_other_step(path, tutti__parse_int64(text, &step) ? step : -1, now);
    tutti__safetensors_close(file);
    return status;
}

tutti_status tutti__parts_check_step(const char *folder, const char *stem, const json_t *state)
{
    const json_int_t now = json_integer_value(json_object_get(state, "step"));
    const json_t *metadata, *step;
    tutti_status status = TUTTI_OK;
    char path[4096];
    json_t *json;

    if (!tutti__tensor_files_path(folder, stem, path))
        return TUTTI_OK;
    if (!tutti__ends_in(path, ".json"))
        return check_step_of_file(path, now);
    json = tutti__json_read(path, JSON_REJECT_DUPLICATES, NULL);
    metadata = json_object_get(json, "metadata");
    step = json_object_get(metadata, "step");
    if (json && !json_is_object(json_object_get(metadata, TUTTI__PARTS_DIGESTS)))
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s is damaged: its metadata has no \"" TUTTI__PARTS_DIGESTS
                             "\", the digests of the files that were written with it",
                             path);
    else if (json && (!json_is_integer(step) || json_integer_value(step) != now))
        status = of_other_step(path, json_integer_value(step), now);
    json_decref(json);
    return status; /* one that cannot be read is reported by what opens it */
}

tutti_status tutti__tensor_files_open(tutti__tensor_files *parts, const char *folder,
                                      const char *stem)
{
    *parts = (tutti__tensor_files){.n = 0};
    (void)tutti__tensor_files_path(folder, stem, parts->path);
    if (tutti__ends_in(parts->path, ".json"))
        return tutti__weights_open_parts(parts->path, &parts->p, &parts->n);
    parts->p = tutti__alloc(sizeof *parts->p);
    if (!parts->p)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__safetensors_open(&parts->p[0], parts->path));
    parts->n = 1;
    return TUTTI_OK;
}

void tutti__tensor_files_close(tutti__tensor_files *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        tutti__safetensors_close(parts->p[i]);
    free(parts->p);
    *parts = (tutti__tensor_files){.n = 0};
}

size_t tutti__tensor_files_count(const tutti__tensor_files *parts)
{
    size_t n = 0;

    for (size_t i = 0; i < parts->n; i++)
        n += tutti__safetensors_count(parts->p[i]);
    return n;
}

const tutti__safetensors_entry *tutti__tensor_files_find(const tutti__tensor_files *parts,
                                                         const char *name,
                                                         const tutti__safetensors **file_p)
{
    for (size_t i = 0; i < parts->n; i++) {
        const tutti__safetensors_entry *e = tutti__safetensors_find(parts->p[i], name);

        if (e) {
            *file_p = parts->p[i];
            return e;
        }
    }
    return NULL;
}

tutti_status tutti__tensor_files_read(const tutti__tensor_files *files, const char *name,
                                      tutti_dtype dtype, tutti_shape shape, void *dst)
{
    const tutti__safetensors *file = NULL;
    const tutti__safetensors_entry *e = tutti__tensor_files_find(files, name, &file);

    if (!e || !e->readable || e->dtype != dtype || !tutti_shape_equal(e->shape, shape))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s is %s", files->path, name,
                           e ? "of another shape or dtype" : "missing");
    if (!tutti__safetensors_has_digest(file, e))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s has no digest", files->path, name);
    return tutti__safetensors_read(file, e, dst);
}
