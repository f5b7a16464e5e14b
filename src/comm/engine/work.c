/* work.c -- the handle of an asynchronous call, as the program uses it.   SPDX-License-Identifier: MIT */
#include "comm/engine/queue.h"
#include "comm/engine/queue_state.h"

#include <stdlib.h>
#include <string.h>

/* Waits until it is done or the deadline has passed (0: no deadline). */
static bool wait_until(tutti_work *work, double deadline)
{
    if (work->held && atomic_load(&work->state) != TUTTI__DONE)
        tutti__queue_release(work, deadline == 0);
    return tutti__work_sleep(work, deadline);
}

/* Copies a received message to its destination, once. */
static void unpack(tutti_work *work)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* several threads may wait for it */
    tutti_status status;

    if (!work->has_bounce)
        return;
    pthread_mutex_lock(&lock);
    if (work->bounce.stream) {
        status = tutti__bounce_close(&work->bounce, work->request.status == TUTTI_OK);
        if (work->request.status == TUTTI_OK && status != TUTTI_OK) {
            work->request.status = status;
            work->request.message = strdup(tutti_last_error());
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Waits until it is done or `ms` have passed (-1: without limit). */
static bool wait_done(tutti_work *work, int ms)
{
    double deadline = ms >= 0 ? tutti__now_ms() + ms : 0;

    if (!work->is_p2p)
        return wait_until(work, deadline);
    if (!tutti__p2p_wait(&work->request, deadline))
        return false;
    unpack(work);
    return true;
}

static tutti_status check_work(const tutti_work *work)
{
    if (!work)
        return tutti__fail(TUTTI_ERR_ARG,
                           "no work to wait for: the call that should have started it failed");
    return TUTTI_OK;
}

tutti_status tutti_work_wait(tutti_work *work)
{
    tutti_status status;

    TUTTI_TRY(check_work(work));
    wait_done(work, -1);
    status = tutti__work_status(work);
    tutti__work_let_go(work);
    return status;
}

tutti_work *tutti_work_retain(tutti_work *work)
{
    if (work)
        atomic_fetch_add(&work->references, 1);
    return work;
}

static tutti_work *work_of(tutti__p2p_request *request)
{
    return (tutti_work *)(void *)((char *)request - offsetof(tutti_work, request));
}

static void drop_request(tutti__p2p_request *request)
{
    tutti__work_free(work_of(request));
}

void tutti_work_release(tutti_work *work)
{
    if (!work)
        return;
    if (work->has_bounce) { /* a waiter copies it */
        (void)!tutti_work_wait(work);
        return;
    }
    if (!work->is_p2p)
        (void)tutti_work_done(work); /* held work runs */
    if (atomic_fetch_sub(&work->references, 1) > 1)
        return;
    if (!work->is_p2p || !tutti__p2p_abandon(&work->request, drop_request))
        tutti__work_free(work);
}

tutti_status tutti_work_wait_for(tutti_work *work, int ms)
{
    const tutti__comm *comm;

    TUTTI_TRY(check_work(work));
    if (ms < 0)
        return tutti__fail(TUTTI_ERR_ARG, "work_wait_for: %d ms, expected 0 or more", ms);
    if (wait_done(work, ms)) {
        tutti_status status = tutti__work_status(work);

        /* If the operation's own status is TIMEOUT, the handle is kept too, because the caller cannot tell the two apart. */
        return status == TUTTI_ERR_TIMEOUT ? status : tutti_work_wait(work);
    }
    comm = work->queue->comm;
    return tutti__fail(TUTTI_ERR_TIMEOUT,
                       "rank %d of group \"%s\": %s is not done after %.3g s; it is still in "
                       "progress: wait for it again",
                       comm->rank, comm->name,
                       work->task.call ? "what was queued"
                                       : tutti__op_name((tutti__op_kind)work->task.op.signature.op),
                       ms / 1e3);
}

int tutti_work_source(tutti_work *work)
{
    if (!work)
        return -1;
    wait_done(work, -1);
    return work->is_p2p && work->request.status == TUTTI_OK &&
                   work->request.signature.op == TUTTI__OP_RECV
               ? work->request.peer
               : -1;
}

bool tutti_work_done(const tutti_work *work)
{
    if (!work)
        return true;
    if (work->is_p2p)
        return tutti__p2p_test(&work->request);
    if (atomic_load(&work->state) == TUTTI__DONE)
        return true;
    if (work->held)
        pthread_cond_broadcast(&work->queue->changed);
    return false;
}

static void request_done(tutti__p2p_request *request)
{
    tutti__work_call_back(work_of(request));
}

/* False if it is done, and will call nothing back. Otherwise it may end, and be freed, at any time. */
static bool watch(tutti_work *work)
{
    uint32_t state;

    if (work->is_p2p)
        return tutti__p2p_watch(&work->request, request_done);
    (void)tutti_work_done(work); /* held work runs */
    state = atomic_load(&work->state);
    do
        if (state == TUTTI__DONE)
            return false;
    while (!atomic_compare_exchange_strong(&work->state, &state, state | TUTTI__WATCHED));
    return true;
}

tutti_status tutti_work_on_done(tutti_work *work, void (*done)(void *arg), void *arg)
{
    TUTTI_TRY(check_work(work));
    if (!done)
        return tutti__fail(TUTTI_ERR_ARG, "work_on_done: no function given");
    if (atomic_exchange(&work->has_on_done, true))
        return tutti__fail(TUTTI_ERR_STATE, "work_on_done: the work has a function already");
    work->on_done = done;
    work->on_done_arg = arg;
    (void)tutti_work_retain(work);
    if (!watch(work))
        tutti__work_call_back(work);
    return TUTTI_OK;
}

void tutti__work_times(tutti_work *work, uint64_t *begin_ns_p, uint64_t *end_ns_p)
{
    wait_done(work, -1);
    *begin_ns_p = work->begin_ns;
    *end_ns_p = work->end_ns;
}
