/* zero_copies.h -- who has which share of the optimizer's state, after a group has died.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DDP_ZERO_COPIES_H
#define TUTTI_DDP_ZERO_COPIES_H

#include "ddp/zero.h"

enum { TUTTI__HAS_NOTHING, TUTTI__HAS_SHARES, TUTTI__HAS_ALL };

/* What a rank of the new group has. Members are integers, because ranks exchange them. */
typedef struct tutti__zero_holder {
    int64_t form; /* TUTTI__HAS_... */
    int64_t step; /* committed; -1: its state is not complete */
    tutti__zero_tag tag;
    int64_t ready; /* it could do one more update alone */
} tutti__zero_holder;

/* What the new group does: nothing, since rank 0 has no shares; gather from source[]; or nobody has some share of rank 0's moment. */
typedef enum tutti__zero_find {
    TUTTI__SHARES_UNUSED,
    TUTTI__SHARES_FOUND,
    TUTTI__SHARES_LOST
} tutti__zero_find;

/* Whether this rank has shares of rank 0's moment, or will have them after the update for which it is ready. */
bool tutti__zero_holds(const tutti__zero_holder *all, int rank);
/* source[]: for each of the all[0].tag.size shares of the old group the rank that sends it; -1: nobody has it. */
tutti__zero_find tutti__zero_find_shares(const tutti__zero_holder *all, int n, int *source);
/* The ranks of the old group that are not here, such as "1, 2". */
void tutti__zero_name_missing(const tutti__zero_holder *all, int n, char *text, size_t bytes);

#endif
