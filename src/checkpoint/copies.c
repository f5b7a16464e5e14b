/* copies.c -- what a checkpoint saves, as copies.   SPDX-License-Identifier: MIT */
#include "checkpoint/copies.h"

#include "comm/comm.h"
#include "optim/ema.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const stems[TUTTI__COPIES] = {"model", "optimizer", "ema"};
static const char *const digest_keys[TUTTI__COPIES] = {"model_digest", NULL, "ema_digest"};

static bool exists(const tutti__copies *c, tutti__copy_of k)
{
    return k == TUTTI__COPY_MODEL ||
           (k == TUTTI__COPY_OPTIM ? c->optim != NULL : c->average != NULL);
}

static bool is_first(const tutti__copies *c)
{
    return !c->group || tutti_group_rank(c->group) == 0;
}

void tutti__copies_free(tutti__copies *c)
{
    for (int k = 0; k < TUTTI__COPIES; k++)
        tutti__part_free(&c->parts[k]);
    tutti__mover_free(&c->mover);
    free(c->buffers);
    c->buffers = NULL;
    tutti__snapshot_free(&c->model);
    tutti__snapshot_free(&c->ema);
    tutti__optim_block_free(&c->block);
}

/* ---- What is divided ------------------------------------------------------------------------------------------ */

static tutti_status list(tutti__copies *c, tutti__copy_of k)
{
    tutti__pieces *pieces = &c->parts[k].pieces;

    if (k == TUTTI__COPY_OPTIM)
        return tutti__pieces_of_optim(pieces, c->optim, c->module);
    return tutti__pieces_of_module(pieces, c->module, k == TUTTI__COPY_EMA ? c->average : NULL);
}

tutti_status tutti__copies_divide(tutti__copies *c, tutti_group *group)
{
    tutti_status status = c->average ? tutti__ema_prepare(c->average) : TUTTI_OK;
    bool any = false;

    c->group = NULL;
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++) {
        tutti__pieces_free(&c->parts[k].pieces);
        tutti__wholes_free(&c->parts[k].wholes);
        c->divided[k] = false;
        if (group && exists(c, k) && status == TUTTI_OK)
            status = list(c, k);
    }
    if (!group)
        return status;
    TUTTI_TRY(tutti__group_agree(group, status));
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++) {
        if (!exists(c, k))
            continue;
        TUTTI_TRY(tutti__wholes_find(&c->parts[k].wholes, &c->parts[k].pieces, group));
        c->divided[k] = !tutti__part_is_whole(&c->parts[k]);
        any |= c->divided[k];
    }
    c->group = any ? group : NULL;
    return TUTTI_OK;
}

/* Rank 0's room for what is not divided; what is now, needs none. */
static tutti_status room_of_whole(tutti__copies *c)
{
    if (c->divided[TUTTI__COPY_MODEL])
        tutti__snapshot_free(&c->model);
    else if (!c->model.values)
        TUTTI_TRY(tutti__snapshot_new(&c->model, c->module));
    if (c->divided[TUTTI__COPY_EMA])
        tutti__snapshot_free(&c->ema);
    else if (c->average && !c->ema.values)
        TUTTI_TRY(tutti__snapshot_new(&c->ema, c->module));
    if (c->divided[TUTTI__COPY_OPTIM])
        tutti__optim_block_free(&c->block);
    else if (c->optim && !c->block.values)
        TUTTI_TRY(tutti__optim_block_new(&c->block, c->optim, c->module));
    return TUTTI_OK;
}

/* What rank 0 writes anyway. */
static uint64_t bytes_of_whole(const tutti__copies *c)
{
    uint64_t bytes = 0;

    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++)
        for (size_t i = 0; exists(c, k) && !c->divided[k] && i < c->parts[k].wholes.n; i++)
            bytes += c->parts[k].wholes.p[i].bytes;
    return bytes;
}

tutti_status tutti__copies_room(tutti__copies *c, const bool *may)
{
    tutti_status status = is_first(c) ? room_of_whole(c) : TUTTI_OK;
    uint64_t *load;

    if (!c->group)
        return status;
    tutti__mover_free(&c->mover);
    if (status == TUTTI_OK)
        status = tutti__mover_new(&c->mover, c->group, NULL, TUTTI__TAG_WRITER);
    load = tutti__alloc((size_t)tutti_group_size(c->group) * sizeof *load);
    if (status == TUTTI_OK && !load)
        status = TUTTI_ERR_MEMORY;
    status = tutti__group_agree(c->group, status);
    if (status == TUTTI_OK)
        load[0] = bytes_of_whole(c);
    for (tutti__copy_of k = 0; k < TUTTI__COPIES && status == TUTTI_OK; k++)
        if (c->divided[k])
            status = tutti__part_plan(&c->parts[k], stems[k], c->module, c->group, may, load);
    free(load);
    return status;
}

/* ---- Copying -------------------------------------------------------------------------------------------------- */

/* The buffers of a divided model as they are now; its pieces then are these. */
static tutti_status keep_buffers(tutti__copies *c)
{
    size_t bytes = 0;
    char *at;

    free(c->buffers);
    for (size_t i = 0; i < tutti_module_n_buffers(c->module); i++)
        bytes += tutti__tensor_bytes(tutti_module_buffer(c->module, i));
    at = c->buffers = tutti__alloc_unset(2 * bytes + 1); /* the average has them too */
    if (!at)
        return TUTTI_ERR_MEMORY;
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++)
        for (size_t i = 0; c->divided[k] && k != TUTTI__COPY_OPTIM && i < c->parts[k].pieces.n;
             i++) {
            tutti__tensor_piece *piece = &c->parts[k].pieces.p[i];
            tutti_tensor *t = tutti_module_find(c->module, piece->name);

            if (!t || t->parameter || piece->host)
                continue;
            TUTTI_TRY(tutti_tensor_read(t, at));
            piece->data = at;
            piece->host = true;
            at += tutti__tensor_bytes(t);
        }
    return TUTTI_OK;
}

