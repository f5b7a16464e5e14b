/* The cost of the job's authentication: connections to a store with the handshake, compared with connections and a byte
 * each way without it, in turn, over loopback.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/connector.h"
#include "../tests/harness/connect.h"
#include "comm/bootstrap/store/store.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 2000 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Accepts connections and echoes what they send. */
static void *echo_main(void *arg)
{
    int listener = *(int *)arg;

    for (int i = 0; i < ROUNDS; i++) {
        char byte;
        int fd;

        poll(&(struct pollfd){listener, POLLIN, 0}, 1, -1);
        fd = tutti__accept(listener, NULL);
        if (fd < 0 || tutti__receive_all(fd, &byte, 1, tutti__now_ms() + 1000) ||
            tutti__send_all(fd, &byte, 1, tutti__now_ms() + 1000))
            abort();
        close(fd);
    }
    return NULL;
}

static double plain_us(const tutti__address *address)
{
    uint64_t begin = tutti__now_ns();
    char byte = 'x';
    int fd = tutti_connect(address, 1000);

    if (fd < 0 || tutti__send_all(fd, &byte, 1, tutti__now_ms() + 1000) ||
        tutti__receive_all(fd, &byte, 1, tutti__now_ms() + 1000))
        abort();
    begin = tutti__now_ns() - begin;
    close(fd);
    return (double)begin * 1e-3;
}

static double proven_us(const tutti__address *address, const tutti__secret *secret)
{
    const tutti__connector_opts opts = {.secret = secret,
                                        .claim = tutti__store_claim(secret),
                                        .who = "the store",
                                        .deadline = tutti__now_ms() + 1000};
    uint64_t begin = tutti__now_ns();
    tutti__connector connector;

    tutti__connector_begin(&connector, address, &opts);
    (void)tutti__connector_wait(&connector, opts.deadline);
    if (connector.state != TUTTI__CONNECTOR_OPEN)
        abort();
    begin = tutti__now_ns() - begin;
    tutti__connector_close(&connector);
    return (double)begin * 1e-3;
}

int main(void)
{
    static double plain[ROUNDS], proven[ROUNDS];
    tutti__address echo, server;
    tutti__secret secret;
    tutti_store *store;
    pthread_t thread;
    int listener;

    setenv("TUTTI_SECRET", "0123456789abcdef0123456789abcdef", 1);
    TUTTI_MUST(tutti__secret_read(&secret));
    TUTTI_MUST(tutti_store_tcp_serve(&store, "127.0.0.1", 0));
    TUTTI_MUST(tutti__resolve(&server, "127.0.0.1", tutti_store_port(store)));
    TUTTI_MUST(tutti__resolve(&echo, "127.0.0.1", 0));
    TUTTI_MUST(tutti__listen(&echo, &listener));
    if (pthread_create(&thread, NULL, echo_main, &listener) != 0)
        abort();
    for (int i = 0; i < ROUNDS; i++) {
        plain[i] = plain_us(&echo);
        proven[i] = proven_us(&server, &secret);
    }
    pthread_join(thread, NULL);
    qsort(plain, ROUNDS, sizeof *plain, by_value);
    qsort(proven, ROUNDS, sizeof *proven, by_value);
    printf("# %d connections of each kind, in turn, over loopback\n", ROUNDS);
    printf("%-36s %10s %10s\n", "#", "median us", "p95 us");
    printf("%-36s %10.1f %10.1f\n", "connect, a byte each way", plain[ROUNDS / 2],
           plain[ROUNDS * 95 / 100]);
    printf("%-36s %10.1f %10.1f\n", "connect, handshake", proven[ROUNDS / 2],
           proven[ROUNDS * 95 / 100]);
    printf("%-36s %10.1f\n", "the handshake's share", proven[ROUNDS / 2] - plain[ROUNDS / 2]);
    tutti_store_free(store);
    close(listener);
    return 0;
}
