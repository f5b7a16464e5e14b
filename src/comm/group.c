/* group.c -- queries on a group, leaving it, aborting it.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

#include "comm/control/control.h"
#include "comm/transport/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Counted, because getpid would be a system call in each call of the group. */
static _Atomic int forks;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

int tutti__forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

bool tutti__group_is_parents(const tutti_group *group)
{
    return group->forks != atomic_load_explicit(&forks, memory_order_relaxed);
}

tutti_status tutti__refuse_group(const char *call, const tutti_group *group)
{
    if (!group)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: no group given: this rank is not in it (tutti_group_split gives "
                           "NULL to ranks outside the list), or the call that should have made it "
                           "failed",
                           call);
    return tutti__fail(TUTTI_ERR_STATE,
                       "%s in a forked child: group \"%s\" is the parent's; make a group after "
                       "the fork, or fork before",
                       call, group->comm.name);
}

tutti_status tutti__check_group(const char *call, const tutti_group *group)
{
    if (!group || tutti__group_is_parents(group))
        return tutti__refuse_group(call, group);
    if (tutti__coalescing(group))
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s between tutti_coalesce_begin and tutti_coalesce_end of group "
                           "\"%s\", where only collectives are allowed",
                           call, group->comm.name);
    return TUTTI_OK;
}

int tutti_group_rank(const tutti_group *group)
{
    return group ? group->comm.rank : -1;
}

int tutti_group_size(const tutti_group *group)
{
    return group ? group->comm.size : 0;
}

int tutti_group_local_rank(const tutti_group *group)
{
    return group ? group->comm.local_rank : -1;
}

int tutti_group_local_size(const tutti_group *group)
{
    return group ? group->comm.local_size : 0;
}

int tutti_group_global_rank(const tutti_group *group, int rank)
{
    if (!group || rank < 0 || rank >= group->comm.size)
        return -1;
    return group->global_ranks ? group->global_ranks[rank] : rank;
}

int tutti_group_rank_of(const tutti_group *group, int global_rank)
{
    for (int r = 0; r < tutti_group_size(group); r++)
        if (tutti_group_global_rank(group, r) == global_rank)
            return r;
    return -1;
}

tutti_status tutti_group_status(tutti_group *group)
{
    char text[1400];

    if (!group)
        return tutti__fail(TUTTI_ERR_ARG, "group_status: no group given");
    if (!tutti__comm_failed(&group->comm))
        return TUTTI_OK;
    /* Without a report (the flight recorder's), which may take long: that is for a call that fails. */
    tutti__comm_error_text(&group->comm, NULL, text, sizeof text);
    return tutti__fail(tutti__comm_status(&group->comm), "%s", text);
}

int tutti_group_culprit(tutti_group *group)
{
    if (!group || !tutti__comm_failed(&group->comm))
        return -1;
    return tutti_group_rank_of(group, tutti__comm_outermost(&group->comm)->cause.culprit);
}

uint64_t tutti_group_sequence(const tutti_group *group)
{
    return group ? tutti__queue_sequence(group->queue) : 0;
}

tutti_status tutti_group_set_timeout(tutti_group *group, int timeout_ms)
{
    TUTTI_TRY(tutti__check_group("set_timeout", group));
    if (timeout_ms < 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group \"%s\": a time limit of %d ms, expected more than 0, or 0 for "
                           "the group's own, %d",
                           group->comm.name, timeout_ms, group->comm.timeout_ms);
    tutti__queue_set_timeout(group->queue, timeout_ms ? timeout_ms : group->comm.timeout_ms);
    return TUTTI_OK;
}

const char *tutti_group_name(const tutti_group *group)
{
    return group ? group->comm.name : "";
}

uint64_t tutti_group_id(const tutti_group *group)
{
    return group ? group->comm.id : 0;
}

const char *tutti_group_transport_name(const tutti_group *group)
{
    return group ? group->engine->name : "";
}

tutti_device tutti_group_device(const tutti_group *group)
{
    return group ? group->device : (tutti_device){TUTTI_CPU, 0};
}

