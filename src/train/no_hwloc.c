/* no_hwloc.c -- without hwloc, ranks are left to the kernel's scheduler.   SPDX-License-Identifier: MIT */
#include "train/pin.h"

bool tutti__cpu_pin(int local_rank, int local_size)
{
    (void)local_rank;
    (void)local_size;
    return false;
}
