/* run_tokenizer.h -- the tokenizer with which a run's model was trained.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_RUN_TOKENIZER_H
#define TUTTI_TRAIN_RUN_TOKENIZER_H

#include <tutti/tokenizer.h>

/* path: of the weights, as tutti__weights_find takes it; fit: what the training data taught; NULL: nothing. given: --tokenizer; NULL
 * or "": not given. was: the run's key `tokenizer`. It is looked for beside the weights, in the run folder, in the folder of Hugging
 * Face's config.json, and where it was. Errors: NOT_FOUND with what to give; those of tutti_tokenizer_open. */
tutti_status tutti__tokenizer_for_run(tutti_tokenizer **tokenizer_p, const char *path,
                                      const char *fit, const char *given, const char *was);

#endif
