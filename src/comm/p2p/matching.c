/* matching.c -- matches messages with receives: the posted and the unexpected queue.   SPDX-License-Identifier: MIT */
#include "comm/p2p/p2p_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool suits(const tutti__p2p_request *receive, int rank, int tag)
{
    return (receive->peer == rank || receive->peer == TUTTI_ANY_RANK) &&
           receive->signature.tag == tag;
}

tutti__p2p_request *tutti__p2p_match(tutti__p2p *p2p, int rank, int tag)
{
    tutti__p2p_request *before = NULL, *found = p2p->posted.first;

    for (; found && !suits(found, rank, tag); found = found->next)
        before = found;
    if (found)
        tutti__p2p_take_after(&p2p->posted, before)->peer = rank;
    return found;
}

bool tutti__p2p_agree(tutti__p2p *p2p, const tutti__p2p_request *receive, const tutti__frame *head)
{
    const tutti__signature send = {.op = TUTTI__OP_SEND,
                                   .sequence = head->id,
                                   .count = head->count,
                                   .dtype = (uint8_t)head->dtype,
                                   .root = (uint32_t)p2p->comm->rank,
                                   .tag = head->tag};
    tutti__cause *cause = &p2p->verdict.cause;
    char sent[TUTTI__SIGNATURE_TEXT], received[TUTTI__SIGNATURE_TEXT];

    if (head->count == receive->signature.count && head->dtype == receive->signature.dtype)
        return true;
    if (p2p->verdict.set)
        return false;
    tutti__signature_text(&send, sent, sizeof sent);
    tutti__signature_text(&receive->signature, received, sizeof received);
    p2p->verdict = (tutti__p2p_verdict){.set = true, .lost = -1};
    cause->status = TUTTI_ERR_MISMATCH;
    cause->culprit = receive->peer;
    snprintf(cause->text, sizeof cause->text,
             "rank %d called %s, but rank %d called %s; both must name the same dtype and count",
             receive->peer, sent, p2p->comm->rank, received);
    return false;
}

static void fail_memory(tutti__p2p *p2p, int rank)
{
    tutti__cause *cause = &p2p->verdict.cause;

    if (p2p->verdict.set)
        return;
    p2p->verdict = (tutti__p2p_verdict){.set = true, .lost = -1};
    cause->status = TUTTI_ERR_MEMORY;
    cause->culprit = p2p->comm->rank;
    snprintf(cause->text, sizeof cause->text, "rank %d has no memory for what rank %d sends",
             p2p->comm->rank, rank);
}

tutti__unexpected *tutti__p2p_queue_unexpected(tutti__p2p *p2p, int rank, const tutti__frame *head,
                                               size_t bytes)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__unexpected *unexpected = malloc(sizeof *unexpected + bytes);

    if (!unexpected) {
        fail_memory(p2p, rank);
        return NULL;
    }
    *unexpected = (tutti__unexpected){.head = *head, .order = p2p->n_unexpected++};
    if (peer->first_unexpected)
        peer->last_unexpected->next = unexpected;
    else
        peer->first_unexpected = unexpected;
    peer->last_unexpected = unexpected;
    return unexpected;
}

void tutti__p2p_copy_to(tutti__p2p_request *receive, const char *from)
{
    if (receive->bytes > 0)
        memcpy(receive->p, from, receive->bytes);
}

void tutti__p2p_owe(tutti__p2p *p2p, int rank, size_t bytes)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__frame head = {.kind = TUTTI__FRAME_CREDIT};

    peer->owed += bytes + TUTTI__EAGER_COST;
    if (rank == p2p->comm->rank) {
        peer->credit += peer->owed;
        peer->owed = 0;
    } else if (peer->owed >= TUTTI__CREDIT_BYTES / 4) {
        head.count = peer->owed;
        peer->owed = 0;
        tutti__p2p_send_frame(p2p, rank, &head, NULL);
    }
}

void tutti__p2p_accept_rts(tutti__p2p *p2p, const tutti__frame *rts, tutti__p2p_request *receive)
{
    const tutti__frame head = {
        .kind = TUTTI__FRAME_CTS, .id = rts->id, .receive = receive->signature.sequence};

    if (rts->status > 0 && tutti__p2p_claim(p2p, rts, receive))
        return;
    tutti__p2p_append(&p2p->peers[receive->peer].receiving, receive);
    tutti__p2p_send_frame(p2p, receive->peer, &head, NULL);
}

/* The first message for this receive, and the one before it in its list. */
static tutti__unexpected *find(const tutti__p2p *p2p, const tutti__p2p_request *receive,
                               int *rank_p, tutti__unexpected **before_p)
{
    bool any = receive->peer == TUTTI_ANY_RANK;
    tutti__unexpected *best = NULL;

    for (int r = any ? 0 : receive->peer, end = any ? p2p->comm->size : r + 1; r < end; r++) {
        tutti__unexpected *before = NULL, *u = p2p->peers[r].first_unexpected;

        for (; u && !suits(receive, r, u->head.tag); u = u->next)
            before = u;
        if (u && (!best || u->order < best->order)) {
            best = u;
            *rank_p = r;
            *before_p = before;
        }
    }
    return best;
}

/* Gives the receive its message, which has been removed from the list. */
static void hand_over(tutti__p2p *p2p, tutti__unexpected *unexpected, tutti__p2p_request *receive)
{
    if (unexpected->whole) {
        tutti__p2p_copy_to(receive, unexpected->body);
        tutti__p2p_owe(p2p, receive->peer, unexpected->head.bytes);
        tutti__p2p_finish(p2p, receive, TUTTI_OK);
    } else if (unexpected->own) {
        tutti__p2p_copy_to(receive, unexpected->own->p);
        tutti__p2p_finish(p2p, receive, TUTTI_OK);
        tutti__p2p_finish(p2p, unexpected->own, TUTTI_OK);
    } else if (unexpected->head.kind == TUTTI__FRAME_RTS) {
        tutti__p2p_accept_rts(p2p, &unexpected->head, receive);
    } else { /* it is just being received */
        unexpected->claimed = true;
        unexpected->receive = receive;
        return;
    }
    free(unexpected);
}

bool tutti__p2p_receive_unexpected(tutti__p2p *p2p, tutti__p2p_request *receive)
{
    tutti__unexpected *before = NULL, *unexpected;
    tutti__p2p_peer *peer;
    int rank = -1;

    unexpected = find(p2p, receive, &rank, &before);
    if (!unexpected || (!unexpected->whole && atomic_load(&p2p->comm->failed)))
        return false;
    peer = &p2p->peers[rank];
    receive->peer = rank;
    if (!tutti__p2p_agree(p2p, receive, &unexpected->head)) {
        if (p2p->failed) /* with the group's own cause */
            tutti__p2p_finish(p2p, receive, tutti__comm_status(p2p->comm));
        return true;
    }
    if (before)
        before->next = unexpected->next;
    else
        peer->first_unexpected = unexpected->next;
    if (peer->last_unexpected == unexpected)
        peer->last_unexpected = before;
    hand_over(p2p, unexpected, receive);
    return true;
}
