/* wire.c -- the links between network namespaces, for bench/simulated.sh: each namespace's interface is joined to all others by a link
 * of this rate in each direction, and this delay.   SPDX-License-Identifier: MIT
 *
 *     wire RATE_MBIT DELAY_US PID...     10.88.0.(i+1) is the namespace of the i-th process, whose interface is called eth0
 *
 * A packet leaves when those of its end before it have left, is under way for the delay, and comes in when those that came before it have come in. Ends with
 * its standard input. Needs root and /dev/net/tun; that a kernel has no netem does not matter. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 254, PACKET = 9100, HEAP = 1 << 18 };

typedef struct packet {
    int64_t at; /* when it reaches the link to its end, then when it has passed it; ns */
    uint64_t order;
    int to, bytes, has_passed;
    char data[];
} packet;

static packet *heap[HEAP];
static size_t n_heap;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int before(const packet *a, const packet *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(packet *p)
{
    size_t i = n_heap++;

    while (i > 0 && before(p, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = p;
}

static packet *pop(void)
{
    packet *first = heap[0], *last = heap[--n_heap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < n_heap) {
        child += child + 1 < n_heap && before(heap[child + 1], heap[child]);
        if (!before(heap[child], last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

/* The interface of that process's namespace. */
static int open_end(const char *pid)
{
    struct ifreq ask = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "eth0"};
    char path[64];
    int namespace, fd;

    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET) != 0)
        return -1;
    close(namespace);
    fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &ask) == 0)
        return fd;
    return -1;
}

typedef struct wire {
    int n, fd[MOST];
    int64_t out_free[MOST], in_free[MOST], delay;
    double ns_a_byte;
    uint64_t order;
} wire;

/* One packet from an end; 0: there is none. */
static int take(wire *w, int from)
{
    static char buffer[PACKET];
    const int64_t now = now_ns();
    int bytes = (int)read(w->fd[from], buffer, sizeof buffer), to;
    int64_t passes = (int64_t)(w->ns_a_byte * bytes);
    packet *p;

    if (bytes <= 0)
        return 0;
    to = bytes >= 20 && (buffer[0] & 0xf0) == 0x40 ? (unsigned char)buffer[19] - 1 : -1;
    if (to < 0 || to >= w->n || n_heap == HEAP)
        return 1; /* broadcasts, IPv6 */
    p = malloc(sizeof *p + (size_t)bytes);
    if (!p)
        return 1;
    w->out_free[from] = (w->out_free[from] > now ? w->out_free[from] : now) + passes;
    p->at = w->out_free[from] + w->delay;
    p->has_passed = 0;
    p->order = w->order++;
    p->to = to;
    p->bytes = bytes;
    memcpy(p->data, buffer, (size_t)bytes);
    push(p);
    return 1;
}

/* Links take packets in the order in which they come, not in which they were sent. */
static void come(wire *w, packet *p)
{
    const int64_t free_at = w->in_free[p->to] + (int64_t)(w->ns_a_byte * p->bytes);

    p->at = p->at > free_at ? p->at : free_at;
    w->in_free[p->to] = p->at;
    p->has_passed = 1;
    push(p);
}

static void run(wire *w)
{
    struct pollfd polls[MOST + 1] = {{.fd = 0, .events = POLLIN}};

    for (int i = 0; i < w->n; i++)
        polls[i + 1] = (struct pollfd){.fd = w->fd[i], .events = POLLIN};
    for (;;) {
        const int64_t left = n_heap > 0 ? heap[0]->at - now_ns() : 1000000000;
        const struct timespec wait = {left > 0 ? left / 1000000000 : 0,
                                      left > 0 ? left % 1000000000 : 0};

        if (ppoll(polls, (nfds_t)w->n + 1, &wait, NULL) < 0 && errno != EINTR)
            return;
        if (polls[0].revents)
            return;
        for (int i = 0; i < w->n; i++)
            for (int k = 0; k < 16 && (polls[i + 1].revents & POLLIN) && take(w, i); k++)
                ;
        while (n_heap > 0 && heap[0]->at <= now_ns()) {
            packet *p = pop();

            if (!p->has_passed) {
                come(w, p);
                continue;
            }
            if (write(w->fd[p->to], p->data, (size_t)p->bytes) < 0 && errno != EAGAIN)
                perror("wire");
            free(p);
        }
    }
}

int main(int argc, char **argv)
{
    static wire w;

    if (argc < 4 || argc - 3 > MOST || atof(argv[1]) <= 0) {
        fprintf(stderr, "usage: wire RATE_MBIT DELAY_US PID...\n");
        return 2;
    }
    w.ns_a_byte = 8000 / atof(argv[1]);
    w.delay = (int64_t)(1000 * atof(argv[2]));
    for (int i = 3; i < argc; i++) {
        w.fd[w.n] = open_end(argv[i]);
        if (w.fd[w.n++] < 0) {
            perror("wire");
            return 77;
        }
    }
    printf("ready\n");
    fflush(stdout);
    run(&w);
    return 0;
}
