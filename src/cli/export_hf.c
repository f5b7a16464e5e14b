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

/* Without it transformers takes the class of a llama's tokenizer, which puts a token of its own in front of each text. */
static tutti_status write_tokenizer_config(const tutti_tokenizer *t, const char *to)
{
    size_t n;
    const char *end = tutti_tokenizer_bytes(t, t->end_of_text, &n);
    json_t *eos = n > 0 ? json_stringn(end, n) : NULL;
    json_t *config = json_pack("{s:s, s:b, s:o*}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "clean_up_tokenization_spaces", 0, "eos_token", eos);
    char *text = tutti__json_text(config, JSON_INDENT(2)), path[4200];
    tutti_status status = text ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", to);

    snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", to);
    if (text)
        status = tutti__write_file(path, text, strlen(text));
    free(text);
    json_decref(config);
    return status;
}

tutti_status tutti__export_hf_tokenizer(const tutti__weights_place *place, const char *to)
{
    tutti_tokenizer *t;
    tutti_status status;

    TUTTI_TRY(open_tokenizer(&t, place));
    status = t ? tutti__tokenizer_copy(t->path, to) : TUTTI_OK;
    if (status == TUTTI_OK && t && !t->is_pair && !t->is_tiktoken)
        status = write_tokenizer_config(t, to);
    tutti_tokenizer_free(t);
    return status;
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
    tutti_tokenizer *t = NULL;
    tutti_status status = read_keys(&keys, place);
    const char *init = json_string_value(json_object_get(keys, "init"));

    if (status == TUTTI_OK)
        status = tutti__hf_config(&config, keys, file);
    if (status == TUTTI_OK)
        status = open_tokenizer(&t, place);
    if (status == TUTTI_OK) {
        tutti__hf_set_ends(config, place->hf[0] ? place->hf : init ? init : "", t);
        *text_p = tutti__json_text(config, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        status = *text_p ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for config.json");
    }
    tutti_tokenizer_free(t);
    json_decref(config);
    json_decref(keys);
    return status;
}
