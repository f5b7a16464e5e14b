/* move.c -- pieces of whole tensors travel between ranks.   SPDX-License-Identifier: MIT
 *
 * Sender and receiver cut a piece into the same messages, and go through all of them in the same order, so none waits for another in a
 * circle: receives block, so that whoever is the furthest behind can always go on. What needs no rearrangement, and is in memory of
 * the host, is sent from its place, without waiting, and received in its place. */
#include "ddp/pieces.h"

#include "comm/comm.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

/* A message that needs no room on the way. */
#define LARGE_BYTES ((size_t)256 << 20)

tutti_status tutti__mover_new(tutti__mover *mover, tutti_group *group, tutti_stream *stream,
                              int tag)
{
    *mover = (tutti__mover){.group = group,
                            .rank = tutti_group_rank(group),
                            .size = tutti_group_size(group),
                            .stream = stream,
                            .tag = tag};
    mover->room = tutti__alloc_unset(TUTTI__MOVE_BYTES);
    return mover->room ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__mover_wait(tutti__mover *mover)
{
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < mover->n_sends; i++) {
        if (status == TUTTI_OK)
            status = tutti_work_wait(mover->sends[i]);
        else
            (void)!tutti_work_wait(mover->sends[i]); /* only the first failure is reported */
    }
    mover->n_sends = 0;
    return status;
}

void tutti__mover_free(tutti__mover *mover)
{
    if (mover->room)
        (void)!tutti__mover_wait(mover);
    free(mover->room);
    mover->room = NULL;
}

tutti_status tutti__mover_end(const tutti__mover *mover)
{
    return mover->status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(mover->status, mover->why);
}

/* Notes a failure of this rank's own. */
static void note(tutti__mover *mover, tutti_status status)
{
    if (status == TUTTI_OK || mover->status != TUTTI_OK)
        return;
    mover->status = status;
    snprintf(mover->why, sizeof mover->why, "%s", tutti_last_error());
}

/* This rank's piece that holds [begin,end) of the tensor. */
static const tutti__tensor_piece *find_mine(const tutti__pieces *mine, const char *name,
                                            size_t begin, size_t end)
{
    for (size_t i = 0; i < mine->n; i++)
        if (mine->p[i].begin <= begin && mine->p[i].end >= end &&
            strcmp(mine->p[i].name, name) == 0)
            return &mine->p[i];
    return NULL;
}

/* ---- A message ---------------------------------------------------------------------------------------------- */

static bool is_on_host(const tutti__mover *mover, const tutti__tensor_piece *piece)
{
    return piece->host || tutti__on_host(mover->stream);
}

static void take(tutti__mover *mover, const tutti__tensor_piece *piece, char *dst, const char *src,
                 size_t bytes)
{
    if (is_on_host(mover, piece)) {
        memcpy(dst, src, bytes);
        return;
    }
    note(mover, tutti__copy_out(mover->stream, dst, src, bytes));
    note(mover, tutti_stream_wait(mover->stream));
}

static void give(tutti__mover *mover, const tutti__tensor_piece *piece, char *dst, const char *src,
                 size_t bytes)
{
    if (is_on_host(mover, piece)) {
        memcpy(dst, src, bytes);
        return;
    }
    note(mover, tutti__copy_in(mover->stream, dst, src, bytes));
    note(mover, tutti_stream_wait(mover->stream)); /* `src` is used again */
}

/* A message between a piece and the whole tensor: [begin,end) of a box, between two ranks or within one. */
typedef struct message {
    const tutti__whole *w;
    tutti__parameter_split box;
    size_t begin, end, each;
    const tutti__tensor_piece *piece; /* this rank's; NULL: it has the whole tensor */
    char *whole;                      /* this rank's; NULL: it has the piece */
    int peer;                         /* the other rank; this one: it has both */
    bool gathers;                     /* from the piece to the whole tensor */
} message;

static char *of_piece(const message *m)
{
    return m->piece->data + (m->begin - m->piece->begin) * m->each;
}

/* Where the message's bytes are in the whole tensor, if they are neighbours; else NULL. */
static char *in_whole(const message *m)
{
    size_t first;

    return tutti__box_is_one_run(&m->box, m->w->shape, &first)
               ? m->whole + (first + m->begin) * m->each
               : NULL;
}

static tutti_status within(tutti__mover *mover, const message *m)
{
    const size_t bytes = (m->end - m->begin) * m->each;
    char *whole = in_whole(m);

    if (whole && m->gathers)
        take(mover, m->piece, whole, of_piece(m), bytes);
    else if (whole)
        give(mover, m->piece, of_piece(m), whole, bytes);
    else if (m->gathers) {
        take(mover, m->piece, mover->room, of_piece(m), bytes);
        tutti__box_put(&m->box, m->w->shape, m->each, m->begin, m->end, m->whole, mover->room);
    } else {
        tutti__box_pick(&m->box, m->w->shape, m->each, m->begin, m->end, m->whole, mover->room);
        give(mover, m->piece, of_piece(m), mover->room, bytes);
    }
    return TUTTI_OK;
}

