/* comm: of many ranks on one host, which wait for each other by a tree, one is killed at a random moment: the others all name it.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { MANY = 40, ROUNDS = 8, COUNT = 20000, WITHIN_US = 30000 };

typedef struct many_round {
    int number, victim;
    uint32_t after_us;
} many_round;

static void arm(const many_round *k)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    const struct itimerspec at = {.it_value = {0, 1000 * (long)(1 + k->after_us)}};
    timer_t timer;

    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &at, NULL) != 0)
        abort();
}

static tutti_status one_call(tutti_group *group, uint32_t dice, float *p)
{
    static const size_t COUNTS[] = {1, 1000, COUNT};
    const tutti_buf buf = TUTTI_BUF(p, COUNTS[dice / 4 % 3], TUTTI_F32);

    switch (dice % 4) {
    case 0:
        return tutti_barrier(group, NULL);
    case 1:
        return tutti_broadcast(group, buf, (int)(dice / 12) % MANY, NULL);
    default:
        return tutti_all_reduce(group, buf, TUTTI_MAX, NULL);
    }
}

static int until_killed(tutti_group *group, void *arg)
{
    const many_round *k = arg;
    float *p = calloc(COUNT, sizeof *p);
    tutti_status status = tutti_barrier(group, NULL);
    char named[32];

    CHECK(p);
    if (tutti_group_rank(group) == k->victim)
        arm(k);
    for (uint32_t step = 0; status == TUTTI_OK; step++) {
        uint32_t out[4];

        tutti__philox((uint64_t)k->number, (tutti__philox_counter){{step, 0, 0, 1}}, out);
        status = one_call(group, out[0], p);
    }
    snprintf(named, sizeof named, "rank %d (", k->victim);
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), named) != NULL);
    CHECK(strstr(tutti_last_error(), "was lost") != NULL);
    free(p);
    return 0;
}

static void all_others_name_it(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        many_round k = {.number = i};
        int results[MANY];
        uint32_t out[4];

        tutti__philox(29, (tutti__philox_counter){{(uint32_t)i, 0, 0, 0}}, out);
        k.victim = (int)(out[0] % MANY);
        k.after_us = out[1] % WITHIN_US;
        (void)tutti_run_ranks(MANY, until_killed, &k,
                              &(tutti_ranks_opts){.processes = true,
                                                  .tuning.fan = i % 2 ? 3 : 0,
                                                  .results = results});
        for (int r = 0; r < MANY; r++) {
            if (results[r] != (r == k.victim ? -SIGKILL : 0))
                print_message("round %d, rank %d of which %d was killed after %u us: %d\n", i, r,
                              k.victim, k.after_us, results[r]);
            assert_int_equal(results[r], r == k.victim ? -SIGKILL : 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_others_name_it)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
