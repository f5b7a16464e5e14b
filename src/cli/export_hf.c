/* export_hf.c -- what Hugging Face's folder has besides the weights.   SPDX-License-Identifier: MIT */
#include "cli/export_hf.h"

#include "base/terminal.h"
#include "checkpoint/json_text.h"
#include "checkpoint/state.h"
#include "data/text/tokenizer.h"
#include "train/config/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL: there is none. */
static tutti_status open_tokenizer(tutti_tokenizer **t_p, const tutti__weights_place *place)
{
    const char *from = place->hf[0] ? place->hf : place->run;

    *t_p = NULL;
    return *from ? tutti__tokenizer_beside(t_p, from) : TUTTI_OK;
}

static tutti_status write_tokenizer_config(const char *config_text, const tutti_tokenizer *t,
                                           const char *to)
{
    json_t *config = json_loads(config_text, 0, NULL);
    json_t *json = tutti__hf_tokenizer_config(config, t);
    char *text = tutti__json_text(json, JSON_INDENT(2)), path[4200];
    tutti_status status = text ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", to);

    snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", to);
    if (text)
        status = tutti__write_file(path, text, strlen(text));
    free(text);
    json_decref(json);
    json_decref(config);
    return status;
}

/* Of bytes or characters, which have no file: by what the checkpoint says of its data. NULL: there is none. */
static tutti_tokenizer *plain_tokenizer(const tutti__weights_place *place)
{
    tutti_tokenizer *t = NULL;
    json_t *state = NULL;
    char *fit;

    if (!place->folder[0] || tutti__state_read(&state, place->folder) != TUTTI_OK)
        return NULL;
    fit = tutti__json_text(json_object_get(state, "data"), JSON_COMPACT);
    if (!fit || tutti__tokenizer_of_fit(&t, fit, NULL, NULL, 0) != TUTTI_OK)
        t = NULL;
    free(fit);
    json_decref(state);
    return t;
}

static tutti_status write_plain(const tutti_tokenizer *t, const char *to, bool *written_p)
{
    char path[4200], *text;
    tutti_status status;

    TUTTI_TRY(tutti__tokenizer_plain_json(t, &text));
    snprintf(path, sizeof path, "%.4000s/tokenizer.json", to);
    *written_p = text != NULL;
    status = text ? tutti__write_file(path, text, strlen(text)) : TUTTI_OK;
    free(text);
    return status;
}

tutti_status tutti__export_hf_tokenizer(const tutti__weights_place *place, const char *config,
                                        const char *to, bool *written_p)
{
    tutti_tokenizer *t;
    tutti_status status;

    *written_p = false;
    TUTTI_TRY(open_tokenizer(&t, place));
    if (t) {
        status = tutti__tokenizer_copy(t->path, to);
        *written_p = true;
    } else {
        t = plain_tokenizer(place);
        status = t ? write_plain(t, to, written_p) : TUTTI_OK;
    }
    if (status == TUTTI_OK && *written_p && !t->is_pair && !t->is_tiktoken)
        status = write_tokenizer_config(config, t, to);
    tutti_tokenizer_free(t);
    return status;
}

/* The folder of Hugging Face with which the run of these keys began, or the run with which it began, and so on, in `hf`; "": there is
 * none. False: it is not known, because what is named, in `hf` then, is no longer there. */
static bool find_beginning(const json_t *keys, char hf[4096])
{
    enum { MOST = 64 }; /* runs may name each other in a circle */
    json_t *run = json_incref((json_t *)(uintptr_t)keys);
    bool known = true;

    hf[0] = '\0';
    for (int i = 0; run && known && i < MOST; i++) {
        const char *init = json_string_value(json_object_get(run, "init"));
        tutti__weights_place place = {.run = ""};
        char path[4200];

        known = !init || !*init || tutti__weights_find(&place, init) == TUTTI_OK;
        snprintf(hf, 4096, "%s", known ? place.hf : init);
        snprintf(path, sizeof path, "%s/config.json", place.run);
        json_decref(run);
        run = place.run[0] && !place.hf[0] ? tutti__json_read(path, 0, NULL) : NULL;
    }
    json_decref(run);
    return known;
}

/* A llama's weights do not show how far it may look back, and its run may have had shorter samples. */
static void set_positions(json_t *config, const char *hf, bool known)
{
    static const char name[] = "max_position_embeddings";
    const json_int_t context = json_integer_value(json_object_get(config, name));

    if (context == 0)
        return;
    if (known && tutti__hf_set_positions(config, hf))
        tutti__print_line(stderr,
                          "tutti checkpoint export: %s is %lld, as in %s/config.json; the samples "
                          "of the training had %lld tokens",
                          name, (long long)json_integer_value(json_object_get(config, name)), hf,
                          (long long)context);
    else if (!known)
        tutti__print_line(stderr,
                          "tutti checkpoint export: %s is %lld, the context of the training: that "
                          "of %s, with which it began, may be "
                          "longer, and is not known, because it is no longer there",
                          name, (long long)context, hf);
}

/* What the weights do not say: it is that of their folder, or of the one with which the run began. */
static tutti_status add_from_beginning(json_t *config, const json_t *keys,
                                       const tutti__weights_place *place)
{
    char hf[4096];
    const bool known = find_beginning(keys, hf);
    tutti_tokenizer *t;

    TUTTI_TRY(open_tokenizer(&t, place));
    tutti__hf_set_ends(config, place->hf[0] ? place->hf : known ? hf : "", t);
    tutti_tokenizer_free(t);
    set_positions(config, hf, known);
    return TUTTI_OK;
}

static tutti_status read_keys(json_t **keys_p, const tutti__weights_place *place)
{
    char path[4200], fault[TUTTI__HF_FAULT] = "";
    json_t *state;

    *keys_p = NULL;
    if (place->folder[0]) {
        TUTTI_TRY(tutti__state_read(&state, place->folder));
        *keys_p = json_incref(json_object_get(state, "config"));
        json_decref(state);
    } else if (place->run[0]) {
        snprintf(path, sizeof path, "%s/config.json", place->run);
        *keys_p = tutti__json_read(path, 0, NULL);
    } else if (place->hf[0])
        TUTTI_TRY(tutti__hf_keys(keys_p, place->hf, fault));
    return *fault ? tutti__fail(TUTTI_ERR_ARG, "%s", fault) : TUTTI_OK;
}

tutti_status tutti__export_hf_config(char **text_p, const tutti__weights *file,
                                     const tutti__weights_place *place)
{
    json_t *keys, *config = NULL;
    tutti_status status = read_keys(&keys, place);

    if (status == TUTTI_OK)
        status = tutti__hf_config(&config, keys, file);
    if (status == TUTTI_OK)
        status = add_from_beginning(config, keys, place);
    if (status == TUTTI_OK) {
        *text_p = tutti__json_text(config, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        status = *text_p ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for config.json");
    }
    json_decref(config);
    json_decref(keys);
    return status;
}
