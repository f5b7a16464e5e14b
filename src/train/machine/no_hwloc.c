/* no_hwloc.c -- without hwloc, ranks are not bound.   SPDX-License-Identifier: MIT */
#include "train/machine/pin.h"

bool tutti__cpu_pin(int index, int n)
{
    (void)index;
    (void)n;
    return false;
}

tutti_status tutti__numa_binding(tutti__numa_mode mode, int n, cpu_set_t *sets)
{
    (void)mode;
    (void)n;
    (void)sets;
    return tutti__fail(TUTTI_ERR_ARG, "--numa-binding needs hwloc, which this build was made "
                                      "without; numactl or taskset before PROGRAM works too");
}
