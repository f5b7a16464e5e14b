/* weights.c -- finds the file that a path means, and reads it through its format.   SPDX-License-Identifier: MIT */
#include "checkpoint/weights.h"

#include "checkpoint/convert.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/pytorch.h"
#include "checkpoint/state.h"
#include "checkpoint/weights_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tutti__weights {
    tutti__tensor_files files; /* one, or those of an index, all open; none: pytorch */
    tutti__pytorch *pytorch;
    char kind[4 * 64 + 32];
    char path[4096];
};

/* ---- Places ---------------------------------------------------------------------------------------------------- */

/* Whether DIR/config.json is not a run's, which has the key model; of no JSON object nothing is known. */
static bool is_of_others(const char *dir)
{
    char path[4096 + 16];
    json_t *json;
    bool is;

    snprintf(path, sizeof path, "%s/config.json", dir);
    json = tutti__json_read(path, 0, NULL);
    is = json_is_object(json) && (json_is_string(json_object_get(json, "model_type")) ||
                                  !json_is_string(json_object_get(json, "model")));
    json_decref(json);
    return is;
}

/* The checkpoint and the run to which a file in `dir` belongs. */
static void find_around(tutti__weights_place *place, const char *dir)
{
    char up[4096];

    if (tutti__folder_holds(dir, "state.json")) {
        snprintf(place->folder, sizeof place->folder, "%s", dir);
        if (snprintf(up, sizeof up, "%s/../..", dir) < (int)sizeof up &&
            tutti__folder_holds(up, "config.json"))
            snprintf(place->run, sizeof place->run, "%s", up);
    } else if (tutti__folder_holds(dir, "config.json"))
        snprintf(is_of_others(dir) ? place->hf : place->run, sizeof place->run, "%s", dir);
}

/* The latest checkpoint in a folder, if one is *found_p. FORMAT if it is not whole: other weights than those that were meant are not
 * taken in silence. MEMORY */
static tutti_status find_latest(const char *dir, char folder[4096], bool *found_p)
{
    uint64_t *steps = NULL;
    size_t n = 0, i = 0;
    char whole[4096];
    tutti_status status = tutti__checkpoint_list(dir, &steps, &n);

    *found_p =
        status == TUTTI_OK && n > 0 && tutti__checkpoint_path(dir, steps[0], folder) == TUTTI_OK;
    status = status == TUTTI_ERR_MEMORY ? status : TUTTI_OK; /* else there are none */
    if (*found_p && !tutti__is_checkpoint(folder) && tutti__is_folder(folder)) {
        while (++i < n && (tutti__checkpoint_path(dir, steps[i], whole) != TUTTI_OK ||
                           !tutti__is_checkpoint(whole)))
            continue;
        status = tutti__fail(
            TUTTI_ERR_FORMAT,
            "the latest checkpoint, %s, is not whole: it has no %s; remove it, or name %s%s",
            folder, tutti__folder_holds(folder, "state.json") ? "model.safetensors" : "state.json",
            i < n ? "the last whole one, " : "a file of weights", i < n ? whole : "");
    }
    free(steps);
    return status;
}

static tutti_status find_in_folder(tutti__weights_place *place, const char *path)
{
    static const char *const names[] = {"model.safetensors", TUTTI__WEIGHTS_INDEX,
                                        "pytorch_model.bin"};
    char dir[4096], folder[4096];
    bool found = tutti__folder_holds(path, "state.json");

    snprintf(folder, sizeof folder, "%s", path);
    if (!found)
        TUTTI_TRY(find_latest(path, folder, &found));
    if (!found && snprintf(dir, sizeof dir, "%s/checkpoints", path) < (int)sizeof dir)
        TUTTI_TRY(find_latest(dir, folder, &found));
    for (size_t i = 0; i < TUTTI__COUNT_OF(names) && !place->file[0]; i++)
        if (tutti__folder_holds(folder, names[i]) &&
            snprintf(place->file, sizeof place->file, "%s/%s", folder, names[i]) >=
                (int)sizeof place->file)
            place->file[0] = '\0';
    if (!place->file[0])
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "%s holds no weights; expected a .safetensors or .pt file, a checkpoint "
                           "(a run's checkpoints/step-NNNNNNNN), a run folder, or one of Hugging "
                           "Face's models (model.safetensors, or " TUTTI__WEIGHTS_INDEX ")",
                           path);
    find_around(place, folder);
    return TUTTI_OK;
}

