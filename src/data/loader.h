/* loader.h -- functions of a loader for other layers, in addition to data.h.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_LOADER_H
#define TUTTI_DATA_LOADER_H

#include "base/base.h"

#include <tutti/data.h>

/* Records a span in `recorder` (NULL: none) for each batch that a worker makes. It must outlive the loader. */
void tutti__loader_set_recorder(tutti_loader *loader, tutti__recorder *recorder);

/* Copies batches to the context's device ahead of time, where tutti_input finds them (ahead.h); no effect on the host. Call it
 * before the first batch; the context must outlive the loader, and its thread must be the one that calls the loader. Errors:
 * MEMORY, of the host or the device. */
tutti_status tutti__loader_copy_ahead(tutti_loader *loader, tutti_ctx *cx);

/* Nanoseconds that the caller has spent in tutti_loader_next waiting for a batch (without workers: making it), in all epochs. */
uint64_t tutti__loader_wait_ns(const tutti_loader *loader);

/* As tutti_loader_set_epoch, but `start` of the epoch's samples were used before, by any ranks (the sampler's start): the
 * batches are of the remaining ones, numbered from 0. The next batch is number `batch` (their count: the end), as if those
 * before had been delivered. By shard: tutti_loader_take's batches are of the remaining samples; requests for the epoch from
 * before this call remain if `start` is 0, and `batch` is not used. */
void tutti__loader_seek(tutti_loader *loader, uint64_t epoch, size_t start, size_t batch);

/* Where a loader is, and what decides the order of its samples. */
typedef struct tutti__loader_place {
    uint64_t epoch;
    size_t start, batch; /* as in tutti__loader_seek; batch: how many were delivered */
    size_t samples;      /* of the epoch, that were used by all ranks, up to `count` */
    size_t count, batch_size;
    int ranks; /* 0: by shard */
    uint64_t seed;
    bool shuffle;
} tutti__loader_place;
tutti__loader_place tutti__loader_at(const tutti_loader *loader);
/* Seeks. The next tutti_loader_set_epoch, if it is for this epoch and no batch was delivered before, keeps the place. */
void tutti__loader_resume(tutti_loader *loader, uint64_t epoch, size_t start, size_t batch);

#endif
