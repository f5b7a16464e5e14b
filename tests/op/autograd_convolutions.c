/* Convolutions in one and two dimensions with all their options, and transposed ones.   SPDX-License-Identifier: MIT
 * timeout: 240   devices: strict cuda */
#define CASES "op/cases_convolutions.def"
#include "op/cases.h"
