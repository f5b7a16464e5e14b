/* no_hwloc.c -- without hwloc, ranks are left to the kernel's scheduler.   SPDX-License-Identifier: MIT */
#include "device/device.h"

tutti_status tutti__cpu_pin(int local_rank, int local_size, bool *pinned_p)
{
    (void)local_rank;
    (void)local_size;
    *pinned_p = false;
    return TUTTI_OK;
}
