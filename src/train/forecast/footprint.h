/* footprint.h -- what a rank of a run needs, before there is one.   SPDX-License-Identifier: MIT
 *
 * A session is opened, and takes two steps, on the device of device/planned, in a group of comm's tutti__group_plan: data, loader, tape,
 * DDP, ZeRO, optimizer are the real ones, and only elements of tensors and other ranks are missing. What takes memory of this
 * process on the way (the program, the data set, kernels' code) is measured; what tensors would take is counted. */
#ifndef TUTTI_TRAIN_FOOTPRINT_H
#define TUTTI_TRAIN_FOOTPRINT_H

#include "checkpoint/copies.h"
#include "comm/comm.h"
#include "ddp/pieces.h"
#include "train/forecast/timeline.h"
#include "train/session/session.h"

/* How the ranks of a run are placed, and what of the model each has. */
typedef struct tutti__layout_of_ranks {
    int ranks, local_ranks; /* of all hosts, of one */
    int zero;               /* 0 to 3 */
    int zero_ranks;         /* that divide what zero shards; 0: all with other samples */
    int pipeline, tensor;   /* 1: not divided */
} tutti__layout_of_ranks;

/* Bytes of one rank, at the moment at which it needs most. */
#define TUTTI__FOOTPRINT_PARTS(X)                                                                  \
    X(program, "program", "this program with its libraries and kernels' code, measured")           \
    X(data, "data", "the data set in memory and the loader's batches, measured")                   \
    X(parameters, "parameters", "weights and buffers")                                             \
    X(gradients, "gradients", "gradients, which are the buckets")                                  \
    X(optimizer, "optimizer", "the optimizer's state")                                             \
    X(average, "average", "averages of the weights (ema)")                                         \
    X(activations, "activations", "of a step: activations, and gradients of them")                 \
    X(kernels, "kernels", "scratch memory of kernels and of the optimizer")                        \
    X(communication, "communication", "buffers of communication besides the buckets")              \
    X(checkpoint, "checkpoint", "rank 0: the copy of what it writes of a checkpoint")

enum { TUTTI__PLANNED_PIPELINE = 64 }; /* the most stages' ranks that are planned */

typedef struct tutti__footprint {
#define MEMBER(name, label, help) size_t name;
    TUTTI__FOOTPRINT_PARTS(MEMBER)
#undef MEMBER
    size_t peak;     /* of rank 0, which usually needs most */
    size_t peak_off; /* of another rank */
    /* With ZeRO and shards, when ranks join or leave: each then has all of the optimizer's state for a moment; else 0. */
    size_t peak_regroup;
    const char *peak_when;
    int64_t elements; /* of all parameters */
    size_t n_buckets, largest_bucket, bucket_bytes;
    tutti__planned_calls calls;       /* of a step, among ranks with other samples */
    tutti__planned_calls shard_calls; /* and among those of them that have all shares: zero_ranks */
    tutti__planned_calls tensor_calls;   /* and among those that divide layers */
    tutti__planned_calls pipeline_calls; /* messages of the rank that sends most */
    double
        flops; /* of products in a step of a rank, recomputation included; of a pipeline the mean */
    /* Of a pipeline, by rank: the most that one of the ranks with its stages takes, and its products. */
    size_t stage_peak[TUTTI__PLANNED_PIPELINE];
    double stage_flops[TUTTI__PLANNED_PIPELINE];
    int threads;
    int64_t samples; /* of a step, over all ranks */
} tutti__footprint;

/* Fills it in. config: as read, with any device but a GPU. data: data sets that are open already; NULL: it opens them. timeline: also
 * when rank 0 makes its calls; NULL: not wanted. Errors: those of opening such a run; MEMORY also if the process may not have so many
 * addresses. */
tutti_status tutti__footprint_find(tutti__footprint *f, const tutti__train_config *config,
                                   const tutti__parts *parts, const tutti__layout_of_ranks *layout,
                                   const tutti__session_data *data, tutti__timeline *timeline);

/* copies.c: what the ranks of a run hold; then what each copies of a checkpoint which they write in parts. Starts as {0}. */
typedef struct tutti__holdings {
    int ranks;
    bool ema;
    tutti__pieces *of[TUTTI__COPIES]; /* [ranks] */
} tutti__holdings;
typedef struct tutti__footprint_parts {
    size_t *bytes;               /* [ranks], the caller's */
    size_t largest;              /* tensor */
    bool divided[TUTTI__COPIES]; /* what of it is */
} tutti__footprint_parts;
tutti_status tutti__holdings_new(tutti__holdings *h, int ranks);
/* Of the ranks with the same stage, of which this is the first; of an opened, planned session after a step. */
tutti_status tutti__holdings_list(tutti__holdings *h, const tutti__session *session);
tutti_status tutti__holdings_divide(const tutti__holdings *h, tutti__footprint_parts *parts);
void tutti__holdings_free(tutti__holdings *h);
/* The most that one of the ranks first to end - 1 copies. */
size_t tutti__footprint_copied(const tutti__footprint_parts *parts, int first, int end);

/* Resident memory of this process that is its own, pages that it shares with others counted in parts; 0: not known. */
typedef struct tutti__resident {
    size_t now, most;
} tutti__resident;
tutti__resident tutti__resident_now(void);

#endif
