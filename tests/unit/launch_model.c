/* launch: every order of messages and deaths of a small elastic job, with the coordinator's own rules.
 * SPDX-License-Identifier: MIT    timeout: 60   breadth: 240
 * ALL: two and three faults from the last step on with three shards, too: millions of states.
 *
 * Three places, two steps. The coordinator is the real src/launch/decide/generation.c; workers, their collectives and the messages
 * between them are a model, with one transition each, in any order that queues allow. In addition there are faults: a worker
 * dies, freezes (and perhaps continues), or loses its connection to another. All reachable states are visited, breadth first,
 * and in each:
 *
 *   near      the steps of living members that have the state differ by one at most
 *   kept      a try begins at the newest step that any living worker has committed
 *   one       no two generations have members at work
 *   first     rank 0 has the newest state of its generation
 *   no limit  unless a worker froze or was disconnected, nothing waits for a time limit
 *   ends      without further faults every run ends, and the job's work is done
 *
 * "Living" excludes workers that the coordinator has ordered to be killed. If an invariant is violated, the shortest path there
 * is printed. Switched-off rules must be found. Visited states are kept as 64-bit hashes: among ten million states two have the
 * same hash with a probability of 3e-6. Omitted, since it changes little: COMMITTED arrives at once, and a finished worker ends
 * at once. */
#include "harness/launch_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <xxhash.h>

/* ---- All states ----------------------------------------------------------------------------------------- */

enum { MOST_STATES = 9000000, MOST_EDGES = 36000000, SLOTS = 1 << 24 };

typedef struct slot { /* both in one cache line, which takes half of the time of most visits */
    uint64_t hash;    /* 0: free */
    uint64_t index;
} slot;

typedef struct edge {
    uint32_t from, to;
} edge;

static struct {
    slot *slots;               /* SLOTS */
    uint32_t *parent, *before; /* before: edges into each */
    uint8_t *pick;
    edge *edges;
    uint32_t n, n_edges;
    state *level, *next; /* in breadth */
    uint32_t *level_index, *next_index;
    size_t n_level, n_next, room;
} all;

static void all_new(void)
{
    all.slots = calloc(SLOTS, sizeof *all.slots);
    all.parent = calloc(MOST_STATES, sizeof *all.parent);
    all.before = calloc(MOST_STATES, sizeof *all.before);
    all.pick = calloc(MOST_STATES, 1);
    all.edges = calloc(MOST_EDGES, sizeof *all.edges);
    all.n = all.n_edges = 0;
    all.n_level = all.n_next = all.room = 0;
    all.level = all.next = NULL;
    all.level_index = all.next_index = NULL;
}

static void all_free(void)
{
    free(all.slots);
    free(all.parent);
    free(all.before);
    free(all.pick);
    free(all.edges);
    free(all.level);
    free(all.next);
    free(all.level_index);
    free(all.next_index);
}

static void keep_next(const state *s, uint32_t index)
{
    if (all.n_next == all.room) { /* both levels have the same room */
        all.room = all.room * 2 + 1024;
        all.level = realloc(all.level, all.room * sizeof *all.level);
        all.next = realloc(all.next, all.room * sizeof *all.next);
        all.level_index = realloc(all.level_index, all.room * sizeof *all.level_index);
        all.next_index = realloc(all.next_index, all.room * sizeof *all.next_index);
    }
    all.next[all.n_next] = *s;
    all.next_index[all.n_next++] = index;
}

/* The state's index; a new one is added to the next level. */
static uint32_t visit(const state *s, uint32_t parent, int pick)
{
    const uint64_t hash = XXH3_64bits(s, sizeof *s) | 1;
    size_t at = (size_t)(hash >> 20) % SLOTS;

    while (all.slots[at].hash && all.slots[at].hash != hash)
        at = (at + 1) % SLOTS;
    if (all.slots[at].hash)
        return (uint32_t)all.slots[at].index;
    if (all.n == MOST_STATES) {
        broken("the model has too many states");
        return 0;
    }
    all.slots[at] = (slot){hash, all.n};
    all.parent[all.n] = parent;
    all.pick[all.n] = (uint8_t)pick;
    keep_next(s, all.n);
    return all.n++;
}

static state beginning(void)
{
    state s;

    memset(&s, 0, sizeof s);
    tutti__generations_free(&job.g);
    tutti__generations_init(&job.g, &(tutti__generations_opts){.limit_ms = LIMIT_MS, .act = act});
    for (int node = 0; node < job.plan.nodes; node++)
        assert_int_equal(tutti__generations_node_came(&job.g, node, N / job.plan.nodes), TUTTI_OK);
    snprintf(job.g.build, sizeof job.g.build, "one");
    pack(&s);
    for (int i = 0; i < N; i++) {
        s.w[i].step = s.w[i].reached = -1;
        say_ready(&s.w[i], 0);
    }
    s.faults = (uint8_t)job.plan.faults;
    for (bool on = job.plan.at_work; on;) { /* each as far as it comes, up to the last step */
        on = false;
        for (int i = 0; i < N && !on; i++)
            on = s.w[i].step < STEPS - 1 && worker_step(&s, i, &(int){0});
    }
    return s;
}

/* Prints the shortest path to state `index`, and the transition from there. */
static void print_way(uint32_t index, int pick)
{
    int picks[256], n = 0;
    state s = beginning();

    telling = true;
    picks[n++] = pick;
    for (; index > 0 && n < 256; index = all.parent[index])
        picks[n++] = all.pick[index];
    while (n-- > 0) {
        if (picks[n] >= 0 && make(&s, picks[n]) != NOTHING)
            print_message("    %s\n", told);
    }
    telling = false;
}

