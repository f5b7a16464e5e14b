/* launch: messages between agents, received in any pieces, and invalid ones.   SPDX-License-Identifier: MIT */
#include "launch/host/roster_message.h"
#include "launch/message/connection.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct ends {
    tutti__connection connection;
    int other;
} ends;

static ends open_ends(void)
{
    int fds[2];
    ends e;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    tutti__connection_open(&e.connection, fds[0]);
    e.other = fds[1];
    return e;
}

static void close_ends(ends *e)
{
    tutti__connection_close(&e->connection);
    close(e->other);
}

static void give(ends *e, const void *bytes, size_t n)
{
    assert_int_equal(write(e->other, bytes, n), n);
    tutti__connection_read(&e->connection);
}

static void messages_are_whole_however_they_come(void **state)
{
    const char bytes[] = "\x0e\0\0\0{\"type\":\"end\"}\x0f\0\0\0{\"type\":\"over\"}";
    ends e = open_ends();
    json_t *m;
    int n = 0;

    (void)state;
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        give(&e, bytes + i, 1);
        while ((m = tutti__connection_take(&e.connection)) != NULL) {
            assert_int_equal(tutti__message_type_of(m),
                             n++ == 0 ? TUTTI__MESSAGE_END : TUTTI__MESSAGE_OVER);
            json_decref(m);
        }
        assert_null(e.connection.fault);
    }
    assert_int_equal(n, 2);
    give(&e, bytes, sizeof bytes - 1); /* both at once, and then the end */
    shutdown(e.other, SHUT_WR);
    tutti__connection_read(&e.connection);
    for (n = 0; (m = tutti__connection_take(&e.connection)) != NULL; n++)
        json_decref(m);
    assert_int_equal(n, 2);
    assert_non_null(e.connection.fault);
    close_ends(&e);
}

static void what_is_no_message_is_a_fault(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } CASES[] = {
        {"\xff\xff\xff\xff", 4},             /* 4 GiB */
        {"\x01\x00\x02\x00", 4},             /* a byte more than the limit */
        {"\0\0\0\0", 4},                     /* nothing */
        {"\x02\0\0\0[]", 6},                 /* JSON, but no object */
        {"\x03\0\0\0{\"a", 7},               /* half an object */
        {"\x06\0\0\0{\"a\":1", 10},          /* another half */
        {"\x0d\0\0\0{\"a\":1,\"a\":2}", 17}, /* a key twice */
        {"GET / HTTP/1.1\r\n\r\n", 18},
    };

    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        ends e = open_ends();

        give(&e, CASES[i].bytes, CASES[i].n);
        assert_null(tutti__connection_take(&e.connection));
        if (!e.connection.fault)
            fail_msg("case %zu is no fault", i);
        close_ends(&e);
    }
}

/* The peer does not read: the send buffer is bounded, and nothing blocks. */
static void a_peer_that_does_not_read_is_given_up(void **state)
{
    char *text = malloc(30001);
    ends e = open_ends();

    (void)state;
    memset(text, 'x', 30000);
    text[30000] = '\0';
    for (int i = 0; i < 1000 && !e.connection.fault; i++)
        tutti__connection_send(&e.connection, json_pack("{s:s}", "type", text));
    assert_non_null(e.connection.fault);
    assert_true(e.connection.n_out <= 1 << 20);
    free(text);
    close_ends(&e);
}

static void text_that_is_no_utf8_can_be_sent(void **state)
{
    json_t *s = tutti__message_string("caf\xe9 \xff");

    (void)state;
    assert_string_equal(json_string_value(s), "caf? ?");
    json_decref(s);
    s = tutti__message_string("caf\xc3\xa9");
    assert_string_equal(json_string_value(s), "caf\xc3\xa9");
    json_decref(s);
}

static json_t *sent(json_t *message)
{
    ends a = open_ends(), b = open_ends();
    char bytes[4096];
    json_t *received;
    ssize_t n;

    tutti__connection_send(&a.connection, message);
    n = read(a.other, bytes, sizeof bytes);
    assert_true(n > 0);
    give(&b, bytes, (size_t)n);
    received = tutti__connection_take(&b.connection);
    assert_non_null(received);
    close_ends(&a);
    close_ends(&b);
    return received;
}

