/* settings.h -- what all workers of an elastic job must have alike, and its generation.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_ELASTIC_SETTINGS_H
#define TUTTI_ELASTIC_SETTINGS_H

#include <tutti/elastic.h>

/* Before the first group: "NAME: VALUE;" for each, of which up to 4 KiB count. The launcher refuses a worker that differs from the
 * first ones, so that it does not end the job by its difference. */
void tutti__elastic_set_settings(tutti_elastic *e, const char *text);
/* The last that this worker has begun to form; 0: none yet, or there is no launcher that numbers them. */
uint32_t tutti__elastic_generation(const tutti_elastic *e);
/* This worker has all of the state, or its part of it, of its step. */
bool tutti__elastic_has_state(const tutti_elastic *e);
/* For parts, in regroup with NULL: the update that failed has changed nothing, so this worker has the state that it had. */
void tutti__elastic_undone(tutti_elastic *e);
/* For parts, in begin_shard: `compare` will ask for the digest of this shard. */
bool tutti__elastic_is_digested(const tutti_elastic *e);
/* For parts, in finish: damage of a reducer, NULL: none (tutti__reducer_damage). */
void tutti__elastic_damaged(tutti_elastic *e, const char *gradient, bool own);
/* The present try is only to compare shards: this rank computes one of another's, and nothing of it counts. */
bool tutti__elastic_is_discarded(const tutti_elastic *e);
/* Whether this worker was found to have computed wrong since the last call, and what: "shard 3", or the sums over shards of a gradient. */
bool tutti__elastic_take_wrong(tutti_elastic *e, char *what, size_t bytes);

#endif
