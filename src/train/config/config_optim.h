/* config_optim.h -- keys of the optimizer and the learning rate.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_CONFIG_OPTIM_H
#define TUTTI_TRAIN_CONFIG_OPTIM_H

#include "train/config/config.h"

/* Defaults that depend on other keys. given: by key, whether the user gave it. */
void tutti__config_settle_optim(tutti__train_config *config, const bool *given);
/* ARG, naming a key that does not fit the others. */
tutti_status tutti__config_check_optim(const tutti__train_config *config);
/* How many numbers the optimizer keeps for each parameter. */
int tutti__config_optim_states(const tutti__train_config *config);

#endif
