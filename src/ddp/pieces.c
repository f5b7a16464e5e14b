/* pieces.c -- lists what this rank holds of a model and an optimizer's state.   SPDX-License-Identifier: MIT */
#include "ddp/pieces.h"

#include "optim/ema.h"
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 320 };

void tutti__pieces_free(tutti__pieces *pieces)
{
    for (void **block = pieces->names, **next; block; block = next) {
        next = *block;
        free(block);
    }
    free(pieces->p);
    *pieces = (tutti__pieces){.n = 0};
}

tutti_status tutti__pieces_add(tutti__pieces *pieces, const tutti__tensor_piece *piece)
{
    if (pieces->n == pieces->capacity) {
        const size_t capacity = 2 * pieces->capacity + 16;
        tutti__tensor_piece *more = realloc(pieces->p, capacity * sizeof *more);

        if (!more)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a list of %zu tensors", capacity);
        pieces->p = more;
        pieces->capacity = capacity;
    }
    pieces->p[pieces->n++] = *piece;
    return TUTTI_OK;
}

tutti_shape tutti__whole_shape(const tutti_tensor *t)
{
    const tutti__state *state = t->parameter ? tutti__state_of(t) : NULL;
    tutti_shape shape = t->shape;

    if (state && state->split.count > 0)
        shape.d[state->split.dim] = state->split.whole;
    return shape;
}

tutti__parameter_split tutti__box_of(const tutti_tensor *t)
{
    const tutti__state *state = t->parameter ? tutti__state_of(t) : NULL;

    return state ? state->split : (tutti__parameter_split){.count = 0};
}

/* A tensor of the module as a piece: its whole shape and its box, all of which it has. */
static tutti__tensor_piece piece_of(const tutti_tensor *t)
{
    tutti__tensor_piece piece = {.name = t->name,
                                 .dtype = t->dtype,
                                 .shape = tutti__whole_shape(t),
                                 .box = tutti__box_of(t),
                                 .end = (size_t)tutti_shape_count(t->shape),
                                 .data = t->data};

    return piece;
}

/* How a rank's ranges are in memory: at their places, or back to back; STATE: an optimizer's, but those that have none. */
typedef enum laid_out { IN_PLACE, PACKED, STATE } laid_out;

/* Adds what lies in the ranges of `piece`, whose box is at `offset` of flat memory; `base`: where that begins, or the first range. */
static tutti_status add_ranges(tutti__pieces *pieces, const tutti__tensor_piece *piece,
                               size_t offset, const tutti__sharding *sharding, float *base,
                               laid_out as)
{
    size_t at = 0, n;

    for (size_t r = 0; r < sharding->n; at += n, r++) {
        const tutti__range *range = &sharding->ranges[r];
        tutti__tensor_piece part = *piece;
        size_t low, high;

        n = as == STATE ? tutti__range_state(range) : range->end - range->begin;
        if (!tutti__range_meets(range, offset, offset + piece->end, &low, &high) || range->copy ||
            n == 0)
            continue;
        part.begin = low - offset;
        part.end = high - offset;
        part.data = (char *)(base + (as == IN_PLACE ? low : at + (low - range->begin)));
        if (range->host && as == IN_PLACE) {
            part.data = (char *)(range->host + (low - range->begin));
            part.host = true;
        }
        TUTTI_TRY(tutti__pieces_add(pieces, &part));
    }
    return TUTTI_OK;
}

tutti_status tutti__pieces_of_module(tutti__pieces *pieces, const tutti_module *m,
                                     const tutti_ema *average)
{
    const struct tutti_root *root = m->root;
    const bool divided = root->sharding && root->reserved;

    if (divided)
        TUTTI_TRY(root->sharding->prepare(root->sharding->self));
    for (size_t i = 0; i < tutti_module_n_state(m); i++) {
        const tutti_tensor *t = tutti_module_state(m, i);
        tutti__tensor_piece piece = piece_of(t);

        if (t->parameter && average && !divided)
            piece.data = (char *)tutti__ema_at(average, t->parameter->index);
        if (t->parameter && divided)
            TUTTI_TRY(add_ranges(pieces, &piece, root->offsets[t->parameter->index], root->sharding,
                                 average ? average->average : root->flat_parameters,
                                 average && average->sharding ? PACKED : IN_PLACE));
        else
            TUTTI_TRY(tutti__pieces_add(pieces, &piece));
    }
    return TUTTI_OK;
}

/* Room for n names, which the list owns. */
static char *name_room(tutti__pieces *pieces, size_t n)
{
    void **block = tutti__alloc(sizeof *block + n * NAME_BYTES);

    if (!block)
        return NULL;
    *block = pieces->names;
    pieces->names = block;
    return (char *)(block + 1);
}

tutti_status tutti__pieces_keep_names(tutti__pieces *pieces)
{
    char *name = name_room(pieces, pieces->n + 1);

    for (size_t i = 0; name && i < pieces->n; i++, name += NAME_BYTES) {
        snprintf(name, NAME_BYTES, "%s", pieces->p[i].name);
        pieces->p[i].name = name;
    }
    return name ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status add_state(tutti__pieces *pieces, const tutti_optim *optim, size_t k,
                              const tutti_tensor *t, const char *name)
{
    const size_t offset = optim->offsets[t->parameter->index];
    tutti__tensor_piece piece = piece_of(t);

    piece.name = name;
    piece.dtype = TUTTI_F32;
    piece.host = optim->offloaded;
    if (optim->sharding)
        return add_ranges(pieces, &piece, offset, optim->sharding, optim->state[k], STATE);
    piece.data = (char *)(optim->state[k] + offset);
    return tutti__pieces_add(pieces, &piece);
}

static tutti_status add_updates(tutti__pieces *pieces, const tutti_optim *optim,
                                const tutti_tensor *t, const char *name)
{
    static uint64_t none;
    const tutti__tensor_piece piece = {
        .name = name,
        .dtype = TUTTI_I64,
        .host = true,
        .shape = {.n = 0},
        .end = 1,
        .data = (char *)(optim->steps ? &optim->steps[t->parameter->index] : &none)};

    return tutti__pieces_add(pieces, &piece);
}

tutti_status tutti__pieces_of_optim(tutti__pieces *pieces, const tutti_optim *optim,
                                    const tutti_module *m)
{
    const size_t n = tutti_module_n_parameters(m);
    size_t n_states = 0;
    char *name;

    while (tutti_optim_state_name(optim, n_states))
        n_states++;
    name = name_room(pieces, (n_states + 1) * n);
    if (!name)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const tutti_tensor *t = tutti_module_parameter(m, i);

        for (size_t k = 0; k < n_states; k++, name += NAME_BYTES) {
            if (!optim->state[k] ||
                (!t->parameter->requires_grad && tutti_optim_updates(optim, t) == 0))
                continue;
            snprintf(name, NAME_BYTES, "%s.%s", tutti_optim_state_name(optim, k), t->name);
            TUTTI_TRY(add_state(pieces, optim, k, t, name));
        }
        snprintf(name, NAME_BYTES, "step.%s", t->name);
        TUTTI_TRY(add_updates(pieces, optim, t, name));
        name += NAME_BYTES;
    }
    return TUTTI_OK;
}
