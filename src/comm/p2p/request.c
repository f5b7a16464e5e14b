/* request.c -- sends and receives from start to completion.   SPDX-License-Identifier: MIT */
#include "comm/p2p/p2p_state.h"

#include "comm/core/tree.h"

#include "base/thread.h"

#include <sched.h>
#include <stdio.h>

#define SHORT_MS 0.05 /* a wait shorter than this is not worth sleeping */

/* ---- Start, end ------------------------------------------------------------------------------------------- */

bool tutti__p2p_abandon(tutti__p2p_request *request, void (*drop)(tutti__p2p_request *request))
{
    tutti__p2p *p2p = request->p2p;
    bool open;

    if (tutti__p2p_test(request)) /* the group may already be freed */
        return false;
    tutti__p2p_enter(p2p);
    open = !tutti__p2p_test(request);
    if (open) {
        p2p->pollers -= request->polls;
        request->polls = false;
        request->drop = drop;
    }
    tutti__p2p_leave(p2p);
    return open;
}

bool tutti__p2p_watch(tutti__p2p_request *request, void (*notify)(tutti__p2p_request *request))
{
    tutti__p2p *p2p = request->p2p;
    bool open;

    if (tutti__p2p_test(request)) /* the group may already be freed */
        return false;
    tutti__p2p_enter(p2p);
    open = !tutti__p2p_test(request);
    if (open) {
        request->notify = notify;
        atomic_fetch_add(&p2p->n_watched, 1);
    }
    tutti__p2p_leave(p2p);
    return open;
}

/* No rank is left that could send it, or take it. */
static bool is_orphan(const tutti__p2p *p2p, const tutti__p2p_request *request)
{
    const tutti__comm *comm = p2p->comm;

    if (request->peer != TUTTI_ANY_RANK)
        return request->peer != comm->rank && atomic_load(&comm->peers[request->peer].left);
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && !atomic_load(&comm->peers[r].left))
            return false;
    return comm->size > 1;
}

void tutti__p2p_judge_orphans(tutti__p2p *p2p, int rank)
{
    for (const tutti__p2p_request *r = p2p->open; r && !p2p->verdict.set; r = r->next_open)
        if ((r->peer == rank || r->peer == TUTTI_ANY_RANK) && is_orphan(p2p, r)) {
            p2p->verdict.set = true;
            p2p->verdict.lost = rank;
        }
}

static void start(tutti__p2p *p2p, tutti__p2p_request *request)
{
    bool receives = request->signature.op == TUTTI__OP_RECV;

    tutti__p2p_open(p2p, request);
    if (receives && tutti__p2p_receive_unexpected(p2p, request))
        return;
    if (p2p->failed || atomic_load(&p2p->comm->failed)) {
        tutti__p2p_finish(p2p, request, tutti__comm_status(p2p->comm));
    } else if (is_orphan(p2p, request)) {
        /* Receives what it sent before it left. */
        if (tutti__p2p_progress(p2p) && receives && tutti__p2p_receive_unexpected(p2p, request))
            return;
        if (!p2p->verdict.set) {
            p2p->verdict.set = true;
            p2p->verdict.lost = request->peer < 0 ? (p2p->comm->rank == 0) : request->peer;
        }
    } else if (receives) {
        tutti__p2p_append(&p2p->posted, request);
    } else if (request->signature.op == TUTTI__OP_SEND) {
        tutti__p2p_send_request(p2p, request);
    } else {
        tutti__p2p_send_swap(p2p, request);
    }
}

static void stop_polling(tutti__p2p *p2p, tutti__p2p_request *request)
{
    p2p->pollers -= request->polls;
    request->polls = false;
}

static void start_polling(tutti__p2p *p2p, tutti__p2p_request *request)
{
    uint32_t armed = TUTTI__BELL_ARMED;

    if (request->polls)
        return;
    request->polls = true;
    p2p->pollers++;
    if (atomic_load_explicit(&p2p->doorbell->bell, memory_order_relaxed) == armed)
        atomic_compare_exchange_strong(&p2p->doorbell->bell, &armed, TUTTI__BELL_OFF);
}

