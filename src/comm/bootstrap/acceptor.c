/* acceptor.c -- accepts connections of this job.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    PROVE_MS = 10000, /* for a connection to authenticate */
    IDLE_MS = 1000,   /* a younger one may be about to, even if descriptors have run out */
    PAUSE_MS = 100,   /* between attempts to accept without a descriptor */
    EVENTS = 256,
    FLOOD_LINE_MS = 60000
};

/* In the order of their coming. */
struct tutti__unproven {
    tutti__unproven *next, *previous;
    int fd;
    double deadline;
    tutti__address from;
    tutti__server_handshake handshake;
};

/* ---- Log lines --------------------------------------------------------------------------------------- */

static bool is_same_host(const tutti__address *a, const tutti__address *b)
{
    tutti__address x = *a, y = *b;

    tutti__address_set_port(&x, 0);
    tutti__address_set_port(&y, 0);
    return x.length == y.length && memcmp(&x.at, &y.at, x.length) == 0;
}

static void tell_flood(tutti__acceptor *a, double now)
{
    tutti__address own = {.length = sizeof own.at};
    char from[80], at[80] = "that address";

    tutti__address_set_port(&a->flood.from, 0);
    tutti__address_host_text(&a->flood.from, from, sizeof from);
    for (int i = 0; i < 2; i++)
        if (a->opts.listeners[i] >= 0 &&
            getsockname(a->opts.listeners[i], (struct sockaddr *)&own.at, &own.length) == 0)
            tutti__address_text(&own, at, sizeof at);
    tutti_log(TUTTI_LOG_WARN, "comm",
              "%s is flooded: %d connections within %.2g s did not authenticate, most of them from "
              "%s. They are closed, and the job goes on; end what sends them, or let a firewall "
              "admit only the job's hosts to %s",
              a->name, a->flood.failed, (now - a->flood.begin_ms) * 1e-3, from, at);
}

/* Counts a connection that ended without authentication; names a flood when it begins, and once a minute. */
static void count_failed(tutti__acceptor *a, const tutti__address *from)
{
    double now = tutti__now_ms();

    if (now >= a->flood.begin_ms + 1000) {
        a->flood.begin_ms = now;
        a->flood.failed = a->flood.votes = 0;
    }
    if (a->flood.votes == 0)
        a->flood.from = *from;
    a->flood.votes += is_same_host(&a->flood.from, from) ? 1 : -1;
    if (++a->flood.failed != a->opts.flood || now < a->flood.next_line_ms)
        return;
    tell_flood(a, now);
    a->flood.next_line_ms = now + FLOOD_LINE_MS;
}

/* Logs one a second at most, and the number of others; in a flood none. */
static void log_refusal(tutti__acceptor *a, tutti_log_level level, const tutti__address *from,
                        const char *why)
{
    double now = tutti__now_ms();
    char text[80], more[64] = "";

    count_failed(a, from);
    if (!why)
        return;
    if (now < a->next_line_ms || a->flood.failed >= a->opts.flood) {
        a->hidden++;
        return;
    }
    tutti__address_text(from, text, sizeof text);
    if (a->hidden)
        snprintf(more, sizeof more, " (and %u others since the last such line)", a->hidden);
    tutti_log(level, "comm", "%s rejects %s: %s%s", a->name, text, why, more);
    a->hidden = 0;
    a->next_line_ms = now + 1000;
}

/* ---- Connections that have not authenticated ----------------------------------------------------------- */

/* Frees it, but not its descriptor. */
static void release(tutti__acceptor *a, tutti__unproven *u)
{
    if (u->previous)
        u->previous->next = u->next;
    else
        a->oldest = u->next;
    if (u->next)
        u->next->previous = u->previous;
    else
        a->newest = u->previous;
    a->n_unproven--;
    /* A forked child of this process may hold the descriptor too: then close alone would leave it in the epoll set. */
    epoll_ctl(a->epoll, EPOLL_CTL_DEL, u->fd, NULL);
    free(u);
}

/* One that has hung up may be a member of a job that is stopped. */
static void refuse(tutti__acceptor *a, tutti__unproven *u, const char *why)
{
    int fd = u->fd;

    log_refusal(a, u->handshake.ended ? TUTTI_LOG_INFO : TUTTI_LOG_WARN, &u->from, why);
    release(a, u);
    close(fd);
}

static void advance(tutti__acceptor *a, tutti__unproven *u)
{
    tutti__server_handshake *h = &u->handshake;
    int fd = u->fd, state = tutti__server_handshake_step(h, fd, a->opts.secret, &a->opts.claim);
    const tutti__claim claim = h->claim;
    char verdict = TUTTI__WELCOME;

    if (state == 0)
        return;
    if (state > 0 && claim.channel == TUTTI__PROBE)
        verdict = TUTTI__CROSSED;
    else if (state > 0 && a->opts.decide)
        verdict = a->opts.decide(a->opts.context, fd, &claim);
    if (state < 0 || !tutti__server_handshake_decide(h, fd, verdict)) {
        refuse(a, u, h->ended && a->opts.crossing ? NULL : h->why);
        return;
    }
    release(a, u);
    a->opts.welcome(a->opts.context, fd, &claim);
}

/* Unless it is younger than `ms`. */
static bool refuse_oldest(tutti__acceptor *a, double ms, const char *why)
{
    if (!a->oldest || a->oldest->deadline - tutti__now_ms() > PROVE_MS - ms)
        return false;
    refuse(a, a->oldest, why);
    return true;
}

/* ---- Newcomers ----------------------------------------------------------------------------------------- */