tutti_status tutti__group_await(tutti_group *group, tutti_stream *stream, tutti__event *event,
                                const char *what)
{
    int timeout_ms = tutti__queue_timeout(group->queue);

    if (tutti__devices_await(&group->comm,
                             &(tutti__operation){.timeout_ms = timeout_ms,
                                                 .deadline = tutti__now_ms() + timeout_ms,
                                                 .signature.op = TUTTI__N_OPS},
                             stream, event, true, what) == TUTTI_OK)
        return TUTTI_OK;
    return tutti__comm_error(&group->comm, NULL);
}

void tutti__group_label(const tutti_group *group, unsigned reducer, size_t bucket, uint64_t step)
{
    tutti__queue_label(group->queue, reducer, bucket, step);
}

void tutti__group_hold(const tutti_group *group, bool held)
{
    tutti__queue_hold(group->queue, held);
}

uint64_t tutti__group_bytes(const tutti_group *group)
{
    return tutti__queue_bytes(group->queue);
}

int tutti__group_timeout_ms(const tutti_group *group)
{
    return tutti__queue_timeout(group->queue);
}

void tutti_group_abort(tutti_group *group, const char *format, ...)
{
    char text[800];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tutti__group_abort_with(group, TUTTI_OK, text);
}

void tutti__group_abort_with(tutti_group *group, tutti_status own, const char *why)
{
    if (group && !tutti__group_is_parents(group))
        (void)tutti__comm_abort(&group->comm, own, "said", why);
}

tutti_status tutti__group_cause(tutti_group *group, int *culprit_p, const char **text_p)
{
    *culprit_p = -1;
    *text_p = "";
    if (!tutti__comm_failed(&group->comm))
        return TUTTI_OK;
    *culprit_p = group->comm.cause.culprit;
    *text_p = group->comm.cause.text;
    return group->comm.cause.own != TUTTI_OK ? (tutti_status)group->comm.cause.own
                                             : tutti__comm_status(&group->comm);
}

bool tutti__group_is_silent(tutti_group *group, int rank)
{
    return rank != group->comm.rank && tutti__control_is_silent(group->control, rank);
}

void tutti__group_rank_text(const tutti_group *group, int rank, char *text, size_t capacity)
{
    tutti__comm_peer_text(&group->comm, rank, text, capacity);
}

void tutti__group_give_up(tutti_group *group, const char *why)
{
    char who[128];

    tutti__comm_peer_text(&group->comm, group->comm.rank, who, sizeof who);
    (void)tutti__comm_fail(&group->comm, TUTTI_ERR_PEER, -1, "%s has left: %s", who, why);
}

void tutti_log0(const tutti_group *group, const char *format, ...)
{
    va_list args;

    if (group && group->comm.rank != 0)
        return;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void tutti_group_free(tutti_group *group)
{
    if (!group || tutti__group_is_parents(group))
        return;
    tutti__coalesce_forget(group);
    tutti__flight_close(&group->flight);
    tutti__queue_free(group->queue);
    if (group->p2p)
        tutti__p2p_flush(group->p2p);
    tutti__control_close(group->control);
    group->control = NULL;
    tutti__devices_free(group->devices);
    if (group->engine)
        group->engine->ops->close(group->engine);
    if (group->mpi_is_free)
        tutti__tcp_free(group->mpi);
    tutti__p2p_free(group->p2p);
    tutti_store_free(group->boot.store);
    tutti__flight_destroy(&group->flight);
    free(group->global_ranks);
    free(group->host_ids);
    free(group->switches);
    while (group->made) {
        tutti__made *made = group->made;

        group->made = made->next;
        free(made);
    }
    tutti__comm_destroy(&group->comm);
    free(group);
}

tutti_status tutti__group_measure_links(tutti_group *group)
{
    const tutti__engine *engine = group->engine;

    return engine->ops->measure
               ? engine->ops->measure(group->engine, tutti__now_ms() + group->comm.timeout_ms)
               : TUTTI_OK;
}

struct tutti__tuner *tutti__group_tuner(const tutti_group *group)
{
    return group->engine->ops->tuner ? group->engine->ops->tuner(group->engine) : NULL;
}
