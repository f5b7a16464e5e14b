/* memory_handle.c -- sends descriptors and numbers to peers, with which they map shared memory.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include "base/thread.h"
#include "comm/core/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int tutti__control_send_handle(tutti__control *control, int rank, int fd, uint64_t number)
{
    const tutti__wire_head head = {control->comm->id, {.kind = TUTTI__FRAME_HANDLE, .id = number}};
    int own = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;

    if (own < 0 && fd >= 0)
        return errno;
    pthread_mutex_lock(&control->links->lock);
    tutti__link_send(control->links, control->members[rank].link, &head, NULL, own);
    pthread_mutex_unlock(&control->links->lock);
    return 0;
}

int tutti__control_take_handle(tutti__control *control, int rank, int *fd_p, uint64_t *number_p,
                               double deadline)
{
    tutti__links *links = control->links;
    tutti__member *member = &control->members[rank];
    tutti__handle *first = NULL;
    int error = 0;

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
        *fd_p = first->fd;
        *number_p = first->number;
        member->handles = first->next;
    }
    pthread_mutex_unlock(&links->lock);
    free(first);
    return error;
}

void tutti__control_keep_handle(tutti__control *control, int rank, int fd, uint64_t number)
{
    tutti__handle **place = &control->members[rank].handles, *handle = malloc(sizeof *handle);
    int n = 0;

    pthread_mutex_lock(&control->links->lock);
    for (; *place; place = &(*place)->next)
        n++;
    if (handle && n < TUTTI__MAX_HANDLES) {
        *handle = (tutti__handle){.fd = fd, .number = number};
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

static int pass_on(tutti__control *control, const int *ranks, int n, int i, int fd, uint64_t number)
{
    int error = 0;

    for (int to = i; !error && (to = tutti__tree_next_child(i, to, n)) >= 0;)
        error = tutti__control_send_handle(control, at(ranks, to), fd, number);
    return error;
}

int tutti__control_spread_handle(tutti__control *control, const int *ranks, int n, int fd,
                                 uint64_t number)
{
    return pass_on(control, ranks, n, 0, fd, number);
}

int tutti__control_take_spread(tutti__control *control, const int *ranks, int n, int i, int *fd_p,
                               uint64_t *number_p, double deadline)
{
    int error = tutti__control_take_handle(control, at(ranks, tutti__tree_parent(i)), fd_p,
                                           number_p, deadline);

    if (error)
        return error;
    error = pass_on(control, ranks, n, i, *fd_p, *number_p);
    if (error && *fd_p >= 0)
        close(*fd_p);
    return error;
}
