/* export_hf.h -- what Hugging Face's folder has besides the weights, for `tutti checkpoint export --hf`.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_EXPORT_HF_H
#define TUTTI_CLI_EXPORT_HF_H

#include "checkpoint/weights.h"

/* The text of config.json, by the keys of the checkpoint, the run or the folder of these weights, and the end of text of its tokenizer;
 * to free(). ARG if they are of another model. */
tutti_status tutti__export_hf_config(char **text_p, const tutti__weights *file,
                                     const tutti__weights_place *place);
/* Copies the run's or the folder's tokenizer to the folder `to`, or writes one for a run of bytes or characters, with a
 * tokenizer_config.json that goes with this text of config.json. *written_p false: there is none. */
tutti_status tutti__export_hf_tokenizer(const tutti__weights_place *place, const char *config,
                                        const char *to, bool *written_p);

#endif
