/* config_init.c -- the model that a folder of Hugging Face holds, or a run of a language model, as keys.   SPDX-License-Identifier: MIT */
#include "train/config/config_init.h"

#include "checkpoint/state.h"
#include "data/text/tokenizer.h"
#include "nn/nn.h"
#include "train/config/hf_config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a key has a value of its own; the number 0 is its default. */
static bool is_given(const tutti__train_config *c, const bool *given, int key)
{
    json_t *value = tutti__config_value(c, key);
    const bool is_default = json_is_number(value) && json_number_value(value) == 0;

    json_decref(value);
    return given[key] && !is_default;
}

/* Whether a given key fits what config.json says. */
static bool fits(const tutti__train_config *c, int key, const json_t *value)
{
    json_t *given = tutti__config_value(c, key);
    const double is = json_number_value(given), says = json_number_value(value);
    const char *model = json_string_value(value);
    const bool fits = key == TUTTI__KEY_OF_model     ? strncmp(c->model, model, strlen(model)) == 0
                      : key == TUTTI__KEY_OF_context ? is <= says
                      : json_is_number(given)        ? is == says
                                                     : json_equal(given, value);

    json_decref(given);
    return fits;
}

static tutti_status refuse(const char *file, const char *name, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const tutti_status status =
        tutti__fail(TUTTI_ERR_ARG,
                    "%s: it is given, and the weights' %s says %s; leave %s out, or give other "
                    "weights (init)",
                    name, file, text ? text : "?", name);

    free(text);
    return status;
}

/* Takes the keys out that are given, and sizes of a model whose name says them. */
static tutti_status take_out(const tutti__train_config *c, const bool *given, const char *file,
                             json_t *keys)
{
    const tutti_model_kind *kind = tutti__model_find(c->model);
    const bool fixed = given[TUTTI__KEY_OF_model] && kind && !(kind->sizes & TUTTI_MODEL_LAYERS);
    const char *name;
    json_t *value;
    void *next;

    json_object_foreach_safe(keys, next, name, value)
    {
        const int key = tutti__key_find(name, strlen(name));
        const bool named = fixed && tutti__word_in("layers heads width", name);

        if (is_given(c, given, key) && !named && !c->init_partial && !fits(c, key, value))
            return refuse(file, name, value);
        if (is_given(c, given, key) || named)
            json_object_del(keys, name);
    }
    return TUTTI_OK;
}

/* Of text, the tokenizer with which the model was trained. */
static tutti_status add_tokenizer(const tutti__train_config *c, const char *folder, bool hf,
                                  json_t *keys)
{
    enum { MOST_BYTES = 512 }; /* tokens of a model of bytes, some of which are never used */
    const json_int_t vocab = json_integer_value(json_object_get(keys, "vocab"));
    tutti_tokenizer *t;

    if (c->tokenizer[0] || strcmp(c->data, "text") != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tokenizer_beside(&t, folder));
    if (!t && hf && vocab > MOST_BYTES && !c->init_partial)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tokenizer: %s has none, and the %lld tokens of its model are not "
                           "bytes, as which a text is read without one; give that with which it "
                           "was trained",
                           folder, (long long)vocab);
    if (t)
        json_object_set_new(keys, "tokenizer", json_string(folder));
    tutti_tokenizer_free(t);
    return TUTTI_OK;
}

/* The keys that say the model of a run's configuration, if it is a language model; NULL: it is not. */
static json_t *model_keys(const json_t *run)
{
    static const char *const names[] = {"model",          "layers",    "heads",      "kv_heads",
                                        "width",          "ffn_width", "rope_theta", "rope_scaling",
                                        "tie_embeddings", "norm_eps",  "context",    "vocab"};
    const char *model = json_string_value(json_object_get(run, "model"));
    const tutti_model_kind *kind = model ? tutti__model_find(model) : NULL;
    json_t *keys = kind && kind->sizes & TUTTI_MODEL_TOKENS ? json_object() : NULL;

    for (size_t i = 0; keys && i < TUTTI__COUNT_OF(names); i++) {
        json_t *value = json_object_get(run, names[i]);
        const bool zero = json_is_number(value) && json_number_value(value) == 0;

        if (value && !zero && !(json_is_string(value) && json_string_length(value) == 0))
            json_object_set(keys, names[i], value);
    }
    return keys;
}

/* The keys of the run to which the weights belong, likewise. */
static json_t *run_keys(const tutti__weights_place *place)
{
    char path[4096 + 32];
    json_t *run, *keys;

    snprintf(path, sizeof path, "%s/config.json", place->run);
    run = tutti__json_read(path, 0, NULL);
    keys = model_keys(run);
    json_decref(run);
    return keys;
}

/* Whether only the weights can say which model is wanted. */
static bool needs_model(const tutti__train_config *c, const bool *given)
{
    return !given[TUTTI__KEY_OF_model] && tutti__word_in("text tokens shakespeare", c->data);
}

/* What a run folder or checkpoint, if it began with the same weights, has recorded; NULL: there is none. file: its name; home: the run
 * folder, "": not known. */
