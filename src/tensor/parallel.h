/* parallel.h -- jobs on a context's threads.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_PARALLEL_H
#define TUTTI_TENSOR_PARALLEL_H

#include "tensor/tensor.h"

/* Calls job(arg, i, member) for i in [0, n), on the context's threads, and returns when all are done; member, less than
 * cx->threads, says on which. Jobs must not depend on one another, so the bits do not depend on the number of threads.
 * From one thread at a time for a context; from within a job, all is done by that job's thread. A process that was forked off
 * makes threads of its own when it first needs them. Where the system has no thread left, there is a warning, cx->threads
 * becomes the number of those that there are, and they do the work. */
typedef void tutti__job(void *arg, int64_t i, int member);
void tutti__parallel(tutti_ctx *cx, tutti__job *job, void *arg, int64_t n);

/* Ends the threads. */
void tutti__parallel_end(tutti_ctx *cx);

#endif
