/* internal.h -- the inside of the reducer.   SPDX-License-Identifier: MIT
 *
 *     reducer.c   making one: what it reduces, in which order, cut into which buckets, where in memory
 *     step.c      a step: gradients get ready, buckets leave, means come back
 *     finite.c    NaN and infinities, by rank and parameter
 *     exact.c     means over logical shards, whoever computed them
 *     rows.c      a bucket of which only some rows travel
 *     hooks.c     ready-made communication hooks; powersgd.c: one more */
#ifndef TUTTI_REDUCER_INTERNAL_H
#define TUTTI_REDUCER_INTERNAL_H

#include "comm/comm.h"
#include "comm/core/reduce.h"
#include "device/flat.h"
#include "reducer/reducer.h"

typedef struct tutti__gradient {
    char *name;
    size_t count, rows, offset, bucket, place; /* offset: bytes in the block; place: in the order */
    tutti_dtype dtype;
    bool sparse, local;
    bool skipped;        /* in the last step: nothing of it came from this rank */
    uint64_t ready_turn; /* the last turn in which it got ready */
    unsigned char
        *touched; /* sparse: which rows are not zero, a byte a row; after a step, on any rank */
} tutti__gradient;

typedef struct tutti__bucket {
    tutti_reducer *reducer; /* for the function that the group runs */
    size_t offset, span;    /* bytes in the block, padding included */
    size_t pending;         /* gradients still to come */
    bool sparse;
    tutti__event *ready; /* on a device: all gradients are there; then: what is done with them is */
    tutti_work *work;    /* while in flight */
    uint64_t ready_ns;
    tutti_bucket view; /* for hooks */
    tutti_bucket_info info;
} tutti__bucket;

typedef struct tutti__exact tutti__exact; /* exact.c */

struct tutti_reducer {
    tutti_group *group;  /* NULL: none now, with shards */
    size_t n, n_reduced; /* parameters; those that are not local, which come first in the order */
    size_t n_buckets, bytes;
    tutti__gradient *gradients; /* by parameter */
    size_t *order;              /* parameter at each place; a bucket's places are adjacent */
    tutti__bucket *buckets;
    tutti_bucket_gradient *views; /* by place: what hooks see */
    unsigned char *block;
    bool alone;           /* block is of the stream's device, not of the group */
    tutti_stream *stream; /* of block, and of who writes gradients; NULL: the host's */
    tutti_stream *own;    /* on a device: what the communication thread does to buckets */
    /* On a device, by parameter: it has NaN or infinities; and the same read back, at the end of a step. */
    int32_t *found, *seen;
    bool find_unused, static_graph;
    uint64_t number;      /* the same on all ranks, and no other reducer's of the group */
    uint64_t common_step; /* tutti__reducer_set_common_step */
    tutti_comm_hook hook; /* run NULL: all_reduce */
    tutti__exact *exact;  /* NULL: means are over ranks */
    tutti__bucket_limits limits;
    tutti__recorder *recorder;
    tutti_traffic traffic;

    bool in_step;
    bool shadow,
        partial; /* this step is other ranks'; some ranks have joined: tutti__reducer_set_join */
    bool graph_known; /* static_graph: users and first_skips say it */
    size_t divisor;   /* of the mean; 0: all ranks */
    uint64_t step, begin_ns;
    uint64_t
        turn; /* steps or, with shards, shards, over all groups: a gradient gets ready once in each */
    size_t next; /* bucket to launch */
    tutti_nonfinite nonfinite;
    uint64_t nonfinite_step, nonfinite_steps; /* the last one with NaN or infinities; how many */
    const char *nonfinite_parameter;          /* in the last one, the first */
    int32_t *users;      /* by place: ranks that brought it; NULL: all do, always */
    bool *first_skips;   /* static_graph: by place, what the first step skipped */
    tutti_work *asking;  /* the reduction of users, while in flight */
    tutti_status status; /* the step's first failure, and its words */
    char message[2048];
};

/* The mean over ranks of a sparse gradient, of which this rank's touched rows are not zero; touched becomes what any rank
 * touched. On the communication thread. In a stream it is brought to the host and back. */
tutti_status tutti__reduce_rows(tutti_group *group, tutti__gradient *g, tutti_buf values);

static inline bool tutti__may_skip(const tutti_reducer *r)
{
    return r->find_unused || r->static_graph;
}

/* NaN and infinities (finite.c). A step begins. */
tutti_status tutti__begin_finite(tutti_reducer *r);
/* Looks at gradient i before it leaves; a failure where the options say so. On a device it is looked at in the stream's order,
 * and what was found is read by the next two: if the options make it a failure before the last bucket leaves, without which
 * no rank's step succeeds; else when the step ends. */
tutti_status tutti__check_finite(tutti_reducer *r, size_t i);
tutti_status tutti__check_all_finite(tutti_reducer *r);
tutti_status tutti__end_finite(tutti_reducer *r);
/* Gradient g has such values: counts, says so, and fails where the options say so. */
tutti_status tutti__found_nonfinite(tutti_reducer *r, const tutti__gradient *g);

/* ---- A step's parts (step.c) ---- */

/* Keeps the step's first failure for finish, with the thread's message. Returns it. */
tutti_status tutti__step_keep(tutti_reducer *r, tutti_status status);
/* Starts every bucket whose turn it is. */
tutti_status tutti__step_launch(tutti_reducer *r);
/* Starts all buckets once more, and waits for them. */
tutti_status tutti__step_relaunch(tutti_reducer *r);
/* On the group's thread, or any place in a step's order of collectives: they are this reducer's, in this step. */
void tutti__step_mark(const tutti_reducer *r, size_t bucket);
void tutti__step_unmark(const tutti_reducer *r);
/* STATE, naming the gradients that never got ready in this turn. */
tutti_status tutti__step_fail_missing(const tutti_reducer *r);

/* ---- Means over shards (exact.c) ---- */

tutti_status tutti__exact_new(tutti_reducer *r, const tutti_reducer_opts *opts);
void tutti__exact_free(tutti_reducer *r);
/* In the group at hand: memory that it can reduce. Collective. */
tutti_status tutti__exact_alloc(tutti_reducer *r);
void tutti__exact_release(tutti_reducer *r);
/* What ranks have to agree on; returns how many items, at most 3. */
size_t tutti__exact_describe(const tutti_reducer *r, tutti__item *items);
tutti_status tutti__exact_begin(tutti_reducer *r);
/* Whether a gradient may come now. */
bool tutti__exact_open(const tutti_reducer *r);
/* Gradient i of the shard at hand is there, or skipped. *leaves_p: no more will come for its bucket. */
tutti_status tutti__exact_take(tutti_reducer *r, size_t i, bool skipped, bool *leaves_p);
/* A bucket is about to leave: where this rank has brought nothing, there are zeros. */
tutti_status tutti__exact_fill(tutti_reducer *r, const tutti__bucket *b);
/* On the group's thread: the sum over all ranks, and the mean. */
tutti_status tutti__exact_reduce(tutti_reducer *r, const tutti__bucket *b);
/* No more comes from this rank: sends what is left, and the numbers that stand for the attempt. */
tutti_status tutti__exact_close(tutti_reducer *r);
void tutti__exact_abandon(tutti_reducer *r);
/* All buckets are there: what all ranks together make of it. */
tutti_status tutti__exact_end(tutti_reducer *r);
int tutti__exact_count(const tutti_reducer *r);

#endif
