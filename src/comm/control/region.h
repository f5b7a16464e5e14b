/* region.h -- memory that ranks of one host share.   SPDX-License-Identifier: MIT
 *
 * For processes a mapping of a memfd: it has no name, so it appears in no folder, needs no room in /dev/shm and is gone with
 * its last user however that one ends. For threads of one process plain memory, freed by whoever drops it last. The first of
 * the ranks makes it and hands it to the others over the control channel. */
#ifndef TUTTI_COMM_CONTROL_REGION_H
#define TUTTI_COMM_CONTROL_REGION_H

#include "comm/control/channel.h"

typedef struct tutti__region {
    void *p; /* zeroed when made; at the beginning of a page */
    size_t bytes;
    bool one_process;
    void *mapping; /* p, behind what counts the users */
    size_t mapped;
} tutti__region;

/* By ranks[0], this one, of n ranks as the control channel counts them: makes `bytes`, and hands them to the others. 0 or an
 * errno: if region->p is NULL, nothing was made, and the others take ENOMEM. */
int tutti__region_make(tutti__control *control, const int *ranks, int n, bool one_process,
                       size_t bytes, tutti__region *region);
/* By the others: what `maker` made, in the order in which it did. 0 or an errno. */
int tutti__region_take(tutti__control *control, int maker, bool one_process, double deadline,
                       tutti__region *region);
void tutti__region_drop(tutti__region *region);

#endif
