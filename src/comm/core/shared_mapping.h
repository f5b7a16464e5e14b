/* shared_mapping.h -- memory that processes of one host share.   SPDX-License-Identifier: MIT
 *
 * A mapping of a memfd: it has no name, so it appears in no folder, needs no room in /dev/shm and is freed with its last user,
 * however that one ends. */
#ifndef TUTTI_COMM_CORE_SHARED_MAPPING_H
#define TUTTI_COMM_CORE_SHARED_MAPPING_H

#include "base/base.h"

/* Makes zeroed memory and maps it; `used`: how much of it will be touched, perhaps. Others map the descriptor; close it when all have it. 0 or an errno, and *step_p (may be NULL):
 * what failed. */
int tutti__shared_mapping_make(size_t bytes, size_t used, int *fd_p, void **mapping_p,
                               const char **step_p);
/* 0 or an errno. */
int tutti__shared_mapping_take(int fd, size_t bytes, void **mapping_p);

#endif