static void expand(const state *s, uint32_t from)
{
    if (is_over(s)) {
        require(s->flags & IS_FINISHED, "ends: all have ended, and the work is not done");
        if (job.broken)
            print_way(from, -1);
        return;
    }
    for (int pick = 0; !job.broken; pick++) {
        state copy = *s;
        transition what;
        uint32_t to;

        what = make(&copy, pick);
        if (job.broken && job.plan.mutation == NO_MUTATION)
            print_way(from, pick);
        if (what == NOTHING || job.broken)
            break;
        to = visit(&copy, from, pick);
        if (what != PROGRESS)
            continue;
        if (all.n_edges == MOST_EDGES) {
            broken("the model has too many transitions");
            break;
        }
        all.edges[all.n_edges++] = (edge){from, to};
        all.before[to]++;
    }
}

/* Without faults there are no cycles: removes states without predecessors, until none is left. */
static void check_end(void)
{
    uint32_t *first = calloc((size_t)all.n + 1, sizeof *first),
             *queue = calloc(all.n, sizeof *queue);
    uint32_t head = 0, tail = 0;

    /* Edges are sorted by their source. */
    for (uint32_t k = 0; k < all.n_edges; k++)
        first[all.edges[k].from + 1]++;
    for (uint32_t i = 0; i < all.n; i++) {
        first[i + 1] += first[i];
        if (all.before[i] == 0)
            queue[tail++] = i;
    }
    for (; head < tail; head++)
        for (uint32_t k = first[queue[head]]; k < first[queue[head] + 1]; k++)
            if (--all.before[all.edges[k].to] == 0)
                queue[tail++] = all.edges[k].to;
    require(tail == all.n, "ends: a run without faults goes round in a circle");
    free(first);
    free(queue);
}

/* Visits all states; returns the violated invariant, or NULL. */
static const char *explore(const plan *p)
{
    state s;
    int depth = 0;

    job.plan = *p;
    job.broken = NULL;
    all_new();
    s = beginning();
    (void)visit(&s, 0, 0);
    for (; all.n_next > 0 && !job.broken; depth++) {
        state *level = all.level;
        uint32_t *index = all.level_index;

        all.level = all.next;
        all.level_index = all.next_index;
        all.n_level = all.n_next;
        all.next = level;
        all.next_index = index;
        all.n_next = 0;
        for (size_t k = 0; k < all.n_level && !job.broken; k++) {
            const state here = all.level[k]; /* which moves as the next level grows */

            expand(&here, all.level_index[k]);
        }
    }
    if (!job.broken)
        check_end();
    print_message(
        "    %d node%s, %d shards, from %s, %d fault%s%s%s: %u states, %d deep: %s\n", p->nodes,
        p->nodes > 1 ? "s" : "", p->shards, p->at_work ? "the last step" : "the beginning",
        p->faults, p->faults == 1 ? "" : "s", p->all_kinds ? " of all kinds" : "",
        p->starts ? ", one a place" : "", all.n, depth, job.broken ? job.broken : "all holds");
    all_free();
    tutti__generations_free(&job.g);
    return job.broken;
}

static void all_holds_in_every_order(void **context)
{
    static const plan plans[] = {
        {.nodes = 1, .shards = 3, .faults = 1},
        {.nodes = 3, .shards = 2, .faults = 1},
        {.nodes = 1, .shards = 2, .faults = 2, .at_work = true},
        {.nodes = 1, .shards = 3, .faults = 1, .at_work = true, .all_kinds = true},
        {.nodes = 1, .shards = 2, .faults = 2, .starts = 1, .at_work = true},
    };
#ifndef TUTTI__SANITIZED /* takes minutes with sanitizers */
    static const plan large[] = {
        {.nodes = 3, .shards = 3, .faults = 2, .at_work = true},
        {.nodes = 1, .shards = 3, .faults = 3, .starts = 1, .at_work = true},
    };
#endif

    (void)context;
    for (size_t i = 0; i < TUTTI__COUNT_OF(plans); i++)
        if (explore(&plans[i]))
            fail_msg("%s", job.broken);
#ifndef TUTTI__SANITIZED
    for (size_t i = 0; getenv("ALL") && i < TUTTI__COUNT_OF(large); i++)
        if (explore(&large[i]))
            fail_msg("%s", job.broken);
#endif
}

/* With as few faults as necessary. */
static void a_rule_that_is_switched_off_is_found(void **context)
{
    static const struct {
        mutation mutation;
        const char *name, *breaks;
    } rows[] = {
        {LOWEST_RANK_FIRST, "rank 0 is whoever comes first", "first"},
        {KILLED_ONES_LIVE, "who is given up is not killed", "one"},
        {RECEIVED_IN_PLACE, "a state is received over the one before", "kept"},
        {COMMITTED_ALONE, "the update does not wait for all sums", "kept"},
        {NOBODY_IS_TOLD, "nobody is told that a member has left", "no limit"},
        {NO_NEW_GENERATION, "who has left a generation does not say so", "ends"},
    };

    (void)context;
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        plan p = {.nodes = 1, .shards = 3, .mutation = rows[i].mutation, .at_work = true};

        p.all_kinds = p.mutation == KILLED_ONES_LIVE;
        print_message("    %s:\n", rows[i].name);
        while (p.faults <= 2 && !explore(&p))
            p.faults++;
        assert_non_null(job.broken);
        if (strncmp(job.broken, rows[i].breaks, strlen(rows[i].breaks)) != 0)
            fail_msg("%s breaks \"%s\", expected \"%s\"", rows[i].name, job.broken, rows[i].breaks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_holds_in_every_order),
        cmocka_unit_test(a_rule_that_is_switched_off_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
