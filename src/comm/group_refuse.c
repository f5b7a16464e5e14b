/* group_refuse.c -- a group cannot be made: the other ranks learn why.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"
#include "comm/control/control.h"
#include "comm/group_join.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* LINGER: others hang up when they know the cause, but a rank may be stopped. */
enum { PARENT_MS = 300, LINGER_MS = 5000 };

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

/* The cause becomes the first that any rank has found, so that a rank that is missing only because it gave up too is not blamed; and the
 * neighbours know it before they see this rank's connections close. */
static void agree_on_cause(tutti_group *group, const tutti__mesh *mesh, tutti_status status,
                           tutti__cause *first)
{
    tutti__comm *comm = &group->comm;
    /* IO: the store is gone; if it was that of the group before, the next one will follow (group_init.c) */
    const bool own = !comm->failed &&
                     (tutti_status_scope(status) == TUTTI_SCOPE_PROCESS || status == TUTTI_ERR_IO);
    char message[1024], who[128];

    snprintf(message, sizeof message, "%.1000s", tutti_last_error());
    tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
    if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
        (void)tutti__comm_fail(comm, status, -1, "%s", message);
    else
        (void)tutti__comm_fail(comm, status, comm->rank, "%s: %.800s", who, message);
    *first = comm->cause;
    if (mesh)
        tutti__mesh_tell(mesh, first);
    if (own) { /* others may have found first that this rank vanished */
        *first = (tutti__cause){.status = status, .culprit = comm->rank};
        memcpy(first->text, message, sizeof message);
    }
}

void tutti__leave_store(const tutti_group *group)
{
    tutti_store *store = group->boot.store;

    if (store && store->hosted)
        tutti__store_linger(store, tutti__now_ms() + LINGER_MS);
    else if (store && !group->boot.launched)
        tutti__store_hang_up(store);
}

tutti_status tutti__fail_setup(tutti_group *group, const tutti__group_member *member,
                               const tutti__mesh *mesh, tutti_status status)
{
    const tutti__comm *comm = &group->comm, *parent = comm->parent;
    tutti__cause first;

    if (parent)
        refuse_members(group, member, status, &first);
    else
        agree_on_cause(group, mesh, status, &first);
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
