/* Reductions over dimensions, running sums, softmax over any dimension.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#define CASES "op/cases_reductions.def"
#include "op/cases.h"
