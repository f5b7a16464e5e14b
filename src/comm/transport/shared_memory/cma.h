/* cma.h -- reading memory of other processes by cross-memory attach.   SPDX-License-Identifier: MIT
 *
 * Agreed on during the first operations; used if all ranks agree and it pays. Data read are valid only after a barrier has
 * been passed: the peer may have left the call, and freed them, meanwhile. */
#ifndef TUTTI_COMM_TRANSPORT_CMA_H
#define TUTTI_COMM_TRANSPORT_CMA_H

#include "comm/transport/shared_memory/shm.h"

/* Before the first operation. */
void tutti__cma_open(tutti__shm *shm);
void tutti__cma_agree(tutti__shm *shm);
/* For the call just published: others are to read these bytes of this rank. */
void tutti__cma_offer(tutti__shm *shm, const void *p, size_t bytes);
tutti_status tutti__cma_read(tutti__shm *shm, int rank, void *to, const void *at, size_t bytes);

#endif
