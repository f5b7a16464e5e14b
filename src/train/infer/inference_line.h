/* inference_line.h -- what `tutti eval` and `tutti predict`, and a program's --eval and --predict, have in common: their flags,
 * and the work.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_INFERENCE_LINE_H
#define TUTTI_TRAIN_INFERENCE_LINE_H

#include "train/infer/inference.h"

/* The keys, as flags, that say which model it is: of all three commands. */
#define TUTTI__MODEL_FLAGS                                                                         \
    "--model", "--layers", "--width", "--heads", "--kv-heads", "--context", "--vocab",             \
        "--ffn-width", "--rope-theta", "--rope-scaling", "--norm-eps", "--tie-embeddings",         \
        "--lora-rank", "--lora-alpha", "--lora-targets", "--lora-train", "--lora-init"

/* argv, without a program's name, into the line, which has its title, the program's parts and `predicts`, and borrows from argv.
 * The value of a program's --eval or --predict is the path. line->keys is to be freed after a failure too. */
tutti_status tutti__inference_line_read(tutti__inference_line *line, int argc, char *const *argv);

/* For a program's arguments without --eval and --predict: ARG if one is a flag that goes only with them. */
tutti_status tutti__inference_refuse(int argc, char *const *argv);

/* tutti__infer, with a bar; shows the results, or writes the predictions. */
tutti_status tutti__inference_run(tutti__inference_line *line, tutti_trainer_result *result);

#endif
