/* failure.c -- the first cause of a group's death, and the messages about it.   SPDX-License-Identifier: MIT
 *
 * The first rank that finds a failure announces it; from then on every call on every rank returns that cause, with its own
 * operation in front. */
#include "comm/core/failure.h"

#include <stdio.h>
#include <string.h>

void tutti__comm_adopt(tutti__comm *comm, const tutti__cause *cause)
{
    bool first;

    pthread_mutex_lock(&comm->failure_lock);
    first = comm->cause.status == TUTTI_OK;
    if (first) {
        comm->cause = *cause;
        atomic_store(&comm->failed, true);
        tutti_log(TUTTI_LOG_INFO, "comm", "group \"%s\" is dead: %s", comm->name, cause->text);
    }
    pthread_mutex_unlock(&comm->failure_lock);
    if (first) /* the program may print it, or exit without */
        tutti__error_file_write(cause->culprit == comm->rank, cause->text);
    for (int i = 0, n = atomic_load(&comm->n_observers); i < n; i++)
        if (comm->observers[i].failed)
            comm->observers[i].failed(comm->observers[i].self, first);
}

static tutti_status kill_all(tutti__comm *comm, tutti__cause *cause)
{
    comm = tutti__comm_outermost(comm);
    if (!tutti__comm_failed(comm)) {
        for (int i = 0, n = atomic_load(&comm->n_observers); i < n; i++)
            if (comm->observers[i].agree)
                comm->observers[i].agree(comm->observers[i].self, cause);
        for (int i = atomic_load(&comm->n_observers) - 1; i >= 0; i--)
            if (comm->observers[i].announce)
                comm->observers[i].announce(comm->observers[i].self, cause);
        tutti__comm_adopt(comm, cause);
    }
    return tutti__comm_status(comm);
}

tutti_status tutti__comm_fail(tutti__comm *comm, tutti_status status, int culprit,
                              const char *format, ...)
{
    tutti__cause cause = {.status = status, .culprit = tutti__comm_outer_rank(comm, culprit)};
    va_list args;

    va_start(args, format);
    vsnprintf(cause.text, sizeof cause.text, format, args);
    va_end(args);
    return kill_all(comm, &cause);
}

tutti_status tutti__comm_fail_of(tutti__comm *comm, const tutti__cause *cause)
{
    return tutti__comm_fail(comm, (tutti_status)cause->status, cause->culprit, "%s", cause->text);
}

tutti_status tutti__comm_abort(tutti__comm *comm, tutti_status own, const char *verb,
                               const char *why)
{
    tutti__cause cause = {.status = TUTTI_ERR_ABORTED,
                          .culprit = tutti__comm_outer_rank(comm, comm->rank),
                          .own = own};
    char who[128];

    tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
    snprintf(cause.text, sizeof cause.text, "%s %s: %s", who, verb, why);
    return kill_all(comm, &cause);
}

tutti_status tutti__comm_status(tutti__comm *comm)
{
    return (tutti_status)tutti__comm_outermost(comm)
        ->cause.status; /* written once, before `failed` */
}

bool tutti__comm_failed(tutti__comm *comm)
{
    int looker;

    comm = tutti__comm_outermost(comm);
    looker = atomic_load_explicit(&comm->looker, memory_order_acquire);
    if (looker > 0 && !atomic_load(&comm->failed))
        comm->observers[looker - 1].look(comm->observers[looker - 1].self);
    return atomic_load(&comm->failed);
}

void tutti__comm_error_text(tutti__comm *comm, const tutti__signature *signature, char *text,
                            size_t capacity)
{
    char call[TUTTI__SIGNATURE_TEXT] = "";

    comm = tutti__comm_outermost(comm);
    if (signature)
        tutti__signature_text(signature, call, sizeof call);
    snprintf(text, capacity, "rank %d of group \"%s\"%s%s: %s", comm->rank, comm->name,
             signature ? ", in " : "", call, comm->cause.text);
}

void tutti__comm_report(tutti__comm *comm)
{
    comm = tutti__comm_outermost(comm);
    for (int i = 0, n = atomic_load(&comm->n_observers); i < n; i++)
        if (comm->observers[i].report)
            comm->observers[i].report(comm->observers[i].self);
}

tutti_status tutti__comm_error(tutti__comm *comm, const tutti__signature *signature)
{
    char text[1400];

    tutti__comm_report(comm); /* the program may exit when it sees the failure */
    tutti__comm_error_text(comm, signature, text, sizeof text);
    return tutti__fail(tutti__comm_status(comm), "%s", text);
}

