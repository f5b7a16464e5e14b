/* trace.h -- one rank's spans as a Chrome trace file (chrome://tracing, ui.perfetto.dev).   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_TRACE_H
#define TUTTI_TRAIN_TRACE_H

#include "train/machine/clock.h"
#include <tutti/ddp.h>

/* Threads of a rank, as tutti__time_span numbers them. */
enum { TUTTI__THREAD_MAIN, TUTTI__THREAD_COMM, TUTTI__THREAD_LOADER, TUTTI__THREAD_WRITER = 1000 };

typedef struct tutti__trace {
    const char *path;
    tutti__recorder *recorder;
    size_t capacity; /* most events to read */
    int rank;
    uint64_t begin_ns, end_ns; /* only spans that begin in between */
    const tutti__clock *clock;
    tutti_ddp *ddp; /* its statistics and buckets are written as otherData */
} tutti__trace;

/* One event per line, in order of time, by rank 0's monotonic clock, so that the files of all ranks have one time axis
 * when they are opened together. */
tutti_status tutti__trace_write(const tutti__trace *trace);

#endif
