/* memory_handle.c -- sends descriptors and numbers to peers, with which they map shared memory.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include "base/thread.h"
#include "comm/core/failure.h"
#include "comm/core/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Whoever waits for it learns why there is none. */
static void send_handle(tutti__control *control, int rank, const tutti__handed *handed)
{
    tutti__wire_head head = {control->comm->id,
                             {.kind = TUTTI__FRAME_HANDLE,
                              .id = handed->number,
                              .status = handed->error,
                              .culprit = handed->culprit}};
    int own = handed->fd >= 0 ? fcntl(handed->fd, F_DUPFD_CLOEXEC, 0) : -1;

    if (own < 0 && handed->fd >= 0) {
        head.frame.status = errno;
        head.frame.culprit = control->comm->rank;
    }
    pthread_mutex_lock(&control->links->lock);
    tutti__link_send(control->links, control->members[rank].link, &head, NULL, own);
    pthread_mutex_unlock(&control->links->lock);
}

static int take_handle(tutti__control *control, int rank, tutti__handed *handed, double deadline)
{
    tutti__links *links = control->links;
    tutti__member *member = &control->members[rank];
    tutti__handle *first = NULL;
    int error = 0;

    *handed = (tutti__handed){.fd = -1, .culprit = -1};
    pthread_mutex_lock(&links->lock);
    while (!member->handles && error == 0) {
        const bool over = links->at[member->link].over;

        /* the thread is about to find out why it is over, unless the peer has left */
        if (atomic_load(&control->comm->failed) ||
            (over && atomic_load(&control->comm->peers[rank].left)))
            error = ECONNRESET;
        else if (!tutti__cond_wait(&links->changed, &links->lock, deadline) && !member->handles)
            error = ETIMEDOUT;
    }
    if (!error) {
        first = member->handles;
        *handed = first->handed;
        error = handed->error;
        member->handles = first->next;
    }
    pthread_mutex_unlock(&links->lock);
    free(first);
    return error;
}

void tutti__control_keep_handle(tutti__control *control, int rank, int fd, const tutti__frame *head)
{
    const bool lost = fd == TUTTI__LOST,
               names = head->culprit >= 0 && head->culprit < control->comm->size;
    tutti__handle **place = &control->members[rank].handles, *handle = malloc(sizeof *handle);
    int n = 0;

    pthread_mutex_lock(&control->links->lock);
    for (; *place; place = &(*place)->next)
        n++;
    if (handle && n < TUTTI__MAX_HANDLES) {
        handle->next = NULL;
        handle->handed = (tutti__handed){.fd = lost ? -1 : fd,
                                         .number = head->id,
                                         .error = lost ? EMFILE : head->status,
                                         .culprit = lost    ? control->comm->rank
                                                    : names ? head->culprit
                                                            : rank};
        *place = handle;
        handle = NULL;
    } else if (fd >= 0) {
        close(fd);
    }
    pthread_cond_broadcast(&control->links->changed);
    pthread_mutex_unlock(&control->links->lock);
    free(handle);
}

/* ---- From one rank to many --------------------------------------------------------------------------------- */

static int at(const int *ranks, int i)
{
    return ranks ? ranks[i] : i;
}

static void pass_on(tutti__control *control, const int *ranks, int n, int i,
                    const tutti__handed *handed)
{
    for (int to = i; (to = tutti__tree_next_child(i, to, n)) >= 0;)
        send_handle(control, at(ranks, to), handed);
}

void tutti__control_spread_handle(tutti__control *control, const int *ranks, int n, int fd,
                                  uint64_t number)
{
    pass_on(control, ranks, n, 0, &(tutti__handed){.fd = fd, .number = number});
}

int tutti__control_take_spread(tutti__control *control, const int *ranks, int n, int i,
                               tutti__handed *handed, double deadline)
{
    int error = take_handle(control, at(ranks, tutti__tree_parent(i)), handed, deadline);

    if (error == handed->error)
        pass_on(control, ranks, n, i, handed);
    return error;
}

tutti_status tutti__control_fail_handed(const tutti__control *control, const tutti__handed *handed,
                                        const char *what)
{
    char culprit[128];

    tutti__comm_peer_text(control->comm, handed->culprit, culprit, sizeof culprit);
    return tutti__fail(TUTTI_ERR_MEMORY,
                       "%s has no descriptor free for %s: %s; raise its limit of open files "
                       "(ulimit -n)",
                       culprit, what, strerror(handed->error));
}

tutti_status tutti__control_fail_without(const tutti__control *control, const tutti__handed *handed,
                                         const char *what)
{
    (void)tutti__control_fail_handed(control, handed, what);
    return tutti__comm_fail(control->comm, TUTTI_ERR_MEMORY, handed->culprit, "%s",
                            tutti_last_error());
}
