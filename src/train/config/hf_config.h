/* hf_config.h -- config.json of Hugging Face's language models, GPT-2's and Llama's.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_HF_CONFIG_H
#define TUTTI_TRAIN_HF_CONFIG_H

#include "checkpoint/weights.h"
#include "data/text/tokenizer.h"
#include <jansson.h>

enum { TUTTI__HF_FAULT = 4600 };

/* The keys of `tutti train` that FOLDER/config.json means, as a JSON object; NULL: it is of another kind of model, and `fault` is
 * FILE: REASON. json_decref it. UNSUPPORTED, naming a setting that these models do not have here; FORMAT. */
tutti_status tutti__hf_keys(json_t **keys_p, const char *folder, char fault[TUTTI__HF_FAULT]);
/* That the sizes among these keys are those of the weights at `path`, before memory is taken for a model of them. FORMAT, naming
 * FOLDER/config.json. Weights that cannot be opened are left to whoever loads them. */
tutti_status tutti__hf_check_sizes(const json_t *keys, const char *folder, const char *path);
/* Makes the key context at most 1024: some models have many more positions than samples of data need. */
void tutti__hf_limit_context(json_t *keys);
/* The tokens at which a text ends, "eos_token_id" of FOLDER's config.json and generation_config.json, a number or a list of them: an array
 * of integers; NULL: none is named, or no memory. json_decref it. */
json_t *tutti__hf_ends(const char *folder);
/* The config.json of weights that were trained with these keys. ARG if they are not of such a model. */
tutti_status tutti__hf_config(json_t **config_p, const json_t *keys, const tutti__weights *weights);
/* Sets the tokens with which a text begins and ends: those of FROM/config.json, if that is of such a model, else the tokenizer's
 * end; t NULL: it is not known. */
void tutti__hf_set_ends(json_t *config, const char *from, const tutti_tokenizer *t);
/* Of a llama, which has no table of positions: makes "max_position_embeddings" that of FROM/config.json, if that is of such a model and
 * longer. False if it is not: then nothing has changed. */
bool tutti__hf_set_positions(json_t *config, const char *from);
/* The tokenizer_config.json that makes transformers take tokenizer.json as it is: by the model's type it would add to it. NULL: no
 * memory. */
json_t *tutti__hf_tokenizer_config(const json_t *config, const tutti_tokenizer *t);

#endif
