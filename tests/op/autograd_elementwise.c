/* Operations on one element of each source.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#define CASES "op/cases_elementwise.def"
#include "op/cases.h"