/* Where the message's bytes are on this rank, if they are in one place of the host's memory; NULL: they must be rearranged. */
static char *in_place(const tutti__mover *mover, const message *m)
{
    if (m->piece)
        return is_on_host(mover, m->piece) ? of_piece(m) : NULL;
    return in_whole(m);
}

static tutti_status send(tutti__mover *mover, const message *m)
{
    const size_t bytes = (m->end - m->begin) * m->each;
    char *from = in_place(mover, m);

    if (from && mover->n_sends == TUTTI__MOVES)
        TUTTI_TRY(tutti__mover_wait(mover));
    if (from) {
        TUTTI_TRY(tutti_send(mover->group, TUTTI_CONST_BUF(from, bytes, TUTTI_U8), m->peer,
                             mover->tag, &mover->sends[mover->n_sends]));
        mover->n_sends++;
        return TUTTI_OK;
    }
    from = mover->room;
    if (m->piece)
        take(mover, m->piece, from, of_piece(m), bytes);
    else
        tutti__box_pick(&m->box, m->w->shape, m->each, m->begin, m->end, m->whole, from);
    return tutti_send(mover->group, TUTTI_CONST_BUF(from, bytes, TUTTI_U8), m->peer, mover->tag,
                      NULL);
}

static tutti_status receive(tutti__mover *mover, const message *m)
{
    const size_t bytes = (m->end - m->begin) * m->each;
    char *place = in_place(mover, m), *to = place ? place : mover->room;

    TUTTI_TRY(tutti_recv(mover->group, TUTTI_BUF(to, bytes, TUTTI_U8), m->peer, mover->tag, NULL));
    if (place)
        return TUTTI_OK;
    if (m->piece)
        give(mover, m->piece, of_piece(m), to, bytes);
    else
        tutti__box_put(&m->box, m->w->shape, m->each, m->begin, m->end, m->whole, to);
    return TUTTI_OK;
}

/* Moves [begin,end) of a box between a rank that holds it and the one that has the whole tensor, message by message. */
static tutti_status move(tutti__mover *mover, const tutti__whole *w, const tutti__pieces *mine,
                         const tutti__held *held, bool gathers, char *whole)
{
    message m = {.w = w,
                 .box = tutti__box_at(w, held->index),
                 .each = tutti_dtype_size(w->dtype),
                 .gathers = gathers};
    size_t first;
    const bool direct =
        tutti__on_host(mover->stream) && tutti__box_is_one_run(&m.box, w->shape, &first);
    const size_t most = (direct ? LARGE_BYTES : TUTTI__MOVE_BYTES) / m.each;
    const bool holds = held->rank == mover->rank, has = w->rank == mover->rank;

    if (!holds && !has)
        return TUTTI_OK;
    m.peer = holds ? w->rank : held->rank;
    m.piece = holds ? find_mine(mine, w->name, held->begin, held->end) : NULL;
    m.whole = has ? whole : NULL;
    for (m.begin = held->begin; m.begin < held->end; m.begin = m.end) {
        m.end = held->end - m.begin < most ? held->end : m.begin + most;
        if (holds && has)
            TUTTI_TRY(within(mover, &m));
        else
            TUTTI_TRY(gathers == holds ? send(mover, &m) : receive(mover, &m));
    }
    return TUTTI_OK;
}

/* ---- A tensor ----------------------------------------------------------------------------------------------- */

/* Of those that hold element `at` of the box: the tensor's own rank, or the one that holds most after it. */
static const tutti__held *source_of(const tutti__wholes *wholes, const tutti__whole *w, int index,
                                    size_t at)
{
    const tutti__held *best = NULL;

    for (size_t k = w->first; k < w->first + w->n; k++) {
        const tutti__held *h = &wholes->held[k];

        if (h->index != index || h->begin > at || h->end <= at)
            continue;
        if (h->rank == w->rank)
            return h;
        if (!best || h->end > best->end)
            best = h;
    }
    return best;
}

tutti_status tutti__whole_gather(const tutti__wholes *wholes, size_t i, const tutti__pieces *mine,
                                 tutti__mover *mover, char *dst)
{
    const tutti__whole *w = &wholes->p[i];
    const int boxes = w->box.count > 0 ? w->box.count : 1;

    for (int b = 0; b < boxes; b++) {
        const tutti__parameter_split box = tutti__box_at(w, b);
        const size_t end = tutti__box_count(&box, w->shape);

        for (size_t at = 0; at < end;) {
            const tutti__held *from = source_of(wholes, w, b, at); /* there is one: check_whole */
            const tutti__held part = {from->rank, b, at, from->end};

            TUTTI_TRY(move(mover, w, mine, &part, true, dst));
            at = from->end;
        }
    }
    return TUTTI_OK;
}

