/* mesh.h -- the ranks of a group as a grid of named dimensions, each with groups of its own.
 * SPDX-License-Identifier: MIT
 *
 * Data, tensor and pipeline parallelism divide the ranks in more than one way at once. A mesh numbers them row by row, the last
 * dimension fastest, as PyTorch's init_device_mesh: with {"data", 2}, {"tensor", 3}, rank 4 has the coordinates data 1, tensor 1;
 * its group "tensor" is ranks 3, 4, 5, and its group "data" ranks 1, 4. Make dimensions that send the most the last ones: their
 * ranks are neighbours, on one host if it has enough. */
#ifndef TUTTI_MESH_H
#define TUTTI_MESH_H

#include <tutti/group.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_mesh tutti_mesh;

typedef struct tutti_mesh_dimension {
    const char *name;     /* 1 to 31 characters; copied */
    int size;             /* 0, in one of them: what the others leave of the group's ranks */
    uint64_t reserved[2]; /* zero */
} tutti_mesh_dimension;

/* Makes a mesh of all ranks of `group`, and this rank's group in each dimension, named NAME-0, NAME-1, ... The group must outlive it.
 * Collective over `group`, with the same 1 to 8 dimensions on all ranks. Errors, on all ranks, and the group stays usable: ARG if
 * sizes do not fit the group, naming them; MISMATCH if ranks give different dimensions; else those of tutti_group_split_by. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_mesh_new(tutti_mesh **mesh_p, tutti_group *group,
                                                      const tutti_mesh_dimension *dimensions,
                                                      size_t n);
/* Leaves the mesh's groups. NULL is fine. */
TUTTI_API void tutti_mesh_free(tutti_mesh *mesh);
/* Of a dimension: its size, and this rank's coordinate, which is its rank in that dimension's group. 1 and 0 for a name that the mesh
 * has not, and for NULL: nothing is divided so. Any thread. */
TUTTI_API int tutti_mesh_size(const tutti_mesh *mesh, const char *name);
TUTTI_API int tutti_mesh_rank(const tutti_mesh *mesh, const char *name);
/* The ranks that differ from this one in that dimension only, by coordinate. Borrowed from the mesh; of a dimension that has all
 * ranks it is the mesh's group itself, with which it shares the order of calls. NULL: no such dimension. */
TUTTI_API tutti_group *tutti_mesh_group(const tutti_mesh *mesh, const char *name);

#ifdef __cplusplus
}
#endif
#endif
