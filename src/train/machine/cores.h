/* cores.h -- which ranks share this rank's cores.   SPDX-License-Identifier: MIT
 *
 * A launcher may have bound each rank to its own cores (mpirun, srun), or may let all ranks of a machine use all cores (tutti
 * run). Only shared cores must be divided. */
#ifndef TUTTI_TRAIN_CORES_H
#define TUTTI_TRAIN_CORES_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/group.h>

/* What a rank sends to the others. */
typedef struct tutti__core_set {
    uint64_t machine; /* equal for ranks on one machine, whatever containers they are in */
    cpu_set_t cpus;   /* CPUs that it may use */
} tutti__core_set;

/* This rank is number `index` of `n` ranks that may use the same cores. */
typedef struct tutti__core_share {
    int index, n;
} tutti__core_share;

/* The share of rank `rank` of n_ranks. */
tutti__core_share tutti__core_share_of(const tutti__core_set *sets, size_t n_ranks, size_t rank);
/* The share of this rank. Collective. */
tutti_status tutti__core_share_find(tutti_group *group, tutti__core_share *share);

#endif
