/* job.h -- which job this process belongs to, and which start of it.   SPDX-License-Identifier: MIT
 *
 * Launchers restart a job's workers after a failure (tutti run, torchrun), and Slurm may requeue a whole job. A start that is
 * not the first continues the earlier ones: it must find their folder, and recognise it. */
#ifndef TUTTI_TRAIN_JOB_H
#define TUTTI_TRAIN_JOB_H

#include "base/base.h"

#define TUTTI__JOB_TEXT 128

typedef struct tutti__train_job {
    /* the launcher's job id, the same in all starts; "": started by hand, srun or mpirun */
    char id[TUTTI__JOB_TEXT];
    char slurm[TUTTI__JOB_TEXT]; /* SLURM_JOB_ID; "": none */
    bool restarted, requeued;    /* by the launcher; by Slurm */
    uint32_t generation; /* of this process's group, in a run by shards; 0: its ranks are fixed */
} tutti__train_job;

void tutti__train_job_read(tutti__train_job *job);
/* Whether `job` is a later start of the job `earlier`. */
bool tutti__train_job_continues(const tutti__train_job *job, const tutti__train_job *earlier);

#endif
