/* shard_queue.h -- who computes which shard of a step.   SPDX-License-Identifier: MIT
 *
 * Each rank owns a contiguous range of shards and takes them from the front. A rank that has none left steals: one shard from the
 * back of the longest range on its own host; if its host has none left, half of the longest range on another host, which it
 * then owns and which may be stolen from in turn. Within a host that is an atomic exchange in shared memory; between hosts it
 * is a message to the owner, which its control thread answers. */
#ifndef TUTTI_ELASTIC_SHARD_QUEUE_H
#define TUTTI_ELASTIC_SHARD_QUEUE_H

#include "base/base.h"
#include <tutti/group.h>

enum { TUTTI__MAX_SHARDS = 4096 };

typedef struct tutti__shard_queue tutti__shard_queue;

/* Collective. The group must outlive it, and has one at a time. MEMORY, GROUP errors. */
tutti_status tutti__shard_queue_new(tutti__shard_queue **queue_p, tutti_group *group, int shards);
/* NULL is fine. */
void tutti__shard_queue_free(tutti__shard_queue *queue);
/* Begins try `number` (from 1, increasing, the same on all ranks): rank r owns first[r] to first[r + 1] - 1. Other
 * ranks may begin it earlier, and take from this rank's range, or later. But all ranks must have passed a collective since their
 * last take of the previous try. */
void tutti__shard_queue_begin(tutti__shard_queue *queue, uint64_t number, const int *first);
/* The next shard; -1: none is left on any rank. *last_p: most likely this rank's last: it has none left, and no other rank has
 * more than one left (if this shard was stolen: any). A rank may also reach its end without having had *last_p.
 * *owner_p: the rank that it was assigned to. GROUP errors: the group is dead. */
tutti_status tutti__shard_queue_take(tutti__shard_queue *queue, int *shard_p, bool *last_p,
                                     int *owner_p);
/* How many shards of this rank's range no rank has begun. */
int tutti__shard_queue_left(const tutti__shard_queue *queue);

/* Ranges in proportion to speed. ns[r]: nanoseconds per shard of rank r lately; 0: not known (the others' mean). Every rank
 * gets at least one. first[0..size]: on entry the previous ranges (all 0: none), which are kept if they are nearly as good, so
 * that data already loaded for them is used. The arithmetic is in integers, so the result is the same on all ranks. */
void tutti__shard_ranges(int shards, int size, const int64_t *ns, int *first);

#endif