tutti_status tutti__comm_fail_lost(tutti__comm *comm, int rank)
{
    char peer[128];

    tutti__comm_peer_text(comm, rank, peer, sizeof peer);
    if (tutti__comm_has_left(comm, rank))
        return tutti__comm_fail(comm, TUTTI_ERR_PEER, rank,
                                "%s has left the group (freed it, or ended) without this call",
                                peer);
    return tutti__comm_fail(comm, TUTTI_ERR_PEER, rank,
                            "%s was lost: its process ended or its host went away; see its "
                            "last lines for the reason",
                            peer);
}

static bool has_begun(const tutti__comm *comm, const tutti__operation *op, int rank)
{
    return atomic_load(&comm->peers[rank].seen) > op->signature.sequence;
}

tutti_status tutti__comm_fail_late(tutti__comm *comm, const tutti__operation *op,
                                   const bool *missing)
{
    char names[512] = "", signature[TUTTI__SIGNATURE_TEXT], peer[128];
    size_t n = 0;
    /* a rank that has not even begun the call holds up those that wait for it in turn */
    bool unseen = false;
    int first = -1;

    for (int r = 0; r < comm->size; r++)
        unseen = unseen || (missing[r] && !has_begun(comm, op, r));
    for (int r = 0; r < comm->size; r++) {
        if (!missing[r] || (unseen && has_begun(comm, op, r)))
            continue;
        first = first < 0 ? r : first;
        tutti__comm_peer_text(comm, r, peer, sizeof peer);
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", peer);
    }
    tutti__signature_text(&op->signature, signature, sizeof signature);
    return tutti__comm_fail(
        comm, TUTTI_ERR_TIMEOUT, first,
        "%s timed out after %.3g s waiting for %s: it hangs, is much slower, or made fewer calls "
        "(TUTTI_TIMEOUT_S, tutti_group_set_timeout or PyTorch's timeout= sets the limit)",
        signature, op->timeout_ms / 1e3, names);
}

tutti_status tutti__comm_fail_different(tutti__comm *comm, int low,
                                        const tutti__signature *low_call, int high,
                                        const tutti__signature *high_call)
{
    char low_text[TUTTI__SIGNATURE_TEXT], high_text[TUTTI__SIGNATURE_TEXT], low_peer[128],
        high_peer[128];
    int culprit = low == comm->rank ? high : low;

    if (low_call->group != high_call->group)
        return tutti__comm_fail(comm, TUTTI_ERR_MISMATCH, culprit,
                                "rank %d sent a message of another group",
                                tutti__comm_outer_rank(comm, culprit));
    tutti__signature_text(low_call, low_text, sizeof low_text);
    tutti__signature_text(high_call, high_text, sizeof high_text);
    tutti__comm_peer_text(comm, low, low_peer, sizeof low_peer);
    tutti__comm_peer_text(comm, high, high_peer, sizeof high_peer);
    return tutti__comm_fail(comm, TUTTI_ERR_MISMATCH, culprit,
                            "rank %d called %s, but rank %d called %s; all ranks must make the "
                            "same calls in the same order: %s, %s",
                            tutti__comm_outer_rank(comm, low), low_text,
                            tutti__comm_outer_rank(comm, high), high_text, low_peer, high_peer);
}

tutti_status tutti__comm_check_signature(tutti__comm *comm, const tutti__signature *ours, int rank,
                                         const tutti__signature *theirs)
{
    atomic_store_explicit(&comm->peers[rank].seen, theirs->sequence + 1, memory_order_relaxed);
    if (tutti__signature_equal(ours, theirs))
        return TUTTI_OK;
    return rank < comm->rank ? tutti__comm_fail_different(comm, rank, theirs, comm->rank, ours)
                             : tutti__comm_fail_different(comm, comm->rank, ours, rank, theirs);
}

tutti_status tutti__comm_check_sent(tutti__comm *comm, const tutti__signature *signature, int from,
                                    int to, size_t sent, size_t expected)
{
    char text[TUTTI__SIGNATURE_TEXT];

    if (sent == expected)
        return TUTTI_OK;
    tutti__signature_text(signature, text, sizeof text);
    return tutti__comm_fail(comm, TUTTI_ERR_MISMATCH, from,
                            "in %s, rank %d sends rank %d %zu elements, but rank %d expects %zu; "
                            "the counts that two ranks give for what goes from one to the other "
                            "must be equal",
                            text, from, to, sent, to, expected);
}
