/* sampler.h -- the list of an epoch's samples, and the digest of samples used.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_SAMPLER_H
#define TUTTI_DATA_SAMPLER_H

#include "base/base.h"

#include <tutti/data.h>

/* The (permuted) list of all samples: count entries, free(). NULL if not permuted: 0, 1, 2, ... Errors: MEMORY. */
tutti_status tutti__sampler_order(const tutti_sampler_opts *opts, uint64_t epoch, size_t **order_p);
/* Entry `i` of opts->rank's share of it, i below tutti_sampler_length. */
size_t tutti__sampler_entry(const tutti_sampler_opts *opts, const size_t *order, size_t i);

/* ---- The samples digest: which samples were used in which step, by any ranks in any order ------------------ */

/* A digest is two sums modulo 2^64 of hashes of (step, sample): the digests of parts add up to that of the whole (all_reduce
 * with SUM over U64), and a sample that is missing, repeated, exchanged or in another step changes it. Starts as zeros. */
void tutti__samples_digest_add(uint64_t lanes[2], uint64_t step, const size_t *samples, size_t n);
/* Adds the samples of a whole step by the sampler's rule: batches `first` to first + batches - 1, of `batch` samples, of each
 * of sampler->world_size shards (sampler->rank is not used), as loaders with these options deliver them. `order` is
 * tutti__sampler_order's for the epoch. Independent of any loader. */
void tutti__samples_digest_expected(uint64_t lanes[2], const tutti_sampler_opts *sampler,
                                    const size_t *order, uint64_t step, size_t first,
                                    size_t batches, size_t batch);
/* 32 hexadecimal digits. */
void tutti__samples_digest_text(const uint64_t lanes[2], char digits[33]);

#endif
