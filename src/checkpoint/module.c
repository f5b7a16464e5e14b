/* module.c -- a module's weights to and from a safetensors file, by PyTorch's names.   SPDX-License-Identifier: MIT */
#include "checkpoint/safetensors.h"
#include <tutti/checkpoint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED 12 /* names of one kind in a message; the others are counted */

static size_t tensor_bytes(const tutti_tensor *t)
{
    return (size_t)tutti_shape_count(tutti_tensor_shape(t)) *
           tutti_dtype_size(tutti_tensor_dtype(t));
}

/* ---- Save ---- */

tutti_status tutti_module_save(const tutti_module *m, const char *path)
{
    static const tutti__safetensors_pair format = {"format", "pt"};
    size_t n = tutti_module_n_state(m), bytes = 0;
    tutti__safetensors_source *sources;
    char *snapshot;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_module_status(m));
    for (size_t i = 0; i < n; i++)
        bytes += (tensor_bytes(tutti_module_state(m, i)) + 63) / 64 * 64;
    sources = tutti__alloc((n + 1) * sizeof *sources);
    snapshot = tutti__alloc(bytes);
    if (!sources || !snapshot)
        status = TUTTI_ERR_MEMORY;
    bytes = 0;
    for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
        tutti_tensor *t = tutti_module_state(m, i);

        sources[i].name = tutti_tensor_name(t);
        sources[i].array =
            (tutti_array){snapshot + bytes, tutti_tensor_shape(t), tutti_tensor_dtype(t)};
        status = tutti_tensor_read(t, snapshot + bytes);
        bytes += (tensor_bytes(t) + 63) / 64 * 64;
    }
    if (status == TUTTI_OK)
        status = tutti__safetensors_write(path, sources, n, &format, 1);
    free(snapshot);
    free(sources);
    return status;
}

/* ---- Load ---- */

/* A list of names for a message, ", " between them. */
typedef struct name_list {
    char text[700];
    size_t n;
} name_list;

static void list_add(name_list *list, const char *format, ...) TUTTI_PRINTF(2, 3);
static void list_add(name_list *list, const char *format, ...)
{
    size_t used = strlen(list->text);
    va_list args;

    if (list->n++ >= LISTED)
        return;
    used += (size_t)snprintf(list->text + used, sizeof list->text - used, "%s", used ? ", " : "");
    if (used >= sizeof list->text)
        return;
    va_start(args, format);
    vsnprintf(list->text + used, sizeof list->text - used, format, args);
    va_end(args);
}

static void shape_text(tutti_shape shape, char text[160])
{
    size_t used = (size_t)snprintf(text, 160, "[");

    for (int i = 0; i < shape.n; i++)
        used += (size_t)snprintf(text + used, 160 - used, "%s%lld", i ? "," : "",
                                 (long long)shape.d[i]);
    snprintf(text + used, 160 - used, "]");
}

static bool may_be_missing(const char *name)
{
    static const char last[] = "num_batches_tracked";
    size_t n = strlen(name), k = sizeof last - 1;

    return n >= k && strcmp(name + n - k, last) == 0;
}

static void compare(const tutti_module *m, const tutti__safetensors *file, name_list *missing,
                    name_list *unexpected, name_list *different)
{
    for (size_t i = 0; i < tutti_module_n_state(m); i++) {
        tutti_tensor *t = tutti_module_state(m, i);
        const tutti__safetensors_entry *e = tutti__safetensors_find(file, tutti_tensor_name(t));
        char ours[160], theirs[160];

        if (!e && !may_be_missing(tutti_tensor_name(t)))
            list_add(missing, "%s", tutti_tensor_name(t));
        if (!e || (e->readable && e->dtype == tutti_tensor_dtype(t) &&
                   tutti_shape_equal(e->shape, tutti_tensor_shape(t))))
            continue;
        shape_text(e->shape, theirs);
        shape_text(tutti_tensor_shape(t), ours);
        list_add(different, "%s (%s %s, expected %s %s)", e->name, e->dtype_text, theirs,
                 tutti_dtype_name(tutti_tensor_dtype(t)), ours);
    }
    for (size_t i = 0; i < tutti__safetensors_count(file); i++) {
        const char *name = tutti__safetensors_at(file, i)->name;

        if (!tutti_module_find(m, name))
            list_add(unexpected, "%.100s", name);
    }
}

static int say(char *text, size_t size, const char *what, const name_list *list)
{
    char more[40] = "";

    if (list->n == 0)
        return 0;
    if (list->n > LISTED)
        snprintf(more, sizeof more, " and %zu more", list->n - LISTED);
    return snprintf(text, size, "; %s: %s%s", what, list->text, more);
}

static tutti_status check_names(const tutti_module *m, const tutti__safetensors *file,
                                const char *path)
{
    name_list missing = {.n = 0}, unexpected = {.n = 0}, different = {.n = 0};
    char text[2400] = "";
    size_t used = 0;

    compare(m, file, &missing, &unexpected, &different);
    if (missing.n + unexpected.n + different.n == 0)
        return TUTTI_OK;
    used += (size_t)say(text + used, sizeof text - used, "missing", &missing);
    used += (size_t)say(text + used, sizeof text - used, "unexpected", &unexpected);
    say(text + used, sizeof text - used, "of another shape or dtype", &different);
    return tutti__fail(TUTTI_ERR_FORMAT, "%s does not hold the weights of this model%s", path,
                       text);
}

static tutti_status read_all(const tutti_module *m, const tutti__safetensors *file, char *snapshot)
{
    for (size_t i = 0; i < tutti_module_n_state(m); i++) {
        tutti_tensor *t = tutti_module_state(m, i);
        const tutti__safetensors_entry *e = tutti__safetensors_find(file, tutti_tensor_name(t));

        if (e)
            TUTTI_TRY(tutti__safetensors_read(file, e, snapshot));
        snapshot += tensor_bytes(t);
    }
    return TUTTI_OK;
}

/* Reads everything before it writes anything. */
static tutti_status load_from(tutti_module *m, const tutti__safetensors *file, const char *path)
{
    size_t bytes = 0;
    char *snapshot, *next;
    tutti_status status;

    TUTTI_TRY(check_names(m, file, path));
    for (size_t i = 0; i < tutti_module_n_state(m); i++)
        bytes += tensor_bytes(tutti_module_state(m, i));
    snapshot = next = tutti__alloc(bytes);
    if (!snapshot)
        return TUTTI_ERR_MEMORY;
    status = read_all(m, file, snapshot);
    for (size_t i = 0; i < tutti_module_n_state(m) && status == TUTTI_OK; i++) {
        tutti_tensor *t = tutti_module_state(m, i);

        if (tutti__safetensors_find(file, tutti_tensor_name(t)))
            status = tutti_tensor_write(t, next);
        next += tensor_bytes(t);
    }
    free(snapshot);
    return status;
}

tutti_status tutti_module_load(tutti_module *m, const char *path)
{
    tutti__safetensors *file;
    tutti_status status;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(tutti__safetensors_open(&file, path));
    status = load_from(m, file, path);
    tutti__safetensors_close(file);
    return status;
}
