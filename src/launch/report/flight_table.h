/* flight_table.h -- one table of what the ranks of a failed job were doing.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FLIGHT_TABLE_H
#define TUTTI_LAUNCH_FLIGHT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/group.h>

/* Merges the reports (JSON, see comm/engine/flight_recorder.h; others are ignored) of the groups that died, at most three. how[r], of n:
 * the state of the job's rank r if it made no report. A block of lines per group, each beginning with `title` or spaces; "" without
 * reports. NULL: no memory. The caller frees it. */
char *tutti__flight_table(const char *const *reports, size_t n_reports, const char *const *how,
                          int n, const char *title, bool color);

/* The same for the reports in the launcher's store. */
char *tutti__flight_collect(tutti_store *store, int round, const char *const *how, int n,
                            const char *title, bool color);

#endif
