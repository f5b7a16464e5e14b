/* nccl_comm.c -- a group's NCCL communicator: creating, waiting, closing, aborting.   SPDX-License-Identifier: MIT
 *
 * NCCL's calls that end a communicator may wait for the device or, if the network has failed, for ever. They run in a
 * thread that is abandoned if it takes too long. */
#include "comm/backend/nccl/nccl.h"
#include "base/thread.h"
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GRACE_MS = 300, /* for the control channel to learn which rank died */
    CLOSE_MS = 2000,
    ABORT_MS = 5000
};

/* ---- Failing ------------------------------------------------------------------------------------------- */

/* NCCL sees that a connection broke, the control channel which rank died: that is the better cause, if it comes soon. */
static tutti_status fail(tutti__nccl_backend *c, int error, const char *what)
{
    tutti__comm *comm = c->base.comm;
    const double until = tutti__now_ms() + GRACE_MS;
    char text[512], who[128];

    c->nccl->error_text(c->comm, error, text, sizeof text);
    for (unsigned n = 0; !tutti__comm_failed(comm) && tutti__now_ms() < until;)
        tutti__devices_pause(&n);
    tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
    return tutti__comm_fail(comm, TUTTI_ERR_PEER, -1,
                            "%s: NCCL %d.%d.%d on cuda:%d reports, in %s: %s; NCCL_DEBUG=INFO says "
                            "more, NCCL_SOCKET_IFNAME names the network interface, and backend "
                            "native works without NCCL",
                            who, c->library.version / 10000, c->library.version / 100 % 100,
                            c->library.version % 100, c->device.index, what, text);
}

/* TUTTI_OK to continue waiting. */
static tutti_status check(const tutti__nccl_backend *c, const tutti__operation *op,
                          const char *what)
{
    tutti__comm *comm = c->base.comm;
    char text[TUTTI__SIGNATURE_TEXT], who[128];

    if (tutti__comm_failed(comm))
        return tutti__comm_status(comm);
    if (tutti__now_ms() < op->deadline)
        return TUTTI_OK;
    tutti__signature_text(&op->signature, text, sizeof text);
    tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
    return tutti__comm_fail(
        comm, TUTTI_ERR_TIMEOUT, -1,
        "%s: %s timed out after %.3g s waiting for NCCL, in %s, although all ranks are "
        "in it: a network or a GPU hangs or is slow (TUTTI_TIMEOUT_S or "
        "tutti_group_set_timeout sets the limit)",
        text, who, op->timeout_ms / 1e3, what);
}

/* ---- Waiting ------------------------------------------------------------------------------------------- */

tutti_status tutti__nccl_settle(tutti__nccl_backend *c, const tutti__operation *op, int result,
                                const char *what)
{
    for (unsigned n = 0; result == TUTTI__NCCL_PENDING; result = c->nccl->state(c->comm)) {
        TUTTI_TRY(check(c, op, what));
        tutti__devices_pause(&n);
    }
    return result == TUTTI__NCCL_OK ? TUTTI_OK : fail(c, result, what);
}

