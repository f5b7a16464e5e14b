/* send_recv.c -- the public calls between two ranks, and the monitored barrier made of them.   SPDX-License-Identifier: MIT */
#include "comm/comm.h"
#include "comm/engine/planned_engine.h"
#include "comm/group.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Send, receive ----------------------------------------------------------------------------------------- */

static tutti_status check_tag(const char *call, int tag)
{
    if (tag < 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: tag is %d, expected 0 or more", call, tag);
    return TUTTI_OK;
}

/* timeout_ms 0: the group's. */
static tutti_status submit(tutti_group *group, tutti__op_kind kind, tutti_const_buf buf, int rank,
                           int tag, int timeout_ms, tutti_work **work_p)
{
    tutti__signature signature = {.op = (uint8_t)kind,
                                  .count = buf.count,
                                  .dtype = (uint8_t)buf.dtype,
                                  .root = (uint32_t)rank,
                                  .tag = tag};

    tutti__p2p_request request;
    tutti__bounce bounce = {0};
    void *p = (void *)(uintptr_t)buf.p;

    if (tutti__group_is_planned(group)) {
        tutti__engine_planned_message(group->engine, (int)kind,
                                      buf.count * tutti_dtype_size(buf.dtype));
        return TUTTI_OK;
    }
    timeout_ms = timeout_ms ? timeout_ms : tutti__queue_timeout(group->queue);
    if (!tutti__on_host(buf.stream)) {
        TUTTI_TRY(
            tutti__bounce_open(&bounce, group->devices,
                               &(tutti__operation){.signature = signature,
                                                   .src = p,
                                                   .dst = p,
                                                   .stream = buf.stream,
                                                   .timeout_ms = timeout_ms,
                                                   .deadline = tutti__now_ms() + timeout_ms}));
        p = bounce.host;
    }
    if (work_p)
        return tutti__submit_p2p(group->queue, group->p2p, &signature, p, timeout_ms, &bounce,
                                 work_p);
    tutti__p2p_start(group->p2p, &request, &signature, p, timeout_ms, true);
    tutti__p2p_wait(&request, 0);
    if (request.status == TUTTI_OK)
        return tutti__bounce_close(&bounce, true);
    (void)!tutti__bounce_close(&bounce, false);
    tutti__comm_report(&group->comm); /* the program may exit when it sees the failure */
    (void)tutti__fail_again(request.status, request.message ? request.message : "");
    free(request.message);
    return request.status;
}

static tutti_status send_to(tutti_group *group, tutti_const_buf buf, int to, int tag,
                            int timeout_ms, tutti_work **work_p)
{
    if (work_p)
        *work_p = NULL;
    TUTTI_TRY(tutti__check_group("send", group));
    TUTTI_TRY(tutti__check_buf("send", "buf", buf));
    TUTTI_TRY(check_tag("send", tag));
    if (to < 0 || to >= group->comm.size)
        return tutti__fail(TUTTI_ERR_ARG, "send: to is %d, expected a rank from 0 to %d", to,
                           group->comm.size - 1);
    return submit(group, TUTTI__OP_SEND, buf, to, tag, timeout_ms, work_p);
}

static tutti_status receive_from(tutti_group *group, tutti_buf buf, int from, int tag,
                                 int timeout_ms, tutti_work **work_p)
{
    if (work_p)
        *work_p = NULL;
    TUTTI_TRY(tutti__check_group("recv", group));
    TUTTI_TRY(tutti__check_buf("recv", "buf", tutti_buf_const(buf)));
    TUTTI_TRY(check_tag("recv", tag));
    if (from != TUTTI_ANY_RANK && (from < 0 || from >= group->comm.size))
        return tutti__fail(TUTTI_ERR_ARG,
                           "recv: from is %d, expected a rank from 0 to %d, or TUTTI_ANY_RANK",
                           from, group->comm.size - 1);
    return submit(group, TUTTI__OP_RECV, tutti_buf_const(buf), from, tag, timeout_ms, work_p);
}

tutti_status tutti_send(tutti_group *group, tutti_const_buf buf, int to, int tag,
                        tutti_work **work_p)
{
    return send_to(group, buf, to, tag, 0, work_p);
}

tutti_status tutti_recv(tutti_group *group, tutti_buf buf, int from, int tag, tutti_work **work_p)
{
    return receive_from(group, buf, from, tag, 0, work_p);
}

tutti_status tutti__call_message(tutti_group *group, const tutti_call *call, tutti_work **work_p)
{
    if (call->kind == TUTTI_CALL_SEND)
        return send_to(group, call->src, call->rank, call->tag, call->timeout_ms, work_p);
    return receive_from(group, call->dst, call->rank, call->tag, call->timeout_ms, work_p);
}

/* ---- Monitored barrier ------------------------------------------------------------------------------------- */

/* Tags that programs cannot use. */
enum { ARRIVED = -2, PRESENT = -3, RELEASED = -4 };

/* Empty messages without a time limit: their waiters have one. */
static tutti_status post_empty(tutti_group *group, tutti__op_kind kind, int rank, int tag,
                               tutti_work **work_p)
{
    static char nothing[1];

    return submit(group, kind, TUTTI_CONST_BUF(nothing, 0, TUTTI_U8), rank, tag, INT_MAX, work_p);
}

static tutti_status tell_all(tutti_group *group, int tag)
{
    for (int r = 1; r < group->comm.size; r++)
        TUTTI_TRY(post_empty(group, TUTTI__OP_SEND, r, tag, NULL));
    return TUTTI_OK;
}

/* Kills the group. */
static tutti_status fail_missing(tutti_group *group, tutti_work *const *works, int timeout_ms,
                                 bool wait_all)
{
    char names[700] = "", peer[128];
    size_t n = 0;
    int missing = 0, first = -1;

    for (int r = 1; r < group->comm.size; r++) {
        if (!works[r] || (missing > 0 && !wait_all))
            continue;
        tutti__comm_peer_text(&group->comm, r, peer, sizeof peer);
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", peer);
        first = first < 0 ? r : first;
        missing++;
    }
    (void)tutti__comm_fail(
        &group->comm, TUTTI_ERR_TIMEOUT, first,
        "%s failed to come to the monitored barrier within %.3g s of rank 0%s", names,
        timeout_ms / 1e3,
        missing == 1 && !wait_all
            ? " (the first; with wait_all, PyTorch's wait_all_ranks=True, all are named)"
            : "");
    return tutti__comm_error(&group->comm, NULL);
}

/* Rank 0: waits for all, tells all. works[r] becomes NULL when rank r has come. */
static tutti_status oversee(tutti_group *group, tutti_work **works, int timeout_ms, bool wait_all)
{
    double deadline = tutti__now_ms() + timeout_ms;
    bool late = false;

    TUTTI_TRY(tell_all(group, PRESENT));
    for (int r = 1; r < group->comm.size; r++)
        TUTTI_TRY(post_empty(group, TUTTI__OP_RECV, r, ARRIVED, &works[r]));
    for (int r = 1; r < group->comm.size; r++) {
        tutti_status status = tutti_work_wait_for(works[r], tutti__poll_ms(deadline));

        late = late || status == TUTTI_ERR_TIMEOUT;
        if (status == TUTTI_ERR_TIMEOUT && !tutti_work_done(works[r]))
            continue;
        if (status != TUTTI_ERR_TIMEOUT)
            works[r] = NULL;
        if (status != TUTTI_OK)
            return status;
    }
    return late ? fail_missing(group, works, timeout_ms, wait_all) : tell_all(group, RELEASED);
}

/* Waits for an empty message from rank 0. */
static tutti_status wait_for_message(tutti_group *group, int tag, int ms)
{
    tutti_work *work;
    tutti_status status;
    char peer[128];

    TUTTI_TRY(post_empty(group, TUTTI__OP_RECV, 0, tag, &work));
    status = tutti_work_wait_for(work, ms);
    if (status != TUTTI_ERR_TIMEOUT)
        return status;
    if (!tutti_work_done(work)) {
        tutti__comm_peer_text(&group->comm, 0, peer, sizeof peer);
        (void)tutti__comm_fail(&group->comm, TUTTI_ERR_TIMEOUT, 0,
                               "%s failed to come to the monitored barrier within %.3g s of rank "
                               "%d",
                               peer, ms / 1e3, group->comm.rank);
    }
    return tutti_work_wait(work);
}

tutti_status tutti_monitored_barrier(tutti_group *group, int timeout_ms, bool wait_all)
{
    tutti_work **works;
    tutti_status status;

    TUTTI_TRY(tutti__check_group("monitored_barrier", group));
    if (timeout_ms < 0)
        return tutti__fail(TUTTI_ERR_ARG, "monitored_barrier: timeout_ms is %d, expected 0 or more",
                           timeout_ms);
    timeout_ms = timeout_ms ? timeout_ms : tutti__queue_timeout(group->queue);
    if (group->comm.size == 1)
        return TUTTI_OK;
    if (group->comm.rank > 0) {
        TUTTI_TRY(post_empty(group, TUTTI__OP_SEND, 0, ARRIVED, NULL));
        TUTTI_TRY(wait_for_message(group, PRESENT, timeout_ms));
        /* Rank 0 may wait up to its own timeout for the others, and then names the missing ranks. */
        return wait_for_message(group, RELEASED,
                                timeout_ms < INT_MAX / 2 ? 2 * timeout_ms : INT_MAX);
    }
    works = calloc((size_t)group->comm.size, sizeof(tutti_work *));
    if (!works)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", group->comm.size);
    status = oversee(group, works, timeout_ms, wait_all);
    if (status != TUTTI_OK) {
        char why[1400];

        snprintf(why, sizeof why, "%s", tutti_last_error());
        (void)tutti__comm_fail(&group->comm, status, 0, "rank 0: %s",
                               /* if it is still alive: out of memory */
                               why);
        for (int r = 1; r < group->comm.size; r++)
            if (works[r])
                (void)!tutti_work_wait(works[r]);
        (void)tutti__fail_again(status, why);
    }
    free(works);
    return status;
}
