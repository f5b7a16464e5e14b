/* diff_keys.c -- the keys in which two configurations differ, and where each may act.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "train/config/config.h"

#include <stdlib.h>
#include <string.h>

/* With a bit above all phases a row of NOTHING is distinct from no row. */
#define ON(phase) (1u << TUTTI__DIFF_##phase)
#define UPDATE    (ON(STATE) | ON(PARAMETER))
#define ROW       (1u << TUTTI__DIFF_PHASES)
#define NOTHING   0u
#define ANYWHERE  (ROW - 1)

static const unsigned effects[TUTTI__N_KEYS + 1] = {
#define EFFECT(key, phases)      [TUTTI__KEY_OF_##key] = ROW | (phases),
#define TUTTI__KEY_OF_world_size TUTTI__N_KEYS
#include "cli/diff/effects.def"
#undef EFFECT
};

static unsigned effect_of(const char *name)
{
    const int key =
        strcmp(name, "world_size") == 0 ? TUTTI__N_KEYS : tutti__key_find(name, strlen(name));

    return key >= 0 && effects[key] ? effects[key] & ~ROW : ANYWHERE;
}

static void value_text(const json_t *value, char text[120])
{
    char *all = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;

    snprintf(text, 120, "%.119s", all ? all : "");
    free(all);
}

static void add_key(tutti__diff_key *keys, size_t *n, const char *name, const json_t *a,
                    const json_t *b)
{
    tutti__diff_key *key = &keys[(*n)++];

    snprintf(key->name, sizeof key->name, "%s", name);
    value_text(a, key->a);
    value_text(b, key->b);
    key->phases = effect_of(name);
}

tutti_status tutti__diff_keys(tutti__diff_key **keys_p, size_t *n_p, const tutti__diff_run *a,
                              const tutti__diff_run *b)
{
    const size_t most = json_object_size(a->config) + json_object_size(b->config);
    tutti__diff_key *keys = tutti__alloc((most + 1) * sizeof *keys);
    const char *name;
    json_t *value;
    size_t n = 0;

    *keys_p = keys;
    *n_p = 0;
    if (!keys)
        return TUTTI_ERR_MEMORY;
    if (!a->config || !b->config) {
        const tutti__diff_run *without = a->config ? b : a;

        if (strcmp(tutti__diff_header(without, "framework"), "torch") != 0)
            tutti__diff_note("%s has no config.json: configurations were not compared",
                             without->path);
        return TUTTI_OK;
    }
    json_object_foreach(a->config, name, value)
    {
        const json_t *other = json_object_get(b->config, name);

        if (!other || !json_equal(value, other))
            add_key(keys, &n, name, value, other);
    }
    json_object_foreach(b->config, name, value)
    {
        if (!json_object_get(a->config, name))
            add_key(keys, &n, name, NULL, value);
    }
    *n_p = n;
    return TUTTI_OK;
}
