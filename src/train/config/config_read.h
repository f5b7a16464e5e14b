/* config_read.h -- reads the keys of a run from arguments and files.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_CONFIG_READ_H
#define TUTTI_TRAIN_CONFIG_READ_H

#include "train/config/parts.h"
#include <stdio.h>

/* Reads the arguments after `tutti train` over the defaults: --key value, --key=value, --flag, --no-flag, and --config
 * FILE.json, which is read first so that flags override it; '-' equals '_'. Then resolves the model and data that they name
 * (parts.h), and checks constraints between keys. Errors: ARG with the key, its value and what was expected; for unknown keys
 * with the nearest one. */
tutti_status tutti__config_read(tutti__train_config *config, tutti__parts *parts, int argc,
                                char *const *argv);
/* As tutti__config_read, but without constraints between keys: for flags that will be combined with a run's keys. */
tutti_status tutti__config_read_each(tutti__train_config *config, tutti__parts *parts, int argc,
                                     char *const *argv);
/* The constraints alone. */
tutti_status tutti__config_check(const tutti__train_config *config, const tutti__parts *parts);
/* Prints --config, --help, and a paragraph per key: name, values, default, help. parts: of a program with its own; NULL: none. */
void tutti__config_help(FILE *out, const tutti__parts *parts);

#endif