tutti_status tutti__nccl_await(tutti__nccl_backend *c, const tutti__operation *op, const char *what)
{
    if (c->ops->event_record(c->event, c->stream) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    for (unsigned n = 0;; tutti__devices_pause(&n)) {
        bool passed;
        int result;

        if (c->ops->event_passed(c->event, &passed) != TUTTI_OK)
            return tutti__devices_fail(c->base.comm);
        if (passed)
            return TUTTI_OK;
        result = c->nccl->state(c->comm);
        if (result != TUTTI__NCCL_OK && result != TUTTI__NCCL_PENDING)
            return fail(c, result, what);
        TUTTI_TRY(check(c, op, what));
    }
}

/* ---- Ending ---------------------------------------------------------------------------------------------- */

typedef struct ending {
    int (*call)(tutti__nccl_comm *comm);
    tutti__nccl_comm *comm;
    int device;
    _Atomic int owners; /* the last owner frees it */
} ending;

static void *end(void *arg)
{
    ending *e = arg;

    /* NCCL restores the thread's device when it is done: a new thread's is the first one, on which that would create a context. */
    (void)tutti__cuda_module()->runtime->use(e->device);
    (void)e->call(e->comm);
    if (atomic_fetch_sub(&e->owners, 1) == 1)
        free(e);
    return NULL;
}

/* False if it has not returned. */
static bool end_in_time(int (*call)(tutti__nccl_comm *comm), tutti__nccl_comm *comm, int device,
                        int limit_ms)
{
    ending *e = tutti__alloc(sizeof *e);
    const double until = tutti__now_ms() + limit_ms;
    pthread_t thread;
    bool back = true;

    if (e)
        *e = (ending){call, comm, device, 2};
    if (!e || tutti__thread_start(&thread, end, e) != 0) {
        free(e);
        (void)call(comm);
        return true;
    }
    if (!tutti__thread_join_by(thread, until)) {
        pthread_detach(thread);
        back = false;
    }
    if (atomic_fetch_sub(&e->owners, 1) == 1)
        free(e);
    return back;
}

/* Whether the stream's work has ended: it ran, or was aborted, or its device has failed and runs nothing more. */
static bool is_idle(tutti__nccl_backend *c, int limit_ms)
{
    const double until = tutti__now_ms() + limit_ms;
    bool passed = false;

    if (c->ops->event_record(c->event, c->stream) != TUTTI_OK)
        return true;
    for (unsigned n = 0; !passed && tutti__now_ms() < until; tutti__devices_pause(&n))
        if (c->ops->event_passed(c->event, &passed) != TUTTI_OK)
            return true;
    return passed;
}

void tutti__nccl_abort(tutti__nccl_backend *c)
{
    tutti__nccl_comm *comm = c->comm;
    bool back;

    if (!comm)
        return;
    c->comm = NULL;
    back = end_in_time(c->nccl->abort, comm, c->device.index, ABORT_MS);
    if (back && is_idle(c, ABORT_MS))
        return;
    c->stuck = true;
    tutti_log(
        TUTTI_LOG_WARN, "comm",
        "group \"%s\": ncclCommAbort has not stopped what runs on cuda:%d in %g s; memory that "
        "it uses stays allocated, and may still be written: end the process",
        c->base.comm->name, c->device.index, ABORT_MS / 1e3);
}

void tutti__nccl_close(tutti__nccl_backend *c)
{
    const double until = tutti__now_ms() + CLOSE_MS;
    tutti__nccl_comm *comm = c->comm;
    int result;

    if (!comm)
        return;
    if (!tutti__comm_failed(c->base.comm) && tutti__nccl_use(c) == TUTTI_OK) {
        result = c->nccl->finalize(comm);
        for (unsigned n = 0; result == TUTTI__NCCL_PENDING && tutti__now_ms() < until;) {
            tutti__devices_pause(&n);
            result = c->nccl->state(comm);
        }
        if (result == TUTTI__NCCL_OK) {
            c->comm = NULL;
            (void)end_in_time(c->nccl->destroy, comm, c->device.index, ABORT_MS);
            return;
        }
    }
    tutti__nccl_abort(c);
}

/* ---- Beginning ------------------------------------------------------------------------------------------- */

tutti_status tutti__nccl_use(const tutti__nccl_backend *c)
{
    return tutti__cuda_done(c->device, tutti__cuda_module()->runtime->use(c->device.index),
                            "its use by NCCL");
}

static tutti_status prepare(tutti__nccl_backend *c)
{
    c->pieces = tutti__alloc(2 * (size_t)c->base.comm->size * sizeof *c->pieces);
    if (!c->pieces)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti_stream_new(&c->stream, c->device));
    TUTTI_TRY(c->ops->event_new(c->device, &c->event));
    return tutti__nccl_use(c);
}

tutti_status tutti__nccl_open(tutti__nccl_backend *c, const tutti__operation *op)
{
    const tutti__comm *comm = c->base.comm;
    tutti__nccl_id id;
    tutti_status status;

    if (c->comm)
        return TUTTI_OK;
    TUTTI_TRY(tutti__nccl_share_id(c, op, &id));
    if (prepare(c) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    status = tutti__nccl_settle(c, op, c->nccl->init(&c->comm, &id, comm->rank, comm->size),
                                "making its communicator");
    if (status == TUTTI_OK)
        tutti_log(TUTTI_LOG_DEBUG, "comm", "group \"%s\": NCCL %d.%d.%d between %d GPUs",
                  comm->name, c->library.version / 10000, c->library.version / 100 % 100,
                  c->library.version % 100, comm->size);
    return status;
}
