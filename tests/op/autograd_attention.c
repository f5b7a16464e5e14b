/* Attention and rotary positions: options, edges, errors.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda:long */
#define CASES "op/cases_attention.def"
#include "op/cases.h"
