/* worker_streams.h -- where a worker's standard output and error go.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_WORKER_STREAMS_H
#define TUTTI_LAUNCH_WORKER_STREAMS_H

#include "launch/console/log_pipe.h"
#include "launch/job/launch_job.h"

/* Prepares one stream of the rank. *end_p: the worker's end; -1: it inherits ours. */
tutti_status tutti__worker_stream_open(const tutti__job *job, int rank, tutti__streams which,
                                       tutti__log_pipe *pipe, int *end_p);
/* The failure of a pipe or socket for the rank, by errno. */
tutti_status tutti__no_descriptors(int rank);

#endif
