/* config.c -- the table of keys, and values as JSON.   SPDX-License-Identifier: MIT */
#include "train/config/config.h"

#include "checkpoint/json_text.h"
#include "data/dataset.h"
#include "nn/nn.h"

#include <stdlib.h>
#include <string.h>

/* "mini_resnet mlp linear ": the registered names, as limits of a CHOICE. */
#define WORD(name)               #name " "
#define MODEL_WORD(symbol, name) name " "
#define MODEL_NAMES              TUTTI__MODELS(MODEL_WORD)
#define DATA_NAMES               TUTTI__FORMATS(WORD)
#define DIGITS_OF(number)        #number
#define DIGITS(number)           DIGITS_OF(number)

const tutti__key_row tutti__key_table[TUTTI__N_KEYS] = {
#define KEY(type, name, value, limits, help)                                                       \
    {#name, TUTTI__KEY_##type, offsetof(tutti__train_config, name), value, limits, help},
#include "train/config/config.def"
#undef KEY
};

bool tutti__config_profile(const tutti__train_config *config, int64_t *first_p, int64_t *last_p)
{
    char part[32];
    const char *colon = strchr(config->profile, ':');

    *first_p = *last_p = 0;
    if (!config->profile[0])
        return true;
    if (!colon || (size_t)(colon - config->profile) >= sizeof part)
        return false;
    snprintf(part, sizeof part, "%.*s", (int)(colon - config->profile), config->profile);
    return tutti__parse_int64(part, first_p) && tutti__parse_int64(colon + 1, last_p) &&
           *first_p >= 1 && *last_p >= *first_p;
}

bool tutti__config_color_jitter(const tutti__train_config *config, double strength[4])
{
    const char *at = config->color_jitter;
    int n = 0;

    strength[0] = strength[1] = strength[2] = strength[3] = 0;
    if (!*at)
        return true;
    for (bool more = true; more; n++) {
        const size_t length = strcspn(at, ",");
        char part[32];

        if (n == 4 || length >= sizeof part)
            return false;
        snprintf(part, sizeof part, "%.*s", (int)length, at);
        if (!tutti__parse_double(part, &strength[n]) ||
            !(strength[n] >= 0 && strength[n] <= (n == 3 ? 0.5 : 100)))
            return false;
        more = at[length] == ',';
        at += length + more;
    }
    if (n == 1)
        strength[1] = strength[2] = strength[0];
    return n != 2;
}

bool tutti__key_is(const char *key, const char *name, size_t n)
{
    size_t k = 0;

    while (k < n && key[k] && (key[k] == name[k] || (key[k] == '_' && name[k] == '-')))
        k++;
    return k == n && !key[k];
}

int tutti__key_find(const char *name, size_t n)
{
    for (int i = 0; i < TUTTI__N_KEYS; i++)
        if (tutti__key_is(tutti__key_table[i].name, name, n))
            return i;
    return -1;
}

const char *tutti__steps_word(const tutti__key_row *key)
{
    const char *low_ends = strchr(key->limits, ' ');
    const char *high_ends = low_ends ? strchr(low_ends + 1, ' ') : NULL;

    return high_ends ? high_ends + 1 : NULL;
}

json_t *tutti__config_value(const tutti__train_config *config, int key)
{
    const tutti__key_row *row = &tutti__key_table[key];
    const void *value = (const char *)config + row->offset;
    json_t *item = NULL;
    int64_t number;

    switch (row->type) {
    case TUTTI__KEY_STEPS:
        number = *(const int64_t *)value;
        item = number == TUTTI__STEPS_AUTO   ? json_string("auto")
               : number == TUTTI__STEPS_WORD ? json_string(tutti__steps_word(row))
                                             : json_integer(number);
        break;
    case TUTTI__KEY_INT:
        item = json_integer(*(const int64_t *)value);
        break;
    case TUTTI__KEY_REAL:
        item = json_real(*(const double *)value);
        break;
    case TUTTI__KEY_FLAG:
        item = json_boolean(*(const bool *)value);
        break;
    case TUTTI__KEY_CHOICE:
    case TUTTI__KEY_NAME:
    case TUTTI__KEY_TEXT:
        item = json_string(tutti__is_utf8(value) ? value : "(not UTF-8)");
        break;
    }
    return item;
}

char *tutti__config_json(const tutti__train_config *config)
{
    json_t *root = json_object();
    char *text, *line = NULL;
    int failed = 0;

    for (int i = 0; i < TUTTI__N_KEYS; i++)
        failed |=
            json_object_set_new(root, tutti__key_table[i].name, tutti__config_value(config, i));
    if (config->world_size > 0)
        failed |= json_object_set_new(root, "world_size", json_integer(config->world_size));
    text = failed ? NULL : tutti__json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (text && asprintf(&line, "%s\n", text) < 0)
        line = NULL;
    json_decref(root);
    free(text);
    if (!line)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for config.json");
    return line;
}
