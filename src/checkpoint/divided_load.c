/* divided_load.c -- reads whole tensors from a checkpoint's files, of which each rank takes its pieces.   SPDX-License-Identifier: MIT */
#include "checkpoint/divided_load.h"

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state.h"
#include "comm/comm.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

/* ---- Files ---------------------------------------------------------------------------------------------------- */

/* By the checkpoint's own state.json: another folder of the same name, on another host, is not it. */
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

tutti_status tutti__divided_open(tutti__divided_source *s, tutti_group *group, const char *folder,
                                 const char *stem, const char *digest)
{
    const size_t size = (size_t)tutti_group_size(group);
    const bool first = tutti_group_rank(group) == 0;
    uint8_t mine, *all = tutti__alloc(size);
    tutti_status status = TUTTI_OK;

    *s = (tutti__divided_source){.group = group};
    s->may = tutti__alloc(size * sizeof *s->may);
    mine = (first || is_it(folder, digest)) &&
           tutti__tensor_files_open(&s->file, folder, stem) == TUTTI_OK;
    if (first && !mine)
        status = tutti__last_status();
    if (!all || !s->may)
        status = TUTTI_ERR_MEMORY;
    status = tutti__group_agree(group, status);
    if (status == TUTTI_OK)
        status = tutti_all_gather(group, TUTTI_CONST_BUF(&mine, 1, TUTTI_U8),
                                  TUTTI_BUF(all, size, TUTTI_U8), NULL);
    for (size_t r = 0; status == TUTTI_OK && r < size; r++)
        s->may[r] = all[r] != 0;
    free(all);
    return status;
}

void tutti__divided_close(tutti__divided_source *s)
{
    tutti__tensor_files_close(&s->file);
    free(s->may);
    free(s->room);
    *s = (tutti__divided_source){.group = NULL};
}

/* ---- Reading -------------------------------------------------------------------------------------------------- */

tutti_status tutti__room_grow(char **room_p, size_t *bytes_p, size_t bytes)
{
    if (*room_p && bytes <= *bytes_p)
        return TUTTI_OK;
    free(*room_p);
    *room_p = tutti__alloc_unset(bytes + 1);
    *bytes_p = *room_p ? bytes : 0;
    return *room_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* A tensor that was given to this rank. */
static tutti_status read_one(tutti__divided_source *s, const tutti__whole *w, bool may_lack)
{
    if (s->read)
        return s->read(s->arg, w->name, s->room);
    memset(s->room, 0, w->bytes);
    if (may_lack && !tutti__tensor_files_has(&s->file, w->name))
        return TUTTI_OK;
    return tutti__tensor_files_read(&s->file, w->name, w->dtype, w->shape, s->room);
}

/* What is read, and how it has gone on this rank. */
typedef struct divided_reading {
    const tutti__pieces *mine;
    tutti__wholes wholes;
    tutti__mover mover;
    const char *prefix;
    bool others, may_lack;
} divided_reading;

static bool is_asked(const divided_reading *r, const char *name)
{
    return !r->prefix || (strncmp(name, r->prefix, strlen(r->prefix)) == 0) != r->others;
}

/* A rank that cannot read goes on with what it has, so that the others do not wait for it; then all fail. */
static tutti_status read_all(tutti__divided_source *s, divided_reading *r, tutti_status *own)
{
    for (size_t i = 0; i < r->wholes.n; i++) {
        const tutti__whole *w = &r->wholes.p[i];
        const bool reads = w->rank == r->mover.rank;

        if (!is_asked(r, w->name) || (s->has && !s->has(s->arg, w->name)))
            continue;
        if (reads && tutti__room_grow(&s->room, &s->room_bytes, w->bytes) != TUTTI_OK) {
            tutti_group_abort(s->group, "%s", tutti_last_error());
            return TUTTI_ERR_MEMORY;
        }
        if (reads && *own == TUTTI_OK)
            *own = read_one(s, w, r->may_lack);
        TUTTI_TRY(tutti__whole_spread(&r->wholes, i, r->mine, &r->mover, reads ? s->room : NULL));
    }
    return TUTTI_OK;
}

tutti_status tutti__divided_read(tutti__divided_source *s, const tutti__pieces *mine,
                                 tutti_stream *stream, const char *prefix, bool others,
                                 bool may_lack)
{
    divided_reading r = {.mine = mine, .prefix = prefix, .others = others, .may_lack = may_lack};
    uint64_t *load = tutti__alloc((size_t)tutti_group_size(s->group) * sizeof *load);
    tutti_status own = tutti__mover_new(&r.mover, s->group, stream, TUTTI__TAG_MOVE), status;

    status = tutti__group_agree(s->group, load ? own : TUTTI_ERR_MEMORY);
    if (status == TUTTI_OK)
        status = tutti__wholes_find(&r.wholes, mine, s->group);
    if (status == TUTTI_OK)
        status = tutti__wholes_assign(&r.wholes, s->may, load, r.mover.size);
    if (status == TUTTI_OK)
        status = read_all(s, &r, &own);
    if (status == TUTTI_OK)
        status = tutti__group_agree(s->group, own == TUTTI_OK ? tutti__mover_end(&r.mover) : own);
    free(load);
    tutti__mover_free(&r.mover);
    tutti__wholes_free(&r.wholes);
    return status;
}

/* ---- A model --------------------------------------------------------------------------------------------------- */

tutti_status tutti__divided_pieces(tutti__pieces *mine, const tutti_module *m,
                                   const tutti_ema *average)
{
    const struct tutti_root *root = m->root;

    if (!average && root->reserved && root->sharding)
        TUTTI_TRY(root->sharding->discard(root->sharding->self));
    return tutti__pieces_of_module(mine, m, average);
}

tutti_status tutti__divided_load(tutti_module *m, const tutti_ema *average, tutti_group *group,
                                 const char *folder, const char *stem, const char *digest)
{
    tutti__divided_source source;
    tutti__pieces mine = {.n = 0};
    tutti_status status = tutti__divided_open(&source, group, folder, stem, digest);

    if (status == TUTTI_OK)
        status = tutti__group_agree(group, tutti__divided_pieces(&mine, m, average));
    if (status == TUTTI_OK)
        status = tutti__divided_read(&source, &mine, m->cx->stream, NULL, false, false);
    tutti__pieces_free(&mine);
    tutti__divided_close(&source);
    return status;
}
