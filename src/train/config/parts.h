/* parts.h -- a run's model and data: the program's own, those of shared objects, or the library's.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_PARTS_H
#define TUTTI_TRAIN_PARTS_H

#include "train/config/config.h"
#include <tutti/trainer.h>

typedef struct tutti__parts {
    const char *title;      /* the command or program, for messages; NULL: "tutti train" */
    const char *program;    /* its path; NULL: the command */
    tutti_trainer_opts own; /* zeros: nothing */
    /* What the configuration's names resolve to: set by tutti__parts_find. */
    const tutti_model_kind *model;
    const tutti_dataset_format *format; /* NULL: the program's own data sets */
} tutti__parts;

/* Sets the names of the program's own parts as defaults. */
void tutti__parts_set_names(const tutti__parts *parts, tutti__train_config *config);
/* Finds model and format, and loads the shared objects that are named by model_file, data_file, or by a path in model or
 * data, which becomes the file's absolute path and the name in it. Errors: ARG, NOT_FOUND, with the key. */
tutti_status tutti__parts_find(tutti__parts *parts, tutti__train_config *config);
/* Resolves a data set's spec whose format may be a shared object, "./FILE.so:DIR/SPLIT": *format_p is its format, which stays
 * loaded, and *named_p the spec with its name, for tutti_dataset_open_with. For any other spec *named_p is a copy, and
 * *format_p NULL. The caller frees *named_p; it is NULL after a failure. Errors: ARG, NOT_FOUND, MEMORY, with "data". */
tutti_status tutti__parts_find_spec(const char *spec, char **named_p,
                                    const tutti_dataset_format **format_p);
/* Checks the data keys after the format is known. */
tutti_status tutti__parts_check(const tutti__parts *parts, const tutti__train_config *config);

/* Adds the low-rank adapters of the keys to a model; nothing with lora_rank=0. ARG as tutti_lora_apply. */
tutti_status tutti__config_adapt(const tutti__train_config *config, tutti_module *model);

#endif
