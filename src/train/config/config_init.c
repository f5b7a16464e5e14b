/* config_init.c -- the model that a folder of Hugging Face holds, as keys.   SPDX-License-Identifier: MIT */
#include "train/config/config_init.h"

#include "data/text/tokenizer.h"
#include "nn/nn.h"
#include "train/config/hf_config.h"

#include <stdlib.h>
#include <string.h>

static int key_of(const char *name)
{
    int i = 0;

    while (strcmp(tutti__key_table[i].name, name) != 0)
        i++;
    return i;
}

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

static tutti_status refuse(const char *folder, const char *name, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const tutti_status status =
        tutti__fail(TUTTI_ERR_ARG,
                    "%s: it is given, and the weights' %s/config.json says %s; leave %s out, or "
                    "give other weights (init)",
                    name, folder, text ? text : "?", name);

    free(text);
    return status;
}

/* Takes the keys out that are given, and sizes of a model whose name says them. */
static tutti_status take_out(const tutti__train_config *c, const bool *given, const char *folder,
                             json_t *keys)
{
    const tutti_model_kind *kind = tutti__model_find(c->model);
    const bool fixed = given[TUTTI__KEY_OF_model] && kind && !(kind->sizes & TUTTI_MODEL_LAYERS);
    const char *name;
    json_t *value;
    void *next;

    json_object_foreach_safe(keys, next, name, value)
    {
        const int key = key_of(name);
        const bool named = fixed && tutti__word_in("layers heads width", name);

        if (is_given(c, given, key) && !named && !c->init_partial && !fits(c, key, value))
            return refuse(folder, name, value);
        if (is_given(c, given, key) || named)
            json_object_del(keys, name);
    }
    return TUTTI_OK;
}

/* Of text, the tokenizer with which the model was trained. */
static tutti_status add_tokenizer(const tutti__train_config *c, const char *folder, json_t *keys)
{
    tutti_tokenizer *t;

    if (c->tokenizer[0] || strcmp(c->data, "text") != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tokenizer_beside(&t, folder));
    if (t)
        json_object_set_new(keys, "tokenizer", json_string(folder));
    tutti_tokenizer_free(t);
    return TUTTI_OK;
}

tutti_status tutti__config_of_init(const tutti__train_config *c, const bool *given, json_t **keys_p)
{
    tutti__weights_place place;
    tutti_status status;

    *keys_p = NULL;
    if (!c->init[0] || tutti__weights_find(&place, c->init) != TUTTI_OK || !place.hf[0])
        return TUTTI_OK;
    status = tutti__hf_keys(keys_p, place.hf);
    if (status != TUTTI_OK)
        return tutti__fail(status, "init: %s", tutti_last_error());
    if (!*keys_p)
        return TUTTI_OK;
    if (!is_given(c, given, TUTTI__KEY_OF_context))
        tutti__hf_limit_context(*keys_p);
    status = take_out(c, given, place.hf, *keys_p);
    return status == TUTTI_OK ? add_tokenizer(c, place.hf, *keys_p) : status;
}
