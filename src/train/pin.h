/* pin.h -- cores of one's own, by hwloc.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_PIN_H
#define TUTTI_TRAIN_PIN_H

#include "base/base.h"

/* Binds this process to its share of the cores it may use (its own cores, caches shared if possible), so that ranks of
 * one host do not wander over each other. False, and nothing changed, with one rank, with more ranks than cores, without
 * hwloc, or where the machine does not tell or allow it. */
bool tutti__cpu_pin(int local_rank, int local_size);

#endif
