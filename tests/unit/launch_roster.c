/* launch: two sides of a partitioned elastic round never both continue.   SPDX-License-Identifier: MIT */
#include "launch/decide/roster.h"
#include "launch/host/roster_message.h"
#include "launch/message/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Nodes 1 to n, in order. */
static void make(tutti__roster *r, int n)
{
    memset(r, 0, sizeof *r);
    r->term = r->version = 1;
    r->n = n;
    for (int i = 0; i < n; i++) {
        r->list[i].id = i + 1;
        r->list[i].port = 1000 + i;
        snprintf(r->list[i].address, sizeof r->list[i].address, "10.0.0.%d", i + 1);
    }
}

static bool is_in(void *set, int id)
{
    return (*(const unsigned *)set >> (id - 1) & 1) != 0;
}

static bool goes_on(tutti__roster *r, unsigned side, unsigned known_dead)
{
    for (int i = 0; i < r->n; i++)
        r->list[i].dead = (known_dead >> i & 1) != 0;
    return tutti__roster_suffices(r, is_in, &side);
}

/* All partitions of up to six nodes into two sides, some of them dead, where each side knows only of some deaths. */
static void never_both(void **state)
{
    static tutti__roster r;

    (void)state;
    for (int n = 1; n <= 6; n++) {
        unsigned all = (1u << n) - 1;

        make(&r, n);
        for (unsigned dead = 0; dead <= all; dead++)
            for (unsigned one = 0; one <= all; one++) {
                unsigned other = all & ~dead & ~one;

                if ((one & dead) != 0 || one == 0 || other == 0)
                    continue;
                for (unsigned k = dead;; k = (k - 1) & dead) {
                    for (unsigned l = dead;; l = (l - 1) & dead) {
                        assert_false(goes_on(&r, one, k) && goes_on(&r, other, l));
                        if (l == 0)
                            break;
                    }
                    if (k == 0)
                        break;
                }
            }
    }
}

/* Without a partition the remaining nodes continue, even a single one. */
static void the_living_go_on(void **state)
{
    static tutti__roster r;

    (void)state;
    for (int n = 1; n <= 6; n++) {
        unsigned all = (1u << n) - 1;

        make(&r, n);
        for (unsigned living = 1; living <= all; living++) {
            assert_true(goes_on(&r, living, all & ~living));
            assert_true(tutti__roster_all_here(&r, is_in, &living));
        }
    }
    make(&r, 2); /* split in the middle: the side with the first */
    assert_true(goes_on(&r, 1, 0));
    assert_false(goes_on(&r, 2, 0));
    assert_false(tutti__roster_all_here(&r, is_in, &(unsigned){1}));
    make(&r, 3);
    assert_true(goes_on(&r, 6, 0));
    assert_false(goes_on(&r, 1, 0));
    r.n = 0; /* no list was ever told */
    assert_true(tutti__roster_suffices(&r, is_in, &(unsigned){0}));
}

static void written_and_read(void **state)
{
    static tutti__roster r, back;
    json_t *object;

    (void)state;
    make(&r, 3);
    r.term = 7;
    r.version = 4;
    object = tutti__roster_write(&r);
    assert_true(tutti__roster_read(&back, object));
    assert_int_equal(back.n, 3);
    assert_int_equal(back.list[2].port, 1002);
    assert_string_equal(back.list[1].address, "10.0.0.2");
    assert_int_equal(tutti__roster_index(&back, 3), 2);
    assert_int_equal(tutti__roster_index(&back, 4), -1);
    assert_false(tutti__roster_is_newer(&back, &r));
    back.version = 5;
    assert_true(tutti__roster_is_newer(&back, &r));
    back.term = 6;
    assert_false(tutti__roster_is_newer(&back, &r));
    json_object_set_new(object, "term", json_integer(0));
    assert_false(tutti__roster_read(&back, object));
    json_object_set_new(object, "term", json_integer(1));
    json_object_set_new(object, "list", json_string("1 10.0.0.1 65536 1;"));
    assert_false(tutti__roster_read(&back, object));
    json_object_set_new(object, "list", json_string("1 \033[2J 1 1;"));
    assert_false(tutti__roster_read(&back, object));
    json_object_set_new(object, "list", json_string("4294967297 10.0.0.1 1 1;"));
    assert_false(tutti__roster_read(&back, object));
    json_object_set_new(object, "list", json_string("1 10.0.0.1 1 1048576;"));
    assert_false(tutti__roster_read(&back, object));
    json_object_set_new(object, "list", json_string("1;"));
    assert_false(tutti__roster_read(&back, object));
    json_object_set_new(object, "list", json_string("1 10.0.0.1 1 1"));
    assert_false(tutti__roster_read(&back, object));
    json_object_set_new(object, "list", json_string("1 - 0 1;"));
    assert_true(tutti__roster_read(&back, object));
    assert_string_equal(back.list[0].address, "");
    json_decref(object);
    assert_false(tutti__roster_read(&back, NULL));
}

/* A list of a thousand nodes fits into a message, with the longest numeric addresses. */
static void a_thousand_nodes_fit_into_a_message(void **state)
{
    static tutti__roster r, back;
    json_t *object;
    char *text;

    (void)state;
    make(&r, 1000);
    for (int i = 0; i < r.n; i++)
        snprintf(r.list[i].address, sizeof r.list[i].address, "fd00:1234:5678:9abc:def0:%x", i);
    assert_true(tutti__roster_fits(&r));
    object = tutti__roster_write(&r);
    text = json_dumps(object, JSON_COMPACT);
    assert_in_range(strlen(text), 1, TUTTI__MESSAGE_BYTES - 1024);
    assert_true(tutti__roster_read(&back, object));
    assert_int_equal(back.n, 1000);
    free(text);
    json_decref(object);
    for (int i = 0; i < r.n; i++)
        memset(r.list[i].address, 'a', sizeof r.list[i].address - 1);
    assert_false(tutti__roster_fits(&r));
    r.n = 0; /* then there is none, which nodes are told */
    object = tutti__roster_write(&r);
    assert_true(tutti__roster_read(&back, object));
    assert_int_equal(back.n, 0);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_both),
        cmocka_unit_test(the_living_go_on),
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(a_thousand_nodes_fit_into_a_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
