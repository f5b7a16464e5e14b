/* group_refuse.c -- a group cannot be made: the other ranks learn why.   SPDX-License-Identifier: MIT */
#include "comm/control/control.h"
#include "comm/group_join.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { PARENT_MS = 300 };

/* Tells the other members why this one cannot make the group, unless it has failed for all; *first: the cause. Of a death the
 * parent group knows too, or will in a moment: its numbers are those that the program knows. */
static void refuse_members(tutti_group *group, const tutti__group_member *member,
                           tutti_status status, tutti__cause *first)
{
    tutti__comm *comm = &group->comm, *parent = comm->parent;
    double deadline = tutti__now_ms() + PARENT_MS;
    char message[800], who[128];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    while (tutti_status_scope(status) == TUTTI_SCOPE_GROUP && !tutti__comm_failed(parent) &&
           tutti__now_ms() < deadline)
        poll(NULL, 0, 1);
    if (!atomic_load(&comm->failed)) {
        *first = (tutti__cause){.status = status, .culprit = comm->rank};
        tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
        if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
            snprintf(first->text, sizeof first->text, "%s", message);
        else
            snprintf(first->text, sizeof first->text, "%s: %s", who, message);
        if (group->control)
            (void)tutti__comm_fail(comm, status, comm->rank, "%s", first->text);
        else
            tutti__control_refuse(member->parent->control, member->id, member->ranks, comm->size,
                                  first);
    }
    if (atomic_load(&comm->failed))
        *first = comm->cause;
    if (tutti__comm_failed(parent)) {
        *first = parent->cause;
        tutti__comm_report(parent);
    }
}

/* The same before there is a group that could fail. */
void tutti__refuse_early(const tutti__group_member *member, tutti_status status, const char *why)
{
    tutti__comm *parent = &member->parent->comm;
    tutti__cause cause = {.status = status, .culprit = member->rank};
    char who[128];

    tutti__comm_peer_text(parent, parent->rank, who, sizeof who);
    snprintf(cause.text, sizeof cause.text, "%s: %.800s", who, why);
    tutti__control_refuse(member->parent->control, member->id, member->ranks, member->size, &cause);
}

/* The group could not be made. The first rank that failed has noted why, so that a rank that is missing only because it failed
 * too is not blamed. */
static void agree_on_cause(tutti_group *group, tutti_status status, tutti__cause *first)
{
    tutti__comm *comm = &group->comm;
    bool own = tutti_status_scope(status) == TUTTI_SCOPE_PROCESS && !atomic_load(&comm->failed);
    char message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    *first = (tutti__cause){.status = status};
    if (status != TUTTI_ERR_IO) /* else the store is gone */
        tutti__bootstrap_note_cause(&group->boot, status, first);
    if (own) /* another rank's cause is only that this rank vanished */
        *first = (tutti__cause){.status = status, .culprit = comm->rank};
    if (!*first->text || first->culprit == comm->rank)
        snprintf(first->text, sizeof first->text, "%.1000s", message);
    if (group->control) /* tells the peers that wait for this rank */
        (void)tutti__comm_fail(comm, (tutti_status)first->status, first->culprit, "%s",
                               first->text);
}

tutti_status tutti__fail_setup(tutti_group *group, const tutti__group_member *member,
                               tutti_status status)
{
    const tutti__comm *comm = &group->comm, *parent = comm->parent;
    tutti__cause first;

    if (parent)
        refuse_members(group, member, status, &first);
    else
        agree_on_cause(group, status, &first);
    status = tutti__fail((tutti_status)first.status,
                         "rank %d of %d on %s, while group \"%s\" was being made%s%s%s: %s",
                         comm->rank, comm->size, comm->peers[comm->rank].host, comm->name,
                         parent ? " by a split of group \"" : "", parent ? parent->name : "",
                         parent ? "\"" : "", first.text);
    tutti__error_file_write(first.culprit == comm->rank &&
                                tutti_status_scope(status) != TUTTI_SCOPE_GROUP,
                            tutti_last_error());
    return status;
}
