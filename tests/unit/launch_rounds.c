/* launch: the lists of nodes of a coordinator that succeeds another, and what it does when nodes are lost. Each was a broken rule in a
 * history of tutti simulate --histories (docs/LOG.md).   SPDX-License-Identifier: MIT */
#include "launch/decide/rounds.h"
#include "launch/decide/succession.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 6 };

/* A job whose coordinator was lost: nodes 1, ... are in its list; node 1, or `local`, coordinates now. */
typedef struct job {
    tutti__rounds r;
    tutti__roster list;
    tutti__round_node node[NODES];
    uint64_t now;
    char did[1024]; /* "list 2: 3 in term 1.4,rank 0 of 2: 1," */
} job;

static int id_of(const job *j, const tutti__round_node *n)
{
    return (int)(n - j->node);
}

static void act(void *context, const tutti__round_action *a)
{
    job *j = context;
    const size_t n = strlen(j->did);

    if (a->act == TUTTI__ROUND_LIST)
        snprintf(j->did + n, sizeof j->did - n, "list %d: %d in term %d.%d,", id_of(j, a->node),
                 j->r.roster.n, (int)j->r.roster.term, (int)j->r.roster.version);
    if (a->act == TUTTI__ROUND_BEGIN)
        snprintf(j->did + n, sizeof j->did - n, "begin %d,", id_of(j, a->node));
    if (a->act == TUTTI__ROUND_WORKER && a->worker->act == TUTTI__ACT_GENERATION)
        snprintf(j->did + n, sizeof j->did - n, "rank %d of %d: %d,", a->worker->rank,
                 a->worker->size, id_of(j, a->node));
}

static void did(job *j, const char *expected)
{
    assert_string_equal(j->did, expected);
    *j->did = '\0';
}

static void tick(job *j)
{
    tutti__rounds_tick(&j->r, j->now);
}

/* A node comes with its worker, which has a state and waits, and with a list. */
static void come(job *j, int id, const tutti__roster *list)
{
    tutti__round_node *n = &j->node[id];
    tutti__generations *g;
    tutti__worker_message ready = {.protocol = TUTTI__AGENT_PROTOCOL,
                                   .kind = TUTTI__WORKER_READY,
                                   .generation = 1,
                                   .shards = 8,
                                   .step = 5,
                                   .build = "one"};
    tutti__join join = {.local = id == j->list.list[0].id,
                        .workers = 1,
                        .wanted_rank = -1,
                        .listens = 100 + id,
                        .rounds = 1,
                        .n_nodes = j->list.n,
                        .running = true,
                        .group_rank = id - 1,
                        .first_rank = id - 1,
                        .id = id,
                        .is_of_this_job = true,
                        .roster = list};

    memset(n, 0, sizeof *n);
    tutti__rounds_connected(&j->r, j->now, n);
    assert_true(tutti__rounds_joined(&j->r, j->now, n, &join));
    g = tutti__rounds_workers(&j->r, j->now, n, 0);
    assert_non_null(g);
    tutti__generations_resumed(g, j->now, (tutti__worker_id){id, 0, 0}, 1, id - 1, 5);
    tutti__generations_said(g, j->now, (tutti__worker_id){id, 0, 0}, &ready);
    tutti__rounds_here(&j->r, j->now, n);
    tick(j);
}

static void begin(job *j, int n)
{
    memset(j, 0, sizeof *j);
    j->now = 1000;
    j->list = (tutti__roster){.term = 1, .version = 3, .n = n};
    for (int i = 0; i < n; i++)
        j->list.list[i] = (tutti__roster_node){.id = i + 1, .workers = 1, .port = 101 + i};
    tutti__rounds_init(&j->r, j->now,
                       &(tutti__rounds_opts){.min = 1,
                                             .max = NODES,
                                             .native = true,
                                             .keep_alive_s = 0.1,
                                             .roster = &j->list,
                                             .act = act,
                                             .context = j});
}

static void acked(job *j, int id)
{
    tutti__rounds_acked(&j->node[id], j->r.roster.version);
    tick(j);
}

/* All n nodes come, and have the first list of this coordinator. */
static void begin_complete(job *j, int n)
{
    begin(j, n);
    for (int id = 1; id <= n; id++)
        come(j, id, &j->list);
    for (int id = n; id >= 1; id--)
        acked(j, id);
    assert_false(j->r.paused);
    assert_int_equal(j->r.confirmed.term, 2);
    assert_int_equal(j->r.confirmed.version, j->r.roster.version);
    *j->did = '\0';
}

static void silent(job *j, int id)
{
    tutti__rounds_lost(&j->r, j->now, &j->node[id], false, "it was silent");
    tick(j);
}

/* Seed 1095597: the loss of a node, known to be dead, let the others continue, and a generation began with its workers. */
static void nothing_begins_with_the_workers_of_a_lost_node(void **state)
{
    job j;

    (void)state;
    begin(&j, 4);
    for (int id = 1; id <= 3; id++)
        come(&j, id, &j.list);
    assert_true(j.r.paused); /* for node 4, until `until` */
    j.now = j.r.until;
    tutti__rounds_lost(&j.r, j.now, &j.node[3], true, "the connection was lost");
    tick(&j);
    did(&j, "list 1: 4 in term 2.0,rank 0 of 2: 1,rank 1 of 2: 2,list 2: 2 in term 2.1,");
    tutti__rounds_free(&j.r);
}

