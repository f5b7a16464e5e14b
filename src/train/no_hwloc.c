/* no_hwloc.c -- without hwloc, ranks are left to the kernel's scheduler.   SPDX-License-Identifier: MIT */
#include "train/pin.h"

bool tutti__cpu_pin(int local_rank, int local_size)
{
    (void)local_rank;
    (void)local_size;
    return false;
}

tutti_status tutti__numa_binding(tutti__numa_mode mode, int n, cpu_set_t *sets)
{
    (void)mode;
    (void)n;
    (void)sets;
    return tutti__fail(TUTTI_ERR_ARG, "--numa-binding needs hwloc, which this build was made "
                                      "without; numactl or taskset before PROGRAM does as well");
}
