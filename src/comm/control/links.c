/* links.c -- the connections of a group and of all groups made from it, and the thread that serves them.
 * SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include "comm/core/failure.h"
#include "base/thread.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

enum { N_EVENTS = 64, REPORT_MS = 20, ORPHAN_MS = 1000 };

/* ---- The turn ---------------------------------------------------------------------------------------------- */

void tutti__links_enter(tutti__links *links)
{
    atomic_fetch_add(&links->entrants, 1);
    pthread_mutex_lock(&links->turn);
    atomic_fetch_sub(&links->entrants, 1);
}

void tutti__links_leave(tutti__links *links)
{
    pthread_mutex_unlock(&links->turn);
}

/* A thread that always has something to do would otherwise take the lock again before those that wait for it. */
static void take_turn(tutti__links *links)
{
    while (atomic_load_explicit(&links->entrants, memory_order_relaxed) > 0)
        sched_yield();
    pthread_mutex_lock(&links->turn);
}

/* ---- Verdicts ---------------------------------------------------------------------------------------------- */

/* Acts on the verdict. */
static void settle(tutti__control *control)
{
    tutti__verdict *verdict = &control->verdict;
    tutti__comm *comm = control->comm;

    if (!verdict->set)
        return;
    if (verdict->lost >= 0) {
        (void)tutti__comm_fail_lost(comm, verdict->lost);
    } else if (!verdict->theirs) {
        (void)tutti__comm_fail_of(comm, &verdict->cause);
    } else if (!tutti__comm_failed(comm)) {
        /* Passed on first: peers must not see this rank's end before the cause. */
        tutti__control_tell(control, &verdict->cause);
        tutti__comm_adopt(comm, &verdict->cause);
    }
    *verdict = (tutti__verdict){.set = false};
    pthread_mutex_lock(
        &control->links->lock); /* for threads that wait for a handle, or the failure */
    pthread_cond_broadcast(&control->links->changed);
    pthread_mutex_unlock(&control->links->lock);
}

/* Not all members of a group may try to make it after the death of the one that it is made from. If they do, they are about
 * to finish; after a second it is given up. */
static void judge_parent(tutti__control *control)
{
    tutti__cause *cause = &control->verdict.cause;
    const tutti__comm *parent = control->parent ? control->parent->comm : NULL;
    double now;

    if (!parent || !atomic_load(&parent->failed) || control->verdict.set)
        return;
    now = tutti__now_ms();
    if (control->orphaned == 0)
        control->orphaned = now;
    if (now - control->orphaned < ORPHAN_MS)
        return;
    control->verdict = (tutti__verdict){.set = true, .lost = -1, .theirs = true};
    *cause = parent->cause;
    if (cause->culprit >= 0 && cause->culprit < parent->size)
        cause->culprit = control->rank_at[control->parent->members[cause->culprit].link];
}

/* ---- Reports ----------------------------------------------------------------------------------------------- */

/* Writes the reports that are due, on a thread of its own, because a store that hangs delays each by half a second, in which
 * peers would miss this rank's beats. */
static void *reporter_main(void *arg)
{
    tutti__links *links = arg;

    tutti__log_set_rank(links->rank);
    pthread_mutex_lock(&links->lock);
    for (;;) {
        tutti__control *c = links->controls;

        while (c && c->report != TUTTI__REPORT_DUE)
            c = c->next;
        if (!c && atomic_load(&links->stopping))
            break;
        if (!c) {
            pthread_cond_wait(&links->changed, &links->lock);
            continue;
        }
        c->report = TUTTI__REPORT_RUNNING;
        pthread_mutex_unlock(&links->lock);
        tutti__comm_report(c->comm);
        pthread_mutex_lock(&links->lock);
        c->report = TUTTI__REPORT_DONE;
        pthread_cond_broadcast(&links->changed);
    }
    pthread_mutex_unlock(&links->lock);
    return NULL;
}

/* Reports the failure if no call of this rank returns it, because the rank computes or hangs. A call that is about to
 * return it goes first, since its report includes that call. */
static void report(tutti__control *control)
{
    tutti__links *links = control->links;
    double now;

    if (control->report != TUTTI__REPORT_NONE || !atomic_load(&control->comm->failed))
        return;
    now = tutti__now_ms();
    if (control->died == 0)
        control->died = now;
    if (now - control->died < REPORT_MS)
        return;
    if (!links->has_reporter)
        links->has_reporter = tutti__thread_start(&links->reporter, reporter_main, links) == 0;
    if (!links->has_reporter)
        tutti__comm_report(control->comm);
    pthread_mutex_lock(&links->lock);
    control->report = links->has_reporter ? TUTTI__REPORT_DUE : TUTTI__REPORT_DONE;
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
}

