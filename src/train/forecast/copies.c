/* copies.c -- what ranks allocate for a checkpoint that all of them write.   SPDX-License-Identifier: MIT
 *
 * Who writes what follows from what each rank holds (ddp/pieces.h). Other ranks do not exist here, but what they hold does not depend on
 * elements: a session lists it in the place of the ranks with the same stage. */
#include "train/forecast/footprint.h"

#include "base/base.h"
#include "nn/nn.h"

#include <stdlib.h>

tutti_status tutti__holdings_new(tutti__holdings *h, int ranks)
{
    *h = (tutti__holdings){.ranks = ranks};
    for (int k = 0; k < TUTTI__COPIES; k++) {
        h->of[k] = tutti__alloc((size_t)ranks * sizeof *h->of[k]);
        if (!h->of[k])
            return TUTTI_ERR_MEMORY;
    }
    return TUTTI_OK;
}

void tutti__holdings_free(tutti__holdings *h)
{
    for (int k = 0; k < TUTTI__COPIES; k++) {
        for (int r = 0; h->of[k] && r < h->ranks; r++)
            tutti__pieces_free(&h->of[k][r]);
        free(h->of[k]);
    }
    *h = (tutti__holdings){.ranks = 0};
}

/* ---- What each rank of a stage holds ------------------------------------------------------------------------- */

/* As if this were data rank d. */
static tutti_status stand_in(const tutti__session *s, int d)
{
    tutti__sharding *sharding = s->module->root->sharding;

    if (!sharding)
        return TUTTI_OK;
    sharding->peers.rank = d % sharding->peers.size; /* of its replica, if there are several */
    sharding->layouts = 0; /* no layout has this number: the ranges are computed anew */
    return sharding->prepare(sharding->self);
}

/* Of a layer that tensor parallelism divides, another rank has another box. */
static void move_boxes(tutti__pieces *pieces, int index)
{
    for (size_t i = 0; i < pieces->n; i++) {
        tutti__tensor_piece *piece = &pieces->p[i];
        const bool all = piece->begin == 0 && piece->box.count > 0 &&
                         piece->end == tutti__box_count(&piece->box, piece->shape);

        if (piece->box.count > 0)
            piece->box.index = index;
        if (all)
            piece->end = tutti__box_count(&piece->box, piece->shape);
    }
}

static tutti_status list(const tutti__session *s, tutti__copy_of k, int tensor,
                         tutti__pieces *pieces)
{
    if (k == TUTTI__COPY_OPTIM)
        TUTTI_TRY(tutti__pieces_of_optim(pieces, s->optim, s->module));
    else
        TUTTI_TRY(tutti__pieces_of_module(pieces, s->module, k == TUTTI__COPY_EMA ? s->ema : NULL));
    move_boxes(pieces, tensor);
    return tutti__pieces_keep_names(pieces);
}

tutti_status tutti__holdings_list(tutti__holdings *h, const tutti__session *s)
{
    const int tensor = tutti_mesh_size(s->mesh, "tensor");
    const int n = s->size / tutti_mesh_size(s->mesh, "pipeline");

    h->ema = s->ema != NULL;
    for (int i = 0; i < n; i++) { /* s->rank is the first of its stage */
        TUTTI_TRY(stand_in(s, i / tensor));
        for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++)
            if (k != TUTTI__COPY_EMA || s->ema)
                TUTTI_TRY(list(s, k, i % tensor, &h->of[k][s->rank + i]));
    }
    return stand_in(s, 0);
}

/* ---- Who copies what --------------------------------------------------------------------------------------------- */

static void add_parts(const tutti__holdings *h, const tutti__wholes *wholes, size_t *bytes)
{
    for (int r = 0; r < h->ranks; r++) {
        size_t sum = 0;

        for (size_t i = 0; i < wholes->n; i++)
            sum += wholes->p[i].rank == r ? (wholes->p[i].bytes + 63) / 64 * 64 : 0;
        bytes[r] += tutti__alloc_takes(sum + 1);
    }
}

static uint64_t bytes_of(const tutti__wholes *wholes)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < wholes->n; i++)
        bytes += wholes->p[i].bytes;
    return bytes;
}

/* As tutti__copies_divide and tutti__copies_room. */
static tutti_status divide(const tutti__holdings *h, tutti__wholes wholes[TUTTI__COPIES],
                           tutti__footprint_parts *parts, const bool *may, uint64_t *load)
{
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++) {
        if (k == TUTTI__COPY_EMA && !h->ema)
            continue;
        TUTTI_TRY(tutti__wholes_of_all(&wholes[k], h->of[k], h->ranks));
        parts->divided[k] = !tutti__wholes_are_of(&wholes[k], 0);
        load[0] += parts->divided[k] ? 0 : bytes_of(&wholes[k]);
    }
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++)
        if (parts->divided[k]) {
            TUTTI_TRY(tutti__wholes_assign(&wholes[k], may, load, h->ranks));
            add_parts(h, &wholes[k], parts->bytes);
        }
    return TUTTI_OK;
}

tutti_status tutti__holdings_divide(const tutti__holdings *h, tutti__footprint_parts *parts)
{
    const size_t n = (size_t)h->ranks;
    tutti__wholes wholes[TUTTI__COPIES] = {{.n = 0}};
    bool *may = tutti__alloc(n * sizeof *may);
    uint64_t *load = tutti__alloc(n * sizeof *load);
    tutti_status status = TUTTI_ERR_MEMORY;

    *parts = (tutti__footprint_parts){.bytes = tutti__alloc(n * sizeof *parts->bytes)};
    if (may && load && parts->bytes) {
        for (size_t r = 0; r < n; r++)
            may[r] = true;
        status = divide(h, wholes, parts, may, load);
    }
    for (size_t i = 0; i < wholes[TUTTI__COPY_MODEL].n; i++)
        if (wholes[TUTTI__COPY_MODEL].p[i].bytes > parts->largest)
            parts->largest = wholes[TUTTI__COPY_MODEL].p[i].bytes;
    for (int k = 0; k < TUTTI__COPIES; k++)
        tutti__wholes_free(&wholes[k]);
    free(may);
    free(load);
    return status;
}

size_t tutti__footprint_copied(const tutti__footprint_parts *parts, int first, int end)
{
    size_t most = 0;

    for (int r = first; parts->bytes && r < end; r++)
        if (parts->bytes[r] > most)
            most = parts->bytes[r];
    return most;
}
