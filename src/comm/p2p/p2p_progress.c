/* p2p_progress.c -- the lock, the rings, and the doorbells that tell ranks of new data.   SPDX-License-Identifier: MIT
 *
 * A writer puts data into shared memory and then reads the receiver's bell; the receiver sets its bell and then reads the
 * memory once more. So one of the two always sees the other. */
#include "comm/p2p/p2p_state.h"

#include "base/thread.h"

#include <string.h>

/* ---- The lock ------------------------------------------------------------------------------------------------- */

void tutti__p2p_enter(tutti__p2p *p2p)
{
    if (pthread_mutex_trylock(&p2p->lock) == 0)
        return;
    atomic_fetch_add(&p2p->callers, 1);
    pthread_mutex_lock(&p2p->lock);
    atomic_fetch_sub(&p2p->callers, 1);
}

bool tutti__p2p_try_enter(tutti__p2p *p2p)
{
    return atomic_load_explicit(&p2p->callers, memory_order_relaxed) == 0 &&
           pthread_mutex_trylock(&p2p->lock) == 0;
}

/* No thread polls the rings while something is expected, or may be asked: makes the sender wake the control thread. */
static void arm(tutti__p2p *p2p)
{
    _Atomic uint32_t *bell = &p2p->doorbell->bell;

    if (p2p->n_local == 0 || p2p->pollers > 0 ||
        (!p2p->open && p2p->n_pending == 0 && !p2p->windows))
        return;
    if (atomic_load_explicit(bell, memory_order_relaxed) != TUTTI__BELL_ARMED) {
        atomic_store(bell, TUTTI__BELL_ARMED);
        (void)tutti__p2p_progress(p2p);
    }
    if (p2p->copying.first)
        tutti__control_wake(p2p->control);
}

/* Acts on the verdict. Without the lock. */
static void settle(tutti__p2p *p2p, const tutti__p2p_verdict *verdict)
{
    if (verdict->lost >= 0)
        (void)tutti__comm_fail_lost(p2p->comm, verdict->lost);
    else
        (void)tutti__comm_fail_of(p2p->comm, &verdict->cause);
}

static void notify_all(tutti__p2p_request *request)
{
    for (tutti__p2p_request *next; request; request = next) {
        next = request->next_notified;
        request->notify(request);
    }
}

void tutti__p2p_leave(tutti__p2p *p2p)
{
    tutti__p2p_request *notified;
    _Atomic uint32_t *bell = &p2p->doorbell->bell;
    uint32_t sleeping = TUTTI__BELL_SLEEPING;
    tutti__p2p_verdict verdict;
    bool set;

    arm(p2p);
    if ((p2p->finished || p2p->copying.first) && atomic_load(bell) == sleeping &&
        atomic_compare_exchange_strong(bell, &sleeping, TUTTI__BELL_OFF))
        tutti__futex_wake(bell);
    p2p->finished = false;
    set = p2p->verdict.set;
    if (set)
        verdict = p2p->verdict;
    p2p->verdict.set = false;
    notified = p2p->notified;
    p2p->notified = NULL;
    pthread_mutex_unlock(&p2p->lock);
    notify_all(notified);
    if (set)
        settle(p2p, &verdict);
}

void tutti__p2p_sleep(tutti__p2p *p2p, const tutti__p2p_request *request, double ms)
{
    _Atomic uint32_t *bell = &p2p->doorbell->bell;
    bool moved;

    tutti__p2p_enter(p2p);
    p2p->pollers++; /* before leaving, so that `arm` finds a poller */
    atomic_store(bell, TUTTI__BELL_SLEEPING);
    moved = tutti__p2p_progress(p2p) || p2p->copying.first || (request && request->done);
    tutti__p2p_leave(p2p);
    if (!moved)
        tutti__futex_wait(bell, TUTTI__BELL_SLEEPING, ms);
    tutti__p2p_enter(p2p);
    p2p->pollers--;
    tutti__p2p_leave(p2p);
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

/* Writes queued frames, then parts of streams. True if there was one. */
static bool write_waiting(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    tutti__frame head;
    const char *body;
    bool any = tutti__p2p_write_pending(p2p, rank);

    if (peer->first_pending)
        return any;
    while ((body = tutti__p2p_next_part(p2p, rank, &head)) != NULL &&
           tutti__ring_write(&peer->out, &head, body)) {
        tutti__p2p_part_sent(p2p, rank);
        any = true;
    }
    return any;
}

static bool push(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    bool any = write_waiting(p2p, rank);

    if (peer->first_pending || peer->streams.first) { /* and again, now that the reader knows */
        atomic_store(&peer->out.ring->starved, 1);
        any = write_waiting(p2p, rank) || any;
    }
    if (any)
        tutti__p2p_notify(p2p, rank);
    return any;
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

static void copy_body(const tutti__p2p_request *receive, char *to, const tutti__ring_record *record)
{
    if (receive)
        tutti__p2p_copy_part(receive, to, tutti__ring_body(record), record->head.bytes);
    else
        memcpy(to, tutti__ring_body(record), record->head.bytes);
}

static bool read_ring(tutti__p2p *p2p, int rank)
{
    tutti__p2p_peer *peer = &p2p->peers[rank];
    const tutti__ring_record *record = tutti__ring_peek(&peer->in);

    if (!record)
        return false;
    for (; record; record = tutti__ring_peek(&peer->in)) {
        char *to = tutti__p2p_frame_begin(p2p, rank, &record->head);

        if (to && record->head.bytes > 0)
            copy_body(peer->coming, to, record);
        tutti__p2p_frame_end(p2p, rank, &record->head);
        tutti__ring_pass(&peer->in, record);
    }
    if (tutti__ring_announce(&peer->in))
        tutti__p2p_notify(p2p, rank);
    return true;
}

/* Finds ranks that have written into their ring for the first time. */
static void find_senders(tutti__p2p *p2p)
{
    for (int w = 0; w <= p2p->n_local / TUTTI__SENDERS; w++) {
        uint64_t found = atomic_load(&p2p->senders[w]) & ~p2p->known_senders[w];

        p2p->known_senders[w] |= found;
        for (; found; found &= found - 1)
            tutti__p2p_use_rings(p2p,
                                 p2p->local_ranks[w * TUTTI__SENDERS + __builtin_ctzll(found)]);
    }
}

bool tutti__p2p_progress(tutti__p2p *p2p)
{
    bool any = false;

    if (p2p->n_local > 0)
        find_senders(p2p);
    for (int i = 0; i < p2p->n_used; i++) {
        int rank = p2p->used_ranks[i];
        const tutti__p2p_peer *peer = &p2p->peers[rank];

        any = read_ring(p2p, rank) || any;
        if (peer->first_pending || peer->streams.first)
            any = push(p2p, rank) || any;
    }
    if (p2p->n_offers > 0)
        any = tutti__p2p_reap_offers(p2p) || any;
    return any;
}