tutti_status tutti__weights_check(const char *path)
{
    if (strlen(path) >= TUTTI__CHECKPOINT_PATH)
        return tutti__fail(TUTTI_ERR_ARG, "file %.60s...: the path is too long", path);
    if (!*path)
        return tutti__fail(TUTTI_ERR_ARG,
                           "the path is empty; expected a .safetensors or .pt file, a "
                           "checkpoint or a run folder");
    if (access(path, F_OK) != 0)
        return errno == ENOENT
                   ? tutti__fail(TUTTI_ERR_NOT_FOUND,
                                 "cannot open %s: there is no such file or folder; expected a "
                                 "checkpoint, a run folder, or a .safetensors or .pt file",
                                 path)
                   : tutti__fail_errno(errno, "cannot open %s", path);
    if (tutti__is_folder(path) && access(path, R_OK | X_OK) != 0)
        return tutti__fail_errno(errno, "cannot read the folder %s", path);
    return TUTTI_OK;
}

tutti_status tutti__weights_find(tutti__weights_place *place, const char *path)
{
    char copy[4096];

    *place = (tutti__weights_place){.file = ""};
    TUTTI_TRY(tutti__weights_check(path));
    if (tutti__is_folder(path))
        return find_in_folder(place, path);
    strcpy(copy, path);
    strcpy(place->file, path);
    find_around(place, dirname(copy));
    return TUTTI_OK;
}

bool tutti__weights_find_ema(const char *path, char file[4096])
{
    tutti__weights_place place;

    if (!tutti__is_folder(path) || tutti__weights_find(&place, path) != TUTTI_OK)
        return false;
    return tutti__tensor_files_path(dirname(place.file), "ema", file);
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

typedef enum format { SAFETENSORS, INDEX, PYTORCH, NEITHER } format;

/* By the first bytes; a file that cannot be read, or is too short, is left to the safetensors reader, for its error. */
static format format_of(const char *path)
{
    unsigned char head[9] = {0}; /* safetensors: a length of 8 bytes, then a JSON object */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? pread(fd, head, sizeof head, 0) : -1;

    if (fd >= 0)
        close(fd);
    if (n >= 8 && tutti__pytorch_is(head))
        return PYTORCH;
    if (n > 0 && tutti__weights_is_index(path, head))
        return INDEX;
    return n == sizeof head && head[8] != '{' ? NEITHER : SAFETENSORS;
}

static tutti_status open_files(tutti__weights *w, bool index)
{
    const tutti__safetensors *file;

    TUTTI_TRY(tutti__tensor_files_open_at(&w->files, w->path, index));
    if (index)
        snprintf(w->kind, sizeof w->kind, "safetensors, %zu file%s", w->files.n,
                 tutti__s(w->files.n));
    else
        snprintf(w->kind, sizeof w->kind, "safetensors");
    for (size_t k = 0; k < w->files.n; k++)
        TUTTI_TRY(tutti__tensor_files_file(&w->files, k, &file));
    return TUTTI_OK;
}

static tutti_status open_file(tutti__weights *w)
{
    char key[4 * 64];
    const format is = format_of(w->path);

    if (is == NEITHER)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is neither a safetensors file nor one of PyTorch's torch.save: it "
                           "does not begin as they do",
                           w->path);
    if (is != PYTORCH)
        return open_files(w, is == INDEX);
    TUTTI_TRY(tutti__pytorch_open(&w->pytorch, w->path));
    tutti__printable(tutti__pytorch_key(w->pytorch), key, sizeof key);
    snprintf(w->kind, sizeof w->kind, "PyTorch%s%s%s", *key ? ", key \"" : "", key,
             *key ? "\"" : "");
    return TUTTI_OK;
}

/* That a checkpoint's weights are those of its state.json, if that can be read. */
static tutti_status check_checkpoint(const tutti__weights_place *place)
{
    json_t *state;
    tutti_status status = TUTTI_OK;

    if (!place->folder[0] || tutti__state_read(&state, place->folder) != TUTTI_OK)
        return TUTTI_OK;
    if (tutti__state_check_files(place->folder, "model", state) != TUTTI_OK)
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s; restore the checkpoint, or name the file itself, %s, to use its "
                             "weights all the same",
                             tutti_last_error(), place->file);
    json_decref(state);
    return status;
}

tutti_status tutti__weights_open(tutti__weights **weights_p, const char *path)
{
    tutti__weights_place place;
    tutti__weights *w;
    tutti_status status;

    *weights_p = NULL;
    TUTTI_TRY(tutti__weights_find(&place, path));
    if (tutti__is_folder(path))
        TUTTI_TRY(check_checkpoint(&place));
    w = tutti__alloc(sizeof *w);
    if (!w)
        return TUTTI_ERR_MEMORY;
    strcpy(w->path, place.file);
    status = open_file(w);
    if (status == TUTTI_OK)
        *weights_p = w;
    else
        tutti__weights_close(w);
    return status;
}

void tutti__weights_close(tutti__weights *w)
{
    if (!w)
        return;
    tutti__tensor_files_close(&w->files);
    tutti__pytorch_close(w->pytorch);
    free(w);
}

