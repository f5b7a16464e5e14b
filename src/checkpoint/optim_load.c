/* optim_load.c -- an optimizer's state from a checkpoint, of which each rank takes what its layout needs.   SPDX-License-Identifier: MIT */
#include "checkpoint/optim_load.h"

#include "checkpoint/state.h"
#include "comm/comm.h"
#include "ddp/pieces.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 320 };
#define UPDATES "step."

/* ---- All of it is there -------------------------------------------------------------------------------------- */

static tutti_status grow(char **room_p, size_t *bytes_p, size_t bytes)
{
    if (*room_p && bytes <= *bytes_p)
        return TUTTI_OK;
    free(*room_p);
    *room_p = tutti__alloc_unset(bytes + 1);
    *bytes_p = *room_p ? bytes : 0;
    return *room_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* The state of one parameter, which may be missing if it had no updates. */
static tutti_status check_one(const tutti__optim_block *block, const tutti__tensor_files *file,
                              const tutti_tensor *t)
{
    const tutti_shape shape = tutti__whole_shape(t);
    const tutti__safetensors *part;
    const tutti__safetensors_entry *e;
    char name[NAME_BYTES];
    uint64_t updates;

    snprintf(name, sizeof name, UPDATES "%s", tutti_tensor_name(t));
    TUTTI_TRY(tutti__optim_tensor_read(file, name, TUTTI_I64, (tutti_shape){.n = 0}, &updates));
    for (size_t k = 0; k < block->n_states; k++) {
        snprintf(name, sizeof name, "%s.%s", block->names[k], tutti_tensor_name(t));
        e = tutti__tensor_files_find(file, name, &part);
        if (!e && updates == 0)
            continue;
        if (!e || !e->readable || e->dtype != TUTTI_F32 || !tutti_shape_equal(e->shape, shape))
            return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s is %s", file->path, name,
                               e ? "of another shape or dtype" : "missing");
    }
    return TUTTI_OK;
}

static tutti_status check_digests(const tutti__tensor_files *file)
{
    size_t bytes = 0;
    char *room = NULL;
    tutti_status status = TUTTI_OK;

    for (size_t k = 0; k < file->n; k++)
        for (size_t i = 0; i < tutti__safetensors_count(file->p[k]) && status == TUTTI_OK; i++) {
            const tutti__safetensors_entry *e = tutti__safetensors_at(file->p[k], i);

            status =
                tutti__safetensors_has_digest(file->p[k], e)
                    ? grow(&room, &bytes, (size_t)e->bytes)
                    : tutti__fail(TUTTI_ERR_FORMAT, "%s: %s has no digest", file->path, e->name);
            if (status == TUTTI_OK)
                status = tutti__safetensors_read(file->p[k], e, room);
        }
    free(room);
    return status;
}

tutti_status tutti__optim_file_check(tutti__optim_block *block, const tutti_module *m,
                                     const char *folder)
{
    tutti__tensor_files file;
    tutti_status status = tutti__tensor_files_open(&file, folder, "optimizer");

    if (status == TUTTI_OK)
        status = tutti__optim_block_names(block, &file);
    for (size_t i = 0; i < tutti_module_n_parameters(m) && status == TUTTI_OK; i++)
        status = check_one(block, &file, tutti_module_parameter(m, i));
    if (status == TUTTI_OK)
        status = check_digests(&file);
    tutti__tensor_files_close(&file);
    return status;
}

/* ---- Later --------------------------------------------------------------------------------------------------- */

typedef struct later {
    tutti_module *m;
    tutti_group *group;
    tutti__tensor_files file; /* open, if this rank has it */
    bool has;
    bool *may; /* by rank */
    char folder[4096];
    char *room; /* of the largest tensor so far */
    size_t room_bytes;
} later;

static void later_free(void *self)
{
    later *l = self;

    tutti__tensor_files_close(&l->file);
    free(l->may);
    free(l->room);
    free(l);
}

/* Of the checkpoint's own state.json: another folder of the same name, on another host, is not it. */
static bool is_it(const char *folder, const char *digest)
{
    json_t *state;
    const char *said;
    bool same;

    if (tutti__state_read(&state, folder) != TUTTI_OK)
        return false;
    said = json_string_value(json_object_get(state, "digest"));
    same = said && strcmp(said, digest) == 0;
    json_decref(state);
    return same;
}

