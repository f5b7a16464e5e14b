/* launch_generations.h -- for tests of which workers form a generation: events in, actions out as text.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_LAUNCH_GENERATIONS_H
#define TUTTI_TESTS_LAUNCH_GENERATIONS_H

#include "launch/decide/generation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The actions, as text: "G1 a0:0/2 a1:1/2" a generation with its ranks, then the others in order. A worker is a letter for
 * its node, a digit for its local rank, and ' for each start before it. */
typedef struct fixture {
    tutti__generations g;
    uint64_t now;
    int64_t step[8][8];
    uint32_t generation[8][8]; /* that each was told last */
    int rank[8][8];
    int fresh, committed, left, code;
    char why[512], text[4096];
} fixture;

static inline void name(tutti__worker_id id, char *text, size_t bytes)
{
    static const char ticks[] = "''''''''''''''''";

    snprintf(text, bytes, "%c%d%.*s", 'a' + id.node, id.local_rank, id.start, ticks);
}

static inline void add(fixture *f, const char *format, ...) TUTTI_PRINTF(2, 3);
static inline void add(fixture *f, const char *format, ...)
{
    size_t n = strlen(f->text);
    va_list args;

    va_start(args, format);
    vsnprintf(f->text + n, sizeof f->text - n, format, args);
    va_end(args);
}

static inline void act(void *context, const tutti__action *a)
{
    static const char *const names[] = {"G",        "regroup ", "leave ", "refuse ", "kill ",
                                        "exclude ", "replace ", "rest ",  "let_go ", "fail "};
    fixture *f = context;
    char who[32] = "nobody";

    if (a->id.node >= 0)
        name(a->id, who, sizeof who);
    f->code = a->code;
    if (a->why)
        snprintf(f->why, sizeof f->why, "%s", a->why);
    if (*f->text)
        add(f, " ");
    if (a->act != TUTTI__ACT_GENERATION) {
        add(f, "%s%s", names[a->act], who);
        return;
    }
    if (a->rank == 0)
        add(f, "G%u ", a->generation);
    add(f, "%s:%d/%d", who, a->rank, a->size);
    f->generation[a->id.node][a->id.local_rank] = a->generation;
    f->rank[a->id.node][a->id.local_rank] = a->rank;
    f->fresh = a->fresh;
    f->committed = a->committed;
    f->left = a->left;
}

static inline void begin(fixture *f, int nodes, int n)
{
    *f = (fixture){.now = 1000};
    memset(f->step, 0xff, sizeof f->step);
    tutti__generations_init(&f->g, &(tutti__generations_opts){.act = act, .context = f});
    for (int i = 0; i < nodes; i++)
        assert_int_equal(tutti__generations_node_came(&f->g, i, n), TUTTI_OK);
}

static inline tutti__worker_id who(const char *text)
{
    return (tutti__worker_id){text[0] - 'a', text[1] - '0', (int)strlen(text) - 2};
}

static inline void expect(fixture *f, const char *text)
{
    assert_string_equal(f->text, text);
    *f->text = '\0';
}

static inline void say(fixture *f, const char *worker, tutti__worker_message_kind kind,
                       int64_t step, const char *lost)
{
    tutti__worker_id id = who(worker);
    tutti__worker_message message = {.protocol = TUTTI__AGENT_PROTOCOL,
                                     .kind = kind,
                                     .generation = f->generation[id.node][id.local_rank],
                                     .shards = 4,
                                     .step = step,
                                     .build = "one"};

    for (; *lost; lost++)
        message.lost[message.n_lost++] = *lost - '0';
    tutti__generations_said(&f->g, f->now, id, &message);
}

/* One after the other: "a0 a1'". */
static inline void ready(fixture *f, const char *workers, int64_t step)
{
    char copy[64], *rest = copy, *worker;

    snprintf(copy, sizeof copy, "%s", workers);
    while ((worker = strsep(&rest, " ")))
        say(f, worker, TUTTI__WORKER_READY, step, "");
}

static inline void committed(fixture *f, const char *worker, int64_t step)
{
    say(f, worker, TUTTI__WORKER_COMMITTED, step, "");
}

static inline void ended(fixture *f, const char *worker, int code, int sig)
{
    tutti__generations_ended(&f->g, f->now, who(worker), code, sig);
}

static inline void pass(fixture *f, uint64_t ms)
{
    f->now += ms;
    tutti__generations_tick(&f->g, f->now);
}

/* A node of two; one has reported a committed step. */
static inline void begin_two(fixture *f, int64_t step)
{
    begin(f, 1, 2);
    ready(f, "a0 a1", -1);
    committed(f, "a0", step);
}

/* Two nodes of two, at step 1. */
static inline void begin_four(fixture *f)
{
    begin(f, 2, 2);
    ready(f, "a0 a1 b1 b0", -1);
    expect(f, "G1 a0:0/4 a1:1/4 b0:2/4 b1:3/4");
    committed(f, "a0", 1);
    expect(f, "");
}

#endif
