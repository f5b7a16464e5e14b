/* files.h -- the files of a job: workers' logs and error files.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FILES_H
#define TUTTI_LAUNCH_FILES_H

#include "launch/process/worker.h"

/* Makes the job's private folder if there is no --log-dir. Call close in the front and in the agent. */
tutti_status tutti__files_open(tutti__job *job);
void tutti__files_close(const tutti__job *job);
/* Makes the worker's folder in this round. */
tutti_status tutti__files_folder(const tutti__worker *worker, char *path, size_t bytes);

/* TORCHELASTIC_ERROR_FILE of the worker in this round; false, and "": none. */
bool tutti__error_file_path(const tutti__worker *worker, char *path, size_t bytes);
/* The same, with its folder made and an old file removed. */
tutti_status tutti__error_file_prepare(const tutti__worker *worker, char *path, size_t bytes);

/* A worker's message about its failure. */
typedef struct tutti__reason {
    char text[2048]; /* lines without control characters */
    uint64_t at_ns;  /* when, by tutti__now_ns */
    bool effect;     /* dated ahead: by its own account another rank failed first */
    bool permanent;  /* it ended with code 2, and a further attempt would end so, too */
} tutti__reason;

/* False: none. Reads at most a limited part of the file. */
bool tutti__error_file_read(const tutti__worker *worker, tutti__reason *reason);
/* If this launcher itself has a TORCHELASTIC_ERROR_FILE: copies the worker's file there, with the exit code; if the worker has
 * none, writes `how`. */
void tutti__error_file_pass_on(const tutti__worker *worker, const char *how);

#endif
