/* part.h -- models of which a rank has a part.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_NN_PART_H
#define TUTTI_NN_PART_H

#include "nn/nn.h"

/* Whether this rank's part of the model (tutti_root.part) has no parameter or buffer of that name in m. */
bool tutti__is_left_out(const tutti_module *m, const char *name);

#endif
