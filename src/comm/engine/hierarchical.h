/* hierarchy.h -- several hosts as one group.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_TRANSPORT_HIERARCHY_H
#define TUTTI_COMM_TRANSPORT_HIERARCHY_H

#include "comm/group.h"

/* The group's wire is open; `local`, which it takes over, holds the ranks with this one's host id, in order. */
tutti_status tutti__hierarchy_open(tutti_group *group, tutti_group *local,
                                   const uint64_t *host_ids);

#endif
