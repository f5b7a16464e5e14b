/* config_language.h -- keys of language models.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_CONFIG_LANGUAGE_H
#define TUTTI_TRAIN_CONFIG_LANGUAGE_H

#include "train/config/config.h"
#include <tutti/nn.h>

/* Defaults of language models, which are not those of images, and of data=shakespeare. given: by key, whether it has a value already;
 * those that get one here are marked. */
void tutti__config_settle_language(tutti__train_config *config, const tutti_model_kind *model,
                                   bool *given);
/* ARG, naming a key that does not fit the others. */
tutti_status tutti__config_check_language(const tutti__train_config *config,
                                          const tutti_model_kind *model);
/* Reads `rope_scaling`: "linear:FACTOR", "llama3:FACTOR,LOW,HIGH,CONTEXT" or "", which changes nothing. False if it is neither. */
bool tutti__config_rope(const char *text, tutti_rope_opts *rope);
/* A model's options by the keys, without those of the data (channels, height, width, classes). llama: what they point to. */
tutti_model_opts tutti__config_model_opts(const tutti__train_config *config,
                                          const tutti_model_kind *model, tutti_llama_opts *llama);

#endif
