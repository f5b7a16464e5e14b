/* link.c -- a connection of the control channel: its beginning, what is said in it, and waking the thread.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* RETRY: to a process whose queue is full, or that has closed the connection. PAUSE: to one that has no descriptor free, for at most FULL. */
enum { RETRY_MS = 2, PAUSE_MS = 100, FULL_MS = 10000 };

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

void tutti__link_describe(tutti__connector_opts *opts, tutti__claim *theirs, char *who,
                          size_t capacity, const tutti__links *links, int at)
{
    snprintf(who, capacity, "rank %d of group \"%s\"", at, links->name);
    *theirs = tutti__group_claim(&links->secret, links->id, at, 0);
    opts->secret = &links->secret;
    opts->theirs = theirs;
    opts->who = who;
}

int tutti__link_again(const tutti__connector *c, double *full_ms, double deadline)
{
    const bool full = !c->error && c->status == TUTTI_ERR_MEMORY;
    const double now = tutti__now_ms();

    *full_ms = !full ? 0 : *full_ms > 0 ? *full_ms : now;
    if (now >= deadline)
        return 0;
    if (full)
        return now < *full_ms + FULL_MS ? PAUSE_MS : 0;
    return c->error == EAGAIN || c->error == ECONNRESET ||
                   (!c->error && c->status == TUTTI_ERR_PEER)
               ? RETRY_MS
               : 0;
}