/* Seed 1087381: with an excluded node, which is dead, the others were enough; without it they went on all the same. */
static void too_few_pause_when_a_node_is_excluded(void **state)
{
    job j;

    (void)state;
    begin_complete(&j, 4);
    silent(&j, 2);
    silent(&j, 3); /* nodes 1 and 4 are half of the confirmed list, with its first */
    assert_false(j.r.paused);
    *j.did = '\0';
    j.node[4].excluded = true; /* node 1 is one of three */
    tick(&j);
    assert_true(j.r.paused);
    did(&j, "");
    tutti__rounds_free(&j.r);
}

/* Seed 1795920177: an excluded node was cut off before it was told, and continued with those that were silent. */
static void an_excluded_node_is_dead_when_it_has_ended(void **state)
{
    job j;

    (void)state;
    begin_complete(&j, 5);
    silent(&j, 2);
    silent(&j, 3);
    j.node[5].excluded = true;
    tick(&j);
    assert_true(j.r.paused); /* 2 of 5 */
    tutti__rounds_lost(&j.r, j.now, &j.node[5], true, "the connection was closed");
    tick(&j);
    assert_false(j.r.paused); /* 2 of 4, with the first */
    tutti__rounds_free(&j.r);
}

/* Seed 1798021658: where too few waited, the last worker failed, and another round began beside that of the others. */
static void too_few_do_not_begin_again(void **state)
{
    job j;

    (void)state;
    begin_complete(&j, 3);
    j.r.opts.max_restarts = 3;
    silent(&j, 2);
    silent(&j, 3);
    assert_true(j.r.paused);
    tutti__rounds_failed(&j.r, j.now, &j.node[1], 0, 1, false, "a worker failed");
    tutti__rounds_over(&j.r, j.now, &j.node[1], 0, 0);
    tick(&j);
    assert_int_equal(j.r.state, TUTTI__ROUNDS_ENDED);
    assert_int_equal(j.r.code, 1);
    tutti__rounds_free(&j.r);
}

/* Seed 1121526: a node that was lost before it had the newest list, and came back, was taken for one that had it. */
static void a_node_that_comes_back_lacks_the_list_until_it_has_it(void **state)
{
    tutti__roster old;
    int64_t before;
    job j;

    (void)state;
    begin_complete(&j, 3);
    tutti__roster_copy(&old, &j.r.roster);
    before = old.version;
    silent(&j, 3);
    did(&j, "list 2: 2 in term 2.2,");
    silent(&j, 2);
    assert_true(j.r.paused);
    come(&j, 2, &old);
    assert_false(j.r.paused); /* 2 of the 3 that the confirmed list has */
    assert_int_equal(j.r.confirmed.version, before);
    silent(&j, 2); /* again without it: it may follow the old list with node 3 */
    assert_true(j.r.paused);
    tutti__rounds_free(&j.r);
}

/* Seed 1158072: the coordinator's node had a list that no other had, and by it continued alone when it had given up its role. */
static void the_coordinators_node_gets_a_list_last(void **state)
{
    job j;

    (void)state;
    begin_complete(&j, 3);
    silent(&j, 3);
    did(&j, "list 2: 2 in term 2.2,");
    acked(&j, 2);
    did(&j, "list 1: 2 in term 2.2,");
    tutti__rounds_free(&j.r);
}

/* Seed 22922: a coordinator gave up its role before its list was known to the others, and an earlier one, of the term before, took its node back. */
static void the_coordinators_node_knows_its_term_at_once(void **state)
{
    job j;

    (void)state;
    begin(&j, 3);
    come(&j, 1, &j.list);
    come(&j, 2, &j.list);
    did(&j, "");
    j.now = j.r.until;
    tick(&j);
    did(&j, "list 1: 3 in term 2.0,rank 0 of 2: 1,rank 1 of 2: 2,list 2: 2 in term 2.1,");
    tutti__rounds_free(&j.r);
}

/* Seed 1060123: of two coordinators of one term, the second sent lists that were older than what a node had from the first. */
static void a_list_is_newer_than_what_nodes_came_with(void **state)
{
    tutti__roster theirs;
    job j;

    (void)state;
    begin_complete(&j, 3);
    silent(&j, 3);
    acked(&j, 2);
    acked(&j, 1);
    tutti__roster_copy(&theirs, &j.r.roster);
    theirs.version += 7;
    come(&j, 3, &theirs);
    assert_true(j.r.roster.version > theirs.version);
    tutti__rounds_free(&j.r);
}

/* Its workers end, and then it is told to end. */
static void end_and_leave(job *j, int id)
{
    tutti__generations *g = tutti__rounds_workers(&j->r, j->now, &j->node[id], 0);

    assert_non_null(g);
    tutti__generations_ended(g, j->now, (tutti__worker_id){id, 0, 0}, 0, 0);
    tutti__rounds_over(&j->r, j->now, &j->node[id], 0, 0);
    tutti__rounds_leaves(&j->r, j->now, &j->node[id], false, 143, "SIGTERM");
    tick(j);
}

