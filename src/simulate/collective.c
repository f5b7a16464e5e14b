/* collective.c -- one call of a collective in virtual time.   SPDX-License-Identifier: MIT */
#include "simulate/collective.h"

#include "comm/control/flood.h"
#include "comm/core/tree.h"
#include "simulate/pairs.h"
#include "simulate/queue.h"

#include <math.h>
#include <stdlib.h>

typedef enum happening {
    BEGIN, /* rank `index` begins its next round */
    REACH, /* message `index` reaches its next link */
    ARRIVE,
    DIE,   /* rank `index` */
    NOTICE /* rank `index` hears that rank `other` is lost */
} happening;

typedef struct simulated_rank {
    size_t round;   /* the next one */
    int open;       /* messages of this round */
    double core_us; /* when its core is free */
    double sent_us; /* when what it sends has left */
    double slow;
    uint64_t messages;
    bool done, dead, failed;
    tutti__flood flood; /* what it has told its neighbours */
} simulated_rank;

typedef struct simulation {
    const tutti__sim_call *ask;
    tutti__network network;
    tutti__sim_queue queue;
    tutti__sim_pairs pairs;
    tutti__sim_data *data;
    simulated_rank *ranks;
    tutti__coll_round actions;
    size_t n_rounds, element;
    double now;
    uint64_t number; /* of messages */
    int done;
    int unfinished, first_dead; /* ranks that died before they were done, and the first of them */
    tutti__sim_result *result;
} simulation;

static void say(const simulation *s, int rank, const char *format, ...) TUTTI_PRINTF(3, 4);
static void say(const simulation *s, int rank, const char *format, ...)
{
    va_list args;

    if (!s->ask->events)
        return;
    fprintf(s->ask->events, "%14.3f us rank %d: ", s->now, rank);
    va_start(args, format);
    vfprintf(s->ask->events, format, args);
    va_end(args);
    fputc('\n', s->ask->events);
}

static double cost_of_message(const simulation *s, int rank, int peer)
{
    const tutti__level level = tutti__level_between(&s->ask->machines, rank, peer);

    return s->ask->links->level[level].message_us * s->ranks[rank].slow;
}

/* ---- A round ----------------------------------------------------------------------------------------------------------- */

static tutti_status send(simulation *s, int rank, const tutti__coll_action *a)
{
    simulated_rank *me = &s->ranks[rank];
    tutti__sim_pair *pair = tutti__sim_pair_of(&s->pairs, rank, a->peer);
    const int i = pair ? tutti__sim_new_message(&s->pairs) : -1;
    tutti__sim_message *m;
    double at;

    if (i < 0)
        return TUTTI_ERR_MEMORY;
    me->core_us = fmax(me->core_us, s->now) + cost_of_message(s, rank, a->peer);
    me->open++;
    me->messages++;
    m = &s->pairs.messages[i];
    m->packet =
        (tutti__sim_packet){.from = rank,
                            .to = a->peer,
                            .bytes = a->count * tutti__coll_element(&s->ask->call, a->from.place),
                            .number = s->number++};
    m->count = a->count;
    m->place = pair->sent++;
    m->arrived = false;
    m->next = -1;
    TUTTI_TRY(tutti__sim_data_take(s->data, rank, a, &m->bytes));
    at = tutti__network_begin(&s->network, &m->packet, me->core_us);
    say(s, rank, "round %zu: sends %zu bytes to rank %d", me->round, (size_t)m->packet.bytes,
        a->peer);
    return isinf(at) ? TUTTI_OK : tutti__sim_add(&s->queue, at, REACH, i, 0);
}

/* A message and its receive have met. */
static tutti_status take(simulation *s, int rank, const tutti__coll_action *a, int message)
{
    simulated_rank *me = &s->ranks[rank];
    tutti__sim_message *m = &s->pairs.messages[message];
    tutti__sim_bytes *bytes = m->bytes;
    const int from = m->packet.from;

    if (m->count != a->count)
        return tutti__fail(TUTTI_ERR_INTERNAL,
                           "%s, rank %d, round %zu: rank %d sends %zu elements, of which %zu are "
                           "expected",
                           s->ask->algorithm->name, rank, me->round, from, m->count, a->count);
    me->core_us = fmax(me->core_us, s->now) + cost_of_message(s, rank, from);
    say(s, rank, "round %zu: has %zu bytes of rank %d", me->round, (size_t)m->packet.bytes, from);
    tutti__sim_drop_message(&s->pairs, message);
    return tutti__sim_data_put(s->data, rank, a, bytes);
}

