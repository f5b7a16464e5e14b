/* config_init.h -- keys that the folder of the initial weights says.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_CONFIG_INIT_H
#define TUTTI_TRAIN_CONFIG_INIT_H

#include "train/config/config.h"

/* The keys that are not given and that init says, as a folder of Hugging Face or a run of a language model: the model, its sizes, the tokenizer of text. Those that
 * are given must fit. json_decref *keys_p; NULL: none. given: by key. Errors: ARG with a key that does not fit; those of
 * tutti__hf_keys. If there is nothing at that path, they are those that the checkpoint to resume from, or the run folder, has recorded for
 * it; else, for texts and tokens whose model is not given, the status of tutti__weights_find. */
tutti_status tutti__config_of_init(const tutti__train_config *config, const bool *given,
                                   json_t **keys_p);

#endif
