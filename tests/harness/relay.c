/* relay.c -- a thread that forwards connections with a delay.   SPDX-License-Identifier: MIT */
#include "relay.h"

#include "connect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MAX_CABLES = 64, CHUNK_BYTES = 32 << 10, QUEUE_BYTES = 4 << 20 };

typedef struct chunk {
    struct chunk *next;
    double due;
    size_t n, done;
    char bytes[CHUNK_BYTES];
} chunk;

/* Of a connection. */
typedef struct direction {
    int from, to;
    bool ended;  /* end of `from` */
    bool closed; /* ... passed on to `to` */
    double free_at;
    size_t queued;
    chunk *first, *last;
} direction;

struct tutti_relay {
    int listener, bell, port, target;
    double delay_ms, bytes_per_s;
    atomic_bool cut, stop;
    pthread_t thread;
    direction directions[2 * MAX_CABLES];
    int n_directions;
};

static void check(bool good, const char *what)
{
    if (good)
        return;
    perror(what);
    abort();
}

static void take_in(tutti_relay *relay)
{
    tutti__address target;
    int fd = tutti__accept(relay->listener, NULL), other;

    if (fd < 0)
        return;
    check(relay->n_directions + 2 <= 2 * MAX_CABLES, "relay: too many connections");
    check(tutti__resolve(&target, "127.0.0.1", relay->target) == TUTTI_OK, "relay");
    other = tutti_connect(&target, 10000);
    if (other < 0) {
        close(fd);
        return;
    }
    relay->directions[relay->n_directions++] = (direction){.from = fd, .to = other};
    relay->directions[relay->n_directions++] = (direction){.from = other, .to = fd};
}

static void read_from(const tutti_relay *relay, direction *w)
{
    chunk *p = malloc(sizeof *p);
    ssize_t n;

    check(p != NULL, "relay");
    n = recv(w->from, p->bytes, sizeof p->bytes, 0);
    if (n <= 0) {
        w->ended = n == 0 || (errno != EAGAIN && errno != EINTR);
        free(p);
        return;
    }
    p->next = NULL;
    p->n = (size_t)n;
    p->done = 0;
    p->due = tutti__now_ms() + relay->delay_ms;
    if (relay->bytes_per_s > 0) {
        double starts = p->due > w->free_at ? p->due : w->free_at;

        w->free_at = p->due = starts + (double)n / relay->bytes_per_s * 1e3;
    }
    if (w->first)
        w->last->next = p;
    else
        w->first = p;
    w->last = p;
    w->queued += (size_t)n;
}

/* Writes what is due; true if the socket takes no more now. */
static bool write_to(direction *w, double now)
{
    while (w->first && w->first->due <= now) {
        chunk *p = w->first;
        ssize_t n = send(w->to, p->bytes + p->done, p->n - p->done, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0)
            n = (ssize_t)(p->n - p->done); /* the receiver is closed */
        p->done += (size_t)n;
        w->queued -= (size_t)n;
        if (p->done < p->n)
            continue;
        w->first = p->next;
        free(p);
    }
    if (w->ended && !w->first && !w->closed) {
        shutdown(w->to, SHUT_WR);
        w->closed = true;
    }
    return false;
}

static void turn(tutti_relay *relay)
{
    struct pollfd polls[2 * 2 * MAX_CABLES + 2];
    double now = tutti__now_ms(), next = now + 1000;
    int n = 0, from = relay->n_directions;

    for (int i = 0; i < relay->n_directions; i++) {
        direction *w = &relay->directions[i];
        bool full = write_to(w, now);

        if (w->first && !full && w->first->due < next)
            next = w->first->due;
        polls[n++] = (struct pollfd){full ? w->to : -1, POLLOUT, 0};
    }
    for (int i = 0; i < from; i++) {
        const direction *w = &relay->directions[i];

        polls[n++] =
            (struct pollfd){w->ended || w->queued >= QUEUE_BYTES ? -1 : w->from, POLLIN, 0};
    }
    polls[n++] = (struct pollfd){relay->listener, POLLIN, 0};
    polls[n++] = (struct pollfd){relay->bell, POLLIN, 0};
    ppoll(polls, (nfds_t)n,
          &(struct timespec){
              0, next > now ? (long)((next - now) * 1e6 < 999e6 ? (next - now) * 1e6 : 999e6) : 0},
          NULL);
    if (atomic_load(&relay->cut))
        return;
    for (int i = 0; i < from; i++)
        if (polls[from + i].revents)
            read_from(relay, &relay->directions[i]);
    if (polls[2 * from].revents)
        take_in(relay);
}

static void *relay_main(void *arg)
{
    tutti_relay *relay = arg;

    while (!atomic_load(&relay->stop)) {
        if (!atomic_load(&relay->cut))
            turn(relay);
        else
            poll(&(struct pollfd){relay->bell, POLLIN, 0}, 1, 10);
    }
    return NULL;
}

tutti_relay *tutti_relay_new(int target_port, double delay_ms, double bytes_per_s)
{
    tutti_relay *relay = calloc(1, sizeof *relay);
    tutti__address here;

    check(relay != NULL, "relay");
    relay->target = target_port;
    relay->delay_ms = delay_ms;
    relay->bytes_per_s = bytes_per_s;
    check(tutti__resolve(&here, "127.0.0.1", 0) == TUTTI_OK, "relay");
    check(tutti__listen(&here, &relay->listener) == TUTTI_OK, "relay");
    relay->port = tutti__address_port(&here);
    relay->bell = eventfd(0, EFD_CLOEXEC);
    check(pthread_create(&relay->thread, NULL, relay_main, relay) == 0, "relay");
    return relay;
}

int tutti_relay_port(const tutti_relay *relay)
{
    return relay->port;
}

static void ring(const tutti_relay *relay)
{
    check(write(relay->bell, &(uint64_t){1}, sizeof(uint64_t)) > 0, "relay");
}

void tutti_relay_cut(tutti_relay *relay)
{
    atomic_store(&relay->cut, true);
    ring(relay);
}

void tutti_relay_free(tutti_relay *relay)
{
    atomic_store(&relay->stop, true);
    ring(relay);
    pthread_join(relay->thread, NULL);
    for (int i = 0; i < relay->n_directions; i++) {
        while (relay->directions[i].first) {
            chunk *p = relay->directions[i].first;

            relay->directions[i].first = p->next;
            free(p);
        }
        close(relay->directions[i].from);
    }
    close(relay->listener);
    close(relay->bell);
    free(relay);
}
