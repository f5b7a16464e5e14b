/* job_files.h -- the files of a job: workers' logs and error files.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_JOB_FILES_H
#define TUTTI_LAUNCH_JOB_FILES_H

#include "launch/job/launch_job.h"

/* Makes the job's private folder if there is no --log-dir. Call close in the front and in the agent. */
tutti_status tutti__files_open(tutti__job *job);
void tutti__files_close(const tutti__job *job);
/* Makes a rank's folder in this round. */
tutti_status tutti__files_folder(const tutti__job *job, int rank, char *path, size_t bytes);

/* TORCHELASTIC_ERROR_FILE of the rank in this round; false, and "": none. */
bool tutti__error_file_path(const tutti__job *job, int rank, char *path, size_t bytes);
/* The same, with its folder made and an old file removed. */
tutti_status tutti__error_file_prepare(const tutti__job *job, int rank, char *path, size_t bytes);

#endif