/* ---- The thread's loop -------------------------------------------------------------------------------------- */

static void serve_link(tutti__links *links, int at, uint32_t events)
{
    if (atomic_load(&links->at[at].state) == TUTTI__LINK_CONNECTING) {
        tutti__connect_advance(links, at);
        return;
    }
    if (links->at[at].over)
        return;
    if (events & EPOLLOUT)
        tutti__link_push(links, at);
    if (events & ~(uint32_t)EPOLLOUT)
        tutti__link_read(links, at);
}

static void serve(tutti__links *links, const struct epoll_event *events, int n)
{
    bool accepts = false;

    for (int i = 0; i < n; i++) {
        int at = (int)events[i].data.u32;
        uint64_t count;

        if (at == links->size)
            (void)!read(links->wake, &count, sizeof count);
        else if (at < links->size)
            serve_link(links, at, events[i].events);
        else
            accepts = true;
    }
    if (accepts ||
        (links->acceptor && tutti__now_ms() >= tutti__acceptor_deadline(links->acceptor)))
        (void)tutti__acceptor_serve(links->acceptor);
    tutti__connect_turn(links);
    tutti__links_end_broken(links);
}

/* Lets the handlers look at the time, and work if they asked for it. True if one has more to do. */
static bool work(tutti__links *links)
{
    bool any = false;

    for (tutti__control *c = links->controls; c; c = c->next) {
        c->handler.tick(c->handler.self);
        if (!atomic_load_explicit(&c->has_work, memory_order_relaxed))
            continue;
        atomic_store(&c->has_work, false);
        if (!c->handler.work(c->handler.self))
            continue;
        atomic_store(&c->has_work, true);
        any = true;
    }
    return any;
}

/* Milliseconds to wait for events; -1: without limit. */
static int wait_ms(tutti__links *links)
{
    int beat = tutti__heartbeat_wait(links), connect = tutti__connect_wait(links);

    for (const tutti__control *c = links->controls; c; c = c->next)
        if ((atomic_load(&c->comm->failed) && c->report == TUTTI__REPORT_NONE) || c->orphaned > 0)
            beat = beat < 0 || beat > REPORT_MS ? REPORT_MS : beat;
    return connect >= 0 && (beat < 0 || connect < beat) ? connect : beat;
}

/* Ranks of one host learn from shared memory that the group is dead; those of others are told. */
static void pass_on(tutti__control *control)
{
    if (atomic_load(&control->comm->failed) && control->flood.n_to < control->comm->size - 1)
        tutti__control_tell(control, &control->comm->cause);
}

static void *links_main(void *arg)
{
    tutti__links *links = arg;
    struct epoll_event events[N_EVENTS];
    bool more = false;

    tutti__log_set_rank(links->rank);
    take_turn(links);
    links->tid = (uint64_t)syscall(SYS_gettid);
    tutti__heartbeat_turn(links, false);
    pthread_mutex_lock(&links->lock);
    links->started = true;
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
    while (!atomic_load(&links->stopping)) {
        int wait = more ? 0 : wait_ms(links), n;

        tutti__links_leave(links);
        n = epoll_wait(links->epoll, events, N_EVENTS, wait);
        if (n < 0 && errno != EINTR) {
            tutti_log(TUTTI_LOG_ERROR, "comm", "group \"%s\" is no longer monitored: %s",
                      links->name, strerror(errno));
            return NULL;
        }
        take_turn(links);
        serve(links, events, n);
        more = work(links);
        tutti__heartbeat_turn(links, n < N_EVENTS);
        for (tutti__control *c = links->controls; c; c = c->next) {
            judge_parent(c);
            settle(c);
            pass_on(c);
        }
        for (tutti__control *c = links->controls; c; c = c->next)
            report(c);
    }
    tutti__links_leave(links);
    return NULL;
}

/* ---- Init, teardown ---------------------------------------------------------------------------------------- */

static void close_all(const tutti__control_opts *opts)
{
    for (int i = 0; i < opts->mesh->n; i++)
        if (opts->mesh->fds[i] >= 0)
            close(opts->mesh->fds[i]);
    if (opts->directory) {
        tutti__mesh_close(opts->mesh);
        tutti__listeners_close(&opts->listeners);
        free(opts->directory);
    }
}

