/* elastic.h -- training that survives its workers: any may die, join or leave, and the result has the same bits.
 * SPDX-License-Identifier: MIT
 *
 *     tutti_elastic_new(&e, &(tutti_elastic_opts){.shards = 8});
 *     tutti_elastic_keep_module(e, module, NULL, NULL);
 *     tutti_elastic_keep_optim(e, optim);
 *     while (tutti_elastic_step(e) < steps && tutti_elastic_begin(e)) {
 *         while ((shard = tutti_elastic_shard(e)) >= 0) {
 *             ... forward and backward of (tutti_elastic_step(e), shard) ...
 *         }
 *         if (tutti_elastic_finish(e)) {        gradients are the mean over all shards
 *             tutti_optim_step(optim);
 *             tutti_elastic_commit(e);
 *         }
 *     }
 *     status = tutti_elastic_end(e);
 *
 * A step is `shards` logical shards, whatever the number of workers; what is computed for (step, shard) must depend on nothing
 * else. Sums over shards do not depend on the order (reducer.h), so any worker may compute any shard. Only the state that is kept
 * outlives a try at a step, and it changes only between finish and commit. When a worker dies, the others form a new group,
 * copy the state from a worker that has it, and begin the step again.
 * Under `tutti run` dead workers are replaced, and others may join and leave. Under other launchers the group is that of the
 * environment, and a lost rank ends the others with PEER.
 *
 * Threads: one thread calls. Between begin and commit, calls on the group are collective as described in its headers. */
#ifndef TUTTI_ELASTIC_H
#define TUTTI_ELASTIC_H

#include <tutti/reducer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_elastic tutti_elastic;

/* Zero means default. */
typedef struct tutti_elastic_opts {
    int shards; /* of a step, 1 to 4096; required. Workers beyond this number wait as spares */
    tutti_group_opts group; /* of each group; store, rank and world_size must stay 0 */
    uint64_t reserved[4];   /* zero */
} tutti_elastic_opts;

/* One part of the state, as a table of functions; any may be NULL. They are called on all ranks in the order in which parts were
 * kept. After PEER and TIMEOUT they are called again in the next group; MEMORY and DEVICE end this worker, other errors the job. */
typedef struct tutti_elastic_part {
    const char *name; /* in messages; copied */
    /* There is a new group; NULL: the old one is dead, and about to be freed. Collective. */
    tutti_status (*regroup)(void *self, tutti_group *group);
    /* Calls move(arg, buf) for each range of the part's memory: the same counts and dtypes on all ranks. Ranges of up to 1 MiB are
     * sent to all ranks of each new group, larger ones only if a rank lacks the step. Buffers stay valid until `loaded`. */
    tutti_status (*state)(void *self, tutti_status (*move)(void *arg, tutti_buf buf), void *arg);
    /* The state has been received. */
    tutti_status (*loaded)(void *self);
    /* begin: a try at a step begins. begin_shard: a shard of it, perhaps this rank's last. finish: all shards of all ranks
     * are done; set *again_p if they must be computed again, on all ranks alike. */
    tutti_status (*begin)(void *self);
    tutti_status (*begin_shard)(void *self, int shard, bool last);
    tutti_status (*finish)(void *self, bool *again_p);
    /* All are about to leave the group because others join or leave; nothing is in progress. Gather sharded state completely on
     * every rank, so that each could continue without the others. Collective. */
    tutti_status (*gather)(void *self);
    void (*free)(void *self);
    void *self;
    /* For shards that two ranks compute (TUTTI_CHECK_SHARDS). compare: *digest_p becomes that of what this rank has brought in the shard
     * that it has just computed. drop: the try was only for that, and nothing of it counts. Parts with begin or begin_shard need
     * both: else no shard is compared. */
    tutti_status (*compare)(void *self, uint64_t *digest_p);
    tutti_status (*drop)(void *self);
    bool differs; /* its memory may differ between ranks: TUTTI_CHECK_REPLICAS leaves it out */
    uint64_t reserved[1]; /* zero */
} tutti_elastic_part;