/* Seed 85202850: a node that was told to end after its workers had ended was in the next round, whose workers waited for its. */
static void a_node_that_leaves_after_its_workers_is_in_no_other_round(void **state)
{
    job j;

    (void)state;
    begin_complete(&j, 3);
    j.r.opts.max_restarts = 3;
    end_and_leave(&j, 2);
    assert_false(j.r.retired);
    end_and_leave(&j, 1);
    assert_true(j.r.retired); /* it is the coordinator's: another succeeds it */
    *j.did = '\0';
    tutti__rounds_failed(&j.r, j.now, &j.node[3], 0, 1, false, "a worker failed");
    tutti__rounds_over(&j.r, j.now, &j.node[3], 0, 0);
    tick(&j);
    did(&j, "begin 3,");
    tutti__rounds_free(&j.r);
}

/* Seed 951020094: a list without a node that had come back counted as known when only the coordinator's node had it, since that node counted
 * for the list before: with the one that was lost then, which had that too, it was enough to go on. */
static void a_list_is_known_when_those_of_the_list_before_have_it(void **state)
{
    tutti__roster old;
    job j;

    (void)state;
    begin_complete(&j, 3);
    tutti__roster_copy(&old, &j.r.roster);
    silent(&j, 2);
    did(&j, "list 3: 2 in term 2.2,");
    come(&j, 2, &old);
    assert_non_null(strstr(j.did, "list 2: 2 in term 2.2,")); /* it is not in it */
    silent(&j, 3);
    assert_false(j.r.paused); /* 2 of the 3 that the confirmed list has */
    *j.did = '\0';
    tick(&j);
    assert_int_equal(j.r.confirmed.version, old.version);
    acked(&j, 2);
    did(&j, "list 1: 2 in term 2.2,");
    acked(&j, 1);
    assert_int_equal(j.r.confirmed.version, old.version + 1);
    did(&j, "list 2: 2 in term 2.3,");
    tutti__rounds_free(&j.r);
}

/* Seed 991030503: one that had no list came back with a new number, got the list in which only its old one was, and asked itself by that. */
static void a_node_without_a_list_gets_none_without_it(void **state)
{
    job j;

    (void)state;
    begin_complete(&j, 3);
    silent(&j, 2);
    did(&j, "list 3: 2 in term 2.2,");
    come(&j, 4, NULL);
    assert_null(strstr(j.did, "list 4"));
    *j.did = '\0';
    acked(&j, 3);
    did(&j, "list 1: 2 in term 2.2,");
    acked(&j, 1);
    did(&j, "list 3: 3 in term 2.3,"); /* with it, but it comes after the others */
    acked(&j, 3);
    did(&j, "list 4: 3 in term 2.3,");
    tutti__rounds_free(&j.r);
}

/* Seed 971086807: the coordinator had ended; a node with a list in which it was not asked one that came after it, which asked it. */
static void a_node_asks_those_that_came_before_it(void **state)
{
    tutti__succession s = {.may_coordinate = true};
    tutti__roster list = {.term = 1, .version = 4, .n = 2};
    const char *address;
    int port;

    (void)state;
    list.list[0] = (tutti__roster_node){.id = 1, .port = 101, .first = true};
    list.list[1] = (tutti__roster_node){.id = 3, .port = 103};
    assert_true(tutti__succession_listed(&s, &list, 2));
    assert_true(tutti__succession_has_others(&s));
    tutti__succession_begin(&s, true);
    assert_int_equal(tutti__succession_next(&s, 1000, NULL, &address, &port),
                     TUTTI__SUCCESSION_ASK);
    assert_int_equal(port, 101);
    tutti__succession_refused(&s, NULL);
    assert_int_equal(tutti__succession_next(&s, 1000, NULL, &address, &port),
                     TUTTI__SUCCESSION_TAKE_OVER);
    list.version++;
    list.n = 1;
    list.list[0].id = 2;
    assert_true(tutti__succession_listed(&s, &list, 2));
    assert_false(tutti__succession_has_others(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_begins_with_the_workers_of_a_lost_node),
        cmocka_unit_test(too_few_pause_when_a_node_is_excluded),
        cmocka_unit_test(an_excluded_node_is_dead_when_it_has_ended),
        cmocka_unit_test(too_few_do_not_begin_again),
        cmocka_unit_test(a_node_that_comes_back_lacks_the_list_until_it_has_it),
        cmocka_unit_test(the_coordinators_node_gets_a_list_last),
        cmocka_unit_test(the_coordinators_node_knows_its_term_at_once),
        cmocka_unit_test(a_list_is_newer_than_what_nodes_came_with),
        cmocka_unit_test(a_node_that_leaves_after_its_workers_is_in_no_other_round),
        cmocka_unit_test(a_list_is_known_when_those_of_the_list_before_have_it),
        cmocka_unit_test(a_node_without_a_list_gets_none_without_it),
        cmocka_unit_test(a_node_asks_those_that_came_before_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
