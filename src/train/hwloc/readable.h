/* readable.h -- whether hwloc can tell how CPUs lie.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_HWLOC_READABLE_H
#define TUTTI_TRAIN_HWLOC_READABLE_H

#include <stdbool.h>
#include <unistd.h>

/* Without /sys, as in a chroot, hwloc complains on stderr, and knows no more than how many CPUs there are. */
static inline bool tutti__topology_readable(void)
{
    return access("/sys/devices/system/cpu/cpu0/topology", R_OK) == 0;
}

#endif
