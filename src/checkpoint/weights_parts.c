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

/* A tensor of the index, and its file. */
struct tutti__mapped {
    const char *tensor, *file;
};

/* A file of the index, and its tensors there: of files->mapped, from `first` on. */
struct tutti__part_file {
    const char *name;
    size_t first, n;
};

static int by_file(const void *a, const void *b)
{
    const struct tutti__mapped *x = a, *y = b;

    return strcmp(x->file, y->file);
}

/* Which tensors each file has. */
static tutti_status list_files(tutti__tensor_files *files)
{
    const size_t n = json_object_size(files->map);
    const char *tensor;
    json_t *value;
    size_t i = 0;

    files->mapped = tutti__alloc((n + 1) * sizeof *files->mapped);
    files->parts = tutti__alloc((n + 1) * sizeof *files->parts);
    if (!files->mapped || !files->parts)
        return TUTTI_ERR_MEMORY;
    json_object_foreach(files->map, tensor, value)
    {
        const char *name = json_string_value(value);

        if (!name || !*name || strchr(name, '/') || name[0] == '.')
            return malformed(files->path, "the file of a tensor is not a name in its folder",
                             tensor);
        files->mapped[i++] = (struct tutti__mapped){tensor, name};
    }
    qsort(files->mapped, n, sizeof *files->mapped, by_file);
    for (i = 0; i < n; i++) {
        if (i == 0 || by_file(&files->mapped[i - 1], &files->mapped[i]) != 0)
            files->parts[files->n++] = (struct tutti__part_file){files->mapped[i].file, i, 0};
        files->parts[files->n - 1].n++;
    }
    if (files->n > 0 && files->n <= MAX_PARTS)
        return TUTTI_OK;
    return malformed(files->path, files->n ? "it names too many files" : "it names no tensor", "");
}

static tutti_status open_one(const tutti__tensor_files *files, size_t k,
                             tutti__safetensors **file_p)
{
    char copy[4096], path[4096 + 256];
    tutti_status status;

    snprintf(copy, sizeof copy, "%s", files->path);
    if (snprintf(path, sizeof path, "%s/%s", dirname(copy), files->parts[k].name) >=
        (int)sizeof path)
        return malformed(files->path, "a file's name is too long", files->parts[k].name);
    status = tutti__safetensors_open(file_p, path);
    return status != TUTTI_ERR_NOT_FOUND
               ? status
               : tutti__fail(TUTTI_ERR_FORMAT, "%s is missing, one of the %zu files that %s names",
                             path, files->n, files->path);
}

/* That it is the file that was written with the index, if that says which: not one of another step or run. */
static tutti_status check_header(const tutti__tensor_files *files, size_t k,
                                 const tutti__safetensors *file)
{
    const json_t *metadata = json_object_get(files->index, "metadata");
    const json_t *digests = json_object_get(metadata, TUTTI__PARTS_DIGESTS);
    const char *name = files->parts[k].name,
               *said = json_string_value(json_object_get(digests, name)),
               *of = tutti__safetensors_metadata(file, "step");
    char digest[24];

    snprintf(digest, sizeof digest, "%016" PRIx64, tutti__safetensors_header_digest(file));
    if (!digests || (said && strcmp(said, digest) == 0))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%.100s beside %s is another file than the one that was written with it: "
                       "its header, of step %.20s, has digest %s, and the index, of step %lld, "
                       "says %.20s",
                       name, files->path, of ? of : "unknown", digest,
                       (long long)json_integer_value(json_object_get(metadata, "step")),
                       said ? said : "nothing of it");
}

/* That it has the index's tensors; what another file holds of the same name is passed over. */
static tutti_status apply_map(const tutti__tensor_files *files, size_t k, tutti__safetensors *file)
{
    const struct tutti__part_file *part = &files->parts[k];

    for (size_t i = part->first; i < part->first + part->n; i++)
        if (!tutti__safetensors_find(file, files->mapped[i].tensor))
            return tutti__fail(
                TUTTI_ERR_FORMAT,
                "%s: tensor \"%.100s\" is not in %.100s, as the index says; expected "
                "the files that were saved with it",
                files->path, files->mapped[i].tensor, part->name);
    for (size_t i = tutti__safetensors_count(file); i-- > 0;) {
        const char *name =
            json_string_value(json_object_get(files->map, tutti__safetensors_at(file, i)->name));

        if (name && strcmp(name, part->name) != 0)
            tutti__safetensors_pass_over(file, i);
    }
    return TUTTI_OK;
}

/* ---- The files of an index, or one ---------------------------------------------------------------------------- */

