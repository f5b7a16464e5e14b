/* failure.c -- the first cause of a group's death, and the sentences that tell it.   SPDX-License-Identifier: MIT
 *
 * Whoever finds a failure first announces it; from then on every call on every rank returns that cause, with its own
 * operation in front. */
#include "comm/control/channel.h"

#include <stdio.h>
#include <string.h>

/* The group that lives and dies for this one. */
static tutti_group *outermost(tutti_group *group)
{
    while (group->outer)
        group = group->outer;
    return group;
}

int tutti__outer_rank(const tutti_group *group, int rank)
{
    for (; group->outer && rank >= 0; group = group->outer)
        rank = group->outer_ranks[rank];
    return rank;
}

bool tutti__has_left(const tutti_group *group, int rank)
{
    for (; group->outer; group = group->outer)
        rank = group->outer_ranks[rank];
    return atomic_load(&group->peers[rank].left);
}

void tutti__group_adopt(tutti_group *group, const tutti__cause *cause)
{
    bool first;

    pthread_mutex_lock(&group->failure_lock);
    first = group->cause.status == TUTTI_OK;
    if (first) {
        group->cause = *cause;
        atomic_store(&group->failed, true);
        tutti_log(TUTTI_LOG_INFO, "comm", "group \"%s\" is dead: %s", group->name, cause->text);
    }
    pthread_mutex_unlock(&group->failure_lock);
    if (first)
        tutti__p2p_fail_all(group);
    if (atomic_load(&group->opened) && group->transport->wake)
        group->transport->wake(group, -1);
}

tutti_status tutti__group_fail(tutti_group *group, tutti_status status, int culprit,
                               const char *format, ...)
{
    tutti__cause cause = {.status = status, .culprit = tutti__outer_rank(group, culprit)};
    va_list args;

    va_start(args, format);
    vsnprintf(cause.text, sizeof cause.text, format, args);
    va_end(args);
    group = outermost(group);
    if (!tutti__group_failed(group)) {
        if (atomic_load(&group->opened) && group->transport->announce)
            group->transport->announce(group, &cause);
        tutti__control_tell(group, &cause);
        tutti__group_adopt(group, &cause);
    }
    return tutti__group_status(group);
}

tutti_status tutti__group_status(tutti_group *group)
{
    return (tutti_status)outermost(group)->cause.status; /* written once, before `failed` */
}

bool tutti__group_failed(tutti_group *group)
{
    group = outermost(group);
    if (!atomic_load(&group->failed) && atomic_load(&group->opened) && group->transport->look)
        group->transport->look(group);
    return atomic_load(&group->failed);
}

void tutti__error_text(tutti_group *group, const tutti__signature *signature, char *text,
                       size_t capacity)
{
    char call[96] = "";

    group = outermost(group);
    if (signature)
        tutti__signature_text(signature, call, sizeof call);
    snprintf(text, capacity, "rank %d of group \"%s\"%s%s: %s", group->rank, group->name,
             signature ? ", in " : "", call, group->cause.text);
}

tutti_status tutti__group_error(tutti_group *group, const tutti__signature *signature)
{
    char text[1400];

    tutti__flight_report(outermost(group)); /* the program may end as soon as it knows */
    tutti__error_text(group, signature, text, sizeof text);
    return tutti__fail(tutti__group_status(group), "%s", text);
}

void tutti__peer_text(const tutti_group *group, int rank, char *text, size_t capacity)
{
    for (; group->outer; group = group->outer)
        rank = group->outer_ranks[rank];
    if (group->peers)
        snprintf(text, capacity, "rank %d (%s, process %lld)", rank, group->peers[rank].host,
                 (long long)group->peers[rank].pid);
    else
        snprintf(text, capacity, "rank %d", rank);
}

tutti_status tutti__fail_lost(tutti_group *group, int rank)
{
    char peer[128];

    tutti__peer_text(group, rank, peer, sizeof peer);
    if (tutti__has_left(group, rank))
        return tutti__group_fail(group, TUTTI_ERR_PEER, rank,
                                 "%s has left the group (tutti_group_free) without this call",
                                 peer);
    return tutti__group_fail(group, TUTTI_ERR_PEER, rank,
                             "%s was lost: its process ended or its host went away; see its own "
                             "last lines for the reason",
                             peer);
}

static bool has_begun(const tutti_group *group, const tutti__op *op, int rank)
{
    return atomic_load(&group->peers[rank].seen) > op->signature.sequence;
}

tutti_status tutti__fail_late(tutti_group *group, const tutti__op *op, const bool *missing)
{
    char names[512] = "", signature[96], peer[128];
    size_t n = 0;
    bool unseen =
        false; /* one that has not even begun the call holds up those that wait for it in turn */
    int first = -1;

    for (int r = 0; r < group->size; r++)
        unseen = unseen || (missing[r] && !has_begun(group, op, r));
    for (int r = 0; r < group->size; r++) {
        if (!missing[r] || (unseen && has_begun(group, op, r)))
            continue;
        first = first < 0 ? r : first;
        tutti__peer_text(group, r, peer, sizeof peer);
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", peer);
    }
    tutti__signature_text(&op->signature, signature, sizeof signature);
    return tutti__group_fail(
        group, TUTTI_ERR_TIMEOUT, first,
        "%s waited %.3g s in vain for %s: it hangs, is much slower, or made fewer calls "
        "(TUTTI_TIMEOUT_S or tutti_group_set_timeout sets the limit)",
        signature, op->timeout_ms / 1e3, names);
}
