/* comm: one of many ranks killed while they make a group: all others name it (comm_kills_setup_all.c: 100 times), also if another has
 * its port by then; one that cannot take part is named at once, and to those that come late.
 * SPDX-License-Identifier: MIT
 * timeout: 180 */
#include "comm_kills_setup.h"

static void of_33(void **state)
{
    (void)state;
    setup_kills(33, 8, SETUP_SHARED, 29);
}

static void of_20_over_tcp(void **state)
{
    (void)state;
    setup_kills(20, 6, SETUP_TCP, 29);
}

static void of_17_with_the_store_of_one(void **state)
{
    (void)state;
    setup_kills(17, 8, SETUP_HOSTED, 29);
}

/* It has died before it called anybody: the lower ranks ask who is at its address, the higher ones call it, one of them itself. */
static void whose_port_another_has(void **state)
{
    char folder[] = "/tmp/tutti-kills-XXXXXX";
    setup_round *k = setup_round_new(folder);

    (void)state;
    *k = (setup_round){.size = 4, .victim = 1, .taker = 3, .kind = SETUP_TCP};
    assert_true(setup_run(k, folder));
    assert_int_equal(atomic_load(&k->n_named), 3);
    setup_round_free(k, folder);
}

enum { UNFIT = 1, SLOW = 2, SLOW_MS = 1200 };

/* Ranks are still waiting for this one's address when it gives up. */
static int unfit_body(tutti_group *world, void *arg)
{
    const int rank = tutti_group_rank(world);
    tutti_group_opts opts = {
        .rank = rank, .world_size = 4, .name = "unfit", .timeout_ms = SETUP_TIMEOUT_MS};
    double began = tutti__now_ms();
    tutti_group *group;
    tutti_status status;

    if (rank == UNFIT)
        setenv("TUTTI_SOCKETS_PER_PAIR", "none", 1);
    CHECK(setup_store(world, arg, &opts.store) == TUTTI_OK);
    if (rank == SLOW)
        poll(NULL, 0, SLOW_MS);
    status = tutti_group_init(&group, &opts);
    CHECK(status != TUTTI_OK && !group);
    CHECK(strstr(tutti_last_error(), "TUTTI_SOCKETS_PER_PAIR"));
    CHECK(rank == UNFIT || strstr(tutti_last_error(), "rank 1 ("));
    CHECK(tutti__now_ms() - began < SETUP_TIMEOUT_MS / 2);
    /* kept, as a program may: rank 0 does not wait for its end */
    CHECK(tutti_meet(world, "all know it") == TUTTI_OK);
    tutti_store_free(opts.store);
    return 0;
}

static void who_cannot_take_part(void **state)
{
    setup_round *k =
        mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int results[4];

    (void)state;
    assert_true(k != MAP_FAILED);
    k->kind = SETUP_HOSTED;
    (void)tutti_run_ranks(
        4, unfit_body, k,
        &(tutti_ranks_opts){.processes = true, .timeout_ms = 60000, .results = results});
    for (int r = 0; r < 4; r++)
        assert_int_equal(results[r], 0);
    munmap(k, sizeof *k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_33), cmocka_unit_test(of_20_over_tcp),
                                       cmocka_unit_test(of_17_with_the_store_of_one),
                                       cmocka_unit_test(whose_port_another_has),
                                       cmocka_unit_test(who_cannot_take_part)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
