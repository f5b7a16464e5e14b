/* zero.h -- shared by ZeRO's files.   SPDX-License-Identifier: MIT
 *
 *     zero.c        shares: of flat memory for the optimizer; construction
 *     zero_reduce.c of buckets when they are reduced
 *     units.c       stage 3: parameters that are gathered before they are read; units_half.c: in 16 bits
 *     units_read.c  with logical shards: each rank reads them from the others
 *     units_host.c  from host memory
 *     zero_state.c  optimizer state gathered, for checkpoints and for groups that change
 *     zero_copies.c and brought together from shares and their copies, after a group has died */
#ifndef TUTTI_DDP_ZERO_H
#define TUTTI_DDP_ZERO_H

#include "ddp/ddp.h"
#include "optim/optim.h"

/* Of flat memory, divided into shares of equal size and a tail. In stages 1 and 2 the communication thread writes the first two when it
 * has reduced one, and the main thread reads them after backward; in stage 3 they are those of construction. */
typedef struct tutti__zero_bucket {
    float *p; /* its gradients; NULL: sparse, or only buffers: every rank has it whole */
    size_t count;
    /* Stage 3: whether its parameters are here, outside of this rank's share too. COMING: while `gather` is in flight. */
    enum { TUTTI__ABSENT, TUTTI__COMING, TUTTI__PRESENT } state;
    tutti_work *gather;
    float *host; /* this rank's share, which is not on the device while ABSENT; NULL: it is there */
    uint64_t used;  /* the number of the operation that last read it */
    bool vectors;   /* nearly all operations read some of them: they stay until the update */
    tutti_dtype as; /* F32, or what others' shares were rounded to when they were gathered */
    bool exact
        [2]; /* in evaluation, training: some operation reads more than is left after rounding for another */
} tutti__zero_bucket;

/* A bucket that had to be gathered, and in which dtype it was read then. */
typedef struct tutti__zero_gathered {
    size_t bucket;
    tutti_dtype as;
} tutti__zero_gathered;

/* Those of a step, in the order of its operations. */
typedef struct tutti__zero_order {
    tutti__zero_gathered *p;
    size_t n, room;
} tutti__zero_order;

/* Of training steps, and of others. `now` is compared with `before`, of the last such step, to know the next one ahead. */
typedef struct tutti__zero_orders {
    tutti__zero_order before, now;
    uint64_t serial; /* the context's, of `now` */
} tutti__zero_orders;

/* Of which group this rank's shares are, and of which moment in it. */
typedef struct tutti__zero_tag {
    int64_t generation;
    int64_t size, rank;
    int64_t updates; /* complete in this rank's ranges, since that group was formed */
} tutti__zero_tag;

struct tutti_zero {
    tutti_ddp *ddp;
    int stage;
    tutti_group *
        group; /* whose ranks have all shares among them. NULL: none at present (with logical shards) */
    tutti_dtype wire;    /* F32, or what a bucket is rounded to before it is reduced */
    int replicas;        /* groups like it, of which ddp->group consists */
    tutti_group *parted; /* `group`, if it is a part of ddp->group; NULL: they are the same */
    float
        *sent; /* of `replicas`: room for this rank's means, once for each of them, on the device */
    size_t n_sent;
    struct tutti_root *root;
    tutti__zero_bucket *buckets;
    size_t n_noted;
    uint64_t
        *shared; /* by parameter: its zero_grads when its gradient was last sharded; 0: never */
    tutti__sharding sharding;
    tutti__range *ranges;
    size_t *bucket_of;  /* by range; SIZE_MAX: every rank has it whole */
    tutti_work **works; /* by bucket: its all_gather, while in flight */
    size_t n_buckets;   /* of ranges and works */

    /* ---- Copies of shares (zero_copies.c) ---- */
    bool copies;    /* the previous rank's share is here too */
    bool keeps;     /* shares outlive their group: tutti__zero_recover follows */
    bool updating;  /* an update of the ranges has begun, and has not ended (with logical shards) */
    bool begun;     /* a step has, in this group */
    int64_t before; /* tag.updates at its beginning */
    bool ready;     /* an update could not begin, because the group died: its gradients are here */
    bool incomplete; /* the last update's parameters did not arrive from all other ranks */
    tutti__zero_tag tag;

