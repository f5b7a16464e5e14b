/* ring.h -- the inside of a loader: slots that workers fill, in the order of an epoch (loader.c) or by shard as asked (shards.c).
 * SPDX-License-Identifier: MIT */
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

/* A batch's place. What is above the line is set before its making begins. */
typedef struct tutti__slot {
    uint64_t epoch;
    size_t index;
    int shard;             /* by shard only */
    const size_t *samples; /* n of them */
    size_t n;
    int worker; /* who makes it; -1: nobody has begun */
    /* ---- */
    void *x, *y;             /* samples; labels or targets */
    tutti__ahead_slot ahead; /* x and y are its, if there is a device */
    bool full;
    atomic_bool dropped; /* by shard: it is not wanted any more */
    tutti_status status;
    char *message; /* of a failure */
} tutti__slot;

/* An epoch whose samples are dealt out, from `start` on. */
typedef struct tutti__epoch {
    bool is_known; /* else nothing of it is */
    uint64_t number;
    size_t start;
    bool has_order; /* `order` is the sampler's, which may be NULL */
    size_t *order;
} tutti__epoch;

/* What the caller has said that it will take. */
typedef struct tutti__asked {
    uint64_t epoch;
    size_t index;
    int shard;
    tutti__slot *slot; /* NULL: no worker has begun it */
} tutti__asked;

/* All under the mutex, but for epochs that nothing asked is of: those are the caller's. */
typedef struct tutti__loader_shards {
    tutti__epoch now, next;
    tutti__asked *asked; /* in the order of asking: first those that workers have begun */
    size_t n_asked, n_begun, room;
    tutti__slot **idle; /* a ring: the slot that has been idle longest comes first */
    size_t first_idle, n_idle;
    size_t *samples, stride; /* of all slots: a whole batch's each */
} tutti__loader_shards;

struct tutti_loader {
    const tutti_dataset *dataset;
    tutti_loader_opts opts;
    tutti_sampler_opts sampler;
    tutti__transform transform;
    size_t x_bytes, y_bytes; /* of one sample as it is delivered */
    int log_rank;
    tutti__recorder *_Atomic recorder;

    /* The epoch: written by the caller while no worker is in a batch. */
    uint64_t epoch;
    size_t *indices, n_indices, n_batches;
    bool begun;

    size_t n_slots;
    tutti__slot *slots, *held; /* held: the caller has it; NULL: none */
    tutti__ahead ahead;
    uint8_t *images;     /* scratch of one image for each worker, and for the caller */
    size_t image_stride; /* 0: samples are delivered as they are read */
    int n_numbered;      /* workers that have taken theirs */
    atomic_size_t
        at[TUTTI__LOADER_WORKERS + 1]; /* the sample that a worker, or the caller, is reading */

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* to workers: there may be something to take */
    pthread_cond_t ready; /* to the caller: a slot is full, or a worker is out of its batch */
    size_t released, position, taken;
    tutti__loader_shards shards;
    int busy; /* workers in a batch */
    bool stop;
    uint64_t wait_ns;   /* that the caller has waited, in all */
    uint64_t warn_ns;   /* a wait that is worth a warning; 0: none is */
    atomic_bool cancel; /* what workers are making is not wanted any more */
    tutti_status status;
    char *message;
    int n_threads;
    pthread_t threads[TUTTI__LOADER_WORKERS];
};

/* ---- Of both ------------------------------------------------------------------------------------------ */

/* Makes the batch that the slot is for. worker: its number; the caller's is opts.workers. */
void tutti__ring_fill(tutti_loader *loader, tutti__slot *s, int worker);
/* On its way to the device, if there is one. Under the mutex: copies are queued one after the other. */
void tutti__ring_send(tutti_loader *loader, tutti__slot *s);
/* Waits until the slot is full, with one warning where that takes long. Under the mutex. */
void tutti__ring_wait(tutti_loader *loader, const tutti__slot *s);
/* The caller's batch is the loader's again. */
tutti_status tutti__ring_take_back(tutti_loader *loader);
/* Describes a full slot to the caller, or ends with its failure. */
bool tutti__ring_deliver(tutti_loader *loader, tutti__slot *s, tutti_batch *batch_p);
/* No batch comes any more, and tutti_loader_status says why. False. */
bool tutti__ring_end(tutti_loader *loader, tutti_status status, const char *message);

/* Of an epoch of which `start` samples have been dealt out before. By shard: under the mutex. */
void tutti__ring_set_start(tutti_loader *loader, size_t start);

/* ---- By shard ------------------------------------------------------------------------------------------ */

void tutti__loader_shards_close(tutti_loader *loader);
/* As tutti__loader_seek. */
void tutti__loader_shards_seek(tutti_loader *loader, uint64_t epoch, size_t start);
/* To a worker, under the mutex: the next batch, NULL if there is nothing to do now; and: it is made. */
tutti__slot *tutti__loader_shards_begin(tutti_loader *loader, int worker);
void tutti__loader_shards_made(tutti_loader *loader, tutti__slot *s);

#endif