tutti_status tutti__copies_take_buffers(tutti__copies *c)
{
    if (c->divided[TUTTI__COPY_MODEL])
        return keep_buffers(c);
    return is_first(c) ? tutti__snapshot_take(&c->model, c->module, false, c->module->cx->stream)
                       : TUTTI_OK;
}

static tutti_status take_whole(tutti__copies *c, tutti_stream *stream)
{
    if (!c->divided[TUTTI__COPY_MODEL])
        TUTTI_TRY(tutti__snapshot_take(&c->model, c->module, true, stream));
    if (c->optim && !c->divided[TUTTI__COPY_OPTIM])
        TUTTI_TRY(tutti__optim_block_take(&c->block, c->optim, c->module, stream));
    if (c->average && !c->divided[TUTTI__COPY_EMA])
        TUTTI_TRY(tutti__snapshot_take_ema(&c->ema, c->average, stream));
    TUTTI_TRY(tutti_stream_wait(stream));
    if (c->average && !c->divided[TUTTI__COPY_EMA])
        tutti__snapshot_take_buffers(&c->ema, c->module, &c->model);
    return TUTTI_OK;
}

tutti_status tutti__copies_take(tutti__copies *c, tutti_stream *stream)
{
    tutti_status status = is_first(c) ? take_whole(c, stream) : TUTTI_OK, moved = TUTTI_OK;
    char why[1024];

    snprintf(why, sizeof why, "%s", status == TUTTI_OK ? "" : tutti_last_error());
    c->mover.stream = stream;
    c->mover.status = TUTTI_OK;
    for (int k = 0; k < TUTTI__COPIES && moved == TUTTI_OK; k++)
        if (c->group && c->divided[k])
            moved = tutti__part_take(&c->parts[k], &c->mover);
    TUTTI_TRY(moved);
    if (status != TUTTI_OK)
        return tutti__fail_again(status, why);
    return c->group ? tutti__mover_end(&c->mover) : TUTTI_OK;
}

tutti_status tutti__copies_digest(tutti__copies *c)
{
    for (int k = 0; k < TUTTI__COPIES; k++)
        if (c->group && c->divided[k] && digest_keys[k])
            TUTTI_TRY(tutti__part_digest(&c->parts[k], &c->mover, c->digests[k]));
    return TUTTI_OK;
}

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static tutti__checkpoint_parts files_of(const tutti__copies *c, uint64_t step, json_t *state)
{
    const bool *divided = c->divided;

    return (tutti__checkpoint_parts){
        .m = c->module,
        .model = divided[TUTTI__COPY_MODEL] ? NULL : &c->model,
        .block = c->optim && !divided[TUTTI__COPY_OPTIM] ? &c->block : NULL,
        .ema = c->average && !divided[TUTTI__COPY_EMA] ? &c->ema : NULL,
        .step = step,
        .state = state};
}

static tutti_status write_part(tutti__copies *c, tutti__copy_of k, tutti__draft *draft,
                               uint64_t step, uint64_t *header_p)
{
    char states[160];
    const tutti__safetensors_pair pair = {"states", states};
    tutti__file_notes notes = {.n = 0};
    tutti_status status;

    if (k == TUTTI__COPY_OPTIM) {
        tutti__optim_states_text(c->optim, states);
        return tutti__part_write(&c->parts[k], draft, step, &pair, 1, header_p);
    }
    status = tutti__file_pairs(&notes, c->module);
    if (status == TUTTI_OK) /* the first is {"format", "pt"} */
        status =
            tutti__part_write(&c->parts[k], draft, step, notes.pairs + 1, notes.n - 1, header_p);
    tutti__file_notes_free(&notes);
    return status;
}

tutti_status tutti__copies_write(tutti__copies *c, tutti__draft *draft, uint64_t step,
                                 uint64_t headers[TUTTI__COPIES])
{
    const tutti__checkpoint_parts files = files_of(c, step, NULL);

    if (is_first(c))
        TUTTI_TRY(tutti__checkpoint_write_files(draft, &files, c->headers));
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++)
        if (c->divided[k])
            TUTTI_TRY(write_part(c, k, draft, step, &headers[k]));
    return TUTTI_OK;
}

static tutti_status add_file(const tutti__copies *c, tutti__copy_of k, json_t *state)
{
    char name[64], digest[24];

    snprintf(name, sizeof name, "%s.safetensors", stems[k]);
    snprintf(digest, sizeof digest, "%016" PRIx64, c->headers[k]);
    return tutti__state_add_file(state, name, digest);
}

tutti_status tutti__copies_finish(tutti__copies *c, tutti__draft *draft, uint64_t step,
                                  const uint64_t *headers, json_t *state)
{
    const tutti__checkpoint_parts files = files_of(c, step, state);

    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++) {
        const size_t row = c->group ? (size_t)k * (size_t)tutti_group_size(c->group) : 0;

        if (exists(c, k) && !c->divided[k])
            TUTTI_TRY(add_file(c, k, state));
        if (!c->divided[k])
            continue;
        TUTTI_TRY(tutti__part_check(&c->parts[k], draft, headers + row));
        TUTTI_TRY(tutti__part_write_index(&c->parts[k], draft, step, headers + row, state));
        if (digest_keys[k] &&
            json_object_set_new(state, digest_keys[k], json_string(c->digests[k])) != 0)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    }
    return tutti__checkpoint_write_state(draft, &files);
}
