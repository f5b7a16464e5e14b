/* mesh.c -- the ranks of a group as a grid.   SPDX-License-Identifier: MIT */
#include "comm/comm.h"
#include <tutti/mesh.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, NAME = 32 };

typedef struct mesh_line {
    char name[NAME];
    int32_t size, rank;
    tutti_group *group; /* NULL before it is made */
} mesh_line;

struct tutti_mesh {
    tutti_group *all;
    mesh_line lines[MOST];
    size_t n;
};

/* "pipeline 2 x data 0 x tensor 2" */
static void describe(const tutti_mesh *mesh, char *text, size_t capacity)
{
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < mesh->n && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%s %d", i ? " x " : "",
                              mesh->lines[i].name, mesh->lines[i].size);
}

static mesh_line *find(const tutti_mesh *mesh, const char *name)
{
    for (size_t i = 0; mesh && name && i < mesh->n; i++)
        if (strcmp(mesh->lines[i].name, name) == 0)
            return (mesh_line *)&mesh->lines[i];
    return NULL;
}

/* Takes them over, without those that are invalid. */
static tutti_status take(tutti_mesh *mesh, const tutti_mesh_dimension *dimensions, size_t n)
{
    if (!dimensions || n < 1 || n > MOST)
        return tutti__fail(TUTTI_ERR_ARG, "mesh of group \"%s\": %zu dimensions, expected 1 to %d",
                           tutti_group_name(mesh->all), dimensions ? n : 0, MOST);
    for (size_t i = 0; i < n; i++) {
        const tutti_mesh_dimension *d = &dimensions[i];

        TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_mesh_dimension, d));
        if (!d->name || !d->name[0] || strlen(d->name) >= NAME)
            return tutti__fail(TUTTI_ERR_ARG,
                               "mesh of group \"%s\": dimension %zu is named \"%.40s\", expected 1 "
                               "to %d characters",
                               tutti_group_name(mesh->all), i, d->name ? d->name : "", NAME - 1);
        if (find(mesh, d->name))
            return tutti__fail(TUTTI_ERR_ARG, "mesh of group \"%s\": two dimensions are named %s",
                               tutti_group_name(mesh->all), d->name);
        if (d->size < 0)
            return tutti__fail(TUTTI_ERR_ARG,
                               "mesh of group \"%s\": dimension %s is %d, expected 1 or more, or 0 "
                               "for what the others leave",
                               tutti_group_name(mesh->all), d->name, d->size);
        strcpy(mesh->lines[i].name, d->name);
        mesh->lines[i].size = d->size;
        mesh->n = i + 1;
    }
    return TUTTI_OK;
}

/* Sets the size that was left out, if there is one. */
static tutti_status fit(tutti_mesh *mesh)
{
    const int ranks = tutti_group_size(mesh->all);
    mesh_line *open = NULL;
    int64_t product = 1;
    char text[MOST * (NAME + 16)];

    describe(mesh, text, sizeof text);
    for (size_t i = 0; i < mesh->n; i++) {
        mesh_line *line = &mesh->lines[i];

        if (line->size == 0 && open)
            return tutti__fail(TUTTI_ERR_ARG,
                               "mesh %s: the sizes of %s and %s are left out; at most one may be",
                               text, open->name, line->name);
        if (line->size == 0)
            open = line;
        else if (product <= ranks)
            product *= line->size;
    }
    if (open && product <= ranks && ranks % product == 0)
        open->size = (int)(ranks / product);
    else if (open)
        return tutti__fail(TUTTI_ERR_ARG,
                           "mesh %s: %d ranks are not a multiple of the other dimensions' %lld",
                           text, ranks, (long long)product);
    else if (product != ranks)
        return tutti__fail(TUTTI_ERR_ARG,
                           "mesh %s: it does not have the %d rank%s of group \"%s\"; the sizes' "
                           "product must be their number",
                           text, ranks, tutti__s((uint64_t)ranks), tutti_group_name(mesh->all));
    return TUTTI_OK;
}

/* MISMATCH on ranks that describe another mesh than rank 0. */
static tutti_status compare(const tutti_mesh *mesh, const char *here)
{
    char there[MOST * (NAME + 16)];

    snprintf(there, sizeof there, "%s", here);
    TUTTI_TRY(tutti_broadcast(mesh->all, TUTTI_BUF(there, sizeof there, TUTTI_U8), 0, NULL));
    there[sizeof there - 1] = '\0';
    return strcmp(here, there) == 0
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_MISMATCH,
                             "mesh: this rank has %s, and rank 0 has %s; all ranks must give the "
                             "same",
                             here, there);
}

/* Ranks of one colour differ in this dimension only. `stride`: between neighbours in it. */
static tutti_status make_line(tutti_mesh *mesh, mesh_line *line, int stride)
{
    const int ranks = tutti_group_size(mesh->all), rank = tutti_group_rank(mesh->all);
    const int colour = rank / (stride * line->size) * stride + rank % stride;

    line->rank = rank / stride % line->size;
    if (line->size == ranks) {
        line->group = mesh->all;
        return TUTTI_OK;
    }
    if (tutti__group_is_planned(mesh->all)) {
        const int here = (tutti_group_local_size(mesh->all) + stride - 1) / stride;

        return tutti__group_plan(&line->group, line->rank, line->size,
                                 here < line->size ? here : line->size);
    }
    return tutti_group_split_by(mesh->all, colour, line->rank, line->name, &line->group);
}

static tutti_status make(tutti_mesh *mesh, tutti_status status)
{
    char text[MOST * (NAME + 16)] = "";
    int stride = 1;

    if (status == TUTTI_OK)
        status = fit(mesh);
    TUTTI_TRY(tutti__group_agree(mesh->all, status));
    describe(mesh, text, sizeof text);
    TUTTI_TRY(tutti__group_agree(mesh->all, compare(mesh, text)));
    for (size_t i = mesh->n; i-- > 0; stride *= mesh->lines[i].size)
        TUTTI_TRY(make_line(mesh, &mesh->lines[i], stride));
    return TUTTI_OK;
}

tutti_status tutti_mesh_new(tutti_mesh **mesh_p, tutti_group *group,
                            const tutti_mesh_dimension *dimensions, size_t n)
{
    tutti_mesh *mesh;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(mesh_p));
    *mesh_p = NULL;
    TUTTI_TRY(tutti__check_group("mesh_new", group));
    mesh = tutti__alloc(sizeof *mesh);
    if (!mesh)
        return tutti__group_agree(group, TUTTI_ERR_MEMORY);
    mesh->all = group;
    status = make(mesh, take(mesh, dimensions, n));
    if (status == TUTTI_OK)
        *mesh_p = mesh;
    else
        tutti_mesh_free(mesh);
    return status;
}

void tutti_mesh_free(tutti_mesh *mesh)
{
    for (size_t i = 0; mesh && i < mesh->n; i++)
        if (mesh->lines[i].group != mesh->all)
            tutti_group_free(mesh->lines[i].group);
    free(mesh);
}

int tutti_mesh_size(const tutti_mesh *mesh, const char *name)
{
    const mesh_line *line = find(mesh, name);

    return line ? line->size : 1;
}

int tutti_mesh_rank(const tutti_mesh *mesh, const char *name)
{
    const mesh_line *line = find(mesh, name);

    return line ? line->rank : 0;
}

tutti_group *tutti_mesh_group(const tutti_mesh *mesh, const char *name)
{
    const mesh_line *line = find(mesh, name);

    return line ? line->group : NULL;
}
