/* copies.c -- what ranks allocate for a checkpoint that all of them write.   SPDX-License-Identifier: MIT
 *
 * Who writes what follows from what each rank holds (ddp/pieces.h). Other ranks do not exist here, but what they hold does not depend on
 * elements: this rank lists it in their place. */
#include "train/forecast/footprint.h"

#include "base/base.h"
#include "checkpoint/copies.h"
#include "ddp/pieces.h"
#include "nn/nn.h"

#include <stdlib.h>

typedef struct holders {
    const tutti__session *s;
    int ranks, tensor;
    tutti__pieces *by_rank;
    bool *may; /* all of them */
    uint64_t *load;
    size_t *bytes; /* by rank: what it copies in parts */
} holders;

/* As if this were rank r of the run. */
static tutti_status stand_in(const holders *h, int r)
{
    tutti__sharding *sharding = h->s->module->root->sharding;

    if (!sharding)
        return TUTTI_OK;
    sharding->peers.rank = r / h->tensor;
    sharding->layouts = 0; /* no layout has this number: the ranges are computed anew */
    return sharding->prepare(sharding->self);
}

/* Of a layer that tensor parallelism divides, rank r has another box. */
static void move_boxes(const holders *h, int r)
{
    tutti__pieces *pieces = &h->by_rank[r];

    for (size_t i = 0; i < pieces->n; i++) {
        tutti__tensor_piece *piece = &pieces->p[i];
        const bool all = piece->begin == 0 && piece->box.count > 0 &&
                         piece->end == tutti__box_count(&piece->box, piece->shape);

        if (piece->box.count > 0)
            piece->box.index = r % h->tensor;
        if (all)
            piece->end = tutti__box_count(&piece->box, piece->shape);
    }
}

static tutti_status list(const holders *h, tutti__copy_of k, int r)
{
    const tutti__session *s = h->s;

    tutti__pieces_free(&h->by_rank[r]);
    TUTTI_TRY(stand_in(h, r));
    if (k == TUTTI__COPY_OPTIM)
        TUTTI_TRY(tutti__pieces_of_optim(&h->by_rank[r], s->optim, s->module));
    else
        TUTTI_TRY(tutti__pieces_of_module(&h->by_rank[r], s->module,
                                          k == TUTTI__COPY_EMA ? s->ema : NULL));
    move_boxes(h, r);
    return TUTTI_OK;
}

static void add_parts(const holders *h, const tutti__wholes *wholes)
{
    size_t *bytes = h->bytes;

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
static tutti_status divide(const holders *h, tutti__wholes wholes[TUTTI__COPIES],
                           bool divided[TUTTI__COPIES])
{
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++) {
        if (k == TUTTI__COPY_EMA && !h->s->ema)
            continue;
        for (int r = 0; r < h->ranks; r++)
            TUTTI_TRY(list(h, k, r));
        TUTTI_TRY(tutti__wholes_of_all(&wholes[k], h->by_rank, h->ranks));
        divided[k] = !tutti__wholes_are_of(&wholes[k], 0);
        h->load[0] += divided[k] ? 0 : bytes_of(&wholes[k]);
    }
    for (tutti__copy_of k = 0; k < TUTTI__COPIES; k++)
        if (divided[k]) {
            TUTTI_TRY(tutti__wholes_assign(&wholes[k], h->may, h->load, h->ranks));
            add_parts(h, &wholes[k]);
        }
    return TUTTI_OK;
}

tutti_status tutti__footprint_copies(const tutti__session *s, tutti__footprint_parts *parts)
{
    const size_t n = (size_t)s->size;
    holders h = {.s = s,
                 .ranks = s->size,
                 .tensor = tutti_mesh_size(s->mesh, "tensor"),
                 .by_rank = tutti__alloc(n * sizeof *h.by_rank),
                 .may = tutti__alloc(n * sizeof *h.may),
                 .load = tutti__alloc(n * sizeof *h.load),
                 .bytes = tutti__alloc(n * sizeof *h.bytes)};
    tutti__wholes wholes[TUTTI__COPIES] = {{.n = 0}};
    tutti_status status = TUTTI_ERR_MEMORY;

    *parts = (tutti__footprint_parts){.first = 0};
    if (h.by_rank && h.may && h.load && h.bytes) {
        for (size_t r = 0; r < n; r++)
            h.may[r] = true;
        status = divide(&h, wholes, parts->divided);
    }
    if (status == TUTTI_OK)
        status = stand_in(&h, 0);
    if (status == TUTTI_OK)
        parts->first = h.bytes[0];
    for (size_t r = 1; r < n && status == TUTTI_OK; r++)
        if (h.bytes[r] > parts->others)
            parts->others = h.bytes[r];
    for (size_t i = 0; i < wholes[TUTTI__COPY_MODEL].n; i++)
        if (wholes[TUTTI__COPY_MODEL].p[i].bytes > parts->largest)
            parts->largest = wholes[TUTTI__COPY_MODEL].p[i].bytes;
    for (size_t r = 0; h.by_rank && r < n; r++)
        tutti__pieces_free(&h.by_rank[r]);
    for (int k = 0; k < TUTTI__COPIES; k++)
        tutti__wholes_free(&wholes[k]);
    free(h.by_rank);
    free(h.may);
    free(h.load);
    free(h.bytes);
    return status;
}
