/* each.h -- runs jobs of jobs.def for an operation.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_EACH_H
#define TUTTI_TENSOR_EACH_H

#include "tensor/jobs.h"
#include "tensor/op.h"

/* Computes all numbers i < n of a job in host memory, on the context's threads. `reads`: elements that each number reads, so that parts
 * are worth a thread. */
void tutti__each_on_host(const tutti_op_args *p, const tutti__each_job *job, int64_t n,
                         int64_t reads);
/* The same in device memory, by the kernels. */
tutti_status tutti__each_on_device(const tutti_op_args *p, const tutti__each_job *job, int64_t n);

#endif
