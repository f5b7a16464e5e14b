/* frame_send.c -- sends a frame: through the ring, queued for it while it is full, or through the control channel.
 * SPDX-License-Identifier: MIT */
#include "comm/p2p/p2p_state.h"

#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

/* Only the control channel carries it. */
static const tutti__frame doorbell = {.kind = TUTTI__FRAME_DOORBELL};

/* Most programs that have posted a receive wait for it within microseconds. That costs less than waking the receiver's control
 * thread, which may have to take the core from the program, so it is awaited for about as long. */
static uint32_t await_poller(const tutti__p2p *p2p, _Atomic uint32_t *bell)
{
    enum { BETWEEN_CLOCKS = 16 };
    uint64_t end = tutti__now_ns() + p2p->patience_ns;
    uint32_t now;

    for (int i = 1; (now = atomic_load(bell)) == TUTTI__BELL_ARMED; i++) {
        if (i % BETWEEN_CLOCKS == 0 && tutti__now_ns() >= end)
            break;
        tutti__relax();
    }
    return now;
}

void tutti__p2p_use_rings(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];

    if (!peer->used)
        p2p->used_ranks[p2p->n_used++] = rank;
    peer->used = true;
}

/* Something has been written for it: tells the peer to poll this ring, before looking at its bell. */
static void announce(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];

    if (peer->announced)
        return;
    peer->announced = true;
    tutti__p2p_use_rings(p2p, rank);
    atomic_fetch_or(peer->senders, p2p->own_sender);
}

void tutti__p2p_notify(tutti__p2p *p2p, int rank)
{
    _Atomic uint32_t *bell = &p2p->peers[rank].doorbell->bell;
    uint32_t was;

    announce(p2p, rank);
    was = atomic_load(bell);
    if (was == TUTTI__BELL_ARMED && p2p->patience_ns > 0)
        was = await_poller(p2p, bell);
    if (was != TUTTI__BELL_OFF)
        was = atomic_exchange(bell, TUTTI__BELL_OFF);
    if (was == TUTTI__BELL_SLEEPING)
        tutti__futex_wake(bell);
    else if (was == TUTTI__BELL_ARMED)
        tutti__control_send(p2p->control, rank, &doorbell, NULL);
}

bool tutti__p2p_write_pending(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    bool any = false;

    while (peer->first_pending) {
        tutti__pending *pending = peer->first_pending;

        if (!tutti__ring_write(&peer->out, &pending->head, pending->body))
            return any;
        peer->first_pending = pending->next;
        p2p->n_pending--;
        free(pending);
        any = true;
    }
    return any;
}

static void wait_for_room(tutti__p2p *p2p, int rank, const tutti__frame *head, const void *body)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__pending *pending = malloc(sizeof *pending + head->bytes);
    bool first = !peer->first_pending;

    if (!pending) { /* the receiver waits for it until its time limit */
        tutti_log(TUTTI_LOG_ERROR, "comm", "no memory for a message to rank %d", rank);
        return;
    }
    *pending = (tutti__pending){.head = *head};
    if (body && head->bytes > 0)
        memcpy(pending->body, body, head->bytes);
    if (first)
        peer->first_pending = pending;
    else
        peer->last_pending->next = pending;
    peer->last_pending = pending;
    p2p->n_pending++;
    if (!first)
        return;
    atomic_store(&peer->out.ring->starved, 1); /* and again, now that the reader knows */
    if (tutti__p2p_write_pending(p2p, rank))
        tutti__p2p_notify(p2p, rank);
    else /* even if the receiver has armed no bell */
        tutti__control_send(p2p->control, rank, &doorbell, NULL);
}

void tutti__p2p_send_frame(tutti__p2p *p2p, int rank, const tutti__frame *head, const void *body)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];

    if (!peer->out.ring)
        tutti__control_send(p2p->control, rank, head, body);
    else if (peer->first_pending || !tutti__ring_write(&peer->out, head, body))
        wait_for_room(p2p, rank, head, body);
    else
        tutti__p2p_notify(p2p, rank);
}

void tutti__p2p_drop_pending(tutti__p2p *p2p)
{
    for (int r = 0; r < p2p->comm->size; r++) {
        tutti__p2p_peer *peer = &p2p->peers[r];

        while (peer->first_pending) {
            tutti__pending *pending = peer->first_pending;

            peer->first_pending = pending->next;
            free(pending);
        }
    }
    p2p->n_pending = 0;
}