void tutti__p2p_start(tutti__p2p *p2p, tutti__p2p_request *request,
                      const tutti__signature *signature, void *p, int timeout_ms, bool waits)
{
    *request = (tutti__p2p_request){
        .p2p = p2p,
        .signature = *signature,
        .p = p,
        .bytes = tutti__signature_bytes(signature),
        .peer = (int)signature->root,
        .timeout_ms = timeout_ms,
        .deadline = waits ? 0 : (double)tutti__now_coarse_ns() * 1e-6 + TUTTI__TICK_MS + timeout_ms,
    };
    (void)tutti__comm_failed(p2p->comm); /* checks whether it has */
    tutti__p2p_enter(p2p);
    request->signature.group = p2p->comm->id;
    request->signature.sequence = p2p->n_requests++;
    /* Messages that have arrived are matched in order, and may give credit. */
    if (request->signature.op == TUTTI__OP_RECV ||
        p2p->peers[request->peer].credit < request->bytes + TUTTI__EAGER_COST)
        (void)tutti__p2p_progress(p2p);
    if (waits)
        start_polling(p2p, request);
    start(p2p, request);
    if (atomic_load_explicit(&request->done, memory_order_relaxed))
        stop_polling(p2p, request);
    tutti__p2p_leave(p2p);
}

/* ---- Windows ------------------------------------------------------------------------------------------------ */

tutti_status tutti__p2p_expose(tutti__p2p *p2p, const tutti__p2p_window *window)
{
    tutti_status status;

    tutti__p2p_enter(p2p);
    status = tutti__p2p_set_window(p2p, window);
    tutti__p2p_answer(p2p);
    tutti__p2p_leave(p2p);
    return status;
}

void tutti__p2p_ask(tutti__p2p *p2p, int rank, int tag, uint64_t version, size_t offset,
                    size_t bytes)
{
    const tutti__frame head = {
        .kind = TUTTI__FRAME_GET, .tag = tag, .count = bytes, .id = offset, .receive = version};

    tutti__p2p_enter(p2p);
    if (!p2p->failed && !atomic_load(&p2p->comm->failed))
        tutti__p2p_send_frame(p2p, rank, &head, NULL);
    tutti__p2p_leave(p2p);
}

/* ---- Waiting ------------------------------------------------------------------------------------------------ */

static void fail_late(tutti__p2p *p2p, const tutti__p2p_request *request)
{
    char signature[TUTTI__SIGNATURE_TEXT], peer[128] = "any rank";

    tutti__signature_text(&request->signature, signature, sizeof signature);
    if (request->peer != TUTTI_ANY_RANK)
        tutti__comm_peer_text(p2p->comm, request->peer, peer, sizeof peer);
    (void)tutti__comm_fail(
        p2p->comm, TUTTI_ERR_TIMEOUT, request->peer,
        "%s of rank %d timed out after %.3g s waiting for %s to %s (TUTTI_TIMEOUT_S, "
        "tutti_group_set_timeout set the limit)",
        signature, p2p->comm->rank, request->timeout_ms / 1e3, peer,
        request->signature.op == TUTTI__OP_COMPARE_AND_SWAP ? "answer: it is stopped, or cut off"
        : request->signature.op == TUTTI__OP_SEND
            ? "call tutti_recv: it hangs, is much slower, or names another tag or rank"
            : "call tutti_send: it hangs, is much slower, or names another tag or rank");
}

/* What a message about the request needs, for after the lock is given back: the request may end then. */
static tutti__p2p_request summary_of(const tutti__p2p_request *request)
{
    return (tutti__p2p_request){
        .signature = request->signature, .peer = request->peer, .timeout_ms = request->timeout_ms};
}

/* An open request timed out: the group dies. */
static void expire(tutti__p2p *p2p, const tutti__p2p_request *request)
{
    tutti__p2p_request copy;
    bool open;

    tutti__p2p_enter(p2p);
    open = !tutti__p2p_test(request);
    if (open)
        copy = summary_of(request);
    tutti__p2p_leave(p2p);
    if (open && !tutti__comm_failed(p2p->comm))
        fail_late(p2p, &copy);
}

void tutti__p2p_expire_watched(tutti__p2p *p2p)
{
    tutti__p2p_request late;
    bool found = false;
    double now;

    if (atomic_load_explicit(&p2p->n_watched, memory_order_relaxed) == 0)
        return;
    now = tutti__now_ms();
    tutti__p2p_enter(p2p);
    for (const tutti__p2p_request *r = p2p->open; r && !found; r = r->next_open) {
        found = r->notify && r->deadline > 0 && r->deadline <= now;
        if (found)
            late = summary_of(r);
    }
    tutti__p2p_leave(p2p);
    if (found && !tutti__comm_failed(p2p->comm))
        fail_late(p2p, &late);
}

void tutti__p2p_watch_peers(tutti__p2p *p2p)
{
    enum { LONG_MS = 500 };
    double now;

    if (p2p->comm->size <= TUTTI__ALL_NEAR)
        return;
    now = tutti__now_ms();
    if (now < p2p->watch_at)
        return;
    p2p->watch_at = now + LONG_MS;
    tutti__p2p_enter(p2p);
    for (const tutti__p2p_request *r = p2p->open; r; r = r->next_open)
        if (r->peer >= 0 && r->peer != p2p->comm->rank && r->signature.sequence < p2p->watch_below)
            tutti__control_watch(p2p->control, r->peer);
    p2p->watch_below = p2p->n_requests;
    tutti__p2p_leave(p2p);
}