static tutti_status find_readers(later *l, const char *digest)
{
    const size_t size = (size_t)tutti_group_size(l->group);
    uint8_t *all = tutti__alloc(size);
    tutti_status status;
    uint8_t mine;

    l->may = tutti__alloc(size * sizeof *l->may);
    l->has = (tutti_group_rank(l->group) == 0 || is_it(l->folder, digest)) &&
             tutti__tensor_files_open(&l->file, l->folder, "optimizer") == TUTTI_OK;
    status = !all || !l->may                              ? TUTTI_ERR_MEMORY
             : tutti_group_rank(l->group) == 0 && !l->has ? tutti__last_status()
                                                          : TUTTI_OK;
    status = tutti__group_agree(l->group, status);
    mine = l->has;
    if (status == TUTTI_OK)
        status = tutti_all_gather(l->group, TUTTI_CONST_BUF(&mine, 1, TUTTI_U8),
                                  TUTTI_BUF(all, size, TUTTI_U8), NULL);
    for (size_t r = 0; status == TUTTI_OK && r < size; r++)
        l->may[r] = all[r] != 0;
    free(all);
    return status;
}

/* Reads a tensor that was given to this rank. One that is missing had no updates (tutti__optim_file_check): zeros. */
static tutti_status read_one(later *l, const tutti__whole *w)
{
    const tutti__safetensors *part;

    memset(l->room, 0, w->bytes);
    if (!tutti__tensor_files_find(&l->file, w->name, &part))
        return TUTTI_OK;
    return tutti__optim_tensor_read(&l->file, w->name, w->dtype, w->shape, l->room);
}

/* Reads and spreads the numbers of updates, or the states. A rank that cannot read goes on with what it has, so that the others do
 * not wait for it; then all fail. */
static tutti_status spread(later *l, const tutti__pieces *mine, const tutti__wholes *wholes,
                           tutti__mover *mover, bool updates, tutti_status *own)
{
    for (size_t i = 0; i < wholes->n; i++) {
        const tutti__whole *w = &wholes->p[i];
        const bool reads = w->rank == mover->rank;

        if ((strncmp(w->name, UPDATES, strlen(UPDATES)) == 0) != updates)
            continue;
        if (reads && grow(&l->room, &l->room_bytes, w->bytes) != TUTTI_OK) {
            tutti_group_abort(l->group, "%s", tutti_last_error());
            return TUTTI_ERR_MEMORY;
        }
        if (reads && *own == TUTTI_OK)
            *own = read_one(l, w);
        TUTTI_TRY(tutti__whole_spread(wholes, i, mine, mover, reads ? l->room : NULL));
    }
    return TUTTI_OK;
}

/* Which parameters have state depends on their updates, which come first. */
static tutti_status load_kind(later *l, const tutti_optim *optim, bool updates)
{
    tutti__pieces mine = {.n = 0};
    tutti__wholes wholes = {.n = 0};
    tutti__mover mover = {.room = NULL};
    uint64_t *load = tutti__alloc((size_t)tutti_group_size(l->group) * sizeof *load);
    tutti_status own = load ? TUTTI_OK : TUTTI_ERR_MEMORY, status;

    if (own == TUTTI_OK)
        own = tutti__pieces_of_optim(&mine, optim, l->m);
    if (own == TUTTI_OK)
        own = tutti__mover_new(&mover, l->group, optim->cx->stream, TUTTI__TAG_MOVE);
    status = tutti__group_agree(l->group, own);
    if (status == TUTTI_OK)
        status = tutti__wholes_find(&wholes, &mine, l->group);
    if (status == TUTTI_OK)
        status = tutti__wholes_assign(&wholes, l->may, load, mover.size);
    if (status == TUTTI_OK)
        status = spread(l, &mine, &wholes, &mover, updates, &own);
    if (status == TUTTI_OK)
        status = tutti__group_agree(l->group, own == TUTTI_OK ? tutti__mover_end(&mover) : own);
    free(load);
    tutti__mover_free(&mover);
    tutti__wholes_free(&wholes);
    tutti__pieces_free(&mine);
    return status;
}

static tutti_status load(void *self, tutti_optim *optim)
{
    TUTTI_TRY(load_kind(self, optim, true));
    return load_kind(self, optim, false);
}

tutti_status tutti__optim_load_later(tutti_optim *optim, tutti_module *m, tutti_group *group,
                                     const char *folder, const char *digest)
{
    later *l = tutti__alloc(sizeof *l);
    tutti_status status = tutti__group_agree(group, l ? TUTTI_OK : TUTTI_ERR_MEMORY);

    if (status != TUTTI_OK) {
        free(l);
        return status;
    }
    l->m = m;
    l->group = group;
    snprintf(l->folder, sizeof l->folder, "%s", folder);
    status = find_readers(l, digest);
    if (status != TUTTI_OK) {
        later_free(l);
        return status;
    }
    optim->later.load = load;
    optim->later.free = later_free;
    optim->later.self = l;
    return TUTTI_OK;
}
