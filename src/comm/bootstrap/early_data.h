/* early_data.h -- connections for data that have come, and that this rank has yet to look for.   SPDX-License-Identifier: MIT
 *
 * A list, used by one thread at a time: first by mesh.c, then by control/. */
#ifndef TUTTI_COMM_BOOTSTRAP_EARLY_DATA_H
#define TUTTI_COMM_BOOTSTRAP_EARLY_DATA_H

#include "comm/bootstrap/authentication.h"

typedef struct tutti__early_data {
    struct tutti__early_data *next;
    uint64_t group;
    int rank, channel; /* rank: in the group that has the listeners */
    int fd;
    double came_ms;
} tutti__early_data;

/* The verdict on such a claim, of a group that is or may be this rank's, `own` in the group that has the listeners. */
char tutti__early_data_decide(const tutti__early_data *list, const tutti__claim *claim, int own);
/* Takes ownership of the descriptor, which is closed if there is no memory. */
void tutti__early_data_keep(tutti__early_data **list_p, int fd, const tutti__claim *claim);
/* The descriptor, for which the caller is responsible then; -1: it has not come. */
int tutti__early_data_take(tutti__early_data **list_p, uint64_t group, int rank, int channel);
/* Closes and forgets the first of the list, or of the rest of one. */
void tutti__early_data_drop(tutti__early_data **list_p);

#endif
