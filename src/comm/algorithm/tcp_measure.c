/* tcp_measure.c -- what messages cost between these ranks, measured at set-up.   SPDX-License-Identifier: MIT
 *
 * All ranks exchange at the same time, so what they share (cores, a link) is in the numbers: that is how collectives use it. */
#include "comm/algorithm/tcp_algorithms.h"
#include "comm/algorithm/tcp_rounds.h"

#include <stdlib.h>

enum { TIMES = 9, PEERS = 4, LARGE_BYTES = 64 << 10, LEVELS = TUTTI__COLL_LEVELS + 1 };

/* Of each level latency, message, byte, and of all the reduction: sums over so many ranks. */
typedef struct costs {
    uint64_t level[LEVELS][3], n[LEVELS], reduce_ps;
} costs;
enum { VALUES = sizeof(costs) / sizeof(uint64_t) };

typedef struct measurement {
    tutti__tcp *tcp;
    tutti__operation op;
    char *memory; /* of LARGE_BYTES for sending, and for receiving */
    /* This rank is ranks[me]. */
    const int *ranks;
    int me;
    const tutti__shape *shape;
} measurement;

/* The ranks of the smallest block that has several of the level, this one's place among those of its own places below, and how many
 * there are: peers of a level are `step` apart from `first` on. */
typedef struct circle {
    int first, step, place, n;
} circle;

static circle circle_of(const measurement *m, int level)
{
    const tutti__shape *s = m->shape;
    const int levels = tutti__shape_levels(s), under = level < levels ? level : levels,
              below = under > 0 ? s->block[under - 1] : 1,
              block = level < levels ? s->block[level] : s->size, begin = m->me / block * block;

    return (circle){begin + (m->me - begin) % below, below, (m->me - begin) / below, block / below};
}

/* How many of the ranks 1, 2, 4, ... further on are others, and different ones. */
static int peers_of(const circle *c)
{
    int n = 0;

    while (n < PEERS && (1 << n) < c->n)
        n++;
    return n;
}

/* Exchanges so many bytes with the ranks 1, 2, 4, ... further and before; the mean time:
 * where ranks share cores, some are quick because others wait. */
static tutti_status exchange(measurement *m, const circle *c, int peers, size_t bytes,
                             uint64_t *ns_p)
{
    int ranks[2 * PEERS], n = 0;
    uint64_t begin = 0;

    for (int i = 0; i < peers; i++) {
        ranks[n++] = m->ranks[c->first + (c->place + (1 << i)) % c->n * c->step];
        ranks[n++] = m->ranks[c->first + (c->place + c->n - (1 << i)) % c->n * c->step];
    }
    for (int i = 0; i <= TIMES; i++) {
        begin = i == 1 ? tutti__now_ns() : begin; /* the first connects */
        TUTTI_TRY(tutti__tcp_start(m->tcp, &(tutti__schedule){.op = &m->op, .bytes = bytes}));
        for (int k = 0; k < n; k++)
            TUTTI_TRY(tutti__tcp_add_peer(m->tcp, ranks[k], 2));
        for (int k = 0; k < n; k += 2) {
            tutti__tcp_send(m->tcp, ranks[k], m->memory, bytes);
            tutti__tcp_recv(m->tcp, ranks[k + 1], m->memory + LARGE_BYTES, bytes);
        }
        TUTTI_TRY(tutti__tcp_finish(m->tcp));
    }
    *ns_p = (tutti__now_ns() - begin) / TIMES;
    return TUTTI_OK;
}

/* Of one core, which ranks share. */
static uint64_t reduce_ps(const measurement *m)
{
    void *dst = m->memory;
    const void *src[] = {m->memory, m->memory + LARGE_BYTES};
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < TIMES; i++) {
        uint64_t begin = tutti__now_ns(), ns;

        tutti__reduce(TUTTI_F32, TUTTI_SUM, &dst, 1, src, 2, LARGE_BYTES / sizeof(float));
        ns = tutti__now_ns() - begin;
        least = ns < least ? ns : least;
    }
    return least * 1000 / LARGE_BYTES * (uint64_t)(m->tcp->comm->local_size + tutti__cores() - 1) /
           (uint64_t)tutti__cores();
}

static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* message: 0 if there are too few peers to tell it from latency. */
static tutti_status measure_level(measurement *m, int level, costs *sums)
{
    const circle c = circle_of(m, level);
    const int peers = peers_of(&c);
    uint64_t one, several, large, *values = sums->level[level];

    if (peers == 0)
        return TUTTI_OK;
    TUTTI_TRY(exchange(m, &c, 1, 1, &one));
    several = one;
    if (peers > 1)
        TUTTI_TRY(exchange(m, &c, peers, 1, &several));
    TUTTI_TRY(exchange(m, &c, 1, LARGE_BYTES, &large));
    values[1] = peers > 1 ? more(several, one) / (2 * (uint64_t)(peers - 1)) : 0;
    values[0] = more(one, 2 * values[1]);
    values[2] = more(large, one) * 1000 / LARGE_BYTES;
    sums->n[level] = 1;
    return TUTTI_OK;
}

