/* sampling.c -- temperature, top-k and top-p, in the order in which Hugging Face applies them.   SPDX-License-Identifier: MIT */
#include "train/infer/sampling.h"

#include "base/real.h"

#include <math.h>
#include <stdlib.h>

#define KEY                                                                                        \
    0x74657874u /* "text": separates these random numbers from other uses of the same seed */

tutti__choice *tutti__choices_new(size_t n)
{
    return tutti__alloc(n * sizeof(tutti__choice));
}

static size_t largest(const float *logits, size_t n)
{
    size_t best = 0;

    for (size_t k = 1; k < n; k++)
        if (logits[k] > logits[best] || isnan(logits[best]))
            best = k;
    return best;
}

/* In [0, 1), of 53 bits. */
static double chance_of(const tutti__sampling *s, uint64_t sample, uint64_t position)
{
    const tutti__philox_counter counter = {{(uint32_t)position, (uint32_t)(position >> 32),
                                            (uint32_t)sample, (uint32_t)(sample >> 32)}};
    uint32_t words[4];

    tutti__philox(s->seed ^ KEY, counter, words);
    return (double)(((uint64_t)words[1] << 32 | words[0]) >> 11) * 0x1p-53;
}

/* Restores the order of a heap of k, whose smallest is first, below place i. */
static void sift(tutti__choice *heap, size_t k, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        tutti__choice c;

        if (child >= k)
            return;
        child += child + 1 < k && heap[child + 1].weight < heap[child].weight;
        if (heap[i].weight <= heap[child].weight)
            return;
        c = heap[i];
        heap[i] = heap[child];
        heap[child] = c;
        i = child;
    }
}

/* The k-th largest of n logits, k <= n. */
static double kth_largest(const float *logits, size_t n, size_t k, tutti__choice *heap)
{
    for (size_t i = 0; i < k; i++)
        heap[i].weight = isnan(logits[i]) ? -INFINITY : (double)logits[i];
    for (size_t i = k; i-- > 0;)
        sift(heap, k, i);
    for (size_t i = k; i < n; i++)
        if ((double)logits[i] > heap[0].weight) {
            heap[0].weight = (double)logits[i];
            sift(heap, k, 0);
        }
    return heap[0].weight;
}

/* The likelier first. */
static int compare(const void *a, const void *b)
{
    const tutti__choice *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* The fewest that have the share `top_p` of the sum of n weights; *sum_p becomes theirs. */
static size_t keep_likely(tutti__choice *c, size_t n, double top_p, double *sum_p)
{
    /* Those below it have less than 1 - top_p together, so that they cannot be among the fewest: not to be sorted. */
    const double least = (1 - top_p) / (double)n * *sum_p, wanted = top_p * *sum_p;
    size_t kept = 0, k = 0;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= least)
            c[kept++] = c[i];
    qsort(c, kept, sizeof *c, compare);
    while (k < kept && (k == 0 || sum < wanted))
        sum += c[k++].weight;
    *sum_p = sum;
    return k;
}

size_t tutti__sample_token(const tutti__sampling *s, const float *logits, size_t n, uint64_t sample,
                           uint64_t position, tutti__choice *room)
{
    const size_t best = largest(logits, n), k = s->top_k > 0 ? (size_t)s->top_k : n;
    const double least = k < n ? kth_largest(logits, n, k, room) : -INFINITY;
    double sum = 0, left;
    size_t kept = 0;

    if (s->temperature <= 0 || !isfinite(logits[best]))
        return best;
    for (size_t i = 0; i < n; i++) {
        const double logit = (double)logits[i];
        double weight;

        if (!(logit >= least))
            continue;
        weight = tutti__exp((logit - (double)logits[best]) / s->temperature);
        room[kept++] = (tutti__choice){weight, (int32_t)i};
        sum += weight;
    }
    if (s->top_p < 1)
        kept = keep_likely(room, kept, s->top_p, &sum);
    left = chance_of(s, sample, position) * sum;
    for (size_t i = 0; i < kept; i++) {
        left -= room[i].weight;
        if (left < 0)
            return (size_t)room[i].token;
    }
    return best; /* the rest of the rounding */
}
