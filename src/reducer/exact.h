/* exact.h -- means over logical shards, shared by exact.c and exact_shares.c.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_REDUCER_EXACT_H
#define TUTTI_REDUCER_EXACT_H

#include "reducer/internal.h"

#include <pthread.h>

/* Which sums have a gradient of this rank. */
enum { TUTTI__IN_SUMS = 1, TUTTI__IN_LATE = 2 };

struct tutti__exact {
    tutti_stream *stream; /* on which gradients are computed, also in host memory */
    int count, bits;
    size_t n_counters;
    unsigned char *sums,
        *late; /* the group's memory; NULL: no group. In shares: this rank's, of addresses */
    /* in shares: by bucket, the parts that have memory */
    unsigned char *sums_here, *late_here;
    bool copies;         /* in shares: the previous rank's, too */
    float *ranges;       /* by parameter, as all of these */
    tutti__fixed *fixed; /* of this try at the step */
    /* on the device: bits of the largest |contribution| of this rank, then of the largest |mean| */
    uint32_t *largest;
    uint32_t *seen;         /* a copy on the host; without a device `largest` itself */
    int32_t *all;           /* by place: the maximum over all ranks */
    unsigned char *brought; /* TUTTI__IN_SUMS, TUTTI__IN_LATE */
    int64_t *message;
    tutti_work *ending; /* its reduction, while in flight */
    uint64_t *digest;   /* of the current shard's gradients; NULL: not wanted */
    bool open;          /* in a shard */
    bool leaving;       /* the last shard has begun */
    bool apart;         /* and after it another, which owns block until the end; under the mutex */
    bool joining;       /* late sums are being reduced */
    bool again;
    pthread_mutex_t mutex;
};

/* The sums that belong to an offset in the block. */
static inline unsigned char *tutti__sums_at(const tutti__exact *s, unsigned char *sums,
                                            size_t offset)
{
    return sums + offset * (size_t)(s->bits / 32);
}

/* ---- In shares (exact_shares.c): r->kept_in_part ---- */

/* Memory for s->sums and late. */
tutti_status tutti__exact_shares_alloc(tutti_reducer *r);
void tutti__exact_shares_free(const tutti_reducer *r);
/* Gives back the memory of all gradients and sums. */
void tutti__exact_shares_drop(tutti_reducer *r, bool gradients);
/* Bucket b gets memory for its sums, or late ones. */
tutti_status tutti__exact_shares_bring(const tutti_reducer *r, const tutti__bucket *b, bool late);
/* A gradient of the current shard has been added, or was skipped: with the last of its bucket, the bucket's memory goes. */
void tutti__exact_shares_taken(const tutti_reducer *r, tutti__bucket *b);
/* On the group's thread. All ranks' sums, of which this rank has its share (and the copy) afterwards. */
tutti_status tutti__exact_shares_sum(const tutti_reducer *r, const tutti__bucket *b, bool late);
/* s->sums += s->late, of its parts. */
tutti_status tutti__exact_shares_join(const tutti_reducer *r, const tutti__bucket *b);
/* Calls f for each stretch of gradient i that this rank keeps: n elements from `at` on of the gradient. */
tutti_status tutti__exact_shares_each(const tutti_reducer *r, size_t i,
                                      tutti_status (*f)(const tutti_reducer *r, size_t i, size_t at,
                                                        size_t n));
/* The largest |mean| of each gradient over all ranks. Collective. */
tutti_status tutti__exact_shares_largest(const tutti_reducer *r);

#endif
