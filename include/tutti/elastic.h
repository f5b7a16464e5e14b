/* elastic.h -- training that outlives its workers: any of them may die, join or leave, and the result is the same to the bit.
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
 * A step is `shards` logical shards, whatever the number of workers; what is computed for (step, shard) depends on nothing else.
 * Sums over shards know no order (reducer.h), so it does not matter who computes which. Nothing outlasts an attempt at a step
 * but what is kept, and that changes between finish and commit only: where a worker dies, the others form a new group, take
 * the state from one of them who has it, and begin the step again.
 * Under `tutti run` dead workers are replaced, and others join and leave. Under other launchers the group is that of the
 * environment, and a lost rank ends the others with PEER.
 *
 * Threads: one thread calls. Calls between begin and commit that concern the group are collective as in its headers. */
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
    tutti_group_opts
        group; /* of each group that is formed; store, rank and world_size are not to be set */
    uint64_t reserved[4]; /* zero */
} tutti_elastic_opts;

/* One part of the state, as a table of functions; any may be NULL. They are called on all ranks in the order in which parts were
 * kept. What fails with an error of scope GROUP is tried again in the next group, all else ends the job. */
typedef struct tutti_elastic_part {
    const char *name; /* in messages; copied */
    /* There is a new group; NULL: the old one is gone, and is about to be freed. Collective. */
    tutti_status (*regroup)(void *self, tutti_group *group);
    /* Calls move(arg, buf) for each range of the part's memory: the same counts and dtypes on all ranks. Ranges of up to 1 MiB go to
     * all ranks of each new group, larger ones only where somebody lacks the step. What they name stays valid until `loaded`. */
    tutti_status (*state)(void *self, tutti_status (*move)(void *arg, tutti_buf buf), void *arg);
    /* The state has been received. */
    tutti_status (*loaded)(void *self);
    /* An attempt at a step begins; a shard of it, perhaps the last of this rank; all shards of all ranks are done: *again_p is
     * set where they have to be computed anew, on all ranks alike. */
    tutti_status (*begin)(void *self);
    tutti_status (*begin_shard)(void *self, int shard, bool last);
    tutti_status (*finish)(void *self, bool *again_p);
    /* All are about to leave the group, in which nothing is under way, since others join or leave: what is kept in shares is to be
     * brought together on every rank, whatever may become of the others. Collective. */
    tutti_status (*gather)(void *self);
    void (*free)(void *self);
    void *self;
    uint64_t reserved[3]; /* zero */
} tutti_elastic_part;

/* Errors: ARG. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_new(tutti_elastic **e_p,
                                                         const tutti_elastic_opts *opts);
/* Frees the parts too, the last one first. NULL is fine. */
TUTTI_API void tutti_elastic_free(tutti_elastic *e);
/* Before the first group: ARG, STATE, MEMORY. A part is taken over, also where this fails. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep(tutti_elastic *e,
                                                          const tutti_elastic_part *part);
/* Memory of the program's own: borrowed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_bytes(tutti_elastic *e, const char *name,
                                                                void *p, size_t bytes);
/* A reducer that was made with opts.shards and without a group: borrowed. Its ranges are kept, and its steps taken. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_reducer(tutti_elastic *e,
                                                                  tutti_reducer *reducer);

/* Makes sure that there is a group: if there is none, forms one with all who are there, and brings the state to those who lack
 * it. begin does so by itself. ABORTED: this worker was told to leave, and end is OK. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_join(tutti_elastic *e);
/* The group, for collectives of the program's own; NULL: none now. */
TUTTI_API tutti_group *tutti_elastic_group(tutti_elastic *e);
/* In the first group, and where all who had the state have died: whatever rank 0 has when join returns from regroup is the
 * beginning for all; ranks whose memory was half overwritten, and which have set no step in regroup, are passed over. To be
 * asked in regroup. */
TUTTI_API bool tutti_elastic_is_fresh(const tutti_elastic *e);
/* Fresh, though the job had begun: all who had the state have died, and a checkpoint is to be taken up. */
TUTTI_API bool tutti_elastic_has_lost_all(const tutti_elastic *e);
/* For parts, in regroup of NULL: a share of what is kept has gone with the group, so that this worker has no state any more. Where nobody
 * else has one, the next group is fresh. */
TUTTI_API void tutti_elastic_forget(tutti_elastic *e);
/* What is kept here is half overwritten, or forgotten: in a fresh group no beginning, unless it is set up anew. */
TUTTI_API bool tutti_elastic_is_torn(const tutti_elastic *e);
/* After a failure of the program's own collectives: true if the step, or whatever it was, is to be tried again in a new group:
 * go back to begin. False: the failure is the job's end. */
TUTTI_API bool tutti_elastic_recover(tutti_elastic *e, tutti_status status);

/* As in opts. */
TUTTI_API int tutti_elastic_shards(const tutti_elastic *e);
/* Committed steps. Set in regroup of a fresh group, by rank 0, where it has read a checkpoint. */
TUTTI_API uint64_t tutti_elastic_step(const tutti_elastic *e);
TUTTI_API void tutti_elastic_set_step(tutti_elastic *e, uint64_t step);
/* An attempt at the next step; one of nothing (no shard, finish is false) where the step is another than before the call, as after
 * joining: the loop's condition, which depends on the step alone, is to be looked at first. False: this worker has to end, for
 * a failure, or since it was told to leave (end says which). */
TUTTI_API bool tutti_elastic_begin(tutti_elastic *e);
/* The next shard for this rank; -1: none is left. */
TUTTI_API int tutti_elastic_shard(tutti_elastic *e);
/* True: all shards of all ranks are in the mean, and the state may be changed up to commit, without further collectives but those of
 * ZeRO (ddp.h; what fails there goes to recover, and nothing is committed). False: go back to begin. */
TUTTI_API bool tutti_elastic_finish(tutti_elastic *e);
TUTTI_API void tutti_elastic_commit(tutti_elastic *e);
/* The program is at its end: waits for the others to be there too. OK also where this worker was told to leave the job, which
 * goes on without it (tutti_elastic_left). Else the first failure; under `tutti run` ARG where ranks disagree, so that their exit
 * code (2) ends the job. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_end(tutti_elastic *e);
TUTTI_API bool tutti_elastic_left(const tutti_elastic *e);

/* What has happened so far, to this worker: attempts that came to nothing, groups it was in, seconds from a failure to the next
 * begin, shards it computed and those of them that another was to compute. */
typedef struct tutti_elastic_stats {
    uint64_t steps, attempts, groups, lost_ranks, shards, taken_over;
    double lost_s;
    uint64_t left_ranks;  /* that were told to leave, of its groups */
    uint64_t reserved[3]; /* zero */
} tutti_elastic_stats;
TUTTI_API tutti_elastic_stats tutti_elastic_get_stats(const tutti_elastic *e);

#ifdef __cplusplus
}
#endif
#endif
