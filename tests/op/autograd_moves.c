/* Broadcasting, and operations that only move elements.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#define CASES "op/cases_moves.def"
#include "op/cases.h"
