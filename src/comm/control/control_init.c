/* control_init.c -- opening and closing the control channel, and its thread.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include "comm/core/failure.h"
#include "base/thread.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

enum { N_EVENTS = 64, REPORT_MS = 20, LINGER_MS = 1000, LINGER_DEAD_MS = 100 };

/* ---- The thread ------------------------------------------------------------------------------------------- */

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
        (void)tutti__comm_fail(comm, (tutti_status)verdict->cause.status, verdict->cause.culprit,
                               "%s", verdict->cause.text);
    } else if (!tutti__comm_failed(comm)) {
        /* Told to the peers first: they must not see this rank's end before the cause. */
        tutti__control_tell(control, &verdict->cause);
        tutti__comm_adopt(comm, &verdict->cause);
    }
    *verdict = (tutti__verdict){.set = false};
    pthread_mutex_lock(&control->lock); /* for threads that wait for a handle, or the failure */
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static void push(tutti__control *control, int rank)
{
    const tutti__frame_handler *handler = &control->handler;

    handler->enter(handler->self);
    pthread_mutex_lock(&control->lock);
    tutti__link_push(control, rank);
    pthread_mutex_unlock(&control->lock);
    handler->leave(handler->self);
}

static void serve(tutti__control *control, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        int rank = (int)events[i].data.u32;
        uint64_t count;

        if (rank == control->comm->size) {
            (void)!read(control->wake, &count, sizeof count);
            continue;
        }
        if (control->links[rank].over)
            continue;
        if (events[i].events & EPOLLOUT)
            push(control, rank);
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            tutti__link_read(control, rank);
    }
}

/* Reports the failure if no call of this rank returns it, because the rank computes or hangs. A call that is about to
 * return it goes first, since its report includes that call. */
static void report(tutti__control *control, double *died, bool *reported)
{
    double now;

    if (*reported || !atomic_load(&control->comm->failed))
        return;
    now = tutti__now_ms();
    if (*died == 0)
        *died = now;
    *reported = now - *died >= REPORT_MS;
    if (*reported)
        tutti__comm_report(control->comm);
}

static void *control_main(void *arg)
{
    tutti__control *control = arg;
    struct epoll_event events[N_EVENTS];
    double died = 0;
    bool reported = false, more = false;

    tutti__log_set_rank(control->comm->rank);
    control->tid = (uint64_t)syscall(SYS_gettid);
    tutti__heartbeat_turn(control, false);
    pthread_mutex_lock(&control->lock);
    control->started = true;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
    while (!atomic_load(&control->stopping)) {
        int wait = tutti__heartbeat_wait(control), n;

        if (atomic_load(&control->comm->failed) && !reported)
            wait = REPORT_MS;
        n = epoll_wait(control->epoll, events, N_EVENTS, more ? 0 : wait);
        if (n < 0 && errno != EINTR) {
            tutti_log(TUTTI_LOG_ERROR, "comm", "group \"%s\" is no longer monitored: %s",
                      control->comm->name, strerror(errno));
            return NULL;
        }
        serve(control, events, n);
        more = control->handler.work(control->handler.self);
        tutti__heartbeat_turn(control, n < N_EVENTS);
        settle(control);
        report(control, &died, &reported);
    }
    return NULL;
}

/* ---- Init, teardown --------------------------------------------------------------------------------------- */

static void control_free(tutti__control *control)
{
    for (int r = 0; r < control->comm->size; r++) {
        tutti__link *link = &control->links[r];

        tutti__link_clear(control, r);
        if (link->fd >= 0)
            close(link->fd);
        if (link->came >= 0)
            close(link->came);
        while (link->n_handles > 0)
            if (link->handles[--link->n_handles].fd >= 0)
                close(link->handles[link->n_handles].fd);
        free(link->text);
    }
    if (control->epoll >= 0)
        close(control->epoll);
    if (control->wake >= 0)
        close(control->wake);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    free(control);
}

static void announce(void *self, tutti__cause *cause)
{
    tutti__control_tell(self, cause);
}

