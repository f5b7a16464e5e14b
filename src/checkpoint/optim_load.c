/* optim_load.c -- an optimizer's state from a checkpoint, of which each rank takes what its layout needs.   SPDX-License-Identifier: MIT */
#include "checkpoint/optim_load.h"

#include "checkpoint/divided_load.h"
#include "comm/comm.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 320 };
#define UPDATES "step."

/* ---- All of it is there -------------------------------------------------------------------------------------- */

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
    TUTTI_TRY(tutti__tensor_files_read(file, name, TUTTI_I64, (tutti_shape){.n = 0}, &updates));
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
                    ? tutti__room_grow(&room, &bytes, (size_t)e->bytes)
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

typedef struct optim_later {
    tutti_module *m;
    tutti__divided_source source;
} optim_later;

static void later_free(void *self)
{
    optim_later *l = self;

    tutti__divided_close(&l->source);
    free(l);
}

/* Which parameters have state depends on their updates, which come first. What is missing had none (tutti__optim_file_check). */
static tutti_status load_kind(optim_later *l, const tutti_optim *optim, bool states)
{
    tutti__pieces mine = {.n = 0};
    tutti_status status =
        tutti__group_agree(l->source.group, tutti__pieces_of_optim(&mine, optim, l->m));

    if (status == TUTTI_OK)
        status = tutti__divided_read(&l->source, &mine, optim->cx->stream, UPDATES, states, states);
    tutti__pieces_free(&mine);
    return status;
}

static tutti_status load_updates(void *self, tutti_optim *optim)
{
    return load_kind(self, optim, false);
}

static tutti_status load(void *self, tutti_optim *optim)
{
    return load_kind(self, optim, true);
}

tutti_status tutti__optim_load_later(tutti_optim *optim, tutti_module *m, tutti_group *group,
                                     const char *folder, const char *digest)
{
    optim_later *l = tutti__alloc(sizeof *l);
    tutti_status status = tutti__group_agree(group, l ? TUTTI_OK : TUTTI_ERR_MEMORY);

    if (status != TUTTI_OK) {
        free(l);
        return status;
    }
    l->m = m;
    status = tutti__divided_open(&l->source, group, folder, "optimizer", digest);
    if (status != TUTTI_OK) {
        later_free(l);
        return status;
    }
    if (optim->later.free) /* of another checkpoint */
        optim->later.free(optim->later.self);
    optim->later.load_updates = load_updates;
    optim->later.load = load;
    optim->later.free = later_free;
    optim->later.self = l;
    return TUTTI_OK;
}
