/* jobs.cu -- kernels of tensor/jobs.def: a thread for each number.   SPDX-License-Identifier: MIT */
#include "device/cuda/module/lanes.cuh"
#include "tensor/kernel/cuda/module/families.cuh"

#define JOB(name, family)                                                                          \
    struct Job_##name {                                                                            \
        tutti__job_##family arguments;                                                             \
        template <int V>                                                                           \
        METHOD void run(int64_t i) const                                                           \
        {                                                                                          \
            for (int k = 0; k < V; k++)                                                            \
                tutti__do_##name(&arguments, i + k);                                               \
        }                                                                                          \
    };
#include "tensor/jobs.def"
#undef JOB

tutti_status tutti__own_job(int device, void *stream, const tutti__each_job *job, int64_t n)
{
    switch (job->kind) {
#define JOB(name, family)                                                                          \
    case TUTTI__JOB_##name:                                                                        \
        return map(device, stream, Job_##name{job->of.family}, n, false);
#include "tensor/jobs.def"
#undef JOB
    default:
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "a job that this module lacks");
    }
}