/* Errors: ARG. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_new(tutti_elastic **e_p,
                                                         const tutti_elastic_opts *opts);
/* Frees the parts too, the last one first. NULL is fine. */
TUTTI_API void tutti_elastic_free(tutti_elastic *e);
/* Before the first group. Takes ownership of the part, also on failure. Errors: ARG, STATE, MEMORY. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep(tutti_elastic *e,
                                                          const tutti_elastic_part *part);
/* The same for memory of the program; borrowed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_bytes(tutti_elastic *e, const char *name,
                                                                void *p, size_t bytes);
/* The same for a reducer that was made with opts.shards and without a group; borrowed. Keeps its ranges, and runs its steps. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_reducer(tutti_elastic *e,
                                                                  tutti_reducer *reducer);

/* If there is no group, forms one with all workers that are present, and copies the state to those that lack it; begin does
 * this by itself. ABORTED: this worker was told to leave, and end is OK. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_join(tutti_elastic *e);
/* The group, for the program's own collectives; NULL: none at present. */
TUTTI_API tutti_group *tutti_elastic_group(tutti_elastic *e);
/* For use in regroup. True in the first group, and if all workers that had the state have died: rank 0's state after regroup is
 * the start for all. (Ranks whose memory is half overwritten, and that have set no step in regroup, do not become its source.) */
TUTTI_API bool tutti_elastic_is_fresh(const tutti_elastic *e);
/* Fresh although the job had begun: all workers that had the state have died; read a checkpoint. */
TUTTI_API bool tutti_elastic_has_lost_all(const tutti_elastic *e);
/* For parts, in regroup with NULL: a share of the state was lost with the group, so this worker no longer has the state. If no
 * other worker has it, the next group is fresh. */
TUTTI_API void tutti_elastic_forget(tutti_elastic *e);
/* This worker's state is half overwritten, or forgotten: in a fresh group it must be set up again before it can be a start. */
TUTTI_API bool tutti_elastic_is_torn(const tutti_elastic *e);
/* After a failure of the program between begin and commit, or of its own collectives. True (another rank was lost): go back to
 * begin, which tries again in a new group. False: the failure ends the job, or, if it is of this worker's memory or device, this
 * worker; end returns it. */
TUTTI_API bool tutti_elastic_recover(tutti_elastic *e, tutti_status status);

/* As in opts. */
TUTTI_API int tutti_elastic_shards(const tutti_elastic *e);
/* Committed steps. After reading a checkpoint, rank 0 sets it in regroup of a fresh group. */
TUTTI_API uint64_t tutti_elastic_step(const tutti_elastic *e);
TUTTI_API void tutti_elastic_set_step(tutti_elastic *e, uint64_t step);
/* Begins a try at the next step. If the call has joined a group, the first one too, the try is empty (no shard, finish
 * is false), so that the loop checks its condition, which may depend only on the step, and does what it does between steps with all
 * members of the group. False: this worker must end, after a failure or because it was told to leave (end says which). */
TUTTI_API bool tutti_elastic_begin(tutti_elastic *e);
/* The next shard for this rank; -1: no more. */
TUTTI_API int tutti_elastic_shard(tutti_elastic *e);
/* True: the mean includes all shards of all ranks, and the state may be changed until commit, without further collectives except
 * those of ZeRO (ddp.h; pass their failures to recover, and do not commit). False: go back to begin. */
TUTTI_API bool tutti_elastic_finish(tutti_elastic *e);
TUTTI_API void tutti_elastic_commit(tutti_elastic *e);
/* At the end of the program: waits until the others are there too. PEER if they had to go back to an earlier step, because the state was
 * lost with workers that died: a replacement of this worker goes with them. OK also if this worker was told to leave the job, which
 * continues without it (tutti_elastic_left). Else the first failure; under `tutti run` ARG if ranks disagree, so that their exit
 * code (2) ends the job. What follows, such as writing the results, belongs to rank 0: killed before it has ended, it is replaced, and
 * the replacement continues from the newest checkpoint; other ranks are not. A non-zero exit code of any rank is the job's. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_end(tutti_elastic *e);
TUTTI_API bool tutti_elastic_left(const tutti_elastic *e);

/* What has happened to this worker so far: tries at steps that failed (attempts), groups it was in, seconds from a failure to the next
 * begin, shards it computed, and how many of them it took over from other workers. */
typedef struct tutti_elastic_stats {
    uint64_t steps, attempts, groups, lost_ranks, shards, taken_over;
    double lost_s;
    uint64_t left_ranks;  /* that left the job in an orderly way, since this worker joined */
    uint64_t reserved[3]; /* zero */
} tutti_elastic_stats;
TUTTI_API tutti_elastic_stats tutti_elastic_get_stats(const tutti_elastic *e);

#ifdef __cplusplus
}
#endif
#endif