static void take_over(tutti__links *links, const tutti__comm *comm, const tutti__control_opts *opts)
{
    for (int i = 0; i < opts->mesh->n; i++) {
        int at = opts->mesh->ranks[i];
        tutti__link *link = &links->at[at];

        tutti__link_use(links, at, TUTTI__LINK_OPEN);
        link->fd = opts->mesh->fds[i];
        link->pid = comm->peers[at].pid;
        link->is_here = strcmp(comm->peers[at].host, comm->peers[comm->rank].host) == 0;
    }
    if (!opts->directory)
        return;
    links->directory = opts->directory;
    links->listeners = opts->listeners;
    links->secret = *opts->secret;
    links->acceptor = opts->mesh->acceptor;
    links->data = opts->mesh->early;
    opts->mesh->acceptor = NULL;
    opts->mesh->early = NULL;
}

tutti__links *tutti__links_new(const tutti__comm *comm, const tutti__control_opts *opts)
{
    size_t n = (size_t)comm->size;
    tutti__links *links = tutti__alloc(sizeof *links + n * sizeof links->at[0]);

    if (links)
        links->used = tutti__alloc(n * sizeof *links->used);
    if (!links || !links->used) {
        free(links);
        if (opts)
            close_all(opts);
        return NULL;
    }
    snprintf(links->name, sizeof links->name, "%s", comm->name);
    links->size = comm->size;
    links->rank = comm->rank;
    links->id = comm->id;
    links->first_id = opts ? opts->mesh->id : comm->id;
    links->connect_ms = comm->timeout_ms;
    links->epoll = links->wake = -1;
    links->listeners = (tutti__listeners){-1, -1};
    pthread_mutex_init(&links->turn, NULL);
    pthread_mutex_init(&links->lock, NULL);
    tutti__cond_init(&links->changed);
    links->at[comm->rank].over = links->at[comm->rank].unwritable = true;
    if (opts)
        take_over(links, comm, opts);
    tutti__heartbeat_start(links, opts ? opts->heartbeat_ms : 0);
    return links;
}

int tutti__links_start(tutti__links *links)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)links->size};
    int error = 0;

    links->epoll = epoll_create1(EPOLL_CLOEXEC);
    links->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (links->epoll < 0 || links->wake < 0 ||
        epoll_ctl(links->epoll, EPOLL_CTL_ADD, links->wake, &event) != 0)
        return errno;
    for (int i = 0; i < links->n_used && !error; i++)
        error = tutti__link_poll(links, links->used[i], links->at[links->used[i]].fd);
    if (!error)
        error = tutti__connect_start(links);
    if (error)
        return error;
    error = tutti__thread_start(&links->thread, links_main, links);
    links->has_thread = error == 0;
    /* Waits for the thread's first beat, because only ranks that have been heard can be missed. */
    pthread_mutex_lock(&links->lock);
    while (links->has_thread && !links->started)
        pthread_cond_wait(&links->changed, &links->lock);
    pthread_mutex_unlock(&links->lock);
    return error;
}

/* A closed TCP socket discards its unsent data if the peer still sends something. */
static bool on_its_way(const tutti__link *link)
{
    int bytes = 0, family = 0;
    socklen_t size = sizeof family;

    if (link->unwritable || link->state != TUTTI__LINK_OPEN ||
        getsockopt(link->fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 || family == AF_UNIX)
        return false;
    return ioctl(link->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void linger(tutti__links *links, double deadline)
{
    bool busy = true;

    for (int ms = 0; busy && tutti__now_ms() < deadline; ms = 1) {
        poll(NULL, 0, ms);
        busy = false;
        pthread_mutex_lock(&links->lock);
        for (int i = 0; i < links->n_used && !busy; i++)
            busy = on_its_way(&links->at[links->used[i]]);
        pthread_mutex_unlock(&links->lock);
    }
}

void tutti__links_close(tutti__links *links, double deadline)
{
    linger(links, deadline);
    atomic_store(&links->stopping, true);
    tutti__links_wake(links);
    if (links->has_thread)
        pthread_join(links->thread, NULL);
    pthread_mutex_lock(&links->lock);
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
    if (links->has_reporter)
        pthread_join(links->reporter, NULL);
    tutti__connect_stop(links);
    for (int i = 0; i < links->n_used; i++) {
        tutti__link *link = &links->at[links->used[i]];

        tutti__link_clear(links, links->used[i]);
        if (link->fd >= 0)
            close(link->fd);
        if (link->came >= 0)
            close(link->came);
        free(link->text);
    }
    tutti__early_drop_all(links);
    if (links->epoll >= 0)
        close(links->epoll);
    if (links->wake >= 0)
        close(links->wake);
    pthread_cond_destroy(&links->changed);
    pthread_mutex_destroy(&links->lock);
    pthread_mutex_destroy(&links->turn);
    free(links->used);
    free(links);
}
