/* adapter_peft.c -- adapters in the files of Hugging Face's PEFT: written from a weight file, loaded into a module.
 * SPDX-License-Identifier: MIT */
#include "checkpoint/adapter.h"
#include "checkpoint/convert.h"
#include "checkpoint/json_text.h"
#include "checkpoint/read_part.h"
#include "checkpoint/state.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include <tutti/checkpoint.h>

#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX     "base_model.model."
#define NAME_BYTES 512

enum { LISTED = 8 };

/* ---- Names ------------------------------------------------------------------------------------------- */

/* The name in PEFT's files of a tensor, by the layers of such a JSON object; in `text`, of `size` bytes. A layer within an adapted
 * one is within its base_layer there. */
static void peft_name(const json_t *layers, const char *name, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, PREFIX);
    char path[NAME_BYTES];

    for (const char *at = name; *at && used < size;) {
        const size_t n = strcspn(at, "."), end = (size_t)(at - name) + n;
        bool inside;

        snprintf(path, sizeof path, "%.*s", (int)(end < sizeof path ? end : sizeof path - 1), name);
        /* a module or tensor further down, but not the adapter itself */
        inside = at[n] == '.' && json_object_get(layers, path) && strncmp(at + n, ".lora_", 6) != 0;
        used += (size_t)snprintf(text + used, size - used, "%.*s%s%s", (int)n, at,
                                 inside ? ".base_layer" : "", at[n] ? "." : "");
        at += n + (at[n] == '.');
    }
}

/* Whether a layer is within an adapted one, with which PEFT adapts it. */
static bool is_within(const json_t *layers, const char *path)
{
    char peft[NAME_BYTES];

    peft_name(layers, path, peft, sizeof peft);
    return strstr(peft, ".base_layer.") != NULL;
}

/* ---- Writing ----------------------------------------------------------------------------------------- */

static json_t *targets_json(const json_t *layers)
{
    json_t *targets = json_array(), *value;
    const char *path;
    bool failed = false;

    json_object_foreach((json_t *)(uintptr_t)layers, path, value)
    {
        if (!is_within(layers, path))
            failed |= json_array_append_new(targets, json_string(path)) != 0;
    }
    return tutti__json_complete(targets, failed);
}

/* The modules of tensors that are trained as a whole; null without any. */
static json_t *saved_json(const json_t *trained)
{
    json_t *modules = json_array(), *name, *other;
    size_t i, k;
    bool failed = false;

    json_array_foreach((json_t *)(uintptr_t)trained, i, name)
    {
        const char *text = json_string_value(name), *dot = text ? strrchr(text, '.') : NULL;
        json_t *module = dot ? json_stringn(text, (size_t)(dot - text)) : NULL;
        bool found = !module;

        json_array_foreach(modules, k, other)
        {
            found |= json_equal(other, module);
        }
        failed |= !found && json_array_append(modules, module) != 0;
        json_decref(module);
    }
    if (json_array_size(modules) > 0 || failed)
        return tutti__json_complete(modules, failed);
    json_decref(modules);
    return json_null();
}

static bool any_in_out(const tutti__adapters *a)
{
    for (size_t k = 0; k < a->n; k++)
        if (a->layers[k].in_out)
            return true;
    return false;
}

static tutti_status write_config(const tutti__adapters *a, const char *folder)
{
    const json_t *layers = json_object_get(a->json, "layers");
    const double alpha = json_number_value(json_object_get(a->json, "lora_alpha"));
    json_t *whole = alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha);
    json_t *json = json_pack(
        "{s:s, s:n, s:n, s:b, s:O, s:o, s:f, s:b, s:s, s:b, s:b, s:b, s:{}, s:{}, s:o, s:o}",
        "peft_type", "LORA", "base_model_name_or_path", "task_type", "inference_mode", 1, "r",
        json_object_get(a->json, "r"), "lora_alpha", whole, "lora_dropout",
        json_number_value(json_object_get(a->json, "lora_dropout")), "fan_in_fan_out",
        (int)any_in_out(a), "bias", "none", "init_lora_weights", 1, "use_rslora", 0, "use_dora", 0,
        "rank_pattern", "alpha_pattern", "target_modules", targets_json(layers), "modules_to_save",
        saved_json(json_object_get(a->json, "trained")));
    char *text = tutti__json_text(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12)), path[4096];
    tutti_status status =
        text ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", folder);

    snprintf(path, sizeof path, "%.4000s/adapter_config.json", folder);
    if (text)
        status = tutti__write_file(path, text, strlen(text));
    free(text);
    json_decref(json);
    return status;
}

static bool is_trained(const tutti__adapters *a, const char *name)
{
    const json_t *trained = json_object_get(a->json, "trained"), *value;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)trained, i, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), name) == 0)
            return true;
    }
    return false;
}

