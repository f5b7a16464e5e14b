/* link.c -- a connection of the control channel: its beginning, and waking the thread.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void tutti__links_wake(tutti__links *links)
{
    if (links->wake >= 0)
        (void)!write(links->wake, &(uint64_t){1}, sizeof(uint64_t));
}

void tutti__link_use(tutti__links *links, int at, int state)
{
    tutti__link *link = &links->at[at];
    int n = atomic_load(&links->n_used);

    if (link->state == TUTTI__LINK_NONE) {
        link->fd = link->came = -1;
        if (links->directory) {
            link->pid = links->directory->places[at].pid;
            link->is_here = links->directory->places[at].here;
        }
        links->used[n] = at;
        atomic_store(&links->n_used, n + 1);
    }
    atomic_store(&link->state, state);
}

int tutti__link_poll(tutti__links *links, int at, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)at};

    /* Unsent data stay in the queue, where urgent frames can overtake them, instead of in the socket. Without effect on unix
     * sockets. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){128 << 10}, sizeof(int));
    return epoll_ctl(links->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}
