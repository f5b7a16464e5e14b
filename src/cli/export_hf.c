/* export_hf.c -- what Hugging Face's folder has besides the weights.   SPDX-License-Identifier: MIT */
#include "cli/export_hf.h"

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

tutti_status tutti__export_hf_tokenizer(const tutti__weights_place *place, const char *config,
                                        const char *to)
{
    tutti_tokenizer *t;
    tutti_status status;

    TUTTI_TRY(open_tokenizer(&t, place));
    status = t ? tutti__tokenizer_copy(t->path, to) : TUTTI_OK;
    if (status == TUTTI_OK && t && !t->is_pair && !t->is_tiktoken)
        status = write_tokenizer_config(config, t, to);
    tutti_tokenizer_free(t);
    return status;
}

/* The tokens of begin and end are those of the folder of the weights, or of those with which the run began. */
static tutti_status set_ends(json_t *config, const json_t *keys, const tutti__weights_place *place)
{
    const char *init = json_string_value(json_object_get(keys, "init"));
    tutti_tokenizer *t;

    TUTTI_TRY(open_tokenizer(&t, place));
    tutti__hf_set_ends(config,
                       place->hf[0]                  ? place->hf
                       : init && strlen(init) < 4096 ? init
                                                     : "",
                       t);
    tutti_tokenizer_free(t);
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
        status = set_ends(config, keys, place);
    if (status == TUTTI_OK) {
        *text_p = tutti__json_text(config, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        status = *text_p ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for config.json");
    }
    json_decref(config);
    json_decref(keys);
    return status;
}
