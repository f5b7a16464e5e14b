/* error_files.h -- workers' messages about their failure.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_ERROR_FILES_H
#define TUTTI_LAUNCH_ERROR_FILES_H

#include "launch/process/worker.h"

/* A worker's message about its failure. */
typedef struct tutti__reason {
    char text[2048]; /* lines without control characters */
    uint64_t at_ns;  /* when, by tutti__now_ns */
    bool effect;     /* dated ahead: by its own account another rank failed first */
    bool permanent;  /* it ended with code 2 or 3, and a further round would end so, too */
} tutti__reason;

/* False: none. Reads at most a limited part of the file. `permanent` is as the file says. */
bool tutti__reason_read(const char *path, tutti__reason *reason);
/* That of a worker of this launcher. */
bool tutti__error_file_read(const tutti__worker *worker, tutti__reason *reason);
/* If this launcher itself has a TORCHELASTIC_ERROR_FILE: copies the worker's file there, with the exit code; if the worker has
 * none, writes `how`. */
void tutti__error_file_pass_on(const tutti__worker *worker, const char *how);

#endif
