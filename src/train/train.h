/* train.h -- `tutti train`: one rank's whole run.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_TRAIN_H
#define TUTTI_TRAIN_TRAIN_H

#include "train/config.h"

/* Trains as the configuration says, in the group that the environment describes; says what it does on standard output
 * (rank 0) and what failed on standard error. Fills in run_dir. Returns the exit code. */
int tutti__train(tutti__train_config *config);

#endif
