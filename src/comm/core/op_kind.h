/* op_kind.h -- the table of operations: their names, and which ranks give and take data.   SPDX-License-Identifier: MIT
 *
 * Algorithms read these traits instead of the operation's kind: each transport has one algorithm for all operations that
 * only move data. */
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
    TUTTI__OP_COMPARE_AND_SWAP, /* of another rank's atomic */
    TUTTI__N_OPS
} tutti__op_kind;

/* Unless rooted, all ranks give or take; unless it reduces, pieces move unchanged. */
typedef struct tutti__op_traits {
    const char *name;
    bool reduces;   /* the result is the reduction of what ranks give */
    bool from_root; /* only root gives */
    bool to_root;   /* only root takes */
    bool scatters;  /* src holds a piece for each rank, in rank order; else one piece for all */
    bool gathers;   /* dst holds a piece from each rank, in rank order */
    bool uneven;    /* pieces differ in size: see the counts; signature.count is 0 */
} tutti__op_traits;

extern const tutti__op_traits tutti__op_table[TUTTI__N_OPS];
const char *tutti__op_name(tutti__op_kind kind); /* "?" for an invalid kind */

#endif
