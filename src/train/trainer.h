/* trainer.h -- the trainer, as the command uses it.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_TRAINER_H
#define TUTTI_TRAIN_TRAINER_H

#include "train/config/parts.h"
#include "train/infer/inference_line.h"

struct tutti_trainer {
    char title[100], program[512];
    bool wants_help, has_run;
    tutti__inference_line inference; /* of --eval or --predict; without a path: it trains */
    char **arguments;                /* from which it borrows */
    tutti__train_config config;
    tutti__parts parts; /* its title and program point to the above */
    tutti_trainer_result result;
};

/* As tutti_trainer_new, with a title for messages; argc arguments in argv, none of which is the program's name. program: its
 * path, or NULL: the command. */
tutti_status tutti__trainer_new(tutti_trainer **trainer_p, const char *title, const char *program,
                                int argc, char *const *argv, const tutti_trainer_opts *opts);
/* A run of several ranks is repeated with one rank only if that is explicit: by -n 1, or a launcher's variables. */
bool tutti__config_lacks_ranks(const tutti__train_config *config);
/* As tutti_trainer_run, but does not restore signal handlers, because the process is about to end. */
tutti_status tutti__trainer_run(tutti_trainer *trainer);

#endif
