/* pin.c -- binds each local rank to its own cores, near each other.   SPDX-License-Identifier: MIT */
#include "train/machine/hwloc/readable.h"
#include "train/machine/pin.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>

/* hwloc asks with larger and larger sets until the kernel answers: for ever if a sandbox refuses the call. EINVAL: more CPUs
 * than the set has room for. */
static bool affinity_known(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 || errno == EINVAL;
}

/* Loads only cores, and what hwloc always needs: the whole topology takes ten milliseconds. */
static bool load_cores(hwloc_topology_t topology)
{
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    return hwloc_topology_load(topology) == 0;
}

/* Restricts it to the CPUs that a launcher or taskset has bound this process to. */
static bool restrict_to_ours(hwloc_topology_t topology)
{
    hwloc_cpuset_t ours = hwloc_bitmap_alloc();
    bool restricted = ours && hwloc_get_cpubind(topology, ours, HWLOC_CPUBIND_PROCESS) == 0 &&
                      hwloc_topology_restrict(topology, ours, 0) == 0;

    hwloc_bitmap_free(ours);
    return restricted;
}

static bool bind_share(hwloc_topology_t topology, int local_rank, int local_size)
{
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    hwloc_cpuset_t *sets = calloc((size_t)local_size, sizeof *sets);
    bool bound = false;

    if (sets && hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) >= local_size &&
        hwloc_distrib(topology, &root, 1, sets, (unsigned)local_size, INT32_MAX, 0) == 0) {
        bound = hwloc_set_cpubind(topology, sets[local_rank], HWLOC_CPUBIND_PROCESS) == 0;
        for (int i = 0; i < local_size; i++)
            hwloc_bitmap_free(sets[i]);
    }
    free(sets);
    return bound;
}

bool tutti__cpu_pin(int index, int n)
{
    hwloc_topology_t topology;
    bool bound;

    /* More ranks than cores: the kernel's scheduler does better than binding. */
    if (n < 2 || n > tutti__cores() || !tutti__topology_readable() || !affinity_known() ||
        hwloc_topology_init(&topology) != 0)
        return false;
    bound = load_cores(topology) && restrict_to_ours(topology) && bind_share(topology, index, n);
    hwloc_topology_destroy(topology);
    return bound;
}
