/* ddp.h -- the inside of the reducer, and how ranks agree on what they are about to train.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DDP_DDP_H
#define TUTTI_DDP_DDP_H

#include "base/base.h"
#include <tutti/ddp.h>

/* ---- Agreement (agree.c) --------------------------------------------------------------------------------------------
 * Every rank describes its items in words; equal words on all ranks are agreement. */
#define TUTTI__ITEM_BYTES 224

typedef struct tutti__item {
    char text[TUTTI__ITEM_BYTES]; /* `"fc1.bias" [256] F32`; zeroed behind the end */
} tutti__item;

/* Collective. MISMATCH, with the same message on every rank, names the first item that differs between rank 0 and the
 * first rank that disagrees with it: "<what> differ between ranks: <item> 3 is ... on rank 0 but ... on rank 1". One small
 * all_gather when they agree. */
tutti_status tutti__agree(tutti_group *group, const char *what, const char *item,
                          const tutti__item *items, size_t n);

/* ---- Reducer -------------------------------------------------------------------------------------------------------- */

/* This rank has failed with `message`: tells the others, who wait for what will never come. Nothing if they know already
 * (status is of scope GROUP) or there is nobody. */
void tutti__abort_peers(tutti_group *group, tutti_status status, const char *message);

/* A list of names for a message, cut after eight: "a", "b" and 3 more. Starts as {0}. */
typedef struct tutti__names {
    char text[1024];
    size_t n;
} tutti__names;
void tutti__names_add(tutti__names *names, const char *name);
const char *tutti__names_end(tutti__names *names);

/* Puts the defaults in for 0; ARG, naming the call, for sizes that make no sense. */
tutti_status tutti__bucket_sizes(const char *call, double *first_mb, double *mb);
/* From now on each bucket's all_reduce leaves a span in `recorder` (NULL: none). */
void tutti__reducer_set_recorder(tutti_reducer *reducer, tutti__recorder *recorder);
/* The step has failed for another reason, with the thread's message: nothing more is sent, finish reports it. */
void tutti__reducer_fail(tutti_reducer *reducer, tutti_status status);

#endif
