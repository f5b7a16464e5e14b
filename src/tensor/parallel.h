/* parallel.h -- jobs on a context's threads.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_PARALLEL_H
#define TUTTI_TENSOR_PARALLEL_H

#include "tensor/tensor.h"

/* Calls job(arg, i, member) for i in [0, n) on the context's threads, and returns when all are done; member, less than
 * cx->threads, is the thread's number. Jobs must not depend on each other, so that the bits do not depend on the number of
 * threads. Call it from one thread at a time per context; within a job, all of a nested call runs on that job's thread. A
 * forked process starts its own threads when it first needs them. If the system refuses more threads, there is a warning,
 * cx->threads becomes the number of existing ones, and those do the work. */
typedef void tutti__parallel_job(void *arg, int64_t i, int member);
void tutti__parallel(tutti_ctx *cx, tutti__parallel_job *job, void *arg, int64_t n);

/* Ends the threads. */
void tutti__parallel_end(tutti_ctx *cx);

#endif
