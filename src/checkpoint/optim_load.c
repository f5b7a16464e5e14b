/* optim_load.c -- an optimizer's state from a checkpoint, of which each rank takes what its layout needs.   SPDX-License-Identifier: MIT */
#include "checkpoint/optim_load.h"

#include "checkpoint/divided_load.h"
#include "comm/comm.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

#define UPDATES "step."

tutti_status tutti__optim_file_names(tutti__optim_block *block, const char *folder)
{
    tutti__tensor_files files;
    tutti_status status = tutti__tensor_files_open(&files, folder, "optimizer");

    if (status == TUTTI_OK)
        status = tutti__optim_block_names(block, &files);
    tutti__tensor_files_close(&files);
    return status;
}

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

/* Which parameters have state depends on their updates, which come first. What is missing had none (verify_together.c). */
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
