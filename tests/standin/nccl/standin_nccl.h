/* standin_nccl.h -- shared by the files of a stand-in of libnccl for machines without GPUs, behind the real nccl.h.   SPDX-License-Identifier: MIT
 *
 * Ranks are processes or threads of one machine. They meet in a memfd of the process that made the unique id, which identifies
 * both, so that a killed process leaves nothing with a name. Every ordered pair of ranks has a mailbox there, and collectives
 * are messages: each rank receives what it needs and reduces it itself, from the last rank to the first, so that its bits
 * differ from those of Tutti's own sums.
 *
 * It is as late as NCCL may be. Communicators are made, and calls are launched and finalized, some polls of
 * ncclCommGetAsyncError after the call; launched work runs in its stream, on the stand-in of the CUDA run-time; a rank that
 * waits for another waits until its communicator is aborted. What NCCL forbids (a call while one is pending, an event before
 * the launch) is printed on stderr and counted.
 *
 *     STANDIN_NCCL_VERSION  result of ncclGetVersion; default: the header's
 *     STANDIN_NCCL_HOST     simulates another host with its own devices; default 0
 *     STANDIN_NCCL_FAULT    async:RANK:CALL  that rank's collective of this number never ends, and an error is reported
 *                           hang:RANK:CALL   it never ends
 *                           launch:RANK:CALL the call fails at once
 *                           init:RANK        making that rank's communicator fails
 *                           init_hang:RANK   it never completes
 *                           abort_hang:RANK  its ncclCommAbort takes a minute
 *
 *     communicator.c   making and ending them, and errors
 *     memory.c         memory and its registration; what is left behind
 *     call.c           collectives and messages, as work
 *     work.c           the work, in its stream */
#ifndef TUTTI_TESTS_STANDIN_NCCL_H
#define TUTTI_TESTS_STANDIN_NCCL_H

#include <nccl.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

enum {
    MOST_RANKS = 8,
    MOST_CALLS = 64, /* in a group */
    MAIL_BYTES = 16384,
    LATE_POLLS = 3 /* until a request is complete */
};

typedef struct mailbox {
    _Atomic uint64_t put, taken; /* messages */
    size_t bytes;
    char data[MAIL_BYTES];
} mailbox;

typedef struct meeting {
    uint64_t nonce;
    _Atomic int size, here, finalized;
    _Atomic int devices[MOST_RANKS]; /* 1 + that of each rank */
    mailbox mail[MOST_RANKS][MOST_RANKS];
} meeting;

/* The contents of a unique id. */
typedef struct place {
    uint64_t nonce;
    int64_t pid;
    int32_t fd;
} place;
_Static_assert(sizeof(place) <= sizeof(ncclUniqueId), "a place fits into an id");

typedef enum stage { MAKING, READY, FINALIZING, FINALIZED } stage;

typedef struct message {
    int peer;
    char *p;
    size_t bytes, done;
} message;

/* One or several calls, launched as one. */
typedef struct work {
    struct ncclComm *comm;
    int n_out, n_in;
    message out[MOST_CALLS], in[MOST_CALLS];
    bool reduces, hangs;
    ncclDataType_t type;
    ncclRedOp_t redop;
    size_t count;
    void *dst;   /* NULL: the result is for others */
    char *parts; /* of a reduction: each rank's data, back to back */
    cudaStream_t stream;
} work;

struct ncclComm {
    meeting *at;
    int rank, size, device, polls;
    bool fails, broken;
    stage stage;
    _Atomic ncclResult_t error;
    work *pending;
    uint64_t calls;
    _Atomic bool aborted;
    _Atomic int running, references;
    char last[160];
};

#pragma GCC visibility push(hidden)

extern struct standin_counts {
    _Atomic int comms, memory, registered, windows, misuses;
} standin_counts;

/* ---- communicator.c ---- */

/* Counts a misuse, and says what it is. */
ncclResult_t standin_misuse(const char *what);
/* The calling thread must be on the communicator's device. */
void standin_check_device(const struct ncclComm *comm, const char *what);
/* Whether the environment requests this fault on this rank, and at this call (0: at any). */
bool standin_fault(const char *kind, int rank, uint64_t call);
/* Between two looks for what another rank has done. */
void standin_nap(void);
/* Gives up a reference. */
void standin_release_comm(struct ncclComm *comm);

/* ---- work.c ---- */

size_t standin_size_of(ncclDataType_t type);
void standin_drop(work *w);
/* Gives the pending work to its stream. */
ncclResult_t standin_launch(struct ncclComm *comm);

#pragma GCC visibility pop

#endif
