/* door.c -- accepts, authenticates, reads and keeps connections alive.   SPDX-License-Identifier: MIT */
#include "launch/message/door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    PROVE_MS = 10000, /* for a connection to authenticate */
    UNPROVEN = 64     /* connections that are not authenticated yet */
};

/* ---- One link --------------------------------------------------------------------------------------- */

/* Polls for writing while there are unsent bytes. */
static void watch(tutti__door *door, tutti__link *link)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};

    if (link->channel.n_out > 0)
        event.events |= EPOLLOUT;
    if (link->channel.fd >= 0)
        epoll_ctl(door->epoll, EPOLL_CTL_MOD, link->channel.fd, &event);
}

void tutti__door_send(tutti__door *door, tutti__link *link, json_t *message)
{
    tutti__channel_send(&link->channel, message);
    watch(door, link);
}

static tutti__link *add(tutti__door *door, int fd)
{
    tutti__link *link = calloc(1, door->opts.link_bytes);

    if (!link || epoll_ctl(door->epoll, EPOLL_CTL_ADD, fd,
                           &(struct epoll_event){.events = EPOLLIN, .data.ptr = link}) != 0) {
        free(link);
        close(fd);
        return NULL;
    }
    tutti__channel_open(&link->channel, fd);
    link->deadline = tutti__now_ms() + PROVE_MS;
    link->next = door->links;
    door->links = link;
    return link;
}

/* Its memory stays until all events are handled. */
static void lose(tutti__door *door, tutti__link *link, const char *why)
{
    door->n_unproven -= !link->proven;
    if (link->proven)
        door->opts.on_lost(door->opts.context, link, why);
    epoll_ctl(door->epoll, EPOLL_CTL_DEL, link->channel.fd, NULL);
    tutti__channel_close(&link->channel);
}

/* False: authentication failed. */
static bool prove(tutti__door *door, tutti__link *link)
{
    int fd = link->channel.fd;
    int state = tutti__acceptor_step(&link->acceptor, fd, door->opts.secret, &door->opts.claim);

    if (state == 0)
        return true;
    if (state > 0 && tutti__acceptor_decide(&link->acceptor, fd, TUTTI__WELCOME)) {
        link->proven = true;
        link->deadline = tutti__now_ms() + door->opts.ping_ms;
        door->n_unproven--;
        return true;
    }
    tutti__log_refusal(&door->refusals, fd, &link->acceptor, "the rendezvous", NULL);
    return false;
}

static void serve_link(tutti__door *door, tutti__link *link)
{
    json_t *message;

    if (link->channel.fd < 0)
        return; /* lost since the event */
    if (!link->proven) {
        if (!prove(door, link))
            lose(door, link, "");
        return;
    }
    tutti__channel_flush(&link->channel);
    tutti__channel_read(&link->channel);
    while ((message = tutti__channel_take(&link->channel)) != NULL) {
        door->opts.on_message(door->opts.context, link, message);
        json_decref(message);
    }
    if (link->channel.fault)
        lose(door, link, link->channel.fault);
    else
        watch(door, link);
}

/* ---- All of them ------------------------------------------------------------------------------------ */

/* Members of the job authenticate at once: the oldest connection that has not done so is closed, so that strangers that only
 * hold connections keep nobody out. */
static void lose_oldest_unproven(tutti__door *door)
{
    tutti__link *oldest = NULL;

    for (tutti__link *link = door->links; link; link = link->next)
        if (link->channel.fd >= 0 && !link->proven)
            oldest = link; /* the list begins with the newest */
    if (oldest)
        lose(door, oldest, "");
}

static void accept_all(tutti__door *door)
{
    int fd;

    while ((fd = tutti__accept(door->opts.listener)) >= 0) {
        if (door->n_unproven >= UNPROVEN)
            lose_oldest_unproven(door);
        if (add(door, fd))
            door->n_unproven++;
    }
    /* else epoll would report the connection again and again */
    if (errno == EMFILE || errno == ENFILE) {
        close(door->spare);
        fd = tutti__accept(door->opts.listener);
        if (fd >= 0)
            close(fd);
        door->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

/* Sends pings, and detects lost connections. */
static void keep_alive(tutti__door *door)
{
    const bool was_suspended = tutti__was_suspended(&door->turn_ms, door->opts.ping_ms);
    double limit_ms = door->opts.ping_ms * door->opts.misses, now = tutti__now_ms();
    char why[96];

    snprintf(why, sizeof why, "it has not been heard from for %g s", limit_ms * 1e-3);
    for (tutti__link *link = door->links; link; link = link->next) {
        if (link->channel.fd < 0 || link->local)
            continue;
        if (was_suspended)
            link->channel.heard_ms = now;
        if (link->proven && now - link->channel.heard_ms > limit_ms) {
            lose(door, link, why);
        } else if (!link->proven && now >= link->deadline) {
            lose(door, link, "");
        } else if (now >= link->deadline) {
            tutti__door_send(door, link, json_pack("{s:s}", "type", "ping"));
            link->deadline = now + door->opts.ping_ms;
        }
    }
}

static void forget_lost(tutti__door *door)
{
    for (tutti__link **at = &door->links; *at;) {
        tutti__link *link = *at;

        if (link->channel.fd >= 0) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        free(link);
    }
}

bool tutti__door_serve(tutti__door *door)
{
    struct epoll_event events[64];
    int n = epoll_wait(door->epoll, events, 64, 0);

    for (int i = 0; i < n; i++)
        if (events[i].data.ptr)
            serve_link(door, events[i].data.ptr);
        else
            accept_all(door);
    keep_alive(door);
    forget_lost(door);
    return n == 64;
}

double tutti__door_deadline(const tutti__door *door)
{
    double next = 1e300;

    for (const tutti__link *link = door->links; link; link = link->next)
        if (!link->local && link->deadline < next)
            next = link->deadline;
    return next;
}

tutti_status tutti__door_open(tutti__door *door, const tutti__door_opts *opts, int local)
{
    struct epoll_event event = {.events = EPOLLIN};
    tutti__link *link;

    *door =
        (tutti__door){.opts = *opts,
                      .epoll = epoll_create1(EPOLL_CLOEXEC),
                      .spare = opts->listener >= 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1};
    if (door->epoll < 0) {
        if (local >= 0)
            close(local);
        return tutti__fail_errno(errno, "no descriptor for the rendezvous (see ulimit -n)");
    }
    link = local >= 0 ? add(door, local) : NULL;
    if ((local >= 0 && !link) ||
        (opts->listener >= 0 && epoll_ctl(door->epoll, EPOLL_CTL_ADD, opts->listener, &event) != 0))
        return tutti__fail_errno(errno, "cannot wait for connections to the rendezvous");
    if (link)
        link->local = link->proven = true;
    return TUTTI_OK;
}

void tutti__door_free(tutti__door *door)
{
    for (tutti__link *link = door->links, *next; link; link = next) {
        next = link->next;
        tutti__channel_close(&link->channel);
        free(link);
    }
    if (door->opts.listener >= 0)
        close(door->opts.listener);
    if (door->epoll >= 0)
        close(door->epoll);
    if (door->spare >= 0)
        close(door->spare);
    door->links = NULL;
}
