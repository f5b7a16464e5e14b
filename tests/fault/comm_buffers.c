/* comm: once a send or receive has returned, with any status, its buffer is no longer accessed and may be unmapped.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

enum { COUNT = 1 << 20, ROUNDS = 24, RANKS = 3 };

static uint32_t *map(void)
{
    void *p = mmap(NULL, COUNT * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static void unmap(uint32_t *p)
{
    munmap(p, COUNT * sizeof *p);
}

static bool is_value(const uint32_t *p, uint32_t value)
{
    for (size_t i = 0; i < COUNT; i++)
        if (p[i] != value)
            return false;
    return true;
}

static tutti_buf buffer(uint32_t *p)
{
    return TUTTI_BUF(p, COUNT, TUTTI_I32);
}

/* The group is aborted a little later in each run: before the message, while it is copied, and after it. */
static void pass_time(int round)
{
    double until = tutti__now_ms() + round * round * 0.02;

    while (tutti__now_ms() < until)
        ;
}

static int send_on(tutti_group *group)
{
    tutti_status status;

    for (uint32_t i = 0;; i++) {
        uint32_t *p = map();

        CHECK(p);
        for (size_t k = 0; k < COUNT; k++)
            p[k] = i;
        status = tutti_send(group, tutti_buf_const(buffer(p)), 1, 0, NULL);
        unmap(p);
        if (status != TUTTI_OK)
            break;
    }
    CHECK(status == TUTTI_ERR_ABORTED);
    return 0;
}

/* Receives two at a time: one is copied, one is pending. */
static int receive_on(tutti_group *group)
{
    tutti_status status = TUTTI_OK;

    for (uint32_t i = 0; status == TUTTI_OK; i += 2) {
        uint32_t *p[2] = {map(), map()};
        tutti_work *works[2] = {NULL, NULL};

        CHECK(p[0] && p[1]);
        for (int k = 0; k < 2; k++)
            CHECK(tutti_recv(group, buffer(p[k]), 0, 0, &works[k]) == TUTTI_OK);
        for (int k = 0; k < 2; k++) {
            status = tutti_work_wait(works[k]);
            CHECK(status != TUTTI_OK || is_value(p[k], i + (uint32_t)k));
            unmap(p[k]);
        }
    }
    CHECK(status == TUTTI_ERR_ABORTED);
    return 0;
}

static int until_the_end(tutti_group *group, void *arg)
{
    if (tutti_group_rank(group) == 0)
        return send_on(group);
    if (tutti_group_rank(group) == 1)
        return receive_on(group);
    pass_time(*(const int *)arg);
    tutti_group_abort(group, "enough");
    return 0;
}

static void run_to_the_end(const tutti_ranks_opts *opts)
{
    for (int round = 0; round < ROUNDS; round++)
        assert_int_equal(tutti_run_ranks(RANKS, until_the_end, &round, opts), 0);
}

static void of_threads(void **state)
{
    (void)state;
    run_to_the_end(&(tutti_ranks_opts){0});
    run_to_the_end(&(tutti_ranks_opts){.tuning.stage_all = true});
}

static void of_processes(void **state)
{
    (void)state;
    run_to_the_end(&(tutti_ranks_opts){.processes = true});
    run_to_the_end(&(tutti_ranks_opts){.processes = true, .tuning.stage_all = true});
    run_to_the_end(&(tutti_ranks_opts){.processes = true, .transport = TUTTI_TRANSPORT_TCP});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_threads),
        cmocka_unit_test(of_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
