/* internal.h -- shared by the reducer's files.   SPDX-License-Identifier: MIT
 *
 *     reducer.c   construction: parameters, order, buckets, memory
 *     step.c      a step: gradients become ready, buckets are reduced
 *     finite.c    NaN and infinities, by rank and parameter
 *     exact.c     means over logical shards, whichever rank computed them; exact_checksums.c checks them
 *     rows.c      sparse gradients: only touched rows are sent
 *     late_rows.c gradients that are final early but for a few rows
 *     keep.c      gradients, and sums over shards, of which this rank keeps a part
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
    bool here;           /* local, in memory that comes and goes: it came */
    bool skipped;        /* in the last step this rank had no such gradient */
    uint64_t ready_turn; /* the last turn in which it became ready */
    /* sparse: a byte per row: it may be non-zero; after a step, on any rank */
    unsigned char *touched;
    struct tutti__late *late; /* it may be ready before some of its rows; NULL: not */
} tutti__gradient;

/* Rows that are final after the rest of their gradient (late_rows.c). */
typedef struct tutti__late {
    tutti_reducer *reducer;
    tutti__gradient *gradient;
    unsigned char *touched; /* a byte per row: it is late on this rank; gathered: on any */
    int32_t *place;         /* by row: where it is in values; -1: not there */
    float *values;          /* n rows, with room for more */
    size_t n, room;
    bool begun, ready;         /* in this step: the rest is being sent; the rows are final */
    bool left;                 /* in this step: it was ready but for its rows */
    tutti_work *gather, *work; /* while in flight */
    uint64_t wire_bytes;
} tutti__late;

/* A bucket's elements in parts, of which this rank keeps every other one when they are reduced: at[0] is 0, at[PARTS] their number. */
enum { TUTTI__PARTS = 5, TUTTI__ALL_PARTS = 31, TUTTI__KEPT_PARTS = 1 | 4 | 16 };
typedef struct tutti__bucket_parts {
    size_t at[TUTTI__PARTS + 1];
} tutti__bucket_parts;

typedef struct tutti__bucket {
    tutti_reducer *reducer; /* for the function that the group runs */
    size_t offset, span;    /* bytes in the block, padding included */
    size_t pending;         /* gradients not ready yet */
    bool sparse;
    /* on a device: all gradients are written; then: the hook's work on them is complete */
    tutti__event *ready;
    tutti_work *work; /* while in flight */
    uint64_t ready_ns;
    tutti__bucket_parts parts;
    unsigned char here;  /* bits of the parts that have memory (kept_in_part) */
    size_t first, share; /* with shards: elements from `first` on are divided, a share each */
    size_t taken;        /* with shards: gradients of the current shard that were added */
    tutti_bucket view;   /* for hooks */
    tutti_bucket_info info;
} tutti__bucket;

typedef struct tutti__exact tutti__exact; /* exact.c */

struct tutti_reducer {
    tutti_group *group;  /* NULL: none at present (with shards) */
    size_t n, n_reduced; /* parameters; those that are not local, which come first in the order */
    size_t n_buckets, bytes;
    tutti__gradient *gradients; /* by parameter */
    size_t *order;              /* parameter at each place; a bucket's places are adjacent */
    tutti__bucket *buckets;
    tutti_bucket_gradient *views; /* by place: what hooks see */
    unsigned char *block;
    bool kept_in_part;  /* block is reserved memory: keep.c */
    bool planned;       /* it is for a plan: memory is counted, not used */
    bool vectors_apart; /* gradients without rows have buckets of their own */
    tutti_stream *
        alone; /* with shards: of whose device the block is private memory; NULL: it is the group's */
    tutti_stream *stream; /* of the program, on which gradients are computed; NULL: host memory */
    tutti_stream *own;    /* on a device: for the communication thread's work on buckets */
    /* On a device, by parameter: whether it has NaN or infinities; and the copy on the host, read at the end of a step. */
    int32_t *found, *seen;
    bool find_unused, static_graph;
    uint64_t number;      /* the same on all ranks, and unique among the group's reducers */
    uint64_t common_step; /* tutti__reducer_set_common_step */
    tutti_comm_hook hook; /* run NULL: all_reduce */
    tutti__exact *exact;  /* NULL: means are over ranks */
    tutti__late *late;    /* by the gradients' index */
    size_t n_late, next_late;
    size_t
        in_flight; /* at most so many buckets are being reduced when another is sent; 0: any number */
    tutti__bucket_limits limits;
    tutti__recorder *recorder;
    tutti_traffic traffic;