static json_t *recorded_in(const tutti__train_config *c, const char *path, char file[4096 + 32],
                           char home[4096])
{
    tutti__weights_place place;
    json_t *run = NULL, *state;
    const char *init;

    if (tutti__weights_find(&place, path) == TUTTI_OK && place.folder[0] &&
        tutti__state_read(&state, place.folder) == TUTTI_OK) {
        snprintf(file, 4096 + 32, "%s/state.json", place.folder);
        snprintf(home, 4096, "%s", place.run);
        run = json_incref(json_object_get(state, "config"));
        json_decref(state);
    } else if (snprintf(file, 4096 + 32, "%s/config.json", path) < 4096 + 32) {
        run = tutti__json_read(file, 0, NULL);
        snprintf(home, 4096, "%s", path);
    }
    init = json_string_value(json_object_get(run, "init"));
    if (init && strcmp(init, c->init) == 0)
        return run;
    json_decref(run);
    return NULL;
}

/* Of text, the tokenizer that a run has recorded, or its copy in the run folder if that is not there either. */
static tutti_status add_recorded_tokenizer(const tutti__train_config *c, const json_t *run,
                                           const char *home, json_t *keys)
{
    const char *path = json_string_value(json_object_get(run, "tokenizer"));
    tutti_tokenizer *copy = NULL;

    if (strcmp(c->data, "text") != 0 || !path || !*path ||
        (c->tokenizer[0] && strcmp(c->tokenizer, path) != 0))
        return TUTTI_OK;
    if (access(path, F_OK) != 0 && *home)
        TUTTI_TRY(tutti__tokenizer_beside(&copy, home));
    json_object_set_new(keys, "tokenizer", json_string(copy ? home : path));
    tutti_tokenizer_free(copy);
    return TUTTI_OK;
}

/* The weights are not there: a run that continues does not need them, and has recorded what they said. not_found: their status, for which
 * the thread has the message. */
static tutti_status of_record(const tutti__train_config *c, const bool *given,
                              tutti_status not_found, json_t **keys_p)
{
    const bool names = c->resume[0] && !tutti__word_in("no auto", c->resume);
    char reason[2048], file[4096 + 32], home[4096] = "";
    json_t *run;
    tutti_status status;

    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    run = names ? recorded_in(c, c->resume, file, home) : NULL;
    if (!run && c->run_dir[0])
        run = recorded_in(c, c->run_dir, file, home);
    if (!run) /* else loading them says it, if they are needed */
        return needs_model(c, given) ? tutti__fail(not_found, "init: %s", reason) : TUTTI_OK;
    *keys_p = model_keys(run);
    status = *keys_p ? take_out(c, given, file, *keys_p) : TUTTI_OK;
    if (*keys_p && status == TUTTI_OK)
        status = add_recorded_tokenizer(c, run, home, *keys_p);
    json_decref(run);
    return status;
}

tutti_status tutti__config_of_init(const tutti__train_config *c, const bool *given, json_t **keys_p)
{
    tutti__weights_place place;
    const char *folder;
    char file[4096 + 32], fault[TUTTI__HF_FAULT] = "";
    tutti_status status = TUTTI_OK;

    *keys_p = NULL;
    if (!c->init[0])
        return TUTTI_OK;
    status = tutti__weights_find(&place, c->init);
    if (status != TUTTI_OK)
        return of_record(c, given, status, keys_p);
    folder = place.hf[0] ? place.hf : place.run;
    if (place.hf[0]) {
        status = tutti__hf_keys(keys_p, place.hf, fault);
        if (status == TUTTI_OK && *keys_p && !c->init_partial)
            status = tutti__hf_check_sizes(*keys_p, place.hf, place.file);
    } else if (place.run[0])
        *keys_p = run_keys(&place);
    if (status == TUTTI_OK && !*keys_p && !*fault && needs_model(c, given))
        return tutti__fail(TUTTI_ERR_ARG,
                           "init: %s: no config.json that can be read names the language model; "
                           "expected a folder of Hugging Face or a run; or give model",
                           c->init);
    if (status != TUTTI_OK)
        return tutti__fail(status, "init: %s", tutti_last_error());
    /* A file may lie beside a config.json that says nothing of it. */
    if (*fault && !given[TUTTI__KEY_OF_model] &&
        (tutti__is_folder(c->init) || needs_model(c, given)))
        return tutti__fail(TUTTI_ERR_ARG, "init: %s; give model", fault);
    if (!*keys_p)
        return TUTTI_OK;
    if (c->init_partial && is_given(c, given, TUTTI__KEY_OF_model) &&
        !fits(c, TUTTI__KEY_OF_model, json_object_get(*keys_p, "model"))) { /* parts of another */
        json_decref(*keys_p);
        *keys_p = NULL;
        return TUTTI_OK;
    }
    if (place.hf[0] && !is_given(c, given, TUTTI__KEY_OF_context))
        tutti__hf_limit_context(*keys_p);
    snprintf(file, sizeof file, "%s/config.json", folder);
    status = take_out(c, given, file, *keys_p);
    return status == TUTTI_OK ? add_tokenizer(c, folder, place.hf[0], *keys_p) : status;
}
