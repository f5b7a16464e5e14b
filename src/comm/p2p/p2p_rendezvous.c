/* p2p_rendezvous.c -- large messages between ranks of one host, copied once, directly from the sender's memory, if
 * that is faster than through the ring.
 * SPDX-License-Identifier: MIT
 *
 * The sender's RTS names its memory and an atomic in its ring, whose states are
 *
 *     OFFERED -> TAKEN -> DONE       the receiver copies
 *             -> REVOKED             the sender's group is dead: the message is withdrawn
 *                TAKEN -> DROPPED    the receiver's group is dead
 *                TAKEN -> REVOKED    between processes only: the receiver discards what it reads after that
 *
 * so whichever side ends first, the other knows whether the memory was accessed. Threads copy by loads and stores,
 * processes by cross-memory attach, which is tested first; if it is refused, or was slower for messages of this size, the
 * receiver asks for DATA. Which is faster depends on the kernel, the hypervisor and the size of pages: by a factor of three
 * in either direction. */
#include "comm/bootstrap/process.h"
#include "comm/core/copy.h"
#include "comm/p2p/p2p_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

enum { OFFERED = 1, TAKEN, DONE, REVOKED, DROPPED, STATES = 8, COPY_BYTES = 1 << 20 };

static uint64_t state_of(uint64_t number, int state)
{
    return number * STATES + (uint64_t)state;
}

static bool move_on(_Atomic uint64_t *at, uint64_t number, int from, int to)
{
    uint64_t expected = state_of(number, from);

    return atomic_compare_exchange_strong(at, &expected, state_of(number, to));
}

/* ---- The sender -------------------------------------------------------------------------------------------- */

void tutti__p2p_offer(tutti__p2p *p2p, tutti__p2p_request *send, tutti__frame *rts)
{
    tutti__p2p_peer *peer = &p2p->peers[send->peer];
    int k = 0;

    if (!peer->out.ring || send->bytes <= peer->eager_bytes) /* which only lacks credit */
        return;
    while (k < TUTTI__RING_OFFERS && peer->offers[k])
        k++;
    if (k == TUTTI__RING_OFFERS)
        return;
    peer->offers[k] = send;
    peer->n_offers++;
    p2p->n_offers++;
    send->offer = &peer->out.ring->offers[k];
    send->offer->at = (uint64_t)(uintptr_t)send->p;
    send->offer->segment = send->offer->offset = 0;
    if (p2p->memory.find && p2p->memory.find(p2p->memory.self, send->p, send->bytes,
                                             &send->offer->segment, &send->offer->offset))
        send->offer->segment++;
    atomic_store_explicit(&send->offer->state, state_of(send->signature.sequence, OFFERED),
                          memory_order_relaxed);
    rts->status = 1 + k;
}

void tutti__p2p_withdraw(tutti__p2p *p2p, tutti__p2p_request *send)
{
    tutti__p2p_peer *peer = &p2p->peers[send->peer];

    for (int k = 0; k < TUTTI__RING_OFFERS && send->offer; k++)
        if (peer->offers[k] == send) {
            peer->offers[k] = NULL;
            peer->n_offers--;
            p2p->n_offers--;
        }
    send->offer = NULL;
}

static bool reap(tutti__p2p *p2p, tutti__p2p_peer *peer, tutti__p2p_request *send)
{
    uint64_t found = atomic_load(&send->offer->state);

    if (found == state_of(send->signature.sequence, DONE)) {
        (void)tutti__p2p_take_number(&peer->rts_sent, send->signature.sequence);
        tutti__p2p_withdraw(p2p, send);
        tutti__p2p_finish(p2p, send, TUTTI_OK);
        return true;
    }
    if (found != state_of(send->signature.sequence, DROPPED) || !p2p->failed)
        return false;
    tutti__p2p_withdraw(p2p, send);
    tutti__p2p_finish(p2p, send, tutti__comm_status(p2p->comm));
    return true;
}

bool tutti__p2p_reap_offers(tutti__p2p *p2p)
{
    bool any = false;

    for (int i = 0; i < p2p->n_used && p2p->n_offers > 0; i++) {
        tutti__p2p_peer *peer = &p2p->peers[p2p->used_ranks[i]];

        for (int k = 0; k < TUTTI__RING_OFFERS && peer->n_offers > 0; k++)
            if (peer->offers[k] && reap(p2p, peer, peer->offers[k]))
                any = true;
    }
    return any;
}

bool tutti__p2p_revoke(tutti__p2p *p2p, tutti__p2p_request *send)
{
    uint64_t number = send->signature.sequence;

    if (!send->offer)
        return true;
    if (!move_on(&send->offer->state, number, OFFERED, REVOKED) &&
        (p2p->one_process || !move_on(&send->offer->state, number, TAKEN, REVOKED)))
        return false;
    tutti__p2p_withdraw(p2p, send);
    return true;
}

/* ---- The receiver ------------------------------------------------------------------------------------------ */

static bool can_read(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    const tutti__doorbell *theirs = peer->doorbell;
    uint64_t token = 0;

    if (peer->readable == TUTTI__READABLE_UNKNOWN) {
        bool can = tutti__process_read(theirs->pid, &token, theirs->token_at, sizeof token) == 0 &&
                   token == theirs->token;

        peer->readable = can ? TUTTI__READABLE_YES : TUTTI__READABLE_NO;
        tutti_log(TUTTI_LOG_DEBUG, "comm", "rank %d's memory can%s be read through the kernel",
                  rank, can ? "" : "not");
    }
    return peer->readable == TUTTI__READABLE_YES;
}