const char *tutti__weights_path(const tutti__weights *w)
{
    return w->path;
}

const char *tutti__weights_kind(const tutti__weights *w)
{
    return w->kind;
}

const char *tutti__weights_metadata(const tutti__weights *w, const char *key)
{
    return w->pytorch ? NULL : tutti__safetensors_metadata(w->files.p[0], key);
}

size_t tutti__weights_count(const tutti__weights *w)
{
    size_t n = w->pytorch ? tutti__pytorch_count(w->pytorch) : 0;

    for (size_t i = 0; i < w->files.n; i++)
        n += tutti__safetensors_count(w->files.p[i]);
    return n;
}

/* The file of tensor *i_p, which becomes its number there; NULL: past the end. */
static const tutti__safetensors *part_of(const tutti__weights *w, size_t *i_p)
{
    for (size_t k = 0; k < w->files.n; k++) {
        const size_t n = tutti__safetensors_count(w->files.p[k]);

        if (*i_p < n)
            return w->files.p[k];
        *i_p -= n;
    }
    return NULL;
}

const tutti__safetensors_entry *tutti__weights_at(const tutti__weights *w, size_t i)
{
    const tutti__safetensors *part = part_of(w, &i);

    if (w->pytorch)
        return tutti__pytorch_at(w->pytorch, i);
    return part ? tutti__safetensors_at(part, i) : NULL;
}

tutti_shape tutti__weights_shape(const tutti__weights *weights, const char *ending)
{
    for (size_t i = 0; i < tutti__weights_count(weights); i++)
        if (tutti__ends_in(tutti__weights_at(weights, i)->name, ending))
            return tutti__weights_at(weights, i)->shape;
    return (tutti_shape){.n = 0};
}

const char *tutti__weights_tied(const tutti__weights *w, size_t i, const char **to_p)
{
    for (size_t k = 0; k < w->files.n; k++) {
        const char *name;
        size_t n = 0;

        while ((name = tutti__safetensors_tied(w->files.p[k], n, to_p)) != NULL && n < i)
            n++;
        if (name)
            return name;
        i -= n;
    }
    return NULL;
}

size_t tutti__weights_first(const tutti__weights *w, size_t i)
{
    return w->pytorch ? tutti__pytorch_first(w->pytorch, i) : i;
}

bool tutti__weights_has_digest(const tutti__weights *w, size_t i)
{
    const tutti__safetensors *part = part_of(w, &i);

    return w->pytorch || tutti__safetensors_has_digest(part, tutti__safetensors_at(part, i));
}

tutti_status tutti__weights_read(const tutti__weights *w, size_t i, void *dst)
{
    const tutti__safetensors *part = part_of(w, &i);

    if (w->pytorch)
        return tutti__pytorch_read(w->pytorch, i, dst);
    return tutti__safetensors_read(part, tutti__safetensors_at(part, i), dst);
}

/* FORMAT if a number would not be whole, as the counter of a batch norm that was halved is, or is finite in the file and not
 * after conversion. */
static tutti_status convert(const tutti__weights *w, const tutti__safetensors_entry *e,
                            const void *before, void *after, tutti_dtype dtype)
{
    const size_t n = (size_t)tutti_shape_count(e->shape), each = tutti_dtype_size(e->dtype);
    size_t i = dtype == TUTTI_I64 ? tutti__find_fraction(before, e->dtype, n) : n;

    if (i < n)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: element %zu of \"%.100s\" (%s) is not a whole number, or is too "
                           "large, for %s",
                           w->path, i, e->name, e->dtype_text, tutti_dtype_name(dtype));
    tutti__convert(after, dtype, before, e->dtype, n);
    i = tutti__find_nonfinite(after, dtype, n);
    if (i == n || tutti__find_nonfinite((const char *)before + i * each, e->dtype, 1) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT, "%s: element %zu of \"%.100s\" is too large for %s",
                       w->path, i, e->name, tutti_dtype_name(dtype));
}

tutti_status tutti__weights_read_as(const tutti__weights *w, size_t i, tutti_dtype dtype, void *dst)
{
    const tutti__safetensors_entry *e = tutti__weights_at(w, i);
    tutti_status status;
    void *p;

    if (!e->readable || !tutti__can_convert(e->dtype, dtype))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s: \"%.100s\" is %s, which cannot be read as %s", w->path, e->name,
                           e->dtype_text, tutti_dtype_name(dtype));
    if (e->dtype == dtype)
        return tutti__weights_read(w, i, dst);
    p = tutti__alloc((size_t)e->bytes);
    status = p ? tutti__weights_read(w, i, p) : TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = convert(w, e, p, dst, dtype);
    free(p);
    return status;
}
