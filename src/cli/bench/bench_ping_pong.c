/* bench_ping_pong.c -- times messages back and forth between two ranks, and checks them.
 * SPDX-License-Identifier: MIT
 *
 * Rank r exchanges messages with rank r + n/2, so that pairs are across hosts if there are two; all pairs run at once, and the
 * last of an odd number of ranks is idle. The first of a pair measures; half of a round trip is a message's latency. As in the
 * collectives, the first round checks every element, the others a few at changing places. */
#include "cli/bench/bench.h"

#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 4,
    TRIPS = 16, /* per timed round, so that the clock and the barrier's end do not matter */
    TRIPS_BYTES = 256 << 10 /* from this size on: one */
};

typedef struct stand {
    const tutti__bench *bench;
    tutti_group *group;
    int rank, pairs, peer; /* peer -1: idle */
    size_t element, count; /* of a message */
    char *src, *dst;
    uint64_t round;
    size_t first, stride; /* the elements that a round writes and checks */
    tutti__bench_table *table;
} stand;

/* Element k of the message from a rank: any bits will do, since they are only moved. */
static uint64_t value_at(const stand *s, int from, size_t k)
{
    return (k + s->round * 0x10001 + (uint64_t)from * 0x1000003) * 0x9E3779B97F4A7C15u >> 16;
}

static void fill(const stand *s)
{
    for (size_t k = s->first; k < s->count; k += s->stride) {
        uint64_t own = value_at(s, s->rank, k), other = ~value_at(s, s->peer, k);

        memcpy(s->src + k * s->element, &own, s->element);
        memcpy(s->dst + k * s->element, &other, s->element);
    }
}

static int64_t count_wrong(const stand *s)
{
    int64_t wrong = 0;

    for (size_t k = s->first; k < s->count; k += s->stride) {
        uint64_t expected = value_at(s, s->peer, k);

        wrong += memcmp(s->dst + k * s->element, &expected, s->element) != 0;
    }
    return wrong;
}

static tutti_status trip(const stand *s)
{
    tutti_buf src = {s->src, s->count, s->bench->dtype, NULL},
              dst = {s->dst, s->count, s->bench->dtype, NULL};

    if (s->rank < s->peer)
        TUTTI_TRY(tutti_send(s->group, tutti_buf_const(src), s->peer, 0, NULL));
    TUTTI_TRY(tutti_recv(s->group, dst, s->peer, 0, NULL));
    return s->rank < s->peer ? TUTTI_OK
                             : tutti_send(s->group, tutti_buf_const(src), s->peer, 0, NULL);
}

static tutti_status one_round(void *stand_p, double *us_p, int64_t *wrong_p)
{
    stand *s = stand_p;
    int trips = s->count * s->element < TRIPS_BYTES ? TRIPS : 1;
    uint64_t begin;

    s->round++;
    s->first = s->round * 17 % s->stride; /* from one cache line to the next */
    if (s->peer >= 0)
        fill(s);
    TUTTI_TRY(tutti_barrier(s->group, NULL));
    if (s->peer < 0)
        return TUTTI_OK;
    begin = tutti__now_ns();
    for (int i = 0; i < trips; i++)
        TUTTI_TRY(trip(s));
    if (s->rank < s->peer)
        *us_p = (double)(tutti__now_ns() - begin) * 1e-3 / (2 * trips);
    *wrong_p += count_wrong(s);
    return TUTTI_OK;
}

static tutti_status measure(stand *s, tutti__bench_row *row)
{
    double us;

    s->stride = 1;
    TUTTI_TRY(one_round(s, &us, &row->wrong));
    s->stride = s->count / SAMPLE + 1;
    TUTTI_TRY(tutti__bench_rounds(s->table, row, row->bytes, one_round, s));
    return tutti__bench_table_add(s->table, row);
}

static size_t count_for(const stand *s, int64_t bytes)
{
    size_t count = (size_t)bytes / s->element;

    return count ? count : 1;
}

static tutti_status run(stand *s, int64_t *wrong_p)
{
    const tutti__bench *b = s->bench;
    tutti_status status = TUTTI_OK;
    size_t room = 0;

    for (size_t i = 0; i < b->sizes.n; i++) {
        size_t bytes = count_for(s, b->sizes.bytes[i]) * s->element;

        room = bytes > room ? bytes : room;
    }
    TUTTI_TRY(tutti__bench_alloc(b, s->group, room, &s->src));
    TUTTI_TRY(tutti__bench_alloc(b, s->group, room, &s->dst));
    for (size_t i = 0; i < b->sizes.n && status == TUTTI_OK; i++) {
        size_t count = count_for(s, b->sizes.bytes[i]);
        tutti__bench_row row = {.bytes = count * s->element,
                                .count = count,
                                .root = -1,
                                .timers = s->pairs,
                                .bus_factor = 1};

        s->count = count;
        status = measure(s, &row);
        *wrong_p += row.wrong;
        free(row.times);
    }
    return status;
}

tutti_status tutti__bench_ping_pong(tutti__bench_table *table, int64_t *wrong_p)
{
    const tutti__bench *bench = table->bench;
    stand s = {.bench = bench,
               .table = table,
               .group = table->group,
               .element = tutti_dtype_size(bench->dtype),
               .rank = tutti_group_rank(table->group),
               .pairs = tutti_group_size(table->group) / 2,
               .peer = -1};
    tutti_status status;

    if (s.rank < 2 * s.pairs)
        s.peer = s.rank < s.pairs ? s.rank + s.pairs : s.rank - s.pairs;
    if (s.pairs == 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s is between two ranks, but there is one; try -n 2",
                           bench->name);
    tutti__bench_table_head(table);
    status = run(&s, wrong_p);
    tutti__bench_free(bench, s.group, s.dst);
    tutti__bench_free(bench, s.group, s.src);
    return status;
}
