/* shm_algorithms.h -- collectives through memory that all ranks see.   SPDX-License-Identifier: MIT
 *
 * Each runs one operation to completion; for all but small ones this rank has declared its contribution (tutti__shm_declare). */
#ifndef TUTTI_COMM_ALGORITHM_SHM_ALGORITHMS_H
#define TUTTI_COMM_ALGORITHM_SHM_ALGORITHMS_H

#include "comm/transport/shared_memory/shm.h"

/* Small operations, which are not declared: publishes the call and this rank's data, without waiting; then runs it. */
bool tutti__shm_is_small(const tutti__shm *shm, const tutti__operation *op);
void tutti__shm_small_publish(tutti__shm *shm, const tutti__operation *op);
tutti_status tutti__shm_small(tutti__shm *shm, const tutti__operation *op);
/* With a tree: reductions that the last rank to arrive makes for all. They publish themselves. */
bool tutti__shm_reduces_by_tree(const tutti__shm *shm, const tutti__operation *op);
tutti_status tutti__shm_reduce_by_tree(tutti__shm *shm, const tutti__operation *op);
/* Operations that reduce. */
tutti_status tutti__shm_reduce(tutti__shm *shm, tutti__operation *op);
/* Operations that move pieces unchanged. */
tutti_status tutti__shm_move(tutti__shm *shm, tutti__operation *op);

#endif
