/* launcher_cause.h -- which process of a job failed first, as its launcher tells those that it ends.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_LAUNCHER_CAUSE_H
#define TUTTI_COMM_BOOTSTRAP_LAUNCHER_CAUSE_H

#include <tutti/store.h>

/* Ranks whose group is being made when they miss another take it for the cause. rank: in the job; text: the whole message. */
tutti_status tutti__launcher_cause_leave(tutti_store *store, int attempt, int rank,
                                         const char *text);

#endif
