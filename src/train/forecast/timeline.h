/* timeline.h -- a step in time: when a rank makes which calls, and what it computes meanwhile.   SPDX-License-Identifier: MIT
 *
 * Calls are logged by a planned step (footprint.h), at positions in FLOPs of products; how FLOPs become seconds is measured by a real step
 * of one rank. Both count from the end of backward, because that is where communication is: of several batches the last. */
#ifndef TUTTI_TRAIN_TIMELINE_H
#define TUTTI_TRAIN_TIMELINE_H

#include "comm/comm.h"
#include "tensor/op_profile.h"
#include <tutti/mesh.h>

/* Who makes a call together: ranks with different samples, ranks that divide layers, those of a pipeline, all. */
typedef enum tutti__calls_of {
    TUTTI__CALLS_OF_DATA,
    TUTTI__CALLS_OF_SHARES, /* zero_ranks */
    TUTTI__CALLS_OF_TENSOR,
    TUTTI__CALLS_OF_PIPELINE,
    TUTTI__CALLS_OF_ALL,
    TUTTI__CALLS_OF /* how many */
} tutti__calls_of;

enum {
    TUTTI__TIMELINE_POINTS = 256,
    TUTTI__TIMELINE_SPANS =
        1 << 16 /* room in a recorder for the operations of a step; of more the last are used */
};

typedef struct tutti__timeline {
    tutti__planned_log log; /* group: tutti__calls_of; at: FLOPs since the step began */
    tutti_group
        *groups[TUTTI__CALLS_OF]; /* while it is logged; NULL: another one, or only this rank */
    size_t n_gradients; /* of its calls, until the gradients are averaged; then the update's */
    double flops;       /* of the step */
    /* When this part of the FLOPs is left to do, this part of the time until all gradients are there is left, both from 0 on. None:
     * the time goes with the FLOPs. */
    struct {
        double flops, seconds;
    } left[TUTTI__TIMELINE_POINTS];
    size_t n_left;
    double update; /* the optimizer's part of the time of a step's computation */
} tutti__timeline;

/* A planned step of a session with this group, mesh (NULL: none) and group of those that divide what zero shards (NULL: all that have
 * data) is about to be taken: its calls go into the log. */
void tutti__timeline_begin(tutti__timeline *timeline, tutti_group *all, tutti_mesh *mesh,
                           tutti_group *sharers, tutti__profile *profile);
/* Its gradients are averaged. */
void tutti__timeline_update(tutti__timeline *timeline);
/* It is over. MEMORY if the log is not complete. */
tutti_status tutti__timeline_end(tutti__timeline *timeline);
/* What a step measured that began, had all gradients and ended then, whose operations are in the recorder. MEMORY. */
tutti_status tutti__timeline_measured(tutti__timeline *timeline, tutti__recorder *recorder,
                                      const uint64_t begin_gradients_end_ns[3]);
/* The part of the gradients' time that is left when this part of the FLOPs is, which may be more than 1. */
double tutti__timeline_left(const tutti__timeline *timeline, double flops);
/* Without what it holds. */
void tutti__timeline_free(tutti__timeline *timeline);

#endif
