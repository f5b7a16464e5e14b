/* weights_parts.h -- safetensors in several files, with an index: how Hugging Face stores large models.   SPDX-License-Identifier: MIT
 *
 *   {"metadata": {...}, "weight_map": {"name of a tensor": "model-00001-of-00003.safetensors", ...}} */
#ifndef TUTTI_CHECKPOINT_WEIGHTS_PARTS_H
#define TUTTI_CHECKPOINT_WEIGHTS_PARTS_H

#include "checkpoint/safetensors.h"

#define TUTTI__WEIGHTS_INDEX "model.safetensors.index.json"

/* Whether a path's first bytes and name are those of an index. */
bool tutti__weights_is_index(const char *path, const unsigned char *head);
/* Opens the files that an index names, each once, in the order of their names; they lie beside it. The caller closes the *n_p files
 * and frees the list, also on failure. FORMAT if it is no index, or a tensor is not in the file that it says.
 * A tensor of the index counts in that file alone. */
tutti_status tutti__weights_open_parts(const char *index, tutti__safetensors ***parts_p,
                                       size_t *n_p);

#endif
