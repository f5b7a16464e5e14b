/* job.c -- the job, from its launcher's environment.   SPDX-License-Identifier: MIT */
#include "train/folder/job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool counts(const char *text)
{
    int64_t n;

    return text && tutti__parse_int64(text, &n) && n > 0;
}

/* The id becomes part of a folder's name, so other characters are replaced. */
static void copy_id(char to[TUTTI__JOB_TEXT], const char *from)
{
    static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = 0;

    for (; from && from[n] && n < 64; n++)
        to[n] = strchr(fine, from[n]) ? from[n] : '_';
    to[n] = '\0';
}

void tutti__train_job_read(tutti__train_job *job)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID");

    *job = (tutti__train_job){.requeued = counts(getenv("SLURM_RESTART_COUNT"))};
    job->restarted =
        counts(getenv("TORCHELASTIC_RESTART_COUNT")) || counts(tutti__env_text(TUTTI__ENV_ATTEMPT));
    copy_id(job->slurm, getenv("SLURM_JOB_ID"));
    /* torchrun without --rdzv-id: its agent's pid identifies the job */
    if (id && strcmp(id, "none") == 0)
        snprintf(job->id, sizeof job->id, "torchrun-%ld", (long)getppid());
    else
        copy_id(job->id, id);
}

bool tutti__train_job_continues(const tutti__train_job *job, const tutti__train_job *earlier)
{
    return (job->restarted && job->id[0] && strcmp(job->id, earlier->id) == 0) ||
           (job->requeued && job->slurm[0] && strcmp(job->slurm, earlier->slurm) == 0);
}