    /* ---- Stage 3 (units.c) ---- */
    size_t *bucket_with;          /* by parameter: its bucket; SIZE_MAX: every rank has it whole */
    tutti__zero_orders orders[2]; /* of evaluation, training */
    uint64_t operations, gathers;
    size_t present, coming;  /* how many are */
    bool all_at_once;        /* ranks may read different parameters in a step */
    size_t held, most_held;  /* bytes of parameters that have memory */
    uint64_t gathered_bytes; /* that all_gathers brought to this rank */
    char *narrow;            /* room for a bucket that is gathered in 16 bits; NULL: not yet */
    size_t narrow_at;        /* there: behind this rank's share, in bytes */
    float *whole;            /* all parameters, gathered on this rank, in host memory; NULL */
    float *host;             /* shares of all buckets, pinned (units_host.c); NULL: on the device */

    /* ---- With logical shards (units_read.c) ---- */
    uint64_t version;   /* of the shares, in this group; 0: every rank has all parameters */
    tutti_work **reads; /* by bucket and rank, while in flight; NULL: in no group */
};

/* Every rank of ddp->group sums as much of a bucket, and a share has as much of each replica. */
static inline size_t tutti__zero_share(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    const size_t replicas = (size_t)zero->replicas;

    return b->count / ((size_t)zero->sharding.peers.size * replicas) * replicas;
}

static inline tutti_stream *tutti__zero_stream(const tutti_zero *zero)
{
    return tutti_ctx_stream(tutti_module_ctx(zero->root->module));
}

/* The ranges of the current layout. STATE if there are none yet. */
tutti_status tutti__zero_prepare(void *self);
/* zero->buckets, from the reducer, the same on all ranks; with logical shards and in stage 3. */
tutti_status tutti__zero_list(tutti_zero *zero);
/* Bucket `index` is these gradients of flat memory. */
tutti_status tutti__zero_note(tutti_zero *zero, size_t index, float *gradients, size_t count);

/* ---- zero_reduce.c ---- */

/* DDP's communication hook; self is the tutti_zero. */
tutti_status tutti__zero_reduce(void *self, tutti_group *group, const tutti_bucket *b);

/* ---- units.c ---- */

/* Before an update: nothing is being gathered. After it, gathered parameters are old: their memory goes back. */
tutti_status tutti__units_settle(tutti_zero *zero);
tutti_status tutti__units_drop(tutti_zero *zero);
/* Likewise before shares are written by other than an update; those gathered on this rank for a program go too. */
tutti_status tutti__units_discard(tutti_zero *zero);
/* The same before all ranks write their shares, where ranks read from each other: when none reads any more. After it they read the new
 * ones. Collective. */
tutti_status tutti__units_begin_write(tutti_zero *zero);
tutti_status tutti__units_end_write(tutti_zero *zero);
/* Gathers all parameters into zero->whole on rank `root`. Collective. */
tutti_status tutti__units_consolidate(tutti_zero *zero, int root);
void tutti__units_free(tutti_zero *zero);
/* Where a bucket begins in flat memory, in elements. */
static inline size_t tutti__zero_begin(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    return (size_t)(b->p - zero->root->flat_gradients);
}

/* And this rank's share of it. */
static inline size_t tutti__zero_own(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    return tutti__zero_begin(zero, b) +
           tutti__zero_share(zero, b) * (size_t)zero->sharding.peers.rank;
}

/* What of a bucket stays in memory: [begin,end) of flat memory, and all from `tail` on, in which copies of shares are included. */
typedef struct tutti__zero_kept {
    size_t begin, end, tail;
} tutti__zero_kept;

static inline tutti__zero_kept tutti__zero_kept_of(const tutti_zero *zero,
                                                   const tutti__zero_bucket *b)
{
    const size_t share = tutti__zero_share(zero, b), own = tutti__zero_own(zero, b);
    const size_t size = (size_t)zero->sharding.peers.size;
    tutti__zero_kept kept = {own, own + share, tutti__zero_begin(zero, b) + share * size};

    if (zero->copies && size > 1 && zero->sharding.peers.rank > 0)
        kept.begin -= share;
    else if (zero->copies && size > 1)
        kept.tail -= share;
    return kept;
}

/* Whether ranks read parameters from each other, instead of gathering them together. */
static inline bool tutti__zero_reads(const tutti_zero *zero)
{
    return zero->stage == 3 && zero->ddp->shards;
}

