/* deal.h -- who computes which shard of a step.   SPDX-License-Identifier: MIT
 *
 * Shards are dealt in contiguous ranges, one a rank. A rank takes its own from the front; once it has none left it takes from the back
 * of the range that has most left. Inside a host that is an atomic exchange in memory that its ranks share; between hosts a
 * message to the owner, whose control thread answers. */
#ifndef TUTTI_ELASTIC_DEAL_H
#define TUTTI_ELASTIC_DEAL_H

#include "base/base.h"
#include <tutti/group.h>

typedef struct tutti__deal tutti__deal;

/* Collective. The group outlives it. */
tutti_status tutti__deal_new(tutti__deal **deal_p, tutti_group *group, int shards);
void tutti__deal_free(tutti__deal *deal);
/* Attempt number `attempt` (above all before, the same on all ranks) begins: rank r owns first[r] to first[r + 1] - 1. A rank that is
 * still in the attempt before, or already in the next, is not disturbed. */
void tutti__deal_begin(tutti__deal *deal, uint64_t attempt, const int *first);
/* The next shard, -1: none is left anywhere. *last_p: it is the last of this rank's own range, or another's. *owner_p: whose it was to be. */
tutti_status tutti__deal_take(tutti__deal *deal, int *shard_p, bool *last_p, int *owner_p);
/* How many of this rank's own nobody has begun. */
int tutti__deal_left(const tutti__deal *deal);

/* Ranges in proportion to speed: ns[r]: nanoseconds that a shard has taken rank r lately, 0: not known (the mean of the others). Every
 * rank gets one at least. The old ranges stay where they are nearly as good, so that what was loaded ahead is of use. The same
 * on all ranks, being integers. */
void tutti__deal_ranges(int shards, int size, const int64_t *ns, int *first);

#endif
