/* exact.h -- means over logical shards, shared by exact.c, exact_shares.c and exact_checksums.c.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_REDUCER_EXACT_H
#define TUTTI_REDUCER_EXACT_H

#include "reducer/internal.h"

#include <pthread.h>

/* Which sums have a gradient of this rank. */
enum { TUTTI__IN_SUMS = 1, TUTTI__IN_LATE = 2 };

/* Sums of integers that wrap, by gradient (exact_checksums.c): of what this rank has added to its sums, and to its late ones; of the sums
 * of which the means were made. */
typedef enum tutti__checksum_kind {
    TUTTI__CHECKSUM_ADDED,
    TUTTI__CHECKSUM_LATE,
    TUTTI__CHECKSUM_MEANS,
    TUTTI__CHECKSUM_KINDS
} tutti__checksum_kind;

typedef struct tutti__exact_checksums {
    uint64_t *there, *seen; /* on the device; a copy on the host, without a device the same */
    bool verifies;          /* in this step, sums before they are sent */
    int suspicious;         /* steps for which that is certain */
    int64_t credit_ns;      /* below 0: that has cost more than it may */
    uint64_t ns;            /* that it has cost in this step */
    size_t damaged, own;    /* 1 + the gradient; own: in this rank's memory; 0: none */
    size_t flip, flip_at;   /* fault injection: 1 + the gradient whose sums lose a bit; 0: none */
    int flip_bit;
    bool tolerant; /* damage does not make finish fail */
} tutti__exact_checksums;

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
    tutti__exact_checksums checksums;
    uint64_t *digest; /* of the current shard's gradients; NULL: not wanted */
    bool open;        /* in a shard */
    bool leaving;     /* the last shard has begun */
    bool apart;       /* and after it another, which owns block until the end; under the mutex */
    bool joining;     /* late sums are being reduced */
    bool again;
    pthread_mutex_t mutex;
};

/* The sums that belong to an offset in the block. */
static inline unsigned char *tutti__sums_at(const tutti__exact *s, unsigned char *sums,
                                            size_t offset)
{
    return sums + offset * (size_t)(s->bits / 32);
}

/* ---- Checksums (exact_checksums.c) ---- */

tutti_status tutti__exact_checksums_new(const tutti_reducer *r);
void tutti__exact_checksums_free(const tutti_reducer *r);
/* In the device's memory. */
uint64_t *tutti__exact_checksums_of(const tutti_reducer *r, tutti__checksum_kind kind, size_t i);
tutti_status tutti__exact_checksums_begin(const tutti_reducer *r);
/* Gradient i has been added to these sums. */
void tutti__exact_checksums_inject(const tutti_reducer *r, size_t i, unsigned char *sums);
/* On the group's thread, before the bucket's sums are sent. */
void tutti__exact_checksums_verify(const tutti_reducer *r, const tutti__bucket *b);
/* What this rank has added, by place: n_reduced numbers, whose sums over all ranks _check gets. */
tutti_status tutti__exact_checksums_tell(const tutti_reducer *r, int64_t *numbers);
/* Means will be made again. */
tutti_status tutti__exact_checksums_forget_means(const tutti_reducer *r);
/* At the end of a step whose means count. DEVICE, unless damage is tolerated. */
tutti_status tutti__exact_checksums_check(const tutti_reducer *r, const int64_t *numbers);

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