/* Out of the ring by memcpy, or by string instructions: see core/copy.h. */
enum { BY_RING, BY_STRINGS, BY_KERNEL, METHODS };

static tutti__pace *pace_of(tutti__p2p *p2p, const tutti__p2p_request *receive)
{
    return &p2p->paces[tutti__pace_size(receive->bytes, TUTTI__EAGER_BYTES)];
}

void tutti__p2p_received(tutti__p2p *p2p, const tutti__p2p_request *receive)
{
    if (receive->began_ns > 0)
        tutti__pace_learn(&pace_of(p2p, receive)->ns[receive->method],
                          (float)(tutti__now_ns() - receive->began_ns));
}

void tutti__p2p_copy_part(const tutti__p2p_request *receive, char *to, const char *from,
                          size_t bytes)
{
    if (receive->method == BY_STRINGS)
        tutti__copy_string(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/* Between processes, of a message that is not in memory that both have mapped. */
static void choose_method(tutti__p2p *p2p, tutti__p2p_request *receive)
{
    tutti__pace *pace = pace_of(p2p, receive);
    unsigned kernel = can_read(p2p, receive->peer) ? 1u << BY_KERNEL : 0;

    receive->method = tutti__pace_choose(pace, METHODS, 1u << BY_STRINGS | kernel);
    if (tutti__pace_is_timed(pace, METHODS))
        receive->began_ns = tutti__now_ns();
    pace->calls++;
}

bool tutti__p2p_claim(tutti__p2p *p2p, const tutti__frame *rts, tutti__p2p_request *receive)
{
    tutti__ring_offer *offer = &p2p->peers[receive->peer].in.ring->offers[rts->status - 1];

    if (p2p->comm->tuning.stage_all)
        return false;
    if (offer->segment == 0 && !p2p->one_process) {
        choose_method(p2p, receive);
        if (receive->method != BY_KERNEL)
            return false;
    }
    if (!move_on(&offer->state, rts->id, OFFERED, TAKEN))
        return true; /* revoked: the receive ends with the group */
    receive->offer = offer;
    receive->other = rts->id;
    tutti__p2p_append(&p2p->copying, receive);
    return true;
}

static void fail_reading(tutti__p2p *p2p, const tutti__p2p_request *receive, int error)
{
    tutti__cause *cause = &p2p->verdict.cause;
    uint64_t taken = state_of(receive->other, TAKEN);

    /* Its process has ended, or it knows of a failure that this rank is about to learn of. */
    if (error == ESRCH || atomic_load(&receive->offer->state) != taken || p2p->verdict.set)
        return;
    p2p->verdict = (tutti__p2p_verdict){.set = true, .lost = -1};
    cause->status = TUTTI_ERR_INTERNAL;
    cause->culprit = receive->peer;
    snprintf(cause->text, sizeof cause->text,
             "rank %d cannot read %zu bytes of rank %d's memory: %s", p2p->comm->rank,
             receive->bytes, receive->peer, strerror(error));
}

/* 0 or an errno. */
static int copy(const tutti__p2p *p2p, const tutti__p2p_request *receive, size_t bytes)
{
    const tutti__ring_offer *offer = receive->offer;
    const tutti__p2p_memory *memory = &p2p->memory;
    void *to = receive->p + receive->moved;

    if (p2p->one_process) {
        memcpy(to, (const char *)(uintptr_t)offer->at + receive->moved, bytes);
        return 0;
    }
    if (offer->segment > 0 && memory->copy(memory->self, receive->peer, offer->segment - 1,
                                           offer->offset + receive->moved, to, bytes))
        return 0;
    return tutti__process_read(p2p->peers[receive->peer].doorbell->pid, to,
                               offer->at + receive->moved, bytes);
}

bool tutti__p2p_copy_on(tutti__p2p *p2p)
{
    tutti__p2p_request *receive = p2p->copying.first;
    size_t bytes = receive ? receive->bytes - receive->moved : 0;
    int error, sender;

    if (!receive)
        return false;
    sender = receive->peer;
    bytes = bytes < COPY_BYTES ? bytes : COPY_BYTES;
    error = copy(p2p, receive, bytes);
    receive->moved += bytes;
    if (!error && receive->moved < receive->bytes)
        return true;
    (void)tutti__p2p_take_after(&p2p->copying, NULL);
    if (error) {
        fail_reading(p2p, receive, error);
    } else if (move_on(&receive->offer->state, receive->other, TAKEN, DONE)) {
        tutti__p2p_received(p2p, receive);
        tutti__p2p_finish(p2p, receive, TUTTI_OK);
        tutti__p2p_notify(p2p, sender);
    }
    return true;
}

void tutti__p2p_drop_copying(tutti__p2p *p2p)
{
    while (p2p->copying.first) {
        tutti__p2p_request *receive = tutti__p2p_take_after(&p2p->copying, NULL);

        if (move_on(&receive->offer->state, receive->other, TAKEN, DROPPED))
            tutti__p2p_notify(p2p, receive->peer);
    }
}
