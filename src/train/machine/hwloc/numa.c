/* numa.c -- the CPUs near each rank's device, as torchrun's --numa-binding chooses them.   SPDX-License-Identifier: MIT */
#include "train/machine/hwloc/readable.h"
#include "train/machine/pin.h"

#include <errno.h>
#include <glob.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

/* The ranks' NUMA nodes, while their CPUs are chosen. */
typedef struct places {
    hwloc_topology_t topology;
    cpu_set_t mine; /* CPUs that this process may use */
    int n;
    hwloc_obj_t *nodes; /* [n], the NUMA node of each rank */
} places;

/* The NUMA node that the kernel says device i of the driver's list is on; -1: unknown. */
static int node_of_device(int i)
{
    char path[512];
    glob_t found;
    FILE *file = NULL;
    int node = -1;

    if (i >= 0 && glob("/proc/driver/nvidia/gpus/*", 0, NULL, &found) == 0) {
        if ((size_t)i < found.gl_pathc) {
            snprintf(path, sizeof path, "/sys/bus/pci/devices/%.64s/numa_node",
                     strrchr(found.gl_pathv[i], '/') + 1);
            file = fopen(path, "re");
        }
        globfree(&found);
    }
    if (file && fscanf(file, "%d", &node) != 1)
        node = -1;
    if (file)
        fclose(file);
    return node;
}

/* The entry for it in CUDA_VISIBLE_DEVICES, if that is a list of numbers. */
static int device_of_rank(int local_rank)
{
    const char *p = getenv("CUDA_VISIBLE_DEVICES");
    char *end;
    long device;

    if (!p)
        return local_rank;
    for (int i = 0; i < local_rank && *p; i++) {
        p += strcspn(p, ",");
        p += *p == ',';
    }
    device = strtol(p, &end, 10);
    return end != p && (*end == ',' || !*end) ? (int)device : -1;
}

static tutti_status find_nodes(places *p)
{
    int n_nodes = hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_NUMANODE);

    if (n_nodes < 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--numa-binding: this machine does not report its NUMA nodes");
    for (int i = 0; i < p->n; i++) {
        int node = node_of_device(device_of_rank(i));

        if (node >= 0)
            p->nodes[i] = hwloc_get_numanode_obj_by_os_index(p->topology, (unsigned)node);
        if (!p->nodes[i])
            p->nodes[i] = hwloc_get_obj_by_type(p->topology, HWLOC_OBJ_NUMANODE,
                                                (unsigned)((long)i * n_nodes / p->n));
    }
    return TUTTI_OK;
}

/* This rank is the *k_p-th of *m_p on its node. */
static void count_neighbours(const places *p, int rank, int *k_p, int *m_p)
{
    *k_p = *m_p = 0;
    for (int i = 0; i < p->n; i++) {
        *k_p += i < rank && p->nodes[i] == p->nodes[rank];
        *m_p += p->nodes[i] == p->nodes[rank];
    }
}

static void add_objects(const places *p, hwloc_obj_type_t type, int begin, int end,
                        hwloc_const_cpuset_t within, hwloc_bitmap_t set)
{
    for (int i = begin; i < end; i++)
        hwloc_bitmap_or(
            set, set,
            hwloc_get_obj_inside_cpuset_by_type(p->topology, within, type, (unsigned)i)->cpuset);
}

static tutti_status choose(const places *p, tutti__numa_mode mode, int rank, hwloc_bitmap_t set)
{
    hwloc_obj_t node = p->nodes[rank], object = node;
    int k, m, cores, caches;

    count_neighbours(p, rank, &k, &m);
    cores = hwloc_get_nbobjs_inside_cpuset_by_type(p->topology, node->cpuset, HWLOC_OBJ_CORE);
    caches = hwloc_get_nbobjs_inside_cpuset_by_type(p->topology, node->cpuset, HWLOC_OBJ_L3CACHE);
    if (mode == TUTTI__NUMA_SOCKET)
        while (object && object->type != HWLOC_OBJ_PACKAGE)
            object = object->parent;
    if (mode == TUTTI__NUMA_EXCLUSIVE) {
        if (m > cores)
            return tutti__fail(TUTTI_ERR_ARG,
                               "--numa-binding exclusive: %d workers on NUMA node %u, which has %d "
                               "cores for this process; use fewer workers, or `node`",
                               m, node->os_index, cores);
        add_objects(p, HWLOC_OBJ_CORE, k * cores / m, (k + 1) * cores / m, node->cpuset, set);
    } else if (mode == TUTTI__NUMA_CORE_COMPLEX && caches > 0) {
        add_objects(p, HWLOC_OBJ_L3CACHE, k % caches, k % caches + 1, node->cpuset, set);
    } else { /* sockets or caches unknown: the whole machine counts as one */
        hwloc_bitmap_copy(set, object ? object->cpuset : hwloc_get_root_obj(p->topology)->cpuset);
    }
    return TUTTI_OK;
}

static tutti_status choose_all(places *p, tutti__numa_mode mode, cpu_set_t *sets)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    tutti_status status = set ? find_nodes(p) : tutti__fail(TUTTI_ERR_MEMORY, "no memory");

    for (int i = 0; i < p->n && status == TUTTI_OK; i++) {
        hwloc_bitmap_zero(set);
        CPU_ZERO(&sets[i]);
        status = choose(p, mode, i, set);
        for (int cpu = hwloc_bitmap_first(set); cpu >= 0 && cpu < CPU_SETSIZE;
             cpu = hwloc_bitmap_next(set, cpu))
            if (CPU_ISSET((size_t)cpu, &p->mine))
                CPU_SET((size_t)cpu, &sets[i]);
        if (status == TUTTI_OK && CPU_COUNT(&sets[i]) == 0)
            status = tutti__fail(TUTTI_ERR_ARG,
                                 "--numa-binding: local rank %d belongs to NUMA node %u, of whose "
                                 "CPUs this process may use none (taskset, cgroup)",
                                 i, p->nodes[i]->os_index);
    }
    hwloc_bitmap_free(set);
    return status;
}

tutti_status tutti__numa_binding(tutti__numa_mode mode, int n, cpu_set_t *sets)
{
    places p = {.n = n, .nodes = calloc((size_t)n, sizeof *p.nodes)};
    tutti_status status;

    if (!tutti__topology_readable()) {
        free(p.nodes);
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "--numa-binding: /sys/devices/system/cpu does not describe the CPUs; "
                           "mount /sys (mount -t sysfs sys /sys), or leave out --numa-binding");
    }
    if (!p.nodes || hwloc_topology_init(&p.topology) != 0) {
        free(p.nodes);
        return tutti__fail(TUTTI_ERR_MEMORY, "--numa-binding: no memory for %d ranks", n);
    }
    hwloc_topology_set_all_types_filter(p.topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(p.topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(p.topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(p.topology, HWLOC_OBJ_L3CACHE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (sched_getaffinity(0, sizeof p.mine, &p.mine) != 0 || hwloc_topology_load(p.topology) != 0)
        status = tutti__fail_errno(errno, "--numa-binding: this machine does not report its CPUs");
    else
        status = choose_all(&p, mode, sets);
    hwloc_topology_destroy(p.topology);
    free(p.nodes);
    return status;
}
