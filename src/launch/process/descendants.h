/* descendants.h -- this process's children and their descendants, from /proc.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_DESCENDANTS_H
#define TUTTI_LAUNCH_DESCENDANTS_H

#include "base/base.h"

#include <sys/types.h>

/* Stopped by SIGSTOP or a debugger. */
bool tutti__process_is_stopped(pid_t pid);
/* Signals every descendant that is not a zombie, except the `spared` children, in ascending order, and their descendants. Returns how many
 * it found; -1: /proc cannot be read. */
int tutti__signal_descendants(int sig, const pid_t *spared, size_t n_spared);
void tutti__sort_pids(pid_t *list, size_t n);
/* Up to `capacity` children of this process, in ascending order; returns how many. */
size_t tutti__list_children(pid_t *children, size_t capacity);
/* The same for a process group. */
size_t tutti__list_group(pid_t group, pid_t *members, size_t capacity);
/* Number of OOM kills in our cgroup, or else on this machine; -1: unknown. */
long tutti__oom_kills(void);

#endif