    bool in_step;
    /* shadow: this rank has joined; partial: some rank has: tutti__reducer_set_join */
    bool shadow, partial;
    bool graph_known; /* static_graph: users and first_skips are valid for all steps */
    size_t divisor;   /* of the sum; 0: the number of ranks */
    uint64_t step, begin_ns;
    /* number of the step or, with shards, of the shard, over all groups: a gradient becomes ready once in each */
    uint64_t turn;
    size_t next; /* bucket to launch */
    tutti_nonfinite nonfinite;
    /* the last one with NaN or infinities; their number */
    uint64_t nonfinite_step, nonfinite_steps;
    const char *nonfinite_parameter; /* in the last one, the first */
    int32_t *users;                  /* by place: number of ranks that had it; NULL: always all */
    bool *first_skips;               /* static_graph: by place, what the first step skipped */
    tutti_work *asking;              /* the reduction of users, while in flight */
    bool asked;                      /* all is launched in this step */
    tutti_status status;             /* the step's first failure, and its message */
    char message[2048];
};

/* The mean over ranks of a sparse gradient; rows of this rank that are not touched are zero. Afterwards touched has the rows of
 * all ranks. On the communication thread. On a device the values are copied to the host and back. */
tutti_status tutti__reduce_rows(tutti_group *group, tutti__gradient *g, tutti_buf values);

static inline bool tutti__may_skip(const tutti_reducer *r)
{
    return r->find_unused || r->static_graph;
}

/* NaN and infinities (finite.c). At the start of a step. */
tutti_status tutti__begin_finite(tutti_reducer *r);
/* Checks gradient i before it is sent; an error if the options say so. On a device it is checked in the stream's order, and the
 * result is read later: if it is an error, before the last bucket is sent, which every rank's step needs; else at the end of
 * the step. */
tutti_status tutti__check_finite(tutti_reducer *r, size_t i);
tutti_status tutti__check_all_finite(tutti_reducer *r);
tutti_status tutti__end_finite(tutti_reducer *r);
/* Gradient g has such values: counts and reports it, and fails if the options say so. */
tutti_status tutti__found_nonfinite(tutti_reducer *r, const tutti__gradient *g);

/* ---- Late rows (late_rows.c) ---- */

/* late[i]: gradient i has them; NULL: none. */
tutti_status tutti__late_new(tutti_reducer *r, const bool *late);
void tutti__late_free(tutti_reducer *r);
void tutti__late_begin(tutti_reducer *r);
/* Before a bucket is sent, which is that of a gradient with late rows or any other. */
tutti_status tutti__late_launch_gather(tutti_reducer *r, const tutti__bucket *b);
/* After all buckets: sends the rows that are ready and whose turn it is. */
tutti_status tutti__late_launch(tutti_reducer *r);
/* Waits for the k-th, and moves the means into the block. */
tutti_status tutti__late_wait(tutti_reducer *r, size_t k);
/* Waits for what is in flight. */
void tutti__late_abandon(tutti_reducer *r);

/* ---- Parts that are kept (keep.c) ---- */

/* A bucket before its first step: on a device nothing of it has memory, and is brought; host memory gets it when it is first touched. */
void tutti__keep_begin(tutti_reducer *r, tutti__bucket *b);
/* Addresses for bytes of which parts get memory; open: it is written without tutti__parts_change, too. */
tutti_status tutti__keep_alloc(const tutti_reducer *r, size_t bytes, bool open,
                               unsigned char **p_p);
