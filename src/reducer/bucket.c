/* bucket.c -- which gradient goes into which bucket.   SPDX-License-Identifier: MIT
 *
 * PyTorch's compute_bucket_assignment_by_size, so that bucket sizes tuned there give the same buckets here. Each dtype has one
 * open bucket and its own position in the list of limits; the gradient that reaches the limit is still included, and closes the
 * bucket. */
#include <tutti/reducer.h>

#define N_KINDS 9 /* the dtypes, and one for unknown values */
#define NONE    SIZE_MAX

/* The bucket that one dtype is filling, from element `first` on. */
typedef struct open_bucket {
    size_t first; /* NONE: nothing */
    size_t bytes;
    size_t number; /* in the order of opening */
    size_t limit;  /* place in limits */
} open_bucket;

static size_t kind_of(tutti_dtype dtype)
{
    return (unsigned)dtype < N_KINDS - 1 ? (size_t)dtype : N_KINDS - 1;
}

static void close_bucket(open_bucket *b, const tutti_bucket_item *items, size_t end, size_t number,
                         size_t *bucket_of)
{
    size_t kind = kind_of(items[b->first].dtype);

    for (size_t i = b->first; i < end; i++)
        if (!items[i].sparse && kind_of(items[i].dtype) == kind)
            bucket_of[i] = number;
    b->first = NONE;
    b->bytes = 0;
}

size_t tutti_bucket_assignment(const tutti_bucket_item *items, size_t n, const size_t *limits,
                               size_t n_limits, bool by_first_index, size_t *bucket_of)
{
    open_bucket open[N_KINDS];
    size_t n_opened = 0, n_closed = 0;

    for (size_t k = 0; k < N_KINDS; k++)
        open[k] = (open_bucket){.first = NONE};
    for (size_t i = 0; i < n; i++) {
        open_bucket *b = &open[kind_of(items[i].dtype)];

        if (items[i].sparse) { /* a bucket of its own */
            bucket_of[i] = by_first_index ? n_opened : n_closed;
            n_opened++;
            n_closed++;
            continue;
        }
        if (b->first == NONE) {
            b->first = i;
            b->number = n_opened++;
        }
        b->bytes += items[i].bytes;
        if (n_limits == 0 || b->bytes < limits[b->limit])
            continue;
        close_bucket(b, items, i + 1, by_first_index ? b->number : n_closed, bucket_of);
        n_closed++;
        if (b->limit + 1 < n_limits)
            b->limit++;
    }
    while (n_closed < n_opened) { /* those below their limit, in the order of opening */
        open_bucket *b = NULL;

        for (size_t k = 0; k < N_KINDS; k++)
            if (open[k].first != NONE && (!b || open[k].first < b->first))
                b = &open[k];
        close_bucket(b, items, n, by_first_index ? b->number : n_closed, bucket_of);
        n_closed++;
    }
    return n_opened;
}