static tutti_status open_index(tutti__tensor_files *files)
{
    json_error_t error = {.line = 0};

    errno = 0;
    files->index = tutti__json_read(files->path, JSON_REJECT_DUPLICATES, &error);
    if (!files->index && errno == ENOMEM)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", files->path);
    files->map = json_object_get(files->index, "weight_map");
    if (!json_is_object(files->map))
        return malformed(files->path, files->index ? "it has no \"weight_map\"" : error.text, "");
    TUTTI_TRY(list_files(files));
    files->p = tutti__alloc(files->n * sizeof *files->p);
    return files->p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__tensor_files_open_at(tutti__tensor_files *files, const char *path, bool index)
{
    *files = (tutti__tensor_files){.n = 0};
    snprintf(files->path, sizeof files->path, "%s", path);
    if (index)
        return open_index(files);
    files->p = tutti__alloc(sizeof *files->p);
    if (!files->p)
        return TUTTI_ERR_MEMORY;
    files->n = 1;
    return tutti__safetensors_open(&files->p[0], path);
}

tutti_status tutti__tensor_files_open(tutti__tensor_files *files, const char *folder,
                                      const char *stem)
{
    char path[4096];

    (void)tutti__tensor_files_path(folder, stem, path);
    return tutti__tensor_files_open_at(files, path, tutti__ends_in(path, ".json"));
}

void tutti__tensor_files_close(tutti__tensor_files *files)
{
    for (size_t i = 0; files->p && i < files->n; i++)
        tutti__safetensors_close(files->p[i]);
    free(files->p);
    free(files->mapped);
    free(files->parts);
    json_decref(files->index);
    *files = (tutti__tensor_files){.n = 0};
}

tutti_status tutti__tensor_files_file(tutti__tensor_files *files, size_t k,
                                      const tutti__safetensors **file_p)
{
    tutti__safetensors *file = NULL;
    tutti_status status = TUTTI_OK;

    if (!files->p[k]) {
        status = open_one(files, k, &file);
        if (status == TUTTI_OK)
            status = check_header(files, k, file);
        if (status == TUTTI_OK)
            status = apply_map(files, k, file);
        if (status != TUTTI_OK) {
            tutti__safetensors_close(file);
            return status;
        }
        files->p[k] = file;
    }
    *file_p = files->p[k];
    return TUTTI_OK;
}

size_t tutti__tensor_files_count(const tutti__tensor_files *files)
{
    return files->map ? json_object_size(files->map) : tutti__safetensors_count(files->p[0]);
}

bool tutti__tensor_files_has(const tutti__tensor_files *files, const char *name)
{
    return files->map ? json_object_get(files->map, name) != NULL
                      : tutti__safetensors_find(files->p[0], name) != NULL;
}

/* The number of the file that has the tensor, which is there. */
static size_t file_of(const tutti__tensor_files *files, const char *name)
{
    const char *file = json_string_value(json_object_get(files->map, name));
    size_t low = 0, high = files->n;

    while (files->map && high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (strcmp(files->parts[middle].name, file) <= 0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

tutti_status tutti__tensor_files_read(tutti__tensor_files *files, const char *name,
                                      tutti_dtype dtype, tutti_shape shape, void *dst)
{
    const tutti__safetensors_entry *e = NULL;
    const tutti__safetensors *file;

    if (tutti__tensor_files_has(files, name)) {
        TUTTI_TRY(tutti__tensor_files_file(files, file_of(files, name), &file));
        e = tutti__safetensors_find(file, name);
    }
    if (!e || !e->readable || e->dtype != dtype || !tutti_shape_equal(e->shape, shape))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s is %s", files->path, name,
                           e ? "of another shape or dtype" : "missing");
    if (!tutti__safetensors_has_digest(file, e))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s has no digest", files->path, name);
    return tutti__safetensors_read(file, e, dst);
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

/* That state.json, if it says which file it was written with, says this one. */
static tutti_status check_digest(const char *path, const char *digest, const json_t *state)
{
    const json_t *files = json_object_get(state, TUTTI__STATE_FILES);
    const char *slash = strrchr(path, '/');
    const char *said = json_string_value(json_object_get(files, slash ? slash + 1 : path));

    if (!files || (said && strcmp(said, digest) == 0))
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "%s is another file than the one that was written with state.json beside it: "
        "its digest is %s, expected %.20s",
        path, digest, said ? said : "none of this name");
}

/* One file, if it says its step; one that cannot be read is reported by what reads its tensors. */
static tutti_status check_file(const char *path, const json_t *state, json_int_t now)
{
    tutti__safetensors *file = NULL;
    const char *text;
    char digest[24];
    int64_t step;
    tutti_status status = TUTTI_OK;

    if (tutti__safetensors_open(&file, path) != TUTTI_OK)
        return TUTTI_OK;
    text = tutti__safetensors_metadata(file, "step");
    snprintf(digest, sizeof digest, "%016" PRIx64, tutti__safetensors_header_digest(file));
    if (text && (!tutti__parse_int64(text, &step) || step != now))
        status = of_other_step(path, tutti__parse_int64(text, &step) ? step : -1, now);
    else
        status = check_digest(path, digest, state);
    tutti__safetensors_close(file);
    return status;
}

static tutti_status check_index(const char *path, const json_t *index, const json_t *state,
                                json_int_t now)
{
    const json_t *metadata = json_object_get(index, "metadata");
    const json_t *step = json_object_get(metadata, "step");
    char digest[33];

    if (!json_is_object(json_object_get(metadata, TUTTI__PARTS_DIGESTS)))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is damaged: its metadata has no \"" TUTTI__PARTS_DIGESTS
                           "\", the digests of the files that were written with it",
                           path);
    if (!json_is_integer(step) || json_integer_value(step) != now)
        return of_other_step(path, json_integer_value(step), now);
    TUTTI_TRY(tutti__state_digest(index, digest));
    return check_digest(path, digest, state);
}

tutti_status tutti__state_check_files(const char *folder, const char *stem, const json_t *state)
{
    const json_int_t now = json_integer_value(json_object_get(state, "step"));
    tutti_status status = TUTTI_OK;
    char path[4096];
    json_t *index;

    if (!tutti__tensor_files_path(folder, stem, path))
        return TUTTI_OK;
    if (!tutti__ends_in(path, ".json"))
        return check_file(path, state, now);
    index = tutti__json_read(path, JSON_REJECT_DUPLICATES, NULL);
    if (index) /* one that cannot be read is reported by what opens it */
        status = check_index(path, index, state, now);
    json_decref(index);
    return status;
}
