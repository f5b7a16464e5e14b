/* readable.h -- whether hwloc can read the CPUs' topology.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_HWLOC_READABLE_H
#define TUTTI_TRAIN_HWLOC_READABLE_H

#include <stdbool.h>
#include <unistd.h>

/* Without /sys, as in a chroot, hwloc prints errors and knows only the number of CPUs. */
static inline bool tutti__topology_readable(void)
{
    return access("/sys/devices/system/cpu/cpu0/topology", R_OK) == 0;
}

#endif
