/* reducer.h -- what DDP uses of the reducer besides its public calls, and the agreement of ranks.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_REDUCER_REDUCER_H
#define TUTTI_REDUCER_REDUCER_H

#include "base/base.h"
#include <tutti/reducer.h>

/* ---- Agreement (parameter_agreement.c) ------------------------------------------------------------------------------
 * Every rank describes its items as text; ranks agree if all texts are equal. */
#define TUTTI__ITEM_BYTES 224

typedef struct tutti__item {
    char text[TUTTI__ITEM_BYTES]; /* `"fc1.bias" [256] F32`; zeroed after the end */
} tutti__item;

/* Collective. MISMATCH, with the same message on every rank, names the first item that differs between rank 0 and the
 * first rank that disagrees with it: "<what> differ between ranks: <item> 3 is ... on rank 0 but ... on rank 1". One small
 * all_gather when they agree. */
tutti_status tutti__agree(tutti_group *group, const char *what, const char *item,
                          const tutti__item *items, size_t n);
/* The same at the start of a constructor. `local`: this rank's status so far; if it is an error, items is NULL, and all ranks
 * return the error of the first such rank, as from tutti__group_agree. */
tutti_status tutti__agree_after(tutti_group *group, tutti_status local, const char *what,
                                const char *item, const tutti__item *items, size_t n);

/* A number that is the same on all ranks and unique within the group: how many collectives rank 0 has issued. Collective. */
tutti_status tutti__agree_number(tutti_group *group, uint64_t *number_p);

/* ---- Reducer -------------------------------------------------------------------------------------------------------- */

/* Aborts the group with `message`, because this rank has failed and the others wait for it. No effect if they know already
 * (the group is dead, or the status is MISMATCH, which all were told) or if there are none. */
void tutti__abort_peers(tutti_group *group, tutti_status status, const char *message);

/* A list of names for a message, cut after eight: "a", "b" and 3 more. Starts as {0}. */
typedef struct tutti__names {
    char text[1024];
    size_t n;
} tutti__names;
void tutti__names_add(tutti__names *names, const char *name);
const char *tutti__names_end(tutti__names *names);

#define TUTTI__MAX_BUCKET_LIMITS 64
typedef struct tutti__bucket_limits {
    double mb[TUTTI__MAX_BUCKET_LIMITS];
    size_t n;
    bool shortens_last; /* the last bucket is at most mb[0], if its gradients allow that */
} tutti__bucket_limits;
/* Replaces 0 by the defaults; ARG, naming the call, for invalid sizes. */
tutti_status tutti__bucket_sizes(const char *call, const tutti_reducer_opts *opts,
                                 tutti__bucket_limits *limits);
/* For functions that set a hook. First: checks the hook, and that there is none at `place` yet (ARG, STATE). Then, with that
 * status and the caller's own checks: stores the hook, or frees its self. Returns `status`. */
tutti_status tutti__check_hook(const char *call, const tutti_comm_hook *place,
                               const tutti_comm_hook *hook);
tutti_status tutti__settle_hook(tutti_comm_hook *place, const tutti_comm_hook *hook,
                                tutti_status status);
/* Records a span for each bucket's all_reduce in `recorder` (NULL: none). */
void tutti__reducer_set_recorder(tutti_reducer *reducer, tutti__recorder *recorder);
/* Parameters in the order of their gradients in memory: as given, each bucket's adjacent, local ones last. */
const size_t *tutti__reducer_order(const tutti_reducer *reducer);
/* When the last step began. */
uint64_t tutti__reducer_begin_ns(const tutti_reducer *reducer);
/* The first parameter with NaN or infinities in the last step that had any, NULL: none; *steps_p: number of such steps. */
const char *tutti__reducer_nonfinite(const tutti_reducer *reducer, uint64_t *steps_p);
/* Of a sparse gradient: a byte per row, 1 if it may be non-zero; after a step, on any rank. NULL for a dense one. Values
 * written there apply to the next tutti__reducer_ready_touched. */
unsigned char *tutti__reducer_touched(tutti_reducer *reducer, size_t i);
tutti_status tutti__reducer_ready_touched(tutti_reducer *reducer, size_t i);
/* tutti_reducer_new, and: kept_in_part: its hook calls tutti__reducer_keep; vectors_apart: gradients without rows have buckets of their
 * own; late[i]: gradient i, of F32 with rows in host memory, may become ready before some of its rows do. It is in a
 * bucket of its own. The same on all ranks; not with shards or hooks that round. */
tutti_status tutti__reducer_new_late(tutti_reducer **reducer_p, tutti_group *group,
                                     const tutti_reducer_parameter *parameters, size_t n_parameters,
                                     const tutti_reducer_opts *opts, const bool *late,
                                     bool kept_in_part, bool vectors_apart);
