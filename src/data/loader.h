/* loader.h -- what other layers may ask of a loader beside data.h.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_LOADER_H
#define TUTTI_DATA_LOADER_H

#include "base/base.h"

#include <tutti/data.h>

/* From now on each batch that a worker makes leaves a span in `recorder` (NULL: none), which outlives the loader. */
void tutti__loader_set_recorder(tutti_loader *loader, tutti__recorder *recorder);

/* Batches are copied to the context's device before they are asked for, and tutti_input finds them there (ahead.h); on the host,
 * nothing. Before the first batch; the context outlives the loader, and gets its batches from the thread that calls this one.
 * Errors: MEMORY, of the host or the device. */
tutti_status tutti__loader_copy_ahead(tutti_loader *loader, tutti_ctx *cx);

/* Nanoseconds that the caller has spent in tutti_loader_next waiting for a batch (without workers: making it), in all epochs. */
uint64_t tutti__loader_wait_ns(const tutti_loader *loader);

/* As tutti_loader_set_epoch, but of the epoch's samples `start` have been dealt out before, to whatever ranks (the sampler's
 * start): batches are those of the others, numbered from 0. The next batch is number `batch` (their number: the end), as if
 * those before had been delivered. By shard: tutti_loader_take's are batches of those others; what was asked of the epoch
 * before this call stays asked if `start` is 0, `batch` says nothing. */
void tutti__loader_seek(tutti_loader *loader, uint64_t epoch, size_t start, size_t batch);

/* By shard: no batch of this epoch below `index` will be taken any more, whoever took it: drops what was asked of them. */
void tutti__loader_passed(tutti_loader *loader, size_t index);

#endif
