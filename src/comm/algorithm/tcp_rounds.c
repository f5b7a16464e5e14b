/* tcp_rounds.c -- runs an algorithm of the table over TCP: round by round, messages while local actions are done.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_rounds.h"

#include "comm/algorithm/rounds_act.h"

typedef struct runner {
    const tutti__tcp_rounds *run;
    tutti__coll_memory memory;
    tutti__coll_round round, other; /* other: to look at rounds to come */
    size_t now;                     /* the number of `round` */
} runner;

static bool is_message(const tutti__coll_action *a)
{
    return a->kind == TUTTI__COLL_SEND || a->kind == TUTTI__COLL_RECV;
}

/* Scratch: actions of two rounds, WORK, HELD. */
static bool open_runner(runner *r)
{
    const tutti__tcp_rounds *run = r->run;
    const size_t most = run->algorithm->most_actions(&run->call),
                 actions = (most * sizeof(tutti__coll_action) + 63) / 64 * 64;
    size_t held, scratch = tutti__coll_scratch(run->algorithm, &run->call, run->me, &held);
    char *memory = tutti__tcp_scratch(run->tcp, 2 * actions + scratch + 64);

    if (!memory)
        return false;
    r->round = (tutti__coll_round){(tutti__coll_action *)(void *)memory, 0, most};
    r->other = (tutti__coll_round){(tutti__coll_action *)(void *)(memory + actions), 0, most};
    memory += 2 * actions;
    r->memory = (tutti__coll_memory){.place = {[TUTTI__COLL_SRC] = (char *)(uintptr_t)run->src,
                                               [TUTTI__COLL_DST] = run->dst,
                                               [TUTTI__COLL_WORK] = memory,
                                               [TUTTI__COLL_HELD] = memory + held},
                                     .divisor = run->divisor};
    return true;
}

static tutti_status start_messages(const runner *r)
{
    const tutti__tcp_rounds *run = r->run;

    for (size_t i = 0; i < r->round.n; i++) {
        const tutti__coll_action *a = &r->round.actions[i];
        size_t bytes;
        char *p;
        int peer;

        if (!is_message(a))
            continue;
        peer = run->ranks[a->peer];
        bytes = a->count * tutti__coll_element(&run->call, a->to.place);
        p = tutti__coll_address(&run->call, &r->memory, a->to);
        TUTTI_TRY(tutti__tcp_add_peer(run->tcp, peer, r->round.capacity));
        (a->kind == TUTTI__COLL_SEND ? tutti__tcp_send(run->tcp, peer, p, bytes)
                                     : tutti__tcp_recv(run->tcp, peer, p, bytes));
    }
    return TUTTI_OK;
}

/* Until the round's messages have moved; then their rows are free for those of the next. */
static tutti_status finish_messages(const runner *r)
{
    const tutti__tcp_rounds *run = r->run;

    for (size_t i = 0; i < r->round.n; i++)
        while (is_message(&r->round.actions[i]) &&
               !tutti__tcp_reuse_row(run->tcp, run->ranks[r->round.actions[i].peer]))
            TUTTI_TRY(tutti__tcp_wait(run->tcp));
    return TUTTI_OK;
}

static tutti_status run_round(runner *r, size_t round)
{
    const tutti__tcp_rounds *run = r->run;
    bool messages = false, local = false;

    r->now = round;
    tutti__coll_actions(run->algorithm, &run->call, run->me, round, &r->round);
    if (r->round.n > r->round.capacity)
        return tutti__comm_fail(run->tcp->comm, TUTTI_ERR_INTERNAL, run->tcp->comm->rank,
                                "algorithm %s has too many actions in round %zu",
                                run->algorithm->name, round);
    for (size_t i = 0; i < r->round.n; i++)
        *(is_message(&r->round.actions[i]) ? &messages : &local) = true;
    TUTTI_TRY(start_messages(r));
    if (messages && local)
        TUTTI_TRY(tutti__tcp_push(run->tcp));
    for (size_t i = 0; i < r->round.n && local; i++)
        if (!is_message(&r->round.actions[i]))
            tutti__coll_act(&run->call, &r->memory, &r->round.actions[i]);
    return finish_messages(r);
}

/* Adds the peers of the rounds to come. */
static tutti_status announce(void *self)
{
    runner *r = self;
    const tutti__tcp_rounds *run = r->run;
    size_t n_rounds = run->algorithm->n_rounds(&run->call);

    for (size_t round = r->now + 1; round < n_rounds; round++) {
        tutti__coll_actions(run->algorithm, &run->call, run->me, round, &r->other);
        for (size_t i = 0; i < r->other.n; i++)
            if (is_message(&r->other.actions[i]))
                TUTTI_TRY(tutti__tcp_add_peer(run->tcp, run->ranks[r->other.actions[i].peer],
                                              r->other.capacity));
    }
    return TUTTI_OK;
}

tutti_status tutti__tcp_run_rounds(const tutti__tcp_rounds *run)
{
    runner r = {.run = run};
    size_t n_rounds = run->algorithm->n_rounds(&run->call);

    if (!open_runner(&r))
        return tutti__comm_status(run->tcp->comm);
    TUTTI_TRY(tutti__tcp_start(
        run->tcp, &(tutti__schedule){.op = run->op,
                                     .first = run->first,
                                     .bytes = run->call.count * tutti__element(run->call.dtype),
                                     .announce = announce,
                                     .self = &r}));
    for (size_t round = 0; round < n_rounds; round++)
        TUTTI_TRY(run_round(&r, round));
    return tutti__tcp_finish(run->tcp);
}
