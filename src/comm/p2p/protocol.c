/* protocol.c -- eager messages and rendezvous: the frames between ranks.
 * SPDX-License-Identifier: MIT */
#include "comm/p2p/p2p_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- Received frames --------------------------------------------------------------------------------------- */

bool tutti__p2p_frame_valid(const tutti__frame *head)
{
    size_t element = tutti_dtype_size((tutti_dtype)head->dtype);

    switch (head->kind) {
    case TUTTI__FRAME_EAGER:
        return element > 0 && head->bytes <= TUTTI__EAGER_BYTES &&
               head->count == head->bytes / element && head->bytes % element == 0;
    case TUTTI__FRAME_RTS: /* only a message within a host may name memory */
        return element > 0 && head->bytes == 0 && head->status == 0;
    case TUTTI__FRAME_DATA:
        return head->bytes <= TUTTI__DATA_BYTES;
    case TUTTI__FRAME_CREDIT:
        return head->bytes == 0 && head->count <= TUTTI__CREDIT_BYTES;
    case TUTTI__FRAME_CTS:
    case TUTTI__FRAME_DOORBELL:
    case TUTTI__FRAME_SWAP:
    case TUTTI__FRAME_SWAPPED:
    case TUTTI__FRAME_GET:
        return head->bytes == 0;
    default:
        return false;
    }
}

static char *begin_eager(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__p2p_request *receive = tutti__p2p_match(p2p, rank, head->tag);

    if (!receive) {
        peer->arriving = tutti__p2p_queue_unexpected(p2p, rank, head, head->bytes);
        return peer->arriving ? peer->arriving->body : NULL;
    }
    if (!tutti__p2p_agree(p2p, receive, head))
        return NULL;
    peer->coming = receive;
    return receive->p;
}

static char *begin_data(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__p2p_request *receive = peer->receiving.first;

    while (receive && receive->signature.sequence != head->receive)
        receive = receive->next;
    if (!receive || head->bytes > receive->bytes - receive->moved)
        return NULL;
    peer->coming = receive;
    return receive->p + receive->moved;
}

char *tutti__p2p_frame_begin(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];

    peer->coming = NULL;
    peer->arriving = NULL;
    if (head->kind == TUTTI__FRAME_EAGER)
        return begin_eager(p2p, rank, head);
    return head->kind == TUTTI__FRAME_DATA ? begin_data(p2p, rank, head) : NULL;
}

static void end_eager(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__unexpected *unexpected = peer->arriving;

    if (peer->coming)
        tutti__p2p_finish(p2p, peer->coming, TUTTI_OK);
    if (peer->coming || (unexpected && unexpected->claimed))
        tutti__p2p_owe(p2p, rank, head->bytes);
    if (unexpected)
        unexpected->whole = true;
    if (!unexpected || !unexpected->claimed)
        return;
    if (unexpected->receive) {
        tutti__p2p_copy_to(unexpected->receive, unexpected->body);
        tutti__p2p_finish(p2p, unexpected->receive, TUTTI_OK);
    }
    free(unexpected);
}

static void end_rts(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    /* A dead group starts no rendezvous. */
    tutti__p2p_request *receive =
        atomic_load(&p2p->comm->failed) ? NULL : tutti__p2p_match(p2p, rank, head->tag);

    if (!receive)
        (void)tutti__p2p_queue_unexpected(p2p, rank, head, 0);
    else if (tutti__p2p_agree(p2p, receive, head))
        tutti__p2p_accept_rts(p2p, head, receive);
}

static void end_cts(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__p2p_request *send = tutti__p2p_take_number(&peer->rts_sent, head->id);

    if (!send)
        return;
    tutti__p2p_withdraw(p2p, send);
    send->other = head->receive;
    tutti__p2p_append(&peer->streams, send);
    if (!peer->out.ring)
        tutti__control_stream(p2p->control, rank);
}

static void end_data(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__p2p_request *receive = peer->coming;

    if (!receive)
        return;
    receive->moved += head->bytes;
    if (receive->moved < receive->bytes)
        return;
    (void)tutti__p2p_take_number(&peer->receiving, receive->signature.sequence);
    tutti__p2p_received(p2p, receive);
    tutti__p2p_finish(p2p, receive, TUTTI_OK);
}

void tutti__p2p_frame_end(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];

    if (head->kind == TUTTI__FRAME_EAGER)
        end_eager(p2p, rank, head);
    else if (head->kind == TUTTI__FRAME_RTS)
        end_rts(p2p, rank, head);
    else if (head->kind == TUTTI__FRAME_CTS)
        end_cts(p2p, rank, head);
    else if (head->kind == TUTTI__FRAME_DATA)
        end_data(p2p, rank, head);
    else if (head->kind == TUTTI__FRAME_SWAP)
        tutti__p2p_end_swap(p2p, rank, head);
    else if (head->kind == TUTTI__FRAME_SWAPPED)
        tutti__p2p_end_swapped(p2p, rank, head);
    else if (head->kind == TUTTI__FRAME_GET)
        tutti__p2p_end_get(p2p, rank, head);
    else if (head->kind == TUTTI__FRAME_CREDIT)
        peer->credit += (size_t)head->count;
    if (head->kind == TUTTI__FRAME_GET)
        tutti__p2p_answer(p2p);
    peer->coming = NULL;
    peer->arriving = NULL;
}

