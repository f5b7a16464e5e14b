/* hierarchy.h -- shared parts of the collectives over several hosts.   SPDX-License-Identifier: MIT
 *
 * Each host's ranks form a communicator (`host`) with shared memory. The data are cut into shards, and the i-th rank of
 * every host moves the i-th shard between the hosts, over its own connections. If hosts differ in size, the extra ranks of
 * the larger ones move no shard.
 *
 * Calls begin and end with a barrier on each host. Memory that peers cannot read goes through staging, block by block,
 * with barriers between the blocks; else there is one block. So an algorithm is
 *
 *     begin, then for each block: enter_block, move the block's data, leave_block
 *
 * Sums are made over each host's ranks in rank order, then over the hosts in the order of their first ranks. 16-bit types
 * are rounded once on each host and once at the end; averages of them are divided on the hosts, so that they cannot
 * overflow. */
#ifndef TUTTI_COMM_ALGORITHM_HIERARCHY_H
#define TUTTI_COMM_ALGORITHM_HIERARCHY_H

#include "comm/algorithm/tcp_rounds.h"
#include "comm/algorithm/tuner.h"
#include "comm/core/reduce.h"
#include "comm/transport/shared_memory/shm.h"
#include "comm/transport/tcp/tcp.h"

typedef struct tutti__hierarchy {
    tutti__comm *comm; /* of all ranks */
    tutti__tcp *tcp;
    tutti__tuner tuner;
    tutti__comm *host;            /* this host's ranks */
    tutti__shm *shm;              /* the memory that they share */
    int n_hosts, n_shards;        /* n_shards: the least number of ranks on a host */
    int *host_of, *local_rank_of; /* of each rank */
    int *rail; /* of each host: the rank with this one's local rank, if that moves a shard */
    /* Ranks of other hosts with which this one exchanges whole pieces. This rank moves partners[i]'s pieces for its host
     * (serves[i]); or partners[i] moves this rank's for its own host (served_by[i]). */
    int *partners, n_partners;
    bool *serves, *served_by, *arrived;
    char *staging; /* of local rank 0; the others' follow */
    size_t staging_stride, block_bytes;
    char **buffers; /* of each local rank: its buffer, NULL if that is staged */
} tutti__hierarchy;

/* One operation. */
typedef struct tutti__hierarchy_op {
    tutti__hierarchy *h;
    tutti__operation *op;
    tutti_dtype dtype;
    size_t element, count;
    int local_rank;

    /* The buffer that this host's ranks share: pieces of `count` elements. */
    char *buffer;
    size_t n_pieces;
    bool in, out;            /* it holds data; it receives a result */
    bool staged, any_staged; /* this rank's; any rank's of this host */
    /* The block: elements [first, first + n) of every piece; n is at most `most`. */
    size_t most, first, n;
} tutti__hierarchy_op;

tutti_status tutti__hierarchical_barrier(tutti__hierarchy_op *o);
tutti_status tutti__hierarchical_all_reduce(tutti__hierarchy_op *o);
tutti_status tutti__hierarchical_broadcast(tutti__hierarchy_op *o);
/* The last two need room for an element of each rank in a block. */
tutti_status tutti__hierarchical_all_gather(tutti__hierarchy_op *o);
tutti_status tutti__hierarchical_reduce_scatter(tutti__hierarchy_op *o);

/* ---- Their parts (hierarchy.c) -------------------------------------------------------------------------------------- */

/* Begins the operation on this host, without sharing buffers. */
tutti_status tutti__hierarchy_enter(tutti__hierarchy_op *o);
/* Begins it, with this host's ranks knowing each other's buffers; o->buffer, n_pieces, in and out are set. */
tutti_status tutti__hierarchy_begin(tutti__hierarchy_op *o);
/* Call them while o->first < o->count. Between the two this host's ranks access each other's buffers. */
tutti_status tutti__hierarchy_enter_block(tutti__hierarchy_op *o);
tutti_status tutti__hierarchy_leave_block(tutti__hierarchy_op *o);
/* Of a call among the ranks that move this shard, one a host: how it runs between the hosts. `p` is this rank's part of the block, in
 * place. The algorithm is the caller's to run if it is direct. */
tutti__tcp_rounds tutti__hierarchy_rounds(const tutti__hierarchy_op *o, char *p, size_t count);
/* The leaders, which are the first ranks of all hosts, compare their calls. */
tutti_status tutti__hierarchy_compare_leaders(const tutti__hierarchy_op *o);
/* Extends the deadline for the next stage: missing ranks are blamed first within the hosts, then between them, then by
 * ranks that wait for a result, so that a rank that itself waits for another is not blamed. */
void tutti__hierarchy_next_stage(const tutti__hierarchy_op *o);

/* The block's part of a piece, in that local rank's memory. */
char *tutti__hierarchy_piece(const tutti__hierarchy_op *o, int local_rank, size_t piece);
/* Of a buffer of one piece: the part of the block that this rank moves; empty if it moves no shard. */
tutti__piece tutti__hierarchy_shard(const tutti__hierarchy_op *o);
bool tutti__hierarchy_moves_shard(const tutti__hierarchy_op *o);
/* Sums over this host's ranks a part of the block's part of a piece. */
void tutti__hierarchy_sum(const tutti__hierarchy_op *o, size_t piece, tutti__piece part, void *dst);
/* Whether that sum already divides for AVG. */
bool tutti__hierarchy_divides(const tutti__hierarchy_op *o);
/* The reduction of the hosts' sums. */
tutti_redop tutti__hierarchy_redop(const tutti__hierarchy_op *o);
/* Copies a part of the block's part of a piece into the memory of this host's ranks; `from` may be one of theirs. */
void tutti__hierarchy_copy(const tutti__hierarchy_op *o, size_t piece, tutti__piece part,
                           const char *from);

#endif
