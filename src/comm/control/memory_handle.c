/* memory_handle.c -- sends descriptors and numbers to peers, with which they map shared memory.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include "base/thread.h"

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