static void what_is_packed_is_read(void **state)
{
    json_t *m = sent(tutti__message_pack_resumed(&(tutti__message_resumed){.round = 3,
                                                                           .worker = 1,
                                                                           .start = 2,
                                                                           .generation = UINT32_MAX,
                                                                           .rank = -1,
                                                                           .step = 1LL << 40}));
    tutti__message_resumed r = tutti__message_read_resumed(m);
    json_t *list = json_pack("[i, i]", 4, 7);
    tutti__message_said said;
    tutti__message_stop stop;

    (void)state;
    assert_int_equal(tutti__message_type_of(m), TUTTI__MESSAGE_RESUMED);
    assert_true(r.round == 3 && r.worker == 1 && r.start == 2 && r.generation == UINT32_MAX);
    assert_true(r.rank == -1 && r.step == 1LL << 40 && !r.invalid);
    assert_int_equal(tutti__message_read_worker(m).start, 2);
    json_decref(m);
    m = sent(tutti__message_pack_said(&(tutti__message_said){.lost = list, .build = "b"}));
    said = tutti__message_read_said(m);
    assert_int_equal(json_integer_value(json_array_get(said.lost, 1)), 7);
    assert_string_equal(said.build, "b");
    assert_string_equal(said.why, "");
    json_decref(m);
    m = sent(tutti__message_pack_stop(&(tutti__message_stop){.why = "caf\xe9", .failing = true}));
    stop = tutti__message_read_stop(m);
    assert_true(stop.failing);
    assert_string_equal(stop.why, "caf?");
    json_decref(m);
    m = sent(tutti__message_pack(TUTTI__MESSAGE_HERE));
    assert_int_equal(tutti__message_type_of(m), TUTTI__MESSAGE_HERE);
    json_decref(m);
}

/* As many nodes as a list may have, with addresses as long as they may be. */
static void the_longest_list_of_nodes_is_a_message(void **state)
{
    tutti__roster *r = calloc(1, sizeof *r);
    tutti__message_nodes m = {.term = INT64_MAX, .version = INT64_MAX, .me = INT_MAX};
    ends e = open_ends();
    char *text;

    (void)state;
    assert_non_null(r);
    for (r->n = 0; r->n < TUTTI__ROSTER_MAX; r->n++) {
        tutti__roster_node *node = &r->list[r->n];

        *node = (tutti__roster_node){.id = INT_MAX, .workers = 1 << 16, .port = 65535};
        memset(node->address, 'x', sizeof node->address - 1);
    }
    text = tutti__roster_text(r);
    m.list = text;
    tutti__connection_send(&e.connection, tutti__message_pack_nodes(&m));
    assert_null(e.connection.fault);
    free(text);
    free(r);
    close_ends(&e);
}

static void what_is_missing_or_invalid_is_another_value(void **state)
{
    static const struct {
        const char *text;
        int round, code;
        const char *why, *invalid;
    } CASES[] = {
        {"{\"round\": 2, \"code\": 7, \"permanent\": true, \"why\": \"x\"}", 2, 7, "x", NULL},
        {"{}", -1, 1, "", "round"}, /* required */
        {"{\"round\": 2}", 2, 1, "", NULL},
        {"{\"round\": -7, \"code\": 7}", -1, 7, "", "round"},
        {"{\"round\": 2, \"code\": 256}", 2, 1, "", "code"},
        {"{\"round\": 2, \"code\": 9223372036854775807}", 2, 1, "", "code"},
        {"{\"round\": 2, \"code\": \"7\", \"why\": 5}", 2, 1, "", "code"},
        {"{\"round\": 2.5, \"code\": 7, \"permanent\": 1}", -1, 7, "", "round"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *m = json_loads(CASES[i].text, 0, NULL);
        tutti__message_failed f = tutti__message_read_failed(m);

        assert_int_equal(f.round, CASES[i].round);
        assert_int_equal(f.code, CASES[i].code);
        assert_int_equal(f.permanent, i == 0);
        assert_string_equal(f.why, CASES[i].why);
        assert_string_equal(f.invalid ? f.invalid : "", CASES[i].invalid ? CASES[i].invalid : "");
        assert_int_equal(tutti__message_type_of(m), TUTTI__MESSAGE_UNKNOWN);
        json_decref(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_whole_however_they_come),
        cmocka_unit_test(what_is_no_message_is_a_fault),
        cmocka_unit_test(a_peer_that_does_not_read_is_given_up),
        cmocka_unit_test(text_that_is_no_utf8_can_be_sent),
        cmocka_unit_test(what_is_packed_is_read),
        cmocka_unit_test(the_longest_list_of_nodes_is_a_message),
        cmocka_unit_test(what_is_missing_or_invalid_is_another_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
