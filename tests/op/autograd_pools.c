/* Pools in one and two dimensions with all their options, adaptive ones, and resizing of images.   SPDX-License-Identifier: MIT
 * timeout: 240   devices: strict cuda */
#define CASES "op/cases_pools.def"
#include "op/cases.h"
