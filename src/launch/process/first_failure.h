/* first_failure.h -- which worker failed first, and whether that is the cause.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FIRST_FAILURE_H
#define TUTTI_LAUNCH_FIRST_FAILURE_H

#include "launch/process/error_files.h"

/* When a worker failed, and whether another failed first by its own account: by exit code 3, or by its error file, whose time
 * also counts before that of its end. */
typedef struct tutti__failure {
    const tutti__worker *worker;
    uint64_t at_ns;
    bool effect, has_reason;
    tutti__reason reason;
} tutti__failure;

tutti__failure tutti__failure_of(const tutti__worker *worker);
bool tutti__failure_is_before(const tutti__failure *a, const tutti__failure *b);
/* The failed worker that is the cause, of n; NULL: none has failed. */
const tutti__worker *tutti__first_failed(const tutti__worker *workers, int n);
/* False: all that have failed say that another did first, which has not failed yet. */
bool tutti__cause_is_known(const tutti__worker *workers, int n);

#endif