/* An update of this rank's ranges has ended. */
static inline void tutti__zero_updated(tutti_zero *zero)
{
    zero->updating = false;
    zero->tag.updates++;
}

/* Memory for a bucket that is absent, with anything in it: it counts as present. */
tutti_status tutti__units_back(tutti_zero *zero, size_t i);
/* What of it is given back together may have large pages. */
void tutti__units_part(const tutti_zero *zero, const tutti__zero_bucket *b);

/* ---- units_read.c ---- */

/* All flat memory of parameters, in which others read this rank's shares. */
static inline int tutti__units_window(const tutti_zero *zero)
{
    return (int)(zero->ddp->number % 0xffffff);
}
/* Reads other ranks' shares of a bucket, for which there is memory; waits for that. */
tutti_status tutti__units_read(tutti_zero *zero, size_t i);
tutti_status tutti__units_await(tutti_zero *zero, size_t i);
/* The group is left: memory for all parameters. It is entered: others may read. Nothing to do in other stages. */
void tutti__units_leave(tutti_zero *zero);
tutti_status tutti__units_enter(tutti_zero *zero);
/* Nobody reads any more, and shares may be written. Nothing to do in other stages. */
void tutti__units_conceal(const tutti_zero *zero);
/* After an update of the shares: only they stay, and others may read them. */
tutti_status tutti__units_renew(tutti_zero *zero);
/* Collective: all parameters on every rank. */
tutti_status tutti__units_gather(tutti_zero *zero);
/* They are there. */
static inline void tutti__units_whole(tutti_zero *zero)
{
    zero->version = 0;
    zero->sharding.whole_parameters = zero->stage < 3 || tutti__zero_reads(zero);
}

/* ---- units_host.c ---- */

/* With opts.offload_parameters: memory for this rank's shares. */
tutti_status tutti__units_host_new(tutti_zero *zero);
void tutti__units_host_free(tutti_zero *zero);
/* Memory of the device for all shares of a bucket, in which this rank's is copied; and back. */
tutti_status tutti__units_host_back(const tutti_zero *zero, const tutti__zero_bucket *b);
void tutti__units_host_give_back(const tutti_zero *zero, const tutti__zero_bucket *b);
/* This rank's share, from the device: a bucket's initial values. */
tutti_status tutti__units_host_take(const tutti_zero *zero, const tutti__zero_bucket *b);

/* ---- units_half.c ---- */

/* What an all_gather of the bucket's parameters in dtype b->as reads and writes. */
tutti_status tutti__units_prepare(tutti_zero *zero, const tutti__zero_bucket *b,
                                  tutti_const_buf *from, tutti_buf *to);
/* After it, if that is not F32: the other ranks' shares to where they belong. */
tutti_status tutti__units_widen(const tutti_zero *zero, const tutti__zero_bucket *b);

/* ---- zero_copies.c ---- */

/* As tutti__agree_on_optim before an update, and tutti__zero_finish after it, with copies. */
tutti_status tutti__zero_begin_copies(tutti_zero *zero, const tutti_optim *optim);
tutti_status tutti__zero_finish_copies(void *self);

/* ---- zero_state.c ---- */

enum { TUTTI__ALL_RANKS = -1 };
/* What ranks have in their ranges: of flat memory, at their places; or one after the other, of an optimizer's state, which bare ones have not,
 * or of averages of the parameters. */
typedef enum tutti__zero_kind {
    TUTTI__OF_PARAMETERS,
    TUTTI__OF_STATE,
    TUTTI__OF_AVERAGES
} tutti__zero_kind;
/* Gathers it in `whole`, host memory for all elements, on rank `root` of the whole group, or on all; NULL: not on this rank. `stream`: whose
 * memory `from` is. Collective. */
tutti_status tutti__zero_collect(const tutti_zero *zero, tutti_stream *stream, const float *from,
                                 tutti__zero_kind kind, float *whole, int root);
/* The next of the root's optimizers with sharded state, from `entry` on; NULL: none. */
tutti_optim *tutti__zero_next(const tutti_zero *zero, tutti__optim_entry *entry);

/* Waits for all_gathers in flight. The first failure. */
tutti_status tutti__zero_finish(void *self);
/* ZeRO is about to be freed: what optimizers have of its shares can only be read where it was gathered. */
void tutti__zero_leave_optims(const tutti_zero *zero);

#endif
