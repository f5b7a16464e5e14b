/* topology.h -- the switches above this host, as TUTTI_TOPOLOGY says.   SPDX-License-Identifier: MIT
 *
 * TUTTI_TOPOLOGY is a file in the form of Slurm's topology.conf,
 *
 *     SwitchName=leaf1 Nodes=node[01-16]
 *     SwitchName=spine Switches=leaf[1-4]
 *
 * or "slurm": SLURM_TOPOLOGY_ADDR, which a task has if the cluster's topology plugin is tree. It is asked for because the order of sums
 * depends on it (algorithm/pairs.h): a requeued job is on other nodes, and would have other bits. */
#ifndef TUTTI_COMM_BOOTSTRAP_TOPOLOGY_H
#define TUTTI_COMM_BOOTSTRAP_TOPOLOGY_H

#include "base/base.h"

enum { TUTTI__SWITCHES = 3 };

/* The switches above a host, nearest first, by hashes of their names; 0: no further one. Of more than these, the nearest. */
typedef struct tutti__switches {
    uint64_t id[TUTTI__SWITCHES];
} tutti__switches;

/* Of this variable; all 0 if it is not set. *digest_p is what ranks must have alike: a hash of the file. ARG, with file and line, for a
 * file that is none, or names no switch above `host`. */
tutti_status tutti__topology_find(const char *host, tutti__switches *switches, uint64_t *digest_p);

/* ---- Its parts ------------------------------------------------------------------------------------------------------- */

/* Of a text in the form of topology.conf, which is overwritten; `path` is for messages. */
tutti_status tutti__topology_read(const char *path, char *text, const char *host,
                                  tutti__switches *switches);
/* Of Slurm's address "spine.leaf1.node07" with the pattern "switch.switch.node". */
tutti_status tutti__topology_of_address(const char *address, const char *pattern,
                                        tutti__switches *switches);

#endif
