/* op_kind.h -- the table of operations: what each is called, who gives, who takes.   SPDX-License-Identifier: MIT
 *
 * Algorithms ask these questions instead of knowing the operations: what only moves data is one algorithm a transport,
 * whatever its name. */
#ifndef TUTTI_COMM_CORE_OP_KIND_H
#define TUTTI_COMM_CORE_OP_KIND_H

#include "base/base.h"

typedef enum tutti__op_kind {
    TUTTI__OP_ALL_REDUCE,
    TUTTI__OP_REDUCE,
    TUTTI__OP_REDUCE_SCATTER,
    TUTTI__OP_BROADCAST,
    TUTTI__OP_SCATTER,
    TUTTI__OP_GATHER,
    TUTTI__OP_ALL_GATHER,
    TUTTI__OP_ALL_GATHER_V,
    TUTTI__OP_ALL_TO_ALL,
    TUTTI__OP_ALL_TO_ALL_V,
    TUTTI__OP_BARRIER,
    TUTTI__OP_ALLOC,
    TUTTI__OP_SEND, /* point to point: p2p/, not an algorithm */
    TUTTI__OP_RECV,
    TUTTI__OP_WORD, /* of another rank, exchanged */
    TUTTI__N_OPS
} tutti__op_kind;

/* What is not rooted is given or taken by all; what does not reduce moves pieces unchanged. */
typedef struct tutti__op_traits {
    const char *name;
    bool reduces;   /* what is taken is the reduction of what is given */
    bool from_root; /* root alone gives */
    bool to_root;   /* root alone takes */
    bool scatters;  /* src holds a piece for each rank, in rank order; else one piece for all */
    bool gathers;   /* dst holds a piece of each rank, in rank order */
    bool uneven;    /* pieces differ in size: counts say how, and signature.count is 0 */
} tutti__op_traits;

extern const tutti__op_traits tutti__op_table[TUTTI__N_OPS];
const char *tutti__op_name(tutti__op_kind kind); /* "?" of none */

#endif
