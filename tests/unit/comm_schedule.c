/* comm: schedules over sockets, both ends in one thread: added messages are sent, and nothing else; over one connection and
 * several.   SPDX-License-Identifier: MIT */
#include "comm/transport/tcp/tcp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

enum { MANY_BYTES = 4 << 20, N = 6 }; /* from there on all connections are used */

typedef struct ends {
    tutti__comm comm[2];
    tutti__tcp *tcp[2];
    tutti__operation op[2];
} ends;

static const int BOTH[] = {0, 1};

static void open_ends(ends *e, int n_sockets)
{
    int sockets[2][8];

    memset(e, 0, sizeof *e);
    for (int i = 0; i < n_sockets; i++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        for (int r = 0; r < 2; r++) {
            sockets[r][2 * i + r] = -1;
            sockets[r][2 * i + 1 - r] = pair[r];
        }
    }
    for (int r = 0; r < 2; r++) {
        e->comm[r] = (tutti__comm){.rank = r, .size = 2, .local_size = 1, .timeout_ms = 10000};
        assert_int_equal(tutti__comm_init(&e->comm[r]), TUTTI_OK);
        assert_int_equal(tutti__tcp_open(&e->tcp[r], &e->comm[r], NULL, n_sockets), TUTTI_OK);
        tutti__tcp_give_sockets(e->tcp[r], sockets[r]);
        e->op[r] = (tutti__operation){.signature = {.op = TUTTI__OP_BROADCAST, .count = 1},
                                      .deadline = tutti__now_ms() + 10000};
    }
}

static void close_ends(ends *e)
{
    for (int r = 0; r < 2; r++) {
        tutti__tcp_free(e->tcp[r]);
        tutti__comm_destroy(&e->comm[r]);
    }
}

static void start(ends *e, bool first, size_t bytes)
{
    for (int r = 0; r < 2; r++)
        assert_int_equal(tutti__tcp_start(e->tcp[r], &(tutti__schedule){.op = &e->op[r],
                                                                        .first = first,
                                                                        .bytes = bytes,
                                                                        .ranks = BOTH,
                                                                        .n_ranks = 2,
                                                                        .n_messages = N}),
                         TUTTI_OK);
}

/* Messages of these sizes, one at a time; the receiver expects all of them from the beginning. */
static void one_by_one(int n_sockets, bool first)
{
    static const size_t sizes[N] = {13000, 0, 1, 5000, 0, 40000};
    static char out[N][40000], in[N][40000];
    ends e;

    open_ends(&e, n_sockets);
    memset(in, 0, sizeof in);
    for (size_t i = 0; i < sizeof out; i++)
        ((char *)out)[i] = (char)(i * 31 + i / 257);
    start(&e, first, MANY_BYTES);
    for (int k = 0; k < N; k++)
        tutti__tcp_recv(e.tcp[1], 0, in[k], sizes[k]);
    for (size_t k = 0; k < N; k++) {
        tutti__tcp_send(e.tcp[0], 1, out[k], sizes[k]);
        assert_int_equal(tutti__tcp_push(e.tcp[0]), TUTTI_OK);
        while (tutti__tcp_arrived(e.tcp[1], 0) < k + 1)
            assert_int_equal(tutti__tcp_wait(e.tcp[1]), TUTTI_OK);
        assert_memory_equal(in[k], out[k], sizes[k]);
        /* what is empty may be there already */
        assert_true(tutti__tcp_arrived(e.tcp[1], -1) <= k + 2);
        assert_int_equal(tutti__tcp_arrived(e.tcp[0], -1), 0);
    }
    /* its signature, if that was asked for */
    assert_int_equal(tutti__tcp_push(e.tcp[1]), TUTTI_OK);
    assert_int_equal(tutti__tcp_finish(e.tcp[0]), TUTTI_OK);
    assert_int_equal(tutti__tcp_finish(e.tcp[1]), TUTTI_OK);
    close_ends(&e);
}

static void messages_move_when_added(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        one_by_one(n, true);
        one_by_one(n, false);
    }
}

/* A message that arrives before it is expected waits in the socket, and the next schedule begins after it. */
static void schedules_follow_each_other(void **state)
{
    int out[3] = {1, 2, 3}, in[3] = {0};
    ends e;

    (void)state;
    open_ends(&e, 1);
    for (int round = 0; round < 3; round++) {
        start(&e, round == 0, sizeof out);
        tutti__tcp_send(e.tcp[0], 1, &out[round], sizeof *out);
        assert_int_equal(tutti__tcp_push(e.tcp[0]), TUTTI_OK);
        tutti__tcp_recv(e.tcp[1], 0, &in[round], sizeof *in);
        assert_int_equal(tutti__tcp_finish(e.tcp[1]), TUTTI_OK);
        assert_int_equal(tutti__tcp_finish(e.tcp[0]), TUTTI_OK);
    }
    assert_memory_equal(in, out, sizeof out);
    close_ends(&e);
}

static void signatures_are_compared_first(void **state)
{
    int out = 7, in = 0;
    ends e;

    (void)state;
    open_ends(&e, 1);
    e.op[1].signature.count = 2;
    start(&e, true, sizeof out);
    tutti__tcp_send(e.tcp[0], 1, &out, sizeof out);
    assert_int_equal(tutti__tcp_push(e.tcp[0]), TUTTI_OK);
    tutti__tcp_recv(e.tcp[1], 0, &in, sizeof in);
    assert_int_equal(tutti__tcp_wait(e.tcp[1]), TUTTI_ERR_MISMATCH);
    assert_true(tutti__comm_failed(&e.comm[1]));
    close_ends(&e);
}

static void who_sends_nothing_is_missing_at_the_deadline(void **state)
{
    int in;
    ends e;

    (void)state;
    open_ends(&e, 1);
    e.op[1].deadline = tutti__now_ms() + 20;
    start(&e, false, sizeof in);
    tutti__tcp_recv(e.tcp[1], 0, &in, sizeof in);
    assert_int_equal(tutti__tcp_finish(e.tcp[1]), TUTTI_ERR_TIMEOUT);
    assert_int_equal(e.comm[1].cause.culprit, 0);
    close_ends(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_move_when_added),
        cmocka_unit_test(schedules_follow_each_other),
        cmocka_unit_test(signatures_are_compared_first),
        cmocka_unit_test(who_sends_nothing_is_missing_at_the_deadline),
    };

    return cmocka_run_group_tests_name("comm/schedule", tests, NULL, NULL);
}
