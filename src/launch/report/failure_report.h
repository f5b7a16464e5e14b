/* failure_report.h -- the report of a failure: which worker was first, how it failed, and what the others did.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FAILURE_REPORT_H
#define TUTTI_LAUNCH_FAILURE_REPORT_H

#include "launch/process/worker.h"

typedef struct tutti__report {
    tutti__job *job;
    tutti__worker *workers; /* [job->opts.n] */
    tutti__console *console;
    long oom_kills; /* count when the workers were started */
} tutti__report;

/* The failed worker that is the cause; NULL: none has failed. */
const tutti__worker *tutti__first_failed(const tutti__worker *workers, int n);
/* False: all that have failed say that another did first, which has not failed yet. */
bool tutti__cause_is_known(const tutti__report *report);
/* Reports what all ranks were doing when a group of theirs died, if one did; only on the node with the store. said: message
 * already in the report, or "". */
void tutti__report_flights(const tutti__report *report, const char *said);
/* Reports the failure, once, when the first one is known. Returns the cause, which may be another worker that still runs. */
const tutti__worker *tutti__report_failure(const tutti__report *report, const tutti__worker *first);
/* For the other nodes: 'rank 3 on b failed first: exit code 1 (process 7, after 2.000 s), with the error: no data'. */
void tutti__describe_failure(const tutti__worker *first, char *text, size_t bytes);

#endif
