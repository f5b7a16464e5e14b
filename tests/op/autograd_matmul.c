/* Products of vectors, matrices and batches of matrices, and einsum.   SPDX-License-Identifier: MIT
 * timeout: 240   devices: strict cuda */
#define CASES "op/cases_matmul.def"
#include "op/cases.h"
