/* failure_report.h -- the report of a failure: which worker was first, how it failed, and what the others did.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FAILURE_REPORT_H
#define TUTTI_LAUNCH_FAILURE_REPORT_H

#include "launch/process/node_workers.h"

/* Reports what all ranks were doing when a group of theirs died, if one did; only on the node with the store. shown: message
 * already in the report, or "". */
void tutti__report_flights(const tutti__workers *workers, const char *shown);
/* Reports the failure, once, when the first one is known. Returns the cause, which may be another worker that still runs. */
const tutti__worker *tutti__report_failure(const tutti__workers *workers,
                                           const tutti__worker *first);
/* For the other nodes: 'rank 3 on b failed first: exit code 1 (process 7, after 2.000 s), with the error: no data'. */
void tutti__describe_failure(const tutti__worker *first, char *text, size_t bytes);

#endif
