/* region.h -- memory that ranks of one host share.   SPDX-License-Identifier: MIT
 *
 * For processes a shared mapping (core/shared_mapping.h), for threads of one process plain memory, freed by the last that
 * drops it. The first of the ranks makes it; it reaches the others along a tree of the control channel's connections. */
#ifndef TUTTI_COMM_CONTROL_REGION_H
#define TUTTI_COMM_CONTROL_REGION_H

#include "comm/control/control.h"

typedef struct tutti__region {
    void *p; /* zeroed when made; page-aligned */
    size_t bytes;
    bool one_process;
    void *mapping; /* p, after the page that counts the users */
    size_t mapped;
    tutti__handed handed; /* as it came */
} tutti__region;

/* Called by ranks[0], this one, of n ranks as numbered by the control channel: makes `bytes`, of which perhaps
 * `used` will be touched, and sends them to the others. If it cannot, region->p is NULL there and on the others. */
void tutti__region_make(tutti__control *control, const int *ranks, int n, bool one_process,
                        size_t bytes, size_t used, tutti__region *region);
/* Called by the others, ranks[i]: takes what the first made, in the same order. 0 or an errno, as tutti__control_take_spread with
 * region->handed. */
int tutti__region_take(tutti__control *control, const int *ranks, int n, int i, bool one_process,
                       double deadline, tutti__region *region);
void tutti__region_drop(tutti__region *region);

#endif
