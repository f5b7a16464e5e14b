/* sampler.c -- which samples a rank sees in an epoch.   SPDX-License-Identifier: MIT
 *
 * As PyTorch's DistributedSampler: the (permuted) list of all samples is padded from its own front, or cut, to a multiple of
 * the world size, and rank r takes entries r, r + W, r + 2W, ... Without padding the list is used as it is. Entry k of the
 * padded list is entry k mod N of the list, so it need not be built. With `start`, the list is what remains after that many
 * entries. Since entries are assigned round-robin, n ranks that have taken b entries each leave the list from n b on, for any
 * number of ranks to divide. */
#include "data/sampler.h"

#include <stdlib.h>

size_t tutti_sampler_length(const tutti_sampler_opts *opts)
{
    size_t n, w, r;

    if (!opts || opts->world_size < 1 || opts->rank < 0 || opts->rank >= opts->world_size ||
        opts->start > opts->count || TUTTI__CHECK_RESERVED(tutti_sampler_opts, opts) != TUTTI_OK)
        return 0;
    n = opts->count - opts->start;
    w = (size_t)opts->world_size;
    r = (size_t)opts->rank;
    if (opts->no_padding)
        return n / w + (r < n % w);
    return opts->drop_last ? n / w : n / w + (n % w > 0);
}

/* torch.randperm(n) on the CPU, from this seed: its generator and algorithm. Equal below 2^32 / 20 samples; above that, 32 bits
 * are too few for a uniform choice, and torch's algorithm differs between versions. */
static size_t *permutation(size_t n, uint64_t seed)
{
    tutti__mt19937 mt;
    size_t *p = n > SIZE_MAX / sizeof *p ? NULL : malloc((n ? n : 1) * sizeof *p);
    bool wide = n >= UINT32_MAX / 20;

    if (!p) {
        tutti__fail(TUTTI_ERR_MEMORY, "no memory to permute %zu samples", n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        p[i] = i;
    tutti__mt19937_seed(&mt, seed);
    for (size_t i = 0; i + 1 < n; i++) {
        uint64_t random = tutti__mt19937_next(&mt);
        size_t j, kept = p[i];

        if (wide)
            random = random << 32 | tutti__mt19937_next(&mt);
        j = i + (size_t)(random % (n - i));
        p[i] = p[j];
        p[j] = kept;
    }
    return p;
}

tutti_status tutti__sampler_order(const tutti_sampler_opts *opts, uint64_t epoch, size_t **order_p)
{
    *order_p = opts->shuffle ? permutation(opts->count, opts->seed + epoch) : NULL;
    return opts->shuffle && !*order_p ? TUTTI_ERR_MEMORY : TUTTI_OK;
}

size_t tutti__sampler_entry(const tutti_sampler_opts *opts, const size_t *order, size_t i)
{
    size_t k = (opts->start + (size_t)opts->rank + i * (size_t)opts->world_size) % opts->count;

    return order ? order[k] : k;
}

tutti_status tutti_sampler_indices(const tutti_sampler_opts *opts, uint64_t epoch, size_t *indices)
{
    size_t length = tutti_sampler_length(opts);
    size_t *order = NULL;

    TUTTI_TRY(TUTTI__NOT_NULL(opts));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_sampler_opts, opts));
    if (opts->world_size < 1 || opts->rank < 0 || opts->rank >= opts->world_size)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "sampler: rank %d of %d, expected a rank from 0 to the world size less 1", opts->rank,
            opts->world_size);
    if (opts->start > opts->count)
        return tutti__fail(TUTTI_ERR_ARG, "sampler: start is %zu of %zu samples", opts->start,
                           opts->count);
    if (length == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__sampler_order(opts, epoch, &order));
    for (size_t i = 0; i < length; i++)
        indices[i] = tutti__sampler_entry(opts, order, i);
    free(order);
    return TUTTI_OK;
}