static tutti_status receive(simulation *s, int rank, const tutti__coll_action *a)
{
    tutti__sim_pair *pair = tutti__sim_pair_of(&s->pairs, a->peer, rank);
    int i;

    if (!pair)
        return TUTTI_ERR_MEMORY;
    i = pair->first;
    if (i >= 0) {
        pair->first = s->pairs.messages[i].next;
        tutti__sim_pair_done(&s->pairs, pair);
        return take(s, rank, a, i);
    }
    i = tutti__sim_new_receive(&s->pairs);
    if (i < 0)
        return TUTTI_ERR_MEMORY;
    s->pairs.receives[i] = (tutti__sim_receive){*a, -1};
    if (pair->first_wait < 0)
        pair->first_wait = i;
    else
        s->pairs.receives[pair->last_wait].next = i;
    pair->last_wait = i;
    s->ranks[rank].open++;
    return TUTTI_OK;
}

/* The calls of these work in place: a copy of memory to itself. */
static bool is_none(const simulation *s, const tutti__coll_action *a)
{
    const tutti__op_kind op = s->ask->call.op;

    return a->kind == TUTTI__COLL_COPY && a->from.place == TUTTI__COLL_SRC &&
           a->to.place == TUTTI__COLL_DST && a->from.at == a->to.at &&
           (op == TUTTI__OP_ALL_REDUCE || op == TUTTI__OP_REDUCE || op == TUTTI__OP_BROADCAST);
}

/* As in algorithm/tcp_rounds.c, all of the round's messages begin before the first copy or sum. */
static tutti_status move(simulation *s, int rank)
{
    for (size_t i = 0; i < s->actions.n; i++) {
        const tutti__coll_action *a = &s->actions.actions[i];

        if (a->kind == TUTTI__COLL_SEND)
            TUTTI_TRY(send(s, rank, a));
        else if (a->kind == TUTTI__COLL_RECV)
            TUTTI_TRY(receive(s, rank, a));
    }
    return TUTTI_OK;
}

static tutti_status act(simulation *s, int rank, const tutti__coll_action *a)
{
    const tutti__sim_links *l = s->ask->links;
    simulated_rank *me = &s->ranks[rank];
    const double bytes = (double)(a->count * s->element);

    if (!is_none(s, a))
        me->core_us = fmax(me->core_us, s->now) + me->slow * bytes * 1e-3 / l->reduce_gbps;
    return tutti__sim_data_local(s->data, rank, a);
}

/* A round without anything that takes time is over at once. */
static tutti_status go_on(simulation *s, int rank)
{
    simulated_rank *me = &s->ranks[rank];
    const double over = fmax(fmax(me->core_us, me->sent_us), s->now);

    return me->open > 0 ? TUTTI_OK : tutti__sim_add(&s->queue, over, BEGIN, rank, 0);
}

