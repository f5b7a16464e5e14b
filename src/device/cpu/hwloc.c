/* hwloc.c -- gives each local rank cores of its own, near each other.   SPDX-License-Identifier: MIT */
#include "device/device.h"

#include <hwloc.h>
#include <stdlib.h>

tutti_status tutti__cpu_pin(int local_rank, int local_size, bool *pinned_p)
{
    hwloc_topology_t topology;
    hwloc_obj_t root;
    hwloc_cpuset_t *sets = NULL;
    int n;

    *pinned_p = false;
    /* More ranks than cores: the kernel's scheduler shares them better than we could. */
    if (local_size < 2 || local_size > tutti__cores())
        return TUTTI_OK;
    if (hwloc_topology_init(&topology) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "hwloc: no memory for the machine's topology");
    /* Only cores and what cannot be left out: the whole topology takes ten milliseconds to read. */
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return tutti__fail(TUTTI_ERR_IO, "hwloc: cannot read the machine's topology");
    }
    root = hwloc_get_root_obj(topology);
    n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    sets = calloc((size_t)local_size, sizeof(hwloc_cpuset_t));
    if (sets && n >= local_size &&
        hwloc_distrib(topology, &root, 1, sets, (unsigned)local_size, INT32_MAX, 0) == 0) {
        *pinned_p = hwloc_set_cpubind(topology, sets[local_rank], HWLOC_CPUBIND_PROCESS) == 0;
        for (int i = 0; i < local_size; i++)
            hwloc_bitmap_free(sets[i]);
    }
    free(sets);
    hwloc_topology_destroy(topology);
    return TUTTI_OK;
}