/* Instead of tutti_reducer_ready, which is also possible: first, all of gradient i is final but for the rows that have a byte 1 in
 * `touched`, which is copied; then, when they are, rows_ready. Between the two, what the rows still get is added to late_rows: row k is row
 * place[k] of *values_p; or, if that is NULL, as before to the gradient itself, which is not being sent yet. Valid until the next call
 * for the gradient. */
tutti_status tutti__reducer_ready_but_rows(tutti_reducer *reducer, size_t i,
                                           const unsigned char *touched);
tutti_status tutti__reducer_late_rows(tutti_reducer *reducer, size_t i, float **values_p,
                                      const int32_t **place_p);
tutti_status tutti__reducer_rows_ready(tutti_reducer *reducer, size_t i);
/* With shards, after begin_shard: *digest_p becomes that of the gradients of this shard, complete when the last is ready; valid
 * until then. It does not depend on the order in which they become ready. */
void tutti__reducer_digest_shard(tutti_reducer *reducer, uint64_t *digest_p);
/* With shards: the gradient whose sums over all shards, in the step that has finished, are not what ranks have added to them, since a bit has
 * changed; NULL: none. *own_p: it was in this rank's memory, before they were sent; else it is not known where. Other ranks may not have
 * seen it. finish fails of it, unless it is tolerated. */
const char *tutti__reducer_damage(const tutti_reducer *reducer, bool *own_p);
void tutti__reducer_tolerate_damage(tutti_reducer *reducer);
/* Fault injection, in host memory: when gradient i is added next, bit `word` (modulo their number) of its element `at` flips in the sums.
 * Returns the bit; -1: not with this reducer. */
int tutti__reducer_flip_sum(tutti_reducer *reducer, size_t i, size_t at, uint32_t word);
/* With shards: drops a step of which no shard was the last. */
tutti_status tutti__reducer_drop(tutti_reducer *reducer);
/* The caller's part of the step has failed, with the thread's message: no more buckets are sent, and finish reports it. */
void tutti__reducer_fail(tutti_reducer *reducer, tutti_status status);
/* The number of the next step by a count that all ranks share, so that calls of backward that do not correspond are detected.
 * 0: the reducer's own count. */
void tutti__reducer_set_common_step(tutti_reducer *reducer, uint64_t step);
/* For the next step: shadow: this rank has no gradients (the ones it brings must be zero); partial: some rank has none; means
 * are over `divisor` ranks (0: all). */
void tutti__reducer_set_join(tutti_reducer *reducer, bool shadow, bool partial, int divisor);
/* For hooks, with kept_in_part: of the bucket that it has reduced, this rank keeps elements [begin, end) and those from `tail` on; the memory of the
 * others is given back, until _bring. */
void tutti__reducer_keep(tutti_reducer *reducer, size_t bucket, size_t begin, size_t end,
                         size_t tail);
/* Before anything is written to gradient i, unless it has contributions: its bucket has all of its memory, with any contents. MEMORY. */
tutti_status tutti__reducer_bring(tutti_reducer *reducer, size_t i);
/* Before another bucket is sent, waits until at most so many are being reduced. */
void tutti__reducer_set_in_flight(tutti_reducer *reducer, size_t buckets);
/* With shards and kept_in_part, after each begin: of a bucket's gradients at p (NULL: none), `count` are divided among the ranks, and each
 * rank keeps the means of its share; copies: of the previous rank's, too. The rest of the bucket is kept by all. */
void tutti__reducer_divide(tutti_reducer *reducer, size_t bucket, const float *p, size_t count,
                           bool copies);
/* The memory of sums, of which parts come and go; NULL: there is none. */
const void *tutti__reducer_sums(const tutti_reducer *reducer);
/* Of a message from a rank to the next one. */
enum { TUTTI__TAG_COPIES = 32 };
/* Gradient i is zero on this rank, and counts as not used. */
void tutti__reducer_bring_zeros(tutti_reducer *reducer, size_t i);

/* ---- The state of PowerSGD on this rank, for checkpoints (powersgd.c) ----------------------------------- */

/* Its size, between steps; 0 for any other hook. */
size_t tutti__powersgd_bytes(const tutti_comm_hook *hook);
void tutti__powersgd_save(const tutti_comm_hook *hook, void *to);
/* `mean`, over n - 1 ranks' states, becomes that over n, with the n-th rank's state `from` of the same size. Errors fed back
 * are averaged; the rest is the same on all ranks. FORMAT as below. */
tutti_status tutti__powersgd_mean(void *mean, const void *from, size_t bytes, size_t n);
/* Before the first step. FORMAT for invalid bytes. */
tutti_status tutti__powersgd_restore(const tutti_comm_hook *hook, const void *from, size_t bytes);

#endif