bool tutti__p2p_test(const tutti__p2p_request *request)
{
    return atomic_load_explicit(&request->done, memory_order_acquire);
}

/* Polls once; true if that made progress. `give_up`: for the last time. */
static bool look(tutti__p2p *p2p, tutti__p2p_request *request, bool give_up, bool *over)
{
    bool done = tutti__p2p_test(request), moved;

    *over = false;
    if (done || give_up)
        tutti__p2p_enter(p2p);
    else if (!tutti__p2p_try_enter(p2p))
        return false;
    start_polling(p2p, request);
    moved = tutti__p2p_progress(p2p);
    if (!tutti__p2p_test(request))
        moved = tutti__p2p_copy_on(p2p) || moved;
    *over = tutti__p2p_test(request) || give_up;
    if (*over)
        stop_polling(p2p, request);
    tutti__p2p_leave(p2p);
    return moved;
}

/* Milliseconds until the next deadline; <= 0: it has passed. */
static double time_left(tutti__p2p_request *request, double until)
{
    double now = tutti__now_ms();

    if (request->deadline == 0)
        request->deadline = now + request->timeout_ms;
    return (until > 0 && until < request->deadline ? until : request->deadline) - now;
}

static void set_looks(tutti__p2p *p2p, int looks)
{
    looks = looks < p2p->least_looks ? p2p->least_looks : looks;
    looks = looks > p2p->most_looks ? p2p->most_looks : looks;
    atomic_store_explicit(&p2p->looks, looks, memory_order_relaxed);
}

bool tutti__p2p_wait(tutti__p2p_request *request, double until)
{
    tutti__p2p *p2p = request->p2p;
    int turn = 0, looks;
    bool over = false, expired = false;

    if (tutti__p2p_test(request) && !request->polls)
        return true; /* the group may already be freed */
    looks = atomic_load_explicit(&p2p->looks, memory_order_relaxed);
    for (;;) {
        bool moved = look(p2p, request, false, &over);
        double left;

        if (over)
            return true;
        turn = moved ? 0 : turn + 1;
        if (moved) /* the peer is at it, too */
            looks = p2p->most_looks;
        if (turn < looks)
            continue;
        left = expired ? 1 : time_left(request, until);
        if (left <= 0 && until > 0 && until < request->deadline) {
            (void)look(p2p, request, true, &over);
            return tutti__p2p_test(request);
        }
        if (left <= 0) {
            expire(p2p, request);
            expired = true; /* it ends with the group */
        } else if (turn < looks + p2p->yields) {
            sched_yield();
        } else {
            double begin = tutti__now_ms();

            tutti__p2p_sleep(p2p, request, left);
            /* Polls longer next time if the sleep was short, else less. */
            set_looks(p2p, tutti__now_ms() - begin < SHORT_MS ? 2 * looks : looks / 2);
        }
    }
}

/* ---- Leaving ------------------------------------------------------------------------------------------------ */

/* The open request with the earliest deadline. */
static tutti__p2p_request *find_first(const tutti__p2p *p2p)
{
    tutti__p2p_request *first = p2p->open;

    for (tutti__p2p_request *r = first; r; r = r->next_open)
        first = r->deadline < first->deadline ? r : first;
    return first;
}

void tutti__p2p_flush(tutti__p2p *p2p)
{
    enum { LINGER_MS = 1000 };
    double linger = tutti__now_ms() + LINGER_MS;

    /* Sends and receives of this rank to itself cannot be matched any more. */
    if (p2p->comm->size == 1 && p2p->open)
        (void)tutti__comm_fail(p2p->comm, TUTTI_ERR_STATE, 0,
                               "the group was left before both tutti_send and tutti_recv were "
                               "called");
    for (;;) {
        tutti__p2p_request *first, late;
        bool moved, over, failed;
        double left = linger - tutti__now_ms();

        tutti__p2p_enter(p2p);
        moved = tutti__p2p_progress(p2p);
        moved = tutti__p2p_copy_on(p2p) || moved;
        failed = p2p->failed;
        first = find_first(p2p);
        over = !first && (p2p->n_pending == 0 || failed || left <= 0);
        if (first) {
            left = failed ? 1 : first->deadline - tutti__now_ms();
            late = summary_of(first);
        }
        tutti__p2p_leave(p2p);
        if (over)
            return;
        if (left <= 0)
            fail_late(p2p, &late);
        else if (!moved)
            tutti__p2p_sleep(p2p, NULL, left);
    }
}