static tutti_status begin(simulation *s, int rank)
{
    simulated_rank *me = &s->ranks[rank];

    if (me->dead || me->failed)
        return TUTTI_OK;
    do {
        if (me->round == s->n_rounds) {
            me->done = true;
            s->done++;
            s->result->us = fmax(s->result->us, s->now);
            say(s, rank, "is done");
            return TUTTI_OK;
        }
        tutti__coll_actions(s->ask->algorithm, &s->ask->call, rank, me->round, &s->actions);
        s->result->rounds++;
        if (s->actions.n > s->actions.capacity)
            return tutti__fail(TUTTI_ERR_INTERNAL, "%s, rank %d, round %zu: too many actions",
                               s->ask->algorithm->name, rank, me->round);
        TUTTI_TRY(move(s, rank));
        for (size_t i = 0; i < s->actions.n; i++)
            if (s->actions.actions[i].kind != TUTTI__COLL_SEND &&
                s->actions.actions[i].kind != TUTTI__COLL_RECV)
                TUTTI_TRY(act(s, rank, &s->actions.actions[i]));
        me->round++;
    } while (s->actions.n == 0);
    return go_on(s, rank);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------------- */

static tutti_status close_one(simulation *s, int rank)
{
    simulated_rank *me = &s->ranks[rank];

    me->open--;
    return me->dead || me->failed ? TUTTI_OK : go_on(s, rank);
}

static tutti_status reach(simulation *s, int message)
{
    tutti__sim_packet *p = &s->pairs.messages[message].packet;
    const bool first = p->at == 0;
    bool arrived;
    const double at = tutti__network_pass(&s->network, p, s->now, &arrived);
    simulated_rank *sender = &s->ranks[p->from];

    if (first)
        sender->sent_us = fmax(sender->sent_us, p->path[0]->free_us);
    TUTTI_TRY(tutti__sim_add(&s->queue, at, arrived ? ARRIVE : REACH, message, 0));
    return first ? close_one(s, p->from) : TUTTI_OK;
}

/* The next message of the pair is there. */
static tutti_status deliver(simulation *s, tutti__sim_pair *pair, int message)
{
    tutti__sim_pairs *p = &s->pairs;
    const int rank = p->messages[message].packet.to, wait = pair->first_wait;
    simulated_rank *me = &s->ranks[rank];

    pair->delivered++;
    if (me->dead || me->failed) {
        tutti__sim_bytes_free(p->messages[message].bytes);
        tutti__sim_drop_message(p, message);
    } else if (wait >= 0) {
        const tutti__coll_action action = p->receives[wait].action;

        pair->first_wait = p->receives[wait].next;
        tutti__sim_drop_receive(p, wait);
        TUTTI_TRY(take(s, rank, &action, message));
        return close_one(s, rank);
    } else {
        p->messages[message].next = -1;
        if (pair->first < 0)
            pair->first = message;
        else
            p->messages[pair->last].next = message;
        pair->last = message;
    }
    return TUTTI_OK;
}

/* One that overtook another waits for it. */
static tutti_status arrive(simulation *s, int message)
{
    tutti__sim_pairs *p = &s->pairs;
    const tutti__sim_packet *packet = &p->messages[message].packet;
    tutti__sim_pair *pair = tutti__sim_pair_of(p, packet->from, packet->to);

    p->messages[message].next = pair->early;
    pair->early = message;
    for (int *at = &pair->early; *at >= 0;) {
        const int i = *at;

        if (p->messages[i].place != pair->delivered) {
            at = &p->messages[i].next;
            continue;
        }
        *at = p->messages[i].next;
        TUTTI_TRY(deliver(s, pair, i));
        at = &pair->early;
    }
    tutti__sim_pair_done(p, pair);
    return TUTTI_OK;
}

/* ---- Failures ----------------------------------------------------------------------------------------------------------- */

/* The rank's neighbours hear it; each_us: of its core, for each that it tells. */
static tutti_status tell(simulation *s, int rank, int culprit, double each_us)
{
    const tutti__machines *m = &s->ask->machines;
    double at = fmax(s->ranks[rank].core_us, s->now), until;
    int near[TUTTI__NEIGHBOURS], n = tutti__tree_neighbours(rank, m->ranks, near);

    for (int i = 0; i < n; i++) {
        const int peer = near[i];
        const tutti__level level = tutti__level_between(m, rank, peer);
        const tutti__level_costs *c = s->ask->links->level;
        const double latency = level == TUTTI__LEVEL_CORE || level == TUTTI__LEVEL_HOST
                                   ? c[level].latency_us
                                   : c[TUTTI__LEVEL_HOST].latency_us + c[level].latency_us;

        at += each_us;
        if (s->ranks[peer].dead || s->ranks[peer].failed ||
            tutti__network_is_cut(&s->network, rank, peer, at, &until))
            continue;
        TUTTI_TRY(tutti__sim_add(&s->queue, at + latency, NOTICE, peer, culprit));
    }
    return TUTTI_OK;
}

static tutti_status die(simulation *s, int rank)
{
    simulated_rank *me = &s->ranks[rank];

    say(s, rank, "dies");
    if (!me->done && s->unfinished++ == 0)
        s->first_dead = rank;
    s->done += !me->done;
    me->dead = true;
    me->core_us = s->now;
    return tell(s, rank, rank, 0);
}

static tutti_status notice(simulation *s, int rank, int culprit)
{
    simulated_rank *me = &s->ranks[rank];

    if (me->dead ||
        !tutti__flood_step(&me->flood, &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD}).tell)
        return TUTTI_OK;
    say(s, rank, "hears that rank %d is lost", culprit);
    if (!me->done) {
        if (!s->result->failed) {
            s->result->culprit = culprit;
            s->result->seen_us = s->now;
        }
        me->failed = s->result->failed = true;
        s->done++;
        s->result->us = fmax(s->result->us, s->now);
    }
    return tell(s, rank, culprit, s->ask->links->level[TUTTI__LEVEL_HOST].message_us * me->slow);
}

/* Those on both sides of a cut that lasts miss each other. */
static tutti_status add_silence(simulation *s, const tutti__cut *cut)
{
    const tutti__machines *m = &s->ask->machines;
    const double at = cut->from_us + s->ask->links->heartbeat_us;

    for (int rank = 0; rank < m->ranks && cut->to_us > at; rank++) {
        int near[TUTTI__NEIGHBOURS], n = tutti__tree_neighbours(rank, m->ranks, near);

        for (int i = 0; i < n; i++) {
            const int a = tutti__host_of(m, rank), b = tutti__host_of(m, near[i]);

            if ((a >= cut->first && a <= cut->last) != (b >= cut->first && b <= cut->last))
                TUTTI_TRY(tutti__sim_add(&s->queue, at, NOTICE, rank, near[i]));
        }
    }
    return TUTTI_OK;
}