/* Room for the file's n tensors. */
typedef struct peft_file {
    tutti__safetensors_source *sources;
    char (*names)[NAME_BYTES];
    size_t n;
} peft_file;

static tutti_status take_tensors(const tutti__adapters *a, peft_file *f)
{
    for (size_t i = 0; i < tutti__weights_count(a->file); i++) {
        const tutti__safetensors_entry *e = tutti__weights_at(a->file, i);
        void *p;

        if (!tutti__adapters_hold(a, i) && !is_trained(a, e->name))
            continue;
        p = tutti__alloc((size_t)e->bytes);
        if (!p)
            return TUTTI_ERR_MEMORY;
        peft_name(json_object_get(a->json, "layers"), e->name, f->names[f->n], NAME_BYTES);
        f->sources[f->n] = (tutti__safetensors_source){f->names[f->n], {p, e->shape, e->dtype}};
        f->n++;
        TUTTI_TRY(tutti__weights_read(a->file, i, p));
    }
    return TUTTI_OK;
}

tutti_status tutti__adapters_save(const tutti__adapters *a, const char *folder, size_t *n_p)
{
    const size_t most = tutti__weights_count(a->file);
    const tutti__safetensors_pair pair = {"format", "pt"};
    peft_file f = {.sources = tutti__alloc((most + 1) * sizeof *f.sources),
                   .names = tutti__alloc((most + 1) * sizeof *f.names)};
    tutti_status status = f.sources && f.names ? take_tensors(a, &f) : TUTTI_ERR_MEMORY;
    char path[4096];

    snprintf(path, sizeof path, "%.4000s/adapter_model.safetensors", folder);
    if (status == TUTTI_OK)
        status = tutti__make_dirs(folder);
    if (status == TUTTI_OK)
        status = tutti__safetensors_write(path, f.sources, f.n, &pair, 1);
    if (status == TUTTI_OK)
        status = write_config(a, folder);
    *n_p = f.n;
    for (size_t i = 0; i < f.n; i++)
        free((void *)(uintptr_t)f.sources[i].array.p);
    free(f.sources);
    free(f.names);
    return status;
}

/* ---- Loading ----------------------------------------------------------------------------------------- */

typedef struct loading {
    tutti_module *m;
    tutti__weights *file;
    json_t *description, *config; /* the module's; adapter_config.json, NULL: none */
    void **values;                /* by tensor of the module; NULL: not loaded */
    bool *known;                  /* by tensor of the file */
    size_t n, taken;
} loading;

static bool is_set(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);

    return json_is_true(value) || json_object_size(value) > 0;
}

/* adapter_config.json describes adapters that this module has. */
static tutti_status check_config(const loading *l, const char *path)
{
    static const char *const unknown[] = {"use_dora", "use_rslora", "rank_pattern",
                                          "alpha_pattern"};
    const struct tutti_root *root = l->m->root;
    const json_t *r = json_object_get(l->config, "r");
    const json_t *alpha = json_object_get(l->config, "lora_alpha");
    const char *type = json_string_value(json_object_get(l->config, "peft_type"));

    if (!json_is_integer(r) || !json_is_number(alpha) || !type || strcmp(type, "LORA") != 0)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: expected peft_type LORA, and the numbers r and lora_alpha", path);
    for (size_t i = 0; i < TUTTI__COUNT_OF(unknown); i++)
        if (is_set(l->config, unknown[i]))
            return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s: %s is set, which is not computed here",
                               path, unknown[i]);
    if (json_integer_value(r) == root->lora.rank && json_number_value(alpha) == root->lora.alpha)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "%s: its adapters have rank %lld and alpha %g, and the model's rank %d and alpha %g; make "
        "them alike (lora_rank, lora_alpha)",
        path, (long long)json_integer_value(r), json_number_value(alpha), root->lora.rank,
        root->lora.alpha);
}

static tutti_status read_config(loading *l)
{
    char copy[4096], path[4096 + 32];
    json_error_t error;

    snprintf(copy, sizeof copy, "%s", tutti__weights_path(l->file));
    snprintf(path, sizeof path, "%.4000s/adapter_config.json", dirname(copy));
    if (access(path, F_OK) != 0)
        return TUTTI_OK;
    l->config = tutti__json_read(path, 0, &error);
    if (!l->config)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s", path, error.text);
    return check_config(l, path);
}

/* Notes in `text` what does not fit. */
static void note(char text[1200], const char *what, const char *name)
{
    const size_t used = strlen(text);
    int n = 0;

    for (const char *at = text; *at; at++)
        n += *at == ',' || *at == ';';
    if (n < LISTED)
        snprintf(text + used, 1200 - used, "%s%s %.120s", used ? ", " : "", what, name);
    else if (used > 2 && text[used - 1] != '.')
        snprintf(text + used, 1200 - used, ", ...");
}

