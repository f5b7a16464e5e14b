/* Normalisation: layer, RMS, group, instance, batch, local response, by norms.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#define CASES "op/cases_norms.def"
#include "op/cases.h"