/* ---- A call --------------------------------------------------------------------------------------------------------------- */

static tutti_status happen(simulation *s, const tutti__sim_event *e)
{
    s->now = e->at_us;
    s->result->events++;
    switch ((happening)e->what) {
    case BEGIN:
        return begin(s, e->index);
    case REACH:
        return reach(s, e->index);
    case ARRIVE:
        return arrive(s, e->index);
    case DIE:
        return die(s, e->index);
    case NOTICE:
        return notice(s, e->index, e->other);
    }
    return TUTTI_OK;
}

static tutti_status run(simulation *s)
{
    const tutti__sim_call *ask = s->ask;
    tutti__sim_event event;

    for (int r = 0; r < ask->n_deaths; r++)
        TUTTI_TRY(tutti__sim_add(&s->queue, ask->deaths[r].at_us, DIE, ask->deaths[r].rank, 0));
    for (int r = 0; r < ask->disturbance.n_cuts; r++)
        TUTTI_TRY(add_silence(s, &ask->disturbance.cuts[r]));
    for (int r = 0; r < ask->machines.ranks; r++)
        TUTTI_TRY(tutti__sim_add(&s->queue, 0, BEGIN, r, 0));
    while (s->done < ask->machines.ranks && tutti__sim_next(&s->queue, &event))
        TUTTI_TRY(happen(s, &event));
    for (int r = 0; r < ask->machines.ranks; r++)
        if (!s->ranks[r].done && !s->ranks[r].dead && !s->ranks[r].failed)
            return tutti__fail(TUTTI_ERR_INTERNAL,
                               "%s never ends: rank %d waits for %d message%s in round %zu",
                               ask->algorithm->name, r, s->ranks[r].open,
                               tutti__s((uint64_t)s->ranks[r].open), s->ranks[r].round - 1);
    return TUTTI_OK;
}

static void finish(simulation *s)
{
    tutti__sim_result *result = s->result;

    if (s->unfinished == s->ask->machines.ranks) { /* nobody is left who could notice */
        result->failed = true;
        result->culprit = s->first_dead;
        result->us = result->seen_us = s->now;
    }
    for (int r = 0; r < s->ask->machines.ranks; r++) {
        result->messages += s->ranks[r].messages;
        if (s->ranks[r].messages > result->most_messages)
            result->most_messages = s->ranks[r].messages;
        if (!result->failed && !s->ranks[r].dead)
            tutti__sim_data_check(s->data, r, &result->checked, &result->wrong);
    }
    result->lost = s->network.n_lost;
    tutti__network_use(&s->network, result->us, result->use);
}

static tutti_status prepare(simulation *s)
{
    const tutti__sim_call *ask = s->ask;
    const tutti__coll_algorithm *a = ask->algorithm;
    size_t held;

    s->actions.capacity = a->most_actions(&ask->call);
    s->n_rounds = a->n_rounds(&ask->call);
    s->element = tutti__coll_element(&ask->call, TUTTI__COLL_DST);
    s->ranks = tutti__alloc((size_t)ask->machines.ranks * sizeof *s->ranks);
    s->actions.actions = tutti__alloc((s->actions.capacity + 1) * sizeof *s->actions.actions);
    if (!s->ranks || !s->actions.actions)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < ask->machines.ranks; r++) {
        const size_t scratch = tutti__coll_scratch(a, &ask->call, r, &held);

        s->ranks[r].slow = 1;
        s->ranks[r].flood = (tutti__flood){.rank = r, .size = ask->machines.ranks};
        if (scratch > s->result->most_memory)
            s->result->most_memory = scratch;
    }
    for (int i = 0; i < ask->n_slow; i++)
        s->ranks[ask->slow[i].rank].slow = ask->slow[i].factor;
    TUTTI_TRY(tutti__sim_pairs_new(&s->pairs));
    TUTTI_TRY(tutti__network_new(&s->network, ask->links, &ask->machines, &ask->disturbance));
    return tutti__sim_data_new(&s->data, ask->data, a, &ask->call, ask->disturbance.seed);
}

tutti_status tutti__sim_run(const tutti__sim_call *ask, tutti__sim_result *result)
{
    simulation s = {.ask = ask, .result = result};
    tutti_status status;

    *result = (tutti__sim_result){.culprit = -1};
    status = prepare(&s);
    if (status == TUTTI_OK)
        status = run(&s);
    if (status == TUTTI_OK)
        finish(&s);
    tutti__sim_data_free(s.data);
    tutti__network_free(&s.network);
    tutti__sim_pairs_free(&s.pairs);
    tutti__sim_queue_free(&s.queue);
    free(s.actions.actions);
    free(s.ranks);
    return status;
}
