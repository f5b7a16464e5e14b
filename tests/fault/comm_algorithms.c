/* comm: whatever the algorithm over TCP, a call that differs is a mismatch on every rank, a rank that does not come is missing by its own name, and
 * one that is killed in the middle is named by all.   SPDX-License-Identifier: MIT
 * timeout: 240 */
#include "comm/core/failure.h"
#include "harness/algorithms.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 7, ODD = 3, COUNT = 3000, LIMIT_MS = 2400 };

typedef struct algorithm_case {
    const tutti__coll_algorithm *algorithm;
    bool other_op; /* else another count */
} algorithm_case;

static test_call call_of(const tutti__coll_algorithm *algorithm, size_t count)
{
    return (test_call){.op = algorithm->op,
                       .dtype = TUTTI_F32,
                       .root = 1,
                       .count = count,
                       .src = calloc(RANKS * COUNT + RANKS, 4),
                       .dst = calloc(RANKS * COUNT + RANKS, 4)};
}

static void free_call(test_call *c)
{
    free(c->src);
    free(c->dst);
}

static void run_on_tcp(tutti_rank_body *body, algorithm_case *c, tutti_ranks_opts opts)
{
    opts.processes = true;
    opts.transport = TUTTI_TRANSPORT_TCP;
    opts.tuning.chunk_bytes = 2048;
    if (tutti_run_ranks(RANKS, body, c, &opts) != 0)
        fail_msg("%s:%s%s", tutti__op_name(c->algorithm->op), c->algorithm->name,
                 c->other_op ? ", another operation" : "");
}

/* Calls until one fails: a rank that needs nothing from the odd one may complete the call. */
static tutti_status call_until_failure(tutti_group *group, const test_call *c)
{
    tutti_status status = test_collective(group, c);

    for (int i = 0; status == TUTTI_OK && i < 3; i++)
        status = tutti_barrier(group, NULL);
    return status;
}

static int call_differs(tutti_group *group, void *arg)
{
    const algorithm_case *ac = arg;
    bool odd = tutti_group_rank(group) == ODD, barrier = ac->algorithm->op == TUTTI__OP_BARRIER;
    test_call c = call_of(ac->algorithm, odd && !ac->other_op ? COUNT - 1 : COUNT);

    CHECK(test_force(group, ac->algorithm) == TUTTI_OK);
    CHECK(test_force(group, tutti__coll_find(TUTTI__OP_BARRIER, "dissemination")) == TUTTI_OK);
    if (odd && (ac->other_op || barrier))
        c.op = barrier ? TUTTI__OP_ALL_REDUCE : TUTTI__OP_BARRIER;
    CHECK(call_until_failure(group, &c) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "rank 3") != NULL);
    free_call(&c);
    return 0;
}

/* For every algorithm but `direct`, which other tests know. */
static void for_all(tutti_rank_body *body, bool other_op, const tutti_ranks_opts *opts)
{
    for (size_t a = 0; a < tutti__coll_n_algorithms; a++) {
        algorithm_case ac = {tutti__coll_algorithms[a], other_op};

        if (!tutti__coll_is_direct(ac.algorithm))
            run_on_tcp(body, &ac, *opts);
    }
}

static void calls_that_differ(void **state)
{
    (void)state;
    for_all(call_differs, false, &(tutti_ranks_opts){0});
    for_all(call_differs, true, &(tutti_ranks_opts){0});
}

static int one_does_not_come(tutti_group *group, void *arg)
{
    const algorithm_case *ac = arg;
    test_call c = call_of(ac->algorithm, COUNT);
    tutti_status status;

    CHECK(test_force(group, ac->algorithm) == TUTTI_OK);
    CHECK(test_force(group, tutti__coll_find(TUTTI__OP_BARRIER, "dissemination")) == TUTTI_OK);
    while (tutti_group_rank(group) == ODD && !tutti__comm_failed(&group->comm))
        usleep(1000);
    status =
        tutti_group_rank(group) == ODD ? tutti_barrier(group, NULL) : call_until_failure(group, &c);
    CHECK(status == TUTTI_ERR_TIMEOUT);
    /* alone, unless a rank that has completed the call misses all of those that have not in its next one */
    CHECK(strstr(tutti_last_error(), "rank 3 (") != NULL);
    CHECK(tutti_group_culprit(group) == ODD || strstr(tutti_last_error(), "barrier #2 timed out"));
    free_call(&c);
    return 0;
}

/* Of each shape one: a rank that only waits for others says so a sixteenth of the limit later, which must be more than a loaded machine is late. */
static void missing_ranks(void **state)
{
    static const struct {
        tutti__op_kind op;
        const char *name;
    } SOME[] = {{TUTTI__OP_ALL_REDUCE, "recursive_doubling"},
                {TUTTI__OP_ALL_REDUCE, "ring"},
                {TUTTI__OP_ALL_REDUCE, "tree"},
                {TUTTI__OP_REDUCE, "halving_gather"},
                {TUTTI__OP_BROADCAST, "chain"},
                {TUTTI__OP_ALL_GATHER, "bruck"},
                {TUTTI__OP_ALL_TO_ALL, "pairwise"},
                {TUTTI__OP_BARRIER, "dissemination"}};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(SOME); i++) {
        algorithm_case ac = {tutti__coll_find(SOME[i].op, SOME[i].name), false};

        run_on_tcp(one_does_not_come, &ac, (tutti_ranks_opts){.timeout_ms = LIMIT_MS});
    }
}

static int killed_in_the_middle(tutti_group *group, void *arg)
{
    const algorithm_case *ac = arg;
    test_call c = call_of(ac->algorithm, COUNT);
    tutti_status status;

    CHECK(test_force(group, ac->algorithm) == TUTTI_OK);
    CHECK(test_force(group, tutti__coll_find(TUTTI__OP_BARRIER, "dissemination")) == TUTTI_OK);
    status = tutti_barrier(group, NULL);  /* none is still joining when it has ended on a rank */
    if (tutti_group_rank(group) == ODD) { /* SIGALRM ends the process */
        signal(SIGALRM, SIG_DFL);
        CHECK(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 3000}, NULL) == 0);
    }
    while (status == TUTTI_OK)
        status = test_collective(group, &c);
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(tutti_group_culprit(group) == ODD);
    CHECK(strstr(tutti_last_error(), "rank 3 (") != NULL);
    free_call(&c);
    return 0;
}

static void killed_ranks(void **state)
{
    (void)state;
    for (size_t a = 0; a < tutti__coll_n_algorithms; a++) {
        algorithm_case ac = {tutti__coll_algorithms[a], false};
        int results[RANKS];

        (void)tutti_run_ranks(RANKS, killed_in_the_middle, &ac,
                              &(tutti_ranks_opts){.processes = true,
                                                  .transport = TUTTI_TRANSPORT_TCP,
                                                  .tuning.chunk_bytes = 2048,
                                                  .results = results});
        for (int r = 0; r < RANKS; r++)
            if (results[r] != (r == ODD ? -SIGALRM : 0))
                fail_msg("%s:%s: rank %d ended with %d", tutti__op_name(ac.algorithm->op),
                         ac.algorithm->name, r, results[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_that_differ),
                                       cmocka_unit_test(missing_ranks),
                                       cmocka_unit_test(killed_ranks)};

    return cmocka_run_group_tests_name("comm/algorithms fail", tests, NULL, NULL);
}