void tutti__keep_free(const tutti_reducer *r, unsigned char *p, size_t bytes);
/* Of bucket b in the memory at p, whose elements have so many bytes: the parts in `want` get memory, with any contents, and the others
 * lose theirs. MEMORY. */
tutti_status tutti__parts_change(const tutti_reducer *r, const tutti__bucket *b, unsigned char *p,
                                 size_t element, unsigned char *here, unsigned want);
/* Sets b->parts, when all of them have memory, or none has: elements before `head`, in [begin, end) and from `tail` on are kept. */
void tutti__parts_set(tutti__bucket *b, size_t head, size_t begin, size_t end, size_t tail);
/* The k-th part that is kept, within elements [begin, end); false: none of it is there. */
bool tutti__parts_within(const tutti__bucket *b, int k, size_t begin, size_t end, size_t *low_p,
                         size_t *high_p);
/* In a plan, when a bucket has been waited for: only then it is given back, as if its reduction had taken until now. So what is
 * planned is the most that backward may be ahead, and always the same. */
void tutti__keep_planned(const tutti_reducer *r, tutti__bucket *b);
/* Copies n elements to element `at` of bucket b, as far as this rank has them. */
void tutti__keep_copy(const tutti__bucket *b, size_t at, const float *from, size_t n);

/* ---- A step's parts (step.c) ---- */

/* Gradient i is ready, but perhaps for its late rows. */
tutti_status tutti__step_arrive(tutti_reducer *r, size_t i);

/* Keeps the step's first failure for finish, with the thread's message. Returns it. */
tutti_status tutti__step_keep(tutti_reducer *r, tutti_status status);
/* Starts every bucket whose turn it is. */
tutti_status tutti__step_launch(tutti_reducer *r);
/* Reduces all buckets once more, and waits for them. */
tutti_status tutti__step_relaunch(tutti_reducer *r);
/* Marks this thread's calls on the group, on its thread or where a step calls collectives, as of this reducer, step and bucket.
 * */
void tutti__step_label(const tutti_reducer *r, size_t bucket);
void tutti__step_unlabel(const tutti_reducer *r);
/* STATE, naming the gradients that are not ready in this turn. */
tutti_status tutti__step_fail_missing(const tutti_reducer *r);

/* ---- Means over shards (exact.c) ---- */

tutti_status tutti__exact_new(tutti_reducer *r, const tutti_reducer_opts *opts);
void tutti__exact_free(tutti_reducer *r);
/* Memory for the sums in the current group. Collective. */
tutti_status tutti__exact_alloc(tutti_reducer *r);
void tutti__exact_release(tutti_reducer *r);
/* Adds the items on which ranks must agree; returns how many, at most 3. */
size_t tutti__exact_describe(const tutti_reducer *r, tutti__item *items);
tutti_status tutti__exact_begin(tutti_reducer *r);
/* Whether a shard is open, so that gradients may become ready. */
bool tutti__exact_open(const tutti_reducer *r);
/* Gradient i of the current shard is ready or skipped. *leaves_p: it was the last contribution of this rank to its bucket. */
tutti_status tutti__exact_take(tutti_reducer *r, size_t i, bool skipped, bool *leaves_p);
/* Before a bucket is sent: zeroes the sums to which this rank added nothing. */
tutti_status tutti__exact_fill(tutti_reducer *r, const tutti__bucket *b);
/* On the group's thread: sums over all ranks, then computes the means. */
tutti_status tutti__exact_reduce(tutti_reducer *r, tutti__bucket *b);
/* This rank has no more shards: sends the remaining buckets, and the message about the try. */
tutti_status tutti__exact_close(tutti_reducer *r);
void tutti__exact_abandon(tutti_reducer *r);
/* All buckets are reduced: evaluates the message of all ranks. */
tutti_status tutti__exact_end(tutti_reducer *r);
int tutti__exact_count(const tutti_reducer *r);

#endif
