/* pin.h -- cores of one's own, by hwloc.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_PIN_H
#define TUTTI_TRAIN_PIN_H

#include "base/base.h"

#include <sched.h>

/* Binds this process to its share of the cores it may use (its own cores, caches shared if possible), as number `index` of `n`
 * processes that may use the same, so that they do not wander over each other. False, and nothing changed, with one rank, with
 * more ranks than cores, without hwloc, or where the machine does not tell or allow it. */
bool tutti__cpu_pin(int index, int n);

/* torchrun's --numa-binding. */
typedef enum tutti__numa_mode {
    TUTTI__NUMA_NODE,        /* all CPUs of the NUMA node that the rank's device is on */
    TUTTI__NUMA_SOCKET,      /* all of that node's socket */
    TUTTI__NUMA_EXCLUSIVE,   /* the rank's share of the node's cores */
    TUTTI__NUMA_CORE_COMPLEX /* cores of the node that share a last-level cache */
} tutti__numa_mode;

/* The CPUs of each of `n` local ranks, of those that this process may use. Where devices are not on nodes that are known,
 * ranks are spread over the nodes in order. Without hwloc an error. */
tutti_status tutti__numa_binding(tutti__numa_mode mode, int n, cpu_set_t *sets);

#endif
