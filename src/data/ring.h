/* ring.h -- the struct of a loader: slots that workers fill, in the order of an epoch (loader.c) or of requests by shard
 * (shard_batches.c).   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_RING_H
#define TUTTI_DATA_RING_H

#include "data/ahead.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "data/transform.h"

#include <pthread.h>
#include <stdatomic.h>

#define TUTTI__LOADER_WORKERS 256 /* at most */

/* A slot for a batch. The members above the line are set before it is filled. */
typedef struct tutti__slot {
    uint64_t epoch;
    size_t index;
    int shard;             /* by shard only */
    const size_t *samples; /* n of them */
    size_t n;
    int worker; /* the worker that makes it; -1: not begun */
    /* ---- */
    void *arrays[TUTTI_MAX_FIELDS]; /* of the data set's fields, as delivered */
    tutti__ahead_slot ahead;        /* owns the arrays, if there is a device */
    bool full;
    atomic_bool dropped; /* by shard: not needed any more */
    tutti_status status;
    char *message; /* of a failure */
} tutti__slot;

/* An epoch, with its samples from `start` on. */
typedef struct tutti__epoch {
    bool is_known; /* else no other member is valid */
    uint64_t number;
    size_t start;
    bool has_order; /* `order` is the sampler's, which may be NULL */
    size_t *order;
} tutti__epoch;

/* A request: a batch that the caller will take. */
typedef struct tutti__asked {
    uint64_t epoch;
    size_t index;
    int shard;
    tutti__slot *slot; /* NULL: not begun by a worker */
} tutti__asked;

/* All under the mutex, except epochs without requests, which only the caller uses. */
typedef struct tutti__loader_shards {
    tutti__epoch now, next;
    tutti__asked *asked; /* requests in order; those begun by workers come first */
    size_t n_asked, n_begun, room;
    tutti__slot **idle; /* a ring; the slot idle for longest comes first */
    size_t first_idle, n_idle;
    size_t *samples, stride; /* of all slots, `stride` for each */
} tutti__loader_shards;

struct tutti_loader {
    const tutti_dataset *dataset;
    tutti_loader_opts opts;
    tutti_sampler_opts sampler;
    tutti__transform transform;
    size_t bytes[TUTTI_MAX_FIELDS]; /* of one sample's arrays, as delivered */
    int log_rank;
    tutti__recorder *_Atomic recorder;

    /* The epoch: written by the caller while no worker is in a batch. */
    uint64_t epoch;
    size_t *indices, n_indices, n_batches;
    bool begun, resumed; /* resumed: set_epoch keeps the place */

    size_t n_slots;
    tutti__slot *slots, *held; /* held: the caller's batch; NULL: none */
    tutti__ahead ahead;
    /* Scratch for one sample's arrays as they are read, for each worker and for the caller. */
    uint8_t *scratch;
    size_t scratch_stride,
        scratch_at[TUTTI_MAX_FIELDS];              /* at SIZE_MAX: read to where it is delivered */
    tutti_named_array delivered[TUTTI_MAX_FIELDS]; /* of the caller's batch */
    int n_numbered;                                /* workers that have taken their number */
    /* the sample that a worker, or the caller, is reading */
    atomic_size_t at[TUTTI__LOADER_WORKERS + 1];

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* to workers: there may be something to take */
    pthread_cond_t ready; /* to the caller: a slot is full, or a worker has left its batch */
    size_t released, position, taken;
    tutti__loader_shards shards;
    int busy; /* workers in a batch */
    bool stop;
    uint64_t wait_ns;   /* total wait of the caller */
    uint64_t warn_ns;   /* wait after which to warn; 0: never */
    atomic_bool cancel; /* the batches that workers are making are not needed any more */
    tutti_status status;
    char *message;
    int n_threads;
    pthread_t threads[TUTTI__LOADER_WORKERS];
};

/* ---- For both orders ------------------------------------------------------------------------------------------ */

/* Allocates the scratch, and the slots' arrays, for batches of `batch`. */
tutti_status tutti__ring_allocate(tutti_loader *loader, size_t batch);
void tutti__ring_free_arrays(const tutti_loader *loader, tutti__slot *s);

/* Makes the slot's batch. worker: its number; the caller's is opts.workers. */
void tutti__ring_fill(tutti_loader *loader, tutti__slot *s, int worker);
/* Submits the slot's copy to the device, if there is one. Under the mutex, which orders the copies. */
void tutti__ring_send(tutti_loader *loader, tutti__slot *s);
/* Waits until the slot is full, with one warning if that takes long. Under the mutex. */
void tutti__ring_wait(tutti_loader *loader, const tutti__slot *s);
/* Describes a full slot to the caller, or ends the epoch with its failure. */
bool tutti__ring_deliver(tutti_loader *loader, tutti__slot *s, tutti_batch *batch_p);
/* Ends the epoch: no more batches, and tutti_loader_status returns this. Returns false. */
bool tutti__ring_end(tutti_loader *loader, tutti_status status, const char *message);

/* For an epoch of which `start` samples were used before. By shard: under the mutex. */
void tutti__ring_set_start(tutti_loader *loader, size_t start);

/* ---- By shard ------------------------------------------------------------------------------------------ */

void tutti__loader_shards_close(tutti_loader *loader);
/* As tutti__loader_seek. */
void tutti__loader_shards_seek(tutti_loader *loader, uint64_t epoch, size_t start);
/* For a worker, under the mutex: the next batch, NULL if there is nothing to do now; the batch is made. */
tutti__slot *tutti__loader_shards_begin(tutti_loader *loader, int worker);
void tutti__loader_shards_made(tutti_loader *loader, tutti__slot *s);

#endif
