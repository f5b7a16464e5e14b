/* hierarchy.h -- what the collectives of several hosts share.   SPDX-License-Identifier: MIT
 *
 * Every host's ranks form a communicator of their own (`host`), whose memory they all see. The data are cut into shards,
 * and the i-th rank of every host moves the i-th shard between the hosts, over its own connections. A host with more ranks
 * than another has some that move no shard.
 *
 * Calls begin and end with a barrier of each host. Memory that peers cannot read goes through staging, block by block, with
 * barriers between the blocks; else there is one block. So an algorithm is
 *
 *     begin, then for each block: enter_block, move what it is about, leave_block
 *
 * Sums are those of the hosts, in the order of their first ranks, of the sums of their ranks, in rank order. 16-bit types
 * are rounded once a host and once in all; their averages are divided inside the host, so that they cannot overflow. */
#ifndef TUTTI_COMM_ALGORITHM_HIERARCHY_H
#define TUTTI_COMM_ALGORITHM_HIERARCHY_H

#include "comm/core/reduce.h"
#include "comm/transport/shared_memory/shm.h"
#include "comm/transport/tcp/tcp.h"

typedef struct tutti__hierarchy {
    tutti__comm *comm; /* of all ranks */
    tutti__tcp *tcp;
    tutti__comm *host;            /* this host's ranks */
    tutti__shm *shm;              /* their memory */
    int n_hosts, n_shards;        /* n_shards: the least number of ranks on a host */
    int *host_of, *local_rank_of; /* of each rank */
    int *rail; /* of each host: the rank with this one's local rank, if that moves a shard */
    /* Ranks of other hosts with which this one exchanges whole pieces. Those of partners[i] it moves for its host
     * (serves[i]); or partners[i] moves this rank's for its own (served_by[i]). */
    int *partners, n_partners;
    bool *serves, *served_by, *arrived;
    char *staging; /* of local rank 0; the others' follow */
    size_t staging_stride, block_bytes;
    char **buffers; /* of each local rank: its buffer, NULL if that is staged */
} tutti__hierarchy;

/* One operation. */
typedef struct tutti__hierarchy_op {
    tutti__hierarchy *h;
    tutti__op *op;
    tutti_dtype dtype;
    size_t element, count;
    int local_rank;

    /* The buffer that this host's ranks share: pieces of `count` elements each. */
    char *buffer;
    size_t n_pieces;
    bool in, out;            /* what it holds counts; it is to hold a result */
    bool staged, any_staged; /* this rank's; any of this host's */
    /* The block: elements [first, first + n) of every piece; n is at most `most`. */
    size_t most, first, n;
} tutti__hierarchy_op;

tutti_status tutti__hierarchical_barrier(tutti__hierarchy_op *o);
tutti_status tutti__hierarchical_all_reduce(tutti__hierarchy_op *o);
tutti_status tutti__hierarchical_broadcast(tutti__hierarchy_op *o);
/* The last two: with room for an element of each rank in a block. */
tutti_status tutti__hierarchical_all_gather(tutti__hierarchy_op *o);
tutti_status tutti__hierarchical_reduce_scatter(tutti__hierarchy_op *o);

/* ---- What they are made of (hierarchy.c) ---------------------------------------------------------------------------- */

/* The operation begins on this host; nothing is shared. */
tutti_status tutti__hierarchy_enter(tutti__hierarchy_op *o);
/* It begins, and this host's ranks know each other's buffers; o->buffer, n_pieces, in and out are set. */
tutti_status tutti__hierarchy_begin(tutti__hierarchy_op *o);
/* To be called while o->first < o->count. Between the two this host's ranks access each other's buffers. */
tutti_status tutti__hierarchy_enter_block(tutti__hierarchy_op *o);
tutti_status tutti__hierarchy_leave_block(tutti__hierarchy_op *o);
/* The first ranks of all hosts, their leaders, compare their calls. */
tutti_status tutti__hierarchy_compare_leaders(const tutti__hierarchy_op *o);
/* Who has not come is judged first inside the hosts, then between them, then by those who wait for their result: a rank
 * that waits for another is not the one to blame. */
void tutti__hierarchy_next_stage(const tutti__hierarchy_op *o);

/* The block's part of a piece, in the memory of that local rank. */
char *tutti__hierarchy_piece(const tutti__hierarchy_op *o, int local_rank, size_t piece);
/* Of a buffer of one piece: the part of the block that this rank moves; none, if it moves no shard. */
tutti__piece tutti__hierarchy_shard(const tutti__hierarchy_op *o);
bool tutti__hierarchy_moves_shard(const tutti__hierarchy_op *o);
/* The sum over this host's ranks of a part of the block's part of a piece. */
void tutti__hierarchy_sum(const tutti__hierarchy_op *o, size_t piece, tutti__piece part, void *dst);
/* Is AVG divided in that sum already? */
bool tutti__hierarchy_divides(const tutti__hierarchy_op *o);
/* How the hosts' sums are reduced. */
tutti_redop tutti__hierarchy_redop(const tutti__hierarchy_op *o);
/* Copies a part of the block's part of a piece into the memory of this host's ranks, `from` being one of theirs or not. */
void tutti__hierarchy_copy(const tutti__hierarchy_op *o, size_t piece, tutti__piece part,
                           const char *from);

#endif