/* ---- Sent frames ---------------------------------------------------------------------------------------------- */

static tutti__frame frame_of(const tutti__p2p_request *send, uint32_t kind)
{
    return (tutti__frame){.kind = kind,
                          .bytes = kind == TUTTI__FRAME_EAGER ? (uint32_t)send->bytes : 0,
                          .tag = send->signature.tag,
                          .dtype = send->signature.dtype,
                          .count = send->signature.count,
                          .id = send->signature.sequence};
}

/* It is small, and the receiver has room. */
static bool goes_eager(tutti__p2p_peer *peer, const tutti__p2p_request *send)
{
    if (send->bytes > peer->eager_bytes || peer->credit < send->bytes + TUTTI__EAGER_COST)
        return false;
    peer->credit -= send->bytes + TUTTI__EAGER_COST;
    return true;
}

static void send_to_self(tutti__p2p *p2p, tutti__p2p_request *send)
{
    int self = p2p->comm->rank;
    tutti__frame head = frame_of(send, TUTTI__FRAME_RTS);
    tutti__p2p_request *receive = tutti__p2p_match(p2p, self, send->signature.tag);
    tutti__unexpected *unexpected;

    if (receive) {
        if (!tutti__p2p_agree(p2p, receive, &head))
            return;
        tutti__p2p_copy_to(receive, send->p);
        tutti__p2p_finish(p2p, receive, TUTTI_OK);
        tutti__p2p_finish(p2p, send, TUTTI_OK);
        return;
    }
    if (!goes_eager(&p2p->peers[self], send)) {
        unexpected = tutti__p2p_queue_unexpected(p2p, self, &head, 0);
        if (unexpected)
            unexpected->own = send;
        return;
    }
    head = frame_of(send, TUTTI__FRAME_EAGER);
    unexpected = tutti__p2p_queue_unexpected(p2p, self, &head, send->bytes);
    if (!unexpected)
        return;
    unexpected->whole = true;
    if (send->bytes > 0)
        memcpy(unexpected->body, send->p, send->bytes);
    tutti__p2p_finish(p2p, send, TUTTI_OK);
}

void tutti__p2p_send_request(tutti__p2p *p2p, tutti__p2p_request *send)
{
    tutti__p2p_peer *peer = &p2p->peers[send->peer];
    tutti__frame head;

    if (send->peer == p2p->comm->rank) {
        send_to_self(p2p, send);
    } else if (goes_eager(peer, send)) {
        head = frame_of(send, TUTTI__FRAME_EAGER);
        tutti__p2p_send_frame(p2p, send->peer, &head, send->p);
        tutti__p2p_finish(p2p, send, TUTTI_OK);
    } else {
        head = frame_of(send, TUTTI__FRAME_RTS);
        tutti__p2p_append(&peer->rts_sent, send);
        tutti__p2p_offer(p2p, send, &head);
        tutti__p2p_send_frame(p2p, send->peer, &head, NULL);
    }
}

void tutti__p2p_answer(tutti__p2p *p2p)
{
    tutti__p2p_request *send;

    while ((send = tutti__p2p_next_answer(p2p))) {
        tutti__p2p_open(p2p, send);
        tutti__p2p_send_request(p2p, send);
    }
}

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

/* A quarter of the message, so that the receiver copies one part while the sender writes the next, within the bounds. */
static size_t next_bytes(const tutti__p2p_peer *peer, const tutti__p2p_request *send)
{
    size_t rest = send->bytes - send->moved, part = send->bytes / 4;

    part = part < peer->eager_bytes ? peer->eager_bytes : part;
    part = part > peer->part_bytes ? peer->part_bytes : part;
    return rest < part ? rest : part;
}

const char *tutti__p2p_next_part(tutti__p2p *p2p, int rank, tutti__frame *head)
{
    const tutti__p2p_peer *peer = &p2p->peers[rank];
    const tutti__p2p_request *send = peer->streams.first;

    if (!send)
        return NULL;
    *head = (tutti__frame){.kind = TUTTI__FRAME_DATA,
                           .bytes = (uint32_t)next_bytes(peer, send),
                           .receive = send->other};
    return send->bytes > 0 ? send->p + send->moved : "";
}

/* It is the next send's turn. */
void tutti__p2p_part_sent(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__p2p_request *send = tutti__p2p_take_after(&peer->streams, NULL);

    send->moved += next_bytes(peer, send);
    if (send->moved < send->bytes)
        tutti__p2p_append(&peer->streams, send);
    else
        tutti__p2p_finish(p2p, send, TUTTI_OK);
}
