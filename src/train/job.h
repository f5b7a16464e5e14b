/* job.h -- which job this process is of, and which start of it.   SPDX-License-Identifier: MIT
 *
 * Launchers start a job's workers anew after a failure (tutti run, torchrun), and Slurm puts a whole job back into its queue. A
 * start that is not the first continues what the earlier ones have left: it must find their folder, and know it as theirs. */
#ifndef TUTTI_TRAIN_JOB_H
#define TUTTI_TRAIN_JOB_H

#include "base/base.h"

#define TUTTI__JOB_TEXT 128

typedef struct tutti__train_job {
    char id
        [TUTTI__JOB_TEXT]; /* the launcher's, the same in all starts; "": started by hand, by srun, mpirun */
    char slurm[TUTTI__JOB_TEXT]; /* SLURM_JOB_ID; "": none */
    bool restarted, requeued;    /* by the launcher; by Slurm */
} tutti__train_job;

void tutti__train_job_read(tutti__train_job *job);
/* A start of `job`, not the first, where `earlier` has been. */
bool tutti__train_job_continues(const tutti__train_job *job, const tutti__train_job *earlier);

#endif