static void add(tutti__acceptor *a, int fd, const tutti__address *from)
{
    tutti__unproven *u = calloc(1, sizeof *u);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = u};

    if (!u || epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(u);
        close(fd);
        return;
    }
    u->fd = fd;
    u->from = *from;
    u->deadline = tutti__now_ms() + PROVE_MS;
    u->previous = a->newest;
    if (u->previous)
        u->previous->next = u;
    else
        a->oldest = u;
    a->newest = u;
    if (++a->n_unproven > a->opts.max_unproven)
        (void)refuse_oldest(a, 0, "too many clients wait for authentication");
    advance(a, u); /* its first bytes are often here already */
}

static void watch_listeners(tutti__acceptor *a, uint32_t events)
{
    for (int i = 0; i < 2; i++)
        if (a->opts.listeners[i] >= 0)
            epoll_ctl(a->epoll, EPOLL_CTL_MOD, a->opts.listeners[i],
                      &(struct epoll_event){.events = events, .data.ptr = &a->opts.listeners[i]});
}

/* Uses the descriptor reserved for this; there may be no newcomer, since the kernel allocates a descriptor before it
 * looks. False: the reserve is lost. */
static bool refuse_newcomer(tutti__acceptor *a, int listener)
{
    tutti__address from;
    int fd, error;

    if (a->spare < 0)
        return false;
    close(a->spare);
    fd = tutti__accept(listener, &from);
    error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        tutti__refuse_full(fd);
        log_refusal(a, TUTTI_LOG_WARN, &from,
                    "this process has no descriptor left (see ulimit -n), and others need theirs");
        close(fd);
    }
    a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return a->spare >= 0 && error != EMFILE && error != ENFILE;
}

static int on_no_descriptor(tutti__acceptor *a, int listener, int error)
{
    if (!refuse_oldest(a, IDLE_MS, "it is slow, and descriptors have run out") &&
        !refuse_newcomer(a, listener)) {
        watch_listeners(a, 0); /* else epoll would report it again and again */
        a->resume_ms = tutti__now_ms() + PAUSE_MS;
    }
    return error;
}

/* Some: those that came before are heard before the next ones, so that they are not closed to make room. */
static int accept_some(tutti__acceptor *a, int listener)
{
    tutti__address from;
    int fd, most = a->opts.max_unproven / 4 < EVENTS ? a->opts.max_unproven / 4 : EVENTS;

    for (int i = 0; i < most; i++) {
        fd = tutti__accept(listener, &from);
        if (fd >= 0)
            add(a, fd, &from);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return on_no_descriptor(a, listener, errno);
        else if (errno == EAGAIN)
            return 0;
    }
    return 0;
}

/* ---- All of them --------------------------------------------------------------------------------------- */

int tutti__acceptor_serve(tutti__acceptor *a)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(a->epoll, events, EVENTS, 0), error = 0;
    bool accepts[2] = {false, false};

    for (int i = 0; i < n; i++) {
        int *listener = events[i].data.ptr;

        if (listener == &a->opts.listeners[0] || listener == &a->opts.listeners[1])
            accepts[listener - a->opts.listeners] = true;
        else
            advance(a, events[i].data.ptr);
    }
    while (refuse_oldest(a, PROVE_MS, "it did not authenticate within 10 s"))
        ;
    if (a->resume_ms > 0 && tutti__now_ms() >= a->resume_ms) {
        a->resume_ms = 0;
        watch_listeners(a, EPOLLIN);
    }
    for (int i = 0; i < 2; i++) /* last: it may close connections that have an event here */
        if (accepts[i] && (n = accept_some(a, a->opts.listeners[i])) != 0)
            error = n;
    return error;
}

double tutti__acceptor_deadline(const tutti__acceptor *a)
{
    double next = a->resume_ms > 0 ? a->resume_ms : 1e300;

    return a->oldest && a->oldest->deadline < next ? a->oldest->deadline : next;
}

/* Half of the descriptors is left for authenticated clients and the rest of this process. */
static int limit_unproven(int wanted)
{
    struct rlimit limit = {0};
    rlim_t half;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return wanted;
    half = limit.rlim_cur < 32 ? 16 : limit.rlim_cur / 2;
    return half < (rlim_t)wanted ? (int)half : wanted;
}

tutti_status tutti__acceptor_open(tutti__acceptor *a, const tutti__acceptor_opts *opts)
{
    int error = 0;

    *a = (tutti__acceptor){.opts = *opts, .spare = -1, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    snprintf(a->name, sizeof a->name, "%s", opts->name);
    a->opts.name = a->name;
    a->opts.max_unproven = limit_unproven(opts->max_unproven);
    if (a->epoll < 0)
        return tutti__fail_errno(errno, "no descriptor for %s (see ulimit -n)", a->name);
    for (int i = 0; i < 2 && !error; i++)
        if (a->opts.listeners[i] >= 0 &&
            epoll_ctl(
                a->epoll, EPOLL_CTL_ADD, a->opts.listeners[i],
                &(struct epoll_event){.events = EPOLLIN, .data.ptr = &a->opts.listeners[i]}) != 0)
            error = errno;
    if (error) {
        close(a->epoll);
        a->epoll = -1;
        return tutti__fail_errno(error, "cannot wait for connections to %s", a->name);
    }
    a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return TUTTI_OK;
}

void tutti__acceptor_close(tutti__acceptor *a)
{
    while (a->oldest) {
        int fd = a->oldest->fd;

        release(a, a->oldest);
        close(fd);
    }
    if (a->epoll >= 0)
        close(a->epoll);
    if (a->spare >= 0)
        close(a->spare);
    a->epoll = a->spare = -1;
}
