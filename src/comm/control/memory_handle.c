/* memory_handle.c -- sends descriptors and numbers to peers, with which they map shared memory.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include "base/thread.h"
#include "comm/core/tree.h"

#include <errno.h>
#include <fcntl.h>
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
    int error = 0;

    pthread_mutex_lock(&links->lock);
    while (member->n_handles == 0 && error == 0) {
        if (links->at[member->link].over || atomic_load(&control->comm->failed))
            error = ECONNRESET;
        else if (!tutti__cond_wait(&links->changed, &links->lock, deadline) &&
                 member->n_handles == 0)
            error = ETIMEDOUT;
    }
    if (!error) {
        *fd_p = member->handles[0].fd;
        *number_p = member->handles[0].number;
        memmove(member->handles, member->handles + 1,
                (size_t)--member->n_handles * sizeof member->handles[0]);
    }
    pthread_mutex_unlock(&links->lock);
    return error;
}

void tutti__control_keep_handle(tutti__control *control, int rank, int fd, uint64_t number)
{
    tutti__member *member = &control->members[rank];

    pthread_mutex_lock(&control->links->lock);
    if (member->n_handles < TUTTI__MAX_HANDLES)
        member->handles[member->n_handles++] = (tutti__handle){fd, number};
    else if (fd >= 0)
        close(fd);
    pthread_cond_broadcast(&control->links->changed);
    pthread_mutex_unlock(&control->links->lock);
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