/* 0 or an errno. */
static int start(tutti__control *control)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)control->comm->size};
    int error;

    control->epoll = epoll_create1(EPOLL_CLOEXEC);
    control->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->epoll < 0 || control->wake < 0 ||
        epoll_ctl(control->epoll, EPOLL_CTL_ADD, control->wake, &event) != 0)
        return errno;
    for (int r = 0; r < control->comm->size; r++) {
        event.data.u32 = (uint32_t)r;
        if (control->links[r].fd >= 0 &&
            epoll_ctl(control->epoll, EPOLL_CTL_ADD, control->links[r].fd, &event) != 0)
            return errno;
        /* Unsent data stay in the queue, where urgent frames can overtake them, instead of in the socket. Without effect
         * on unix sockets. */
        (void)setsockopt(control->links[r].fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){128 << 10},
                         sizeof(int));
    }
    /* Before the thread, which may announce something at once. */
    tutti__comm_observe(control->comm, &(tutti__observer){.self = control, .announce = announce});
    error = tutti__thread_start(&control->thread, control_main, control);
    control->has_thread = error == 0;
    /* Waits for the thread's first beat, because only ranks that have been heard can be missed. */
    pthread_mutex_lock(&control->lock);
    while (control->has_thread && !control->started)
        pthread_cond_wait(&control->changed, &control->lock);
    pthread_mutex_unlock(&control->lock);
    return error;
}

tutti_status tutti__control_open(tutti__control **control_p, tutti__comm *comm, const int *sockets,
                                 int heartbeat_ms, const tutti__frame_handler *handler)
{
    size_t n = (size_t)comm->size;
    tutti__control *control = tutti__alloc(sizeof *control + n * sizeof control->links[0]);
    int error;

    *control_p = NULL;
    if (!control) {
        for (size_t r = 0; r < n; r++)
            if (sockets[r] >= 0)
                close(sockets[r]);
        return TUTTI_ERR_MEMORY;
    }
    control->comm = comm;
    control->handler = *handler;
    control->epoll = control->wake = -1;
    pthread_mutex_init(&control->lock, NULL);
    tutti__cond_init(&control->changed);
    for (size_t r = 0; r < n; r++)
        control->links[r] = (tutti__link){
            .fd = sockets[r], .came = -1, .over = sockets[r] < 0, .deaf = sockets[r] < 0};
    tutti__heartbeat_start(control, heartbeat_ms);
    error = n > 1 ? start(control) : 0;
    if (error) {
        control_free(control);
        return tutti__fail_errno(error, "cannot start the control channel of group \"%s\"",
                                 comm->name);
    }
    *control_p = control;
    return TUTTI_OK;
}

/* A closed TCP socket discards its unsent data if the peer still sends something. */
static bool on_its_way(const tutti__link *link)
{
    int bytes = 0, family = 0;
    socklen_t size = sizeof family;

    if (tutti__link_busy(link))
        return true;
    if (link->deaf || getsockopt(link->fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 ||
        family == AF_UNIX)
        return false;
    return ioctl(link->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void linger(tutti__control *control, double deadline)
{
    bool busy = true;

    for (int ms = 0; busy && tutti__now_ms() < deadline; ms = 1) {
        poll(NULL, 0, ms);
        busy = false;
        pthread_mutex_lock(&control->lock);
        for (int r = 0; r < control->comm->size && !busy; r++)
            busy = on_its_way(&control->links[r]);
        pthread_mutex_unlock(&control->lock);
    }
}

void tutti__control_wake(tutti__control *control)
{
    if (control->wake >= 0)
        (void)!write(control->wake, &(uint64_t){1}, sizeof(uint64_t));
}

/* Whether the peer has closed its end: its process has ended, or it has left. */
static bool control_is_over(tutti__control *control, int rank)
{
    bool over;

    pthread_mutex_lock(&control->lock);
    over = control->links[rank].over;
    pthread_mutex_unlock(&control->lock);
    return over;
}

bool tutti__control_is_silent(tutti__control *control, int rank)
{
    const tutti__link *link = &control->links[rank];

    return control->limit_ms > 0 && link->known && !control_is_over(control, rank) &&
           tutti__now_ms() - link->heard >= control->limit_ms - control->beat_ms;
}

void tutti__control_close(tutti__control *control)
{
    tutti__frame goodbye = {.kind = TUTTI__FRAME_GOODBYE};
    bool failed;

    if (!control)
        return;
    failed = tutti__comm_failed(control->comm);
    goodbye.id = atomic_load(&control->comm->peers[control->comm->rank].seen);
    /* In a dead group, tells the cause instead of goodbye: a peer may receive this before the message of the rank that found
     * the failure. */
    if (failed)
        tutti__control_tell(control, &control->comm->cause);
    for (int r = 0; r < control->comm->size && !failed; r++)
        tutti__control_send(control, r, &goodbye, NULL);
    linger(control, tutti__now_ms() + (failed ? LINGER_DEAD_MS : LINGER_MS));
    atomic_store(&control->stopping, true);
    tutti__control_wake(control);
    if (control->has_thread)
        pthread_join(control->thread, NULL);
    control_free(control);
}
