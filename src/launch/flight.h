/* flight.h -- one table of what the ranks of a failed job were doing.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FLIGHT_H
#define TUTTI_LAUNCH_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/group.h>

/* Merges the reports (JSON, see comm/flight.h; those that are not such are left out) of the groups that died, at most
 * three. how[r]: what became of the job's rank r where it made no report, n of them. A block of lines a group, each
 * beginning with `title` or spaces; "" if there is no report. NULL: no memory. The caller frees it. */
char *tutti__flight_table(const char *const *reports, size_t n_reports, const char *const *how,
                          int n, const char *title, bool color);

/* The same for the reports that lie in the launcher's store. */
char *tutti__flight_collect(tutti_store *store, int attempt, const char *const *how, int n,
                            const char *title, bool color);

#endif