static tutti_status take(loading *l, size_t i, char wrong[1200])
{
    const tutti_tensor *t = tutti_module_state(l->m, i);
    char name[NAME_BYTES];
    size_t k = 0, n, bad;

    if (!t->parameter || !(tutti__is_of_adapter(t) || t->parameter->requires_grad))
        return TUTTI_OK;
    peft_name(json_object_get(l->description, "layers"), t->name, name, sizeof name);
    while (k < tutti__weights_count(l->file) &&
           strcmp(tutti__weights_at(l->file, k)->name, name) != 0)
        k++;
    if (k == tutti__weights_count(l->file)) {
        if (tutti__is_of_adapter(t)) /* what is trained besides may begin anew */
            note(wrong, "missing", name);
        return TUTTI_OK;
    }
    l->known[k] = true;
    if (!tutti_shape_equal(tutti__weights_at(l->file, k)->shape, tutti__whole_shape(t))) {
        note(wrong, "of another shape", name);
        return TUTTI_OK;
    }
    l->values[i] = tutti__alloc(tutti__tensor_bytes(t));
    l->taken++;
    if (!l->values[i])
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__read_part(l->file, k, t, false, l->values[i]));
    n = (size_t)tutti_shape_count(t->shape);
    bad = tutti__find_nonfinite(l->values[i], TUTTI_F32, n);
    return bad == n ? TUTTI_OK
                    : tutti__fail(TUTTI_ERR_FORMAT,
                                  "%s holds NaN or infinity in %s (the first at element %zu of "
                                  "%zu): the training that wrote it has diverged",
                                  tutti__weights_path(l->file), name, bad, n);
}

/* What a part of a model leaves to others. */
static void mark_elsewhere(loading *l)
{
    const tutti_module *whole = tutti__whole_of(l->m);
    char name[NAME_BYTES];
    const tutti_tensor *t;

    for (size_t i = 0; whole != l->m && (t = tutti_module_parameter(whole, i)) != NULL; i++) {
        if (tutti_module_find(l->m, t->name) ||
            !(tutti__is_of_adapter(t) || t->parameter->requires_grad))
            continue;
        peft_name(json_object_get(l->description, "layers"), t->name, name, sizeof name);
        for (size_t k = 0; k < tutti__weights_count(l->file); k++)
            l->known[k] |= strcmp(tutti__weights_at(l->file, k)->name, name) == 0;
    }
}

static tutti_status load(loading *l)
{
    char wrong[1200] = "";
    size_t n_file;

    TUTTI_TRY(read_config(l));
    n_file = tutti__weights_count(l->file);
    l->n = tutti_module_n_state(l->m);
    l->values = tutti__alloc((l->n + 1) * sizeof *l->values);
    l->known = tutti__alloc(n_file + 1);
    if (!l->values || !l->known)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < l->n; i++)
        TUTTI_TRY(take(l, i, wrong));
    mark_elsewhere(l);
    for (size_t k = 0; k < n_file; k++)
        if (!l->known[k])
            note(wrong, "unexpected", tutti__weights_at(l->file, k)->name);
    if (*wrong)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s does not hold the adapters of this model: %s; adapt the same layers "
                           "(lora_targets), and train the same others (lora_train)",
                           tutti__weights_path(l->file), wrong);
    for (size_t i = 0; i < l->n; i++)
        if (l->values[i])
            TUTTI_TRY(tutti_tensor_write(tutti_module_state(l->m, i), l->values[i]));
    return TUTTI_OK;
}

static tutti_status describe(loading *l)
{
    char *text;
    tutti_status status = tutti__adapters_text(l->m, &text);

    l->description = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return status != TUTTI_OK || l->description ? status : TUTTI_ERR_MEMORY;
}

tutti_status tutti_lora_load(tutti_module *m, const char *path)
{
    loading l = {.m = m};
    char file[4096];
    tutti_status status;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(TUTTI__NOT_NULL(path));
    if (m->root->lora.rank == 0)
        return tutti__fail(TUTTI_ERR_STATE,
                           "lora: the model has no adapters to load %.1000s into; "
                           "make them by tutti_lora_apply (lora_rank)",
                           path);
    TUTTI_TRY(tutti__weights_check(path));
    snprintf(file, sizeof file, "%.4000s%s", path,
             tutti__is_folder(path) ? "/adapter_model.safetensors" : "");
    TUTTI_TRY(tutti__weights_open(&l.file, file));
    status = describe(&l);
    if (status == TUTTI_OK)
        status = load(&l);
    for (size_t i = 0; l.values && i < l.n; i++)
        free(l.values[i]);
    free(l.values);
    free(l.known);
    json_decref(l.description);
    json_decref(l.config);
    tutti__weights_close(l.file);
    return status;
}
