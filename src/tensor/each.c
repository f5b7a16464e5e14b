/* each.c -- runs jobs of jobs.def for an operation.   SPDX-License-Identifier: MIT */
#include "tensor/each.h"

#define PART ((int64_t)1 << 14) /* elements of a part, at least */

typedef struct part {
    const tutti__each_job *job;
    int64_t n, numbers; /* of all, and of a part */
} part;

static void run_part(void *arg, int64_t i)
{
    const part *t = arg;
    const int64_t from = i * t->numbers;
    const int64_t end = from + t->numbers < t->n ? from + t->numbers : t->n;

    switch (t->job->kind) {
#define JOB(name, family)                                                                          \
    case TUTTI__JOB_##name:                                                                        \
        for (int64_t k = from; k < end; k++)                                                       \
            tutti__do_##name(&t->job->of.family, k);                                               \
        break;
#include "tensor/jobs.def"
#undef JOB
    }
}

void tutti__each_on_host(const tutti_op_args *p, const tutti__each_job *job, int64_t n,
                         int64_t reads)
{
    part t = {job, n, reads > 0 && reads < PART ? PART / reads : 1};

    tutti_op_parallel(p, run_part, &t, (n + t.numbers - 1) / t.numbers);
}

tutti_status tutti__each_on_device(const tutti_op_args *p, const tutti__each_job *job, int64_t n)
{
    return p->cx->f32_kernels->job(p->cx, job, n);
}
