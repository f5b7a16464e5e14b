/* deal.h -- who computes which shard of a step.   SPDX-License-Identifier: MIT
 *
 * Shards are dealt in contiguous ranges, one a rank. A rank takes its own from the front. Once it has none left it takes one from
 * the back of the range, of those of its host, that has most left; once its host has none left, half of that of another host
 * that has most left, which is its own from then on, and may be taken from in turn. Inside a host that is an atomic exchange in
 * memory that its ranks share; between hosts a message to the owner, whose control thread answers. */
#ifndef TUTTI_ELASTIC_DEAL_H
#define TUTTI_ELASTIC_DEAL_H

#include "base/base.h"
#include <tutti/group.h>

enum { TUTTI__MAX_SHARDS = 4096 };
#define TUTTI__MAX_ATTEMPT ((UINT64_C(1) << 38) - 1)

typedef struct tutti__deal tutti__deal;

/* Collective. The group outlives it, and has one at a time. MEMORY, GROUP errors. */
tutti_status tutti__deal_new(tutti__deal **deal_p, tutti_group *group, int shards);
/* NULL is fine. */
void tutti__deal_free(tutti__deal *deal);
/* Attempt number `attempt` (from 1; above all before, the same on all ranks) begins: rank r owns first[r] to first[r + 1] - 1.
 * Other ranks may have begun it, and taken from this rank's range, or begin it later. But all ranks have passed a collective since
 * their last take of the attempt before. */
void tutti__deal_begin(tutti__deal *deal, uint64_t attempt, const int *first);
/* The next shard, -1: none is left anywhere. *last_p: this rank has none left, and most likely takes no other's after this one:
 * nobody has more than one left, or, where it is another's already, any; a rank may come to its end without having heard so.
 * *owner_p: whose it was to be. GROUP errors: the group is dead. */
tutti_status tutti__deal_take(tutti__deal *deal, int *shard_p, bool *last_p, int *owner_p);
/* How many of this rank's own nobody has begun. */
int tutti__deal_left(const tutti__deal *deal);

/* Ranges in proportion to speed: ns[r]: nanoseconds that a shard has taken rank r lately, 0: not known (the mean of the others). Every
 * rank gets one at least. first[0..size]: the ranges before (all 0: none), which stay where they are nearly as good, so that
 * what was loaded ahead is of use. The same on all ranks, being integers. */
void tutti__deal_ranges(int shards, int size, const int64_t *ns, int *first);

#endif
