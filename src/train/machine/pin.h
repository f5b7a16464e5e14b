/* pin.h -- binds ranks to cores, by hwloc.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_PIN_H
#define TUTTI_TRAIN_PIN_H

#include "base/base.h"

#include <sched.h>

/* Binds this process to its share of the cores it may use (its own cores, with shared caches if possible), as number `index` of
 * `n` processes that may use the same cores, so that they do not migrate. False, without effect, with one rank, with more ranks
 * than cores, without hwloc, or if the machine does not support or allow it. */
bool tutti__cpu_pin(int index, int n);

/* torchrun's --numa-binding. */
typedef enum tutti__numa_mode {
    TUTTI__NUMA_NODE,        /* all CPUs of the NUMA node of the rank's device */
    TUTTI__NUMA_SOCKET,      /* all of that node's socket */
    TUTTI__NUMA_EXCLUSIVE,   /* the rank's share of the node's cores */
    TUTTI__NUMA_CORE_COMPLEX /* cores of the node that share a last-level cache */
} tutti__numa_mode;

/* The CPUs of each of `n` local ranks, among those that this process may use. If the devices' nodes are not known, ranks are
 * spread over the nodes in order. An error without hwloc. */
tutti_status tutti__numa_binding(tutti__numa_mode mode, int n, cpu_set_t *sets);

#endif
