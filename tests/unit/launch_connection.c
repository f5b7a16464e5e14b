/* launch: messages between agents, received in any pieces, and invalid ones.   SPDX-License-Identifier: MIT */
#include "launch/message/connection.h"

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
    const char bytes[] = "\x0e\0\0\0{\"type\":\"one\"}\x0e\0\0\0{\"type\":\"two\"}";
    ends e = open_ends();
    json_t *m;
    int n = 0;

    (void)state;
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        give(&e, bytes + i, 1);
        while ((m = tutti__connection_take(&e.connection)) != NULL) {
            assert_true(tutti__message_is(m, n++ == 0 ? "one" : "two"));
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
        {"\x01\x00\x01\x00", 4},             /* a byte more than the limit */
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

static void fields_of_another_kind_are_the_other_value(void **state)
{
    json_t *m = json_pack("{s:s, s:i, s:f}", "type", "x", "n", 7, "f", 1.5);

    (void)state;
    assert_int_equal(tutti__message_number(m, "n", -1), 7);
    assert_int_equal(tutti__message_number(m, "type", -1), -1);
    assert_int_equal(tutti__message_number(m, "f", -1), -1);
    assert_int_equal(tutti__message_number(m, "none", -1), -1);
    assert_string_equal(tutti__message_text(m, "n"), "");
    assert_false(tutti__message_is(m, "y"));
    json_decref(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_whole_however_they_come),
        cmocka_unit_test(what_is_no_message_is_a_fault),
        cmocka_unit_test(a_peer_that_does_not_read_is_given_up),
        cmocka_unit_test(text_that_is_no_utf8_can_be_sent),
        cmocka_unit_test(fields_of_another_kind_are_the_other_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