/* Runs an algorithm of few peers, whatever is chosen for calls of the program: links have no cost yet. */
static tutti_status run(measurement *m, const tutti__coll_algorithm *algorithm, void *values)
{
    const tutti__comm *comm = m->tcp->comm;
    const bool barrier = algorithm->op == TUTTI__OP_BARRIER;
    const size_t count = barrier ? 1 : VALUES;
    tutti__tcp_rounds rounds = {.tcp = m->tcp,
                                .op = &m->op,
                                .algorithm = algorithm,
                                .call = {.op = algorithm->op,
                                         .dtype = barrier ? TUTTI_U8 : TUTTI_U64,
                                         .redop = TUTTI_SUM,
                                         .size = comm->size,
                                         .count = count,
                                         .chunk = count},
                                .ranks = m->tcp->everyone,
                                .me = comm->rank,
                                .src = values,
                                .dst = values};

    return tutti__tcp_run_rounds(&rounds);
}

/* Levels from first on: those with blocks, and that of the farthest. */
static tutti_status measure(measurement *m, const tutti__shape *shape, const int *ranks, int first,
                            costs *sums)
{
    const int last = shape->farthest;

    m->shape = shape;
    m->ranks = ranks;
    m->me = 0;
    while (m->me < shape->size && ranks[m->me] != m->tcp->comm->rank)
        m->me++;
    for (int level = first; level <= last && m->me < shape->size; level++)
        if (level == last || tutti__shape_has(shape, level))
            TUTTI_TRY(measure_level(m, level, sums));
    return TUTTI_OK;
}

/* Ranks of one host do not exchange by the shape of one rank a host. */
static tutti_status measure_all(measurement *m, const tutti__tuner *tuner, const int *rail,
                                costs *sums)
{
    const tutti__shape *all = &tuner->shapes[0], *hosts = &tuner->shapes[1];
    tutti__shape near = *all;

    sums->reduce_ps = reduce_ps(m);
    if (!rail)
        return measure(m, all, m->tcp->everyone, 0, sums);
    near.farthest = 0;
    if (tutti__shape_has_hosts(all))
        TUTTI_TRY(measure(m, &near, m->tcp->everyone, 0, sums));
    return measure(m, hosts, rail, 1, sums);
}

/* The sums over all ranks, on all. */
static tutti_status agree(measurement *m, costs *sums)
{
    return run(m, tutti__coll_find(TUTTI__OP_ALL_REDUCE, "recursive_doubling"), sums);
}

/* A level that none has measured is like the nearest one that some have. */
static void set_links(const measurement *m, tutti__tuner *tuner, const costs *sums)
{
    tutti__coll_links links = {.reduce_ps = sums->reduce_ps / (uint64_t)m->tcp->comm->size};
    int from = 0, before = -1;

    while (from < LEVELS - 1 && sums->n[from] == 0)
        from++;
    for (int i = 0; i < LEVELS; i++) {
        const uint64_t *v;
        uint64_t n;

        from = sums->n[i] > 0 ? i : from;
        v = sums->level[from];
        n = sums->n[from] > 0 ? sums->n[from] : 1;
        links.level[i] = (tutti__coll_link){v[0] / n, v[1] / n, v[2] / n};
        if (v[1] == 0 && before >= 0)
            links.level[i].message_ns = links.level[before].message_ns;
        before = i;
        tutti_log(TUTTI_LOG_DEBUG, "comm",
                  "links of level %d: latency %.1f us, message %.1f us, %.2f ns a byte; reduction "
                  "%.2f ns a byte",
                  i, (double)links.level[i].latency_ns * 1e-3,
                  (double)links.level[i].message_ns * 1e-3, (double)links.level[i].byte_ps * 1e-3,
                  (double)links.reduce_ps * 1e-3);
    }
    tutti__tuner_set_links(tuner, &links);
}

tutti_status tutti__tcp_measure(tutti__tcp *tcp, tutti__tuner *tuner, const int *rail,
                                double deadline)
{
    const tutti__comm *comm = tcp->comm;
    measurement m = {.tcp = tcp,
                     .op = {.signature = {.op = TUTTI__OP_BARRIER, .group = comm->id},
                            .timeout_ms = comm->timeout_ms,
                            .deadline = deadline}};
    costs sums = {0};
    tutti_status status;

    if (tuner->has_links)
        return TUTTI_OK;
    m.memory = calloc(2, LARGE_BYTES);
    if (!m.memory)
        return tutti__comm_fail(tcp->comm, TUTTI_ERR_MEMORY, comm->rank,
                                "rank %d has no memory to measure links", comm->rank);
    status = run(&m, tutti__coll_find(TUTTI__OP_BARRIER, "dissemination"), &sums);
    if (status == TUTTI_OK)
        status = measure_all(&m, tuner, rail, &sums);
    if (status == TUTTI_OK)
        status = agree(&m, &sums);
    free(m.memory);
    if (status == TUTTI_OK)
        set_links(&m, tuner, &sums);
    return status;
}