/* Whether all ranks hold all of it. */
static bool is_everywhere(const tutti__wholes *wholes, const tutti__whole *w, int size)
{
    const size_t count = (size_t)tutti_shape_count(w->shape);
    int next = 0;

    if (w->box.count > 0 || w->n != (size_t)size)
        return false;
    for (size_t k = w->first; k < w->first + w->n; k++)
        if (wholes->held[k].rank != next++ || wholes->held[k].end - wholes->held[k].begin != count)
            return false;
    return true;
}

/* The tensor's rank sends it to all others by one collective: straight into their pieces, where these are in the host's memory. */
static tutti_status broadcast(const tutti__whole *w, const tutti__pieces *mine, tutti__mover *mover,
                              const char *src)
{
    const tutti__tensor_piece *piece =
        find_mine(mine, w->name, 0, (size_t)tutti_shape_count(w->shape));
    const size_t most = TUTTI__MOVE_BYTES;

    for (size_t at = 0, n; at < w->bytes; at += n) {
        const bool direct = is_on_host(mover, piece);
        char *to = direct ? piece->data + at : mover->room;

        n = w->bytes - at < most ? w->bytes - at : most;
        if (src)
            memcpy(to, src + at, n);
        TUTTI_TRY(tutti_broadcast(mover->group, TUTTI_BUF(to, n, TUTTI_U8), w->rank, NULL));
        if (!direct)
            give(mover, piece, piece->data + at, to, n);
    }
    return TUTTI_OK;
}

/* `src` is the caller's again when this returns. */
tutti_status tutti__whole_spread(const tutti__wholes *wholes, size_t i, const tutti__pieces *mine,
                                 tutti__mover *mover, const char *src)
{
    const tutti__whole *w = &wholes->p[i];

    if (is_everywhere(wholes, w, mover->size))
        return broadcast(w, mine, mover, src);
    for (size_t k = w->first; k < w->first + w->n; k++)
        TUTTI_TRY(move(mover, w, mine, &wholes->held[k], false, (char *)(uintptr_t)src));
    return tutti__mover_wait(mover);
}

/* ---- Digest ------------------------------------------------------------------------------------------------- */

tutti_status tutti__wholes_digest(tutti__wholes *wholes, const tutti__pieces *mine,
                                  tutti__mover *mover, char digest[33])
{
    tutti__hash128_state *hash = mover->rank == 0 ? tutti__hash128_new() : NULL;
    size_t largest = 0;
    char *room = NULL;
    tutti_status status;

    digest[0] = '\0';
    for (size_t i = 0; i < wholes->n; i++) {
        wholes->p[i].rank = 0;
        largest = wholes->p[i].bytes > largest ? wholes->p[i].bytes : largest;
    }
    if (mover->rank == 0)
        room = tutti__alloc_unset(largest + 1);
    status = mover->rank == 0 && (!hash || !room)
                 ? tutti__fail(TUTTI_ERR_MEMORY, "no memory for a digest")
                 : TUTTI_OK;
    if (status != TUTTI_OK)
        tutti__group_abort_with(mover->group, status, tutti_last_error());
    for (size_t i = 0; i < wholes->n && status == TUTTI_OK; i++) {
        status = tutti__whole_gather(wholes, i, mine, mover, room);
        if (status == TUTTI_OK && hash)
            tutti__hash128_add(hash, room, wholes->p[i].bytes);
    }
    if (hash)
        tutti__hash128_end(hash, digest);
    if (status == TUTTI_OK)
        status = tutti__mover_wait(mover);
    if (status == TUTTI_OK)
        status = tutti__mover_end(mover);
    if (status != TUTTI_OK)
        digest[0] = '\0';
    free(room);
    return status;
}

tutti_status tutti__digest_together(const tutti_module *m, const tutti_ema *average,
                                    tutti_group *group, char digest[33])
{
    tutti__pieces mine = {.n = 0};
    tutti__wholes wholes = {.n = 0};
    tutti__mover mover = {.room = NULL};
    tutti_status status = tutti__pieces_of_module(&mine, m, average);

    memset(digest, 0, 33);
    if (status == TUTTI_OK)
        status = tutti__mover_new(&mover, group, m->cx->stream, TUTTI__TAG_MOVE);
    status = tutti__group_agree(group, status);
    if (status == TUTTI_OK)
        status = tutti__wholes_find(&wholes, &mine, group);
    if (status == TUTTI_OK)
        status = tutti__wholes_digest(&wholes, &mine, &mover, digest);
    if (status == TUTTI_OK)
        status = tutti_broadcast(group, TUTTI_BUF(digest, 33, TUTTI_U8), 0, NULL);
    tutti__mover_free(&mover);
    tutti__wholes_free(&wholes);
    tutti__pieces_free(&mine);
    return status;
}
