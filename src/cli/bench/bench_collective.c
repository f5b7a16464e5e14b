/* bench_collective.c -- times one collective at several sizes, and checks its results.   SPDX-License-Identifier: MIT
 *
 * What a rank sends to another at index k in round i is a small number that is a function of (sender, receiver, k, i), so any
 * rank can compute the expected result; the table of operations says who sends what to whom. The first round fills and checks
 * every element; the timed rounds only a few of each piece, at other places each time: to access more would move the cache
 * lines that the next round must move. */
#include "base/half.h"
#include "cli/bench/bench.h"
#include "comm/algorithm/tuner.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 4 };

typedef struct tutti__bench_stand {
    const tutti__bench *bench;
    tutti_group *group;
    const tutti__op_traits *traits;
    int size, rank, flights; /* flights: calls in flight, each with its own memory */
    size_t element;
    /* elements of one piece (uneven: of the middle one); of the larger buffer */
    size_t share, whole;
    size_t room; /* bytes of a buffer of one flight */
    char *memory, *apart;
    char *src, *dst; /* of the flight that is filled, called, or checked */
    size_t *src_counts, *dst_counts;
    tutti__operation op; /* the operation, to find its pieces */
    tutti_work **works;
    uint64_t round;
    size_t first, stride; /* the elements of a piece that a round writes and checks */
    tutti__bench_table *table;
} stand;

/* ---- Values -------------------------------------------------------------------------------------------- */

enum { MOST_KINDS = 4 };

/* Values of a rank in a round: there are so few that their reductions are computed once. Powers of two stay exact. */
static uint64_t n_kinds(const stand *s)
{
    return s->bench->redop == TUTTI_PRODUCT ? 2 : MOST_KINDS;
}

static uint64_t kind_at(const stand *s, size_t k)
{
    return (k * 2654435761u >> 13) % n_kinds(s);
}

static uint64_t value_of(const stand *s, int from, int to, uint64_t kind)
{
    size_t taker = s->traits->scatters ? (size_t)to : 0;

    return 1 + (kind + 3 * (size_t)from + 5 * taker + s->round) % n_kinds(s);
}

/* Stores one element, from an integer that wraps or from a real number. */
static void put(const stand *s, uint64_t integer, double real, char *at)
{
    const float single = (float)real;
    const uint16_t f16 = tutti__f16_of_f32(single), bf16 = tutti__bf16_of_f32(single);
    const void *from = &integer; /* little-endian: its low bytes are the narrower integers */

    if (s->bench->dtype == TUTTI_F64)
        from = &real;
    else if (s->bench->dtype == TUTTI_F32)
        from = &single;
    else if (s->bench->dtype == TUTTI_F16)
        from = &f16;
    else if (s->bench->dtype == TUTTI_BF16)
        from = &bf16;
    memcpy(at, from, s->element);
}

static void put_small(const stand *s, uint64_t n, char *at)
{
    put(s, n, (double)n, at);
}

static uint64_t combine(tutti_redop redop, uint64_t a, uint64_t b)
{
    switch (redop) {
    case TUTTI_PRODUCT:
        return a * b;
    case TUTTI_MIN:
        return b < a ? b : a;
    case TUTTI_MAX:
        return b > a ? b : a;
    case TUTTI_BAND:
        return a & b;
    case TUTTI_BOR:
        return a | b;
    case TUTTI_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* Stores the expected element of this rank's reduction. As real numbers all but the average are integers. */
static void put_reduced(const stand *s, uint64_t kind, char *at)
{
    uint64_t all = value_of(s, 0, s->rank, kind);
    double real, n = s->size;

    for (int r = 1; r < s->size; r++)
        all = combine(s->bench->redop, all, value_of(s, r, s->rank, kind));
    real = (double)all;
    if (s->bench->redop == TUTTI_AVG)
        real = s->bench->dtype == TUTTI_F64 ? real / n : (double)((float)real / (float)n);
    put(s, all, real, at);
}

/* ---- Pieces -------------------------------------------------------------------------------------------- */

static char *element_at(const stand *s, char *buffer, tutti__piece piece, size_t k)
{
    return buffer + (piece.at + k) * s->element;
}

/* The next rank; -1: the one before. */
static int neighbour(const stand *s, int step)
{
    return (s->rank + s->size + step) % s->size;
}

static tutti__piece piece_out(const stand *s, int to)
{
    if (s->bench->kind == TUTTI__OP_SEND)
        return (tutti__piece){0, to == neighbour(s, 1) ? s->share : 0};
    return tutti__piece_out(&s->op, s->rank, to);
}

static tutti__piece piece_in(const stand *s, int from)
{
    if (s->bench->kind == TUTTI__OP_SEND)
        return (tutti__piece){0, from == neighbour(s, -1) ? s->share : 0};
    return tutti__piece_in(tutti_group_rank(s->group), &s->op, from);
}

/* Writes the elements of this round, by kind. */
static void write_piece(const stand *s, char *buffer, tutti__piece piece, char values[][8])
{
    for (size_t k = s->first; k < piece.count; k += s->stride)
        memcpy(element_at(s, buffer, piece, k), values[kind_at(s, k)], s->element);
}

/* Clears results first, because sources may be in the same memory. */
static void fill(const stand *s)
{
    char values[MOST_KINDS][8] = {{0}};
    tutti__piece last = {0, 0};

    for (int from = 0; from < (s->traits->reduces ? 1 : s->size); from++)
        write_piece(s, s->dst, piece_in(s, from), values);
    for (int to = 0; to < s->size; to++) {
        tutti__piece out = piece_out(s, to);

        if (out.count == 0 || (out.count == last.count && out.at == last.at))
            continue; /* all get the same */
        for (uint64_t kind = 0; kind < n_kinds(s); kind++)
            put_small(s, value_of(s, s->rank, to, kind), values[kind]);
        write_piece(s, s->src, out, values);
        last = out;
    }
}

/* A reduction has one result, to which all contribute. */
static int64_t count_wrong(const stand *s)
{
    char expected[MOST_KINDS][8];
    int64_t wrong = 0;

    for (int from = 0; from < (s->traits->reduces ? 1 : s->size); from++) {
        tutti__piece in = piece_in(s, from);

        for (uint64_t kind = 0; kind < n_kinds(s); kind++)
            if (s->traits->reduces)
                put_reduced(s, kind, expected[kind]);
            else
                put_small(s, value_of(s, from, s->rank, kind), expected[kind]);
        for (size_t k = s->first; k < in.count; k += s->stride)
            wrong += memcmp(element_at(s, s->dst, in, k), expected[kind_at(s, k)], s->element) != 0;
    }
    return wrong;
}

/* Selects the memory of a flight. Source and destination are in one buffer if the operation allows it, as in DDP. */
static void turn_to(stand *s, int flight)
{
    tutti__piece own;

    s->dst = s->memory + (size_t)flight * s->room;
    s->src = s->apart ? s->apart + (size_t)flight * s->room : s->dst;
    if (!s->traits->gathers || s->apart)
        return;
    own = tutti__piece_in(tutti_group_rank(s->group), &s->op, s->rank);
    s->src = element_at(s, s->dst, own, 0);
}

/* Unequal pieces go from small to twice the middle; every rank sends and receives the same total. */
static size_t piece_count(const stand *s, int from, int to)
{
    size_t n = (size_t)s->size,
           place = s->traits->scatters ? (size_t)(from + to) % n : (size_t)from;

    return s->traits->uneven ? s->share * 2 * (place + 1) / (n + 1) : s->share;
}

static void set_pieces(stand *s, size_t whole)
{
    bool many = s->traits->scatters || s->traits->gathers;

    s->share = many ? whole / (size_t)s->size : whole;
    s->whole = many ? 0 : whole;
    for (int r = 0; r < s->size; r++) {
        s->src_counts[r] = piece_count(s, s->rank, r);
        s->dst_counts[r] = piece_count(s, r, s->rank);
        s->whole += many ? s->dst_counts[r] : 0;
    }
    s->op = (tutti__operation){.signature = {.op = (uint8_t)s->bench->kind,
                                             .count = s->traits->uneven ? 0 : s->share,
                                             .dtype = (uint8_t)s->bench->dtype,
                                             .root = (uint32_t)s->bench->root},
                               .src_counts = s->src_counts,
                               .dst_counts = s->dst_counts};
}

/* ---- Measuring ------------------------------------------------------------------------------------------ */

/* As nccl-tests' sendrecv: all at once, each to the next and from the one before. */
static tutti_status send_recv(const stand *s, tutti_work **work_p)
{
    tutti_buf src = {s->src, s->share, s->bench->dtype, NULL},
              dst = {s->dst, s->share, s->bench->dtype, NULL};
    tutti_work *receive;

    TUTTI_TRY(tutti_recv(s->group, dst, neighbour(s, -1), 0, &receive));
    if (work_p)
        *work_p = receive;
    TUTTI_TRY(tutti_send(s->group, tutti_buf_const(src), neighbour(s, 1), 0, NULL));
    return work_p ? TUTTI_OK : tutti_work_wait(receive);
}

static tutti_status call(const stand *s, tutti_work **work_p)
{
    const tutti__bench *b = s->bench;
    bool gives = !s->traits->from_root || s->rank == b->root,
         takes = !s->traits->to_root || s->rank == b->root;
    size_t given = tutti__op_given(tutti_group_rank(s->group), tutti_group_size(s->group), &s->op);
    tutti_buf none = {0}, src = {s->src, given, b->dtype, NULL},
              dst = {s->dst, s->traits->gathers ? s->whole : s->share, b->dtype, NULL};

    switch (b->kind) {
    case TUTTI__OP_REDUCE:
        return tutti_reduce(s->group, src, b->redop, b->root, work_p);
    case TUTTI__OP_REDUCE_SCATTER:
        return tutti_reduce_scatter(s->group, tutti_buf_const(src), dst, b->redop, work_p);
    case TUTTI__OP_BROADCAST:
        return tutti_broadcast(s->group, dst, b->root, work_p);
    case TUTTI__OP_SCATTER:
        return tutti_scatter(s->group, tutti_buf_const(gives ? src : none), dst, b->root, work_p);
    case TUTTI__OP_GATHER:
        return tutti_gather(s->group, tutti_buf_const(src), takes ? dst : none, b->root, work_p);
    case TUTTI__OP_ALL_GATHER:
        return tutti_all_gather(s->group, tutti_buf_const(src), dst, work_p);
    case TUTTI__OP_ALL_GATHER_V:
        return tutti_all_gather_v(s->group, tutti_buf_const(src), dst, s->dst_counts, work_p);
    case TUTTI__OP_ALL_TO_ALL:
        return tutti_all_to_all(s->group, tutti_buf_const(src), dst, work_p);
    case TUTTI__OP_ALL_TO_ALL_V:
        return tutti_all_to_all_v(s->group, tutti_buf_const(src), s->src_counts, dst, s->dst_counts,
                                  work_p);
    case TUTTI__OP_SEND:
        return send_recv(s, work_p);
    case TUTTI__OP_BARRIER:
        return tutti_barrier(s->group, work_p);
    default:
        return tutti_all_reduce(s->group, dst, b->redop, work_p);
    }
}

/* One synchronous call; or several in flight. */
static tutti_status call_all(stand *s)
{
    if (s->bench->in_flight == 0)
        return call(s, NULL);
    for (int i = 0; i < s->flights; i++) {
        turn_to(s, i);
        TUTTI_TRY(call(s, &s->works[i]));
    }
    for (int i = 0; i < s->flights; i++)
        TUTTI_TRY(tutti_work_wait(s->works[i]));
    return TUTTI_OK;
}

static tutti_status one_round(void *stand_p, double *us_p, int64_t *wrong_p)
{
    stand *s = stand_p;
    uint64_t begin;

    s->round++;
    s->first = s->round * 17 % s->stride; /* from one cache line to the next */
    for (int i = s->flights - 1; i >= 0; i--) {
        turn_to(s, i);
        fill(s);
    }
    TUTTI_TRY(tutti_barrier(s->group, NULL));
    begin = tutti__now_ns();
    TUTTI_TRY(call_all(s));
    *us_p = (double)(tutti__now_ns() - begin) * 1e-3 / s->flights;
    for (int i = 0; i < s->flights; i++) {
        turn_to(s, i);
        *wrong_p += count_wrong(s);
    }
    /* So that no rank writes the next round's numbers into memory that others still check. */
    return tutti_barrier(s->group, NULL);
}

/* As in nccl-tests: the fraction of the size that the busiest link carries. */
static double bus_factor(const stand *s)
{
    double n = s->size;

    if (s->bench->kind == TUTTI__OP_ALL_REDUCE)
        return 2 * (n - 1) / n;
    return s->traits->scatters || s->traits->gathers ? (n - 1) / n : 1;
}

/* Elements of the larger buffer. */
static size_t count_for(const stand *s, int64_t bytes)
{
    size_t count = (size_t)bytes / s->element, n = (size_t)s->size;

    if (s->bench->kind == TUTTI__OP_BARRIER)
        return 0;
    if (s->traits->scatters || s->traits->gathers)
        return count < n ? n : count / n * n;
    return count ? count : 1;
}

tutti_status tutti__bench_try(stand *s, int64_t bytes, int64_t *wrong_p)
{
    double us;

    set_pieces(s, count_for(s, bytes));
    s->stride = 1;
    return one_round(s, &us, wrong_p);
}

/* Of the operation's calls only: those between them, which choose for themselves, are barriers and small sums. */
static double force(const stand *s, const tutti__coll_algorithm *algorithm, const tutti__coll *call)
{
    tutti__tuner *tuner = tutti__group_tuner(s->group);

    if (!algorithm)
        return 0;
    (void)tutti__tuner_force(tuner, s->bench->kind, algorithm->name);
    return (double)tutti__tuner_estimate(tuner, algorithm, call) * 1e-3;
}

tutti_status tutti__bench_one(stand *s, int64_t bytes, const tutti__coll_algorithm *algorithm,
                              const tutti__coll *as, double *median_us_p, int64_t *wrong_p)
{
    const tutti__bench *b = s->bench;
    tutti__bench_row row = {0};
    double us, estimate_us = force(s, algorithm, as);
    tutti_status status;

    set_pieces(s, count_for(s, bytes));
    row = (tutti__bench_row){.algorithm = algorithm ? algorithm->name : NULL,
                             .estimate_us = estimate_us,
                             .bytes = s->whole * s->element,
                             .count = s->share,
                             .root = s->traits->from_root || s->traits->to_root ? b->root : -1,
                             .timers = s->size,
                             .bus_factor = bus_factor(s)};
    s->stride = 1;
    status = one_round(s, &us, &row.wrong);
    memset(s->memory, 0, s->room * (size_t)s->flights);
    s->stride = s->share / SAMPLE + 1;
    if (status == TUTTI_OK)
        status = tutti__bench_rounds(s->table, &row, row.bytes * (size_t)s->flights, one_round, s);
    if (algorithm)
        (void)tutti__tuner_force(tutti__group_tuner(s->group), b->kind, NULL);
    if (status == TUTTI_OK)
        status = tutti__bench_table_add(s->table, &row);
    *wrong_p += row.wrong;
    *median_us_p = row.median_us;
    free(row.times);
    return status;
}

static tutti_status measure(stand *s, int64_t bytes, int64_t *wrong_p, void *arg)
{
    double median_us;

    (void)arg;
    return tutti__bench_one(s, bytes, NULL, NULL, &median_us, wrong_p);
}

/* ---- Running ------------------------------------------------------------------------------------------ */

static tutti_status take_memory(stand *s)
{
    size_t n = (size_t)s->size;

    s->flights = s->bench->in_flight ? (int)s->bench->in_flight : 1;
    s->src_counts = calloc(n, sizeof *s->src_counts);
    s->dst_counts = calloc(n, sizeof *s->dst_counts);
    s->works = calloc((size_t)s->flights, sizeof *s->works);
    if (!s->src_counts || !s->dst_counts || !s->works)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", s->size);
    for (size_t i = 0; i < s->bench->sizes.n; i++) {
        size_t bytes = count_for(s, s->bench->sizes.bytes[i]) * s->element;

        s->room = bytes > s->room ? bytes : s->room;
    }
    s->room = (s->room + 63) / 64 * 64;
    TUTTI_TRY(tutti__bench_alloc(s->bench, s->group, s->room * (size_t)s->flights, &s->memory));
    /* What is sent to each rank differs from what is received. */
    return s->traits->scatters || s->bench->kind == TUTTI__OP_SEND
               ? tutti__bench_alloc(s->bench, s->group, s->room * (size_t)s->flights, &s->apart)
               : TUTTI_OK;
}

static tutti_status run(stand *s, tutti__bench_size *each, void *arg, int64_t *wrong_p)
{
    tutti_status status;

    if (!s->bench->explain)
        tutti__bench_table_head(s->table);
    status = take_memory(s);
    for (size_t i = 0; i < s->bench->sizes.n && status == TUTTI_OK; i++)
        status = each(s, s->bench->sizes.bytes[i], wrong_p, arg);
    return status;
}

static tutti_status check_root(const stand *s)
{
    if (s->bench->root < s->size)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "--root is %d, expected a rank from 0 to %d", s->bench->root,
                       s->size - 1);
}

tutti_status tutti__bench_sizes(tutti__bench_table *table, tutti__bench_size *each, void *arg,
                                int64_t *wrong_p)
{
    const tutti__bench *bench = table->bench;
    stand s = {.bench = bench,
               .table = table,
               .group = table->group,
               .size = tutti_group_size(table->group),
               .rank = tutti_group_rank(table->group),
               .traits =
                   tutti__op_traits_of(&(tutti__operation){.signature.op = (uint8_t)bench->kind}),
               .element = tutti_dtype_size(bench->dtype)};
    tutti_status status = check_root(&s);

    if (status == TUTTI_OK)
        status = run(&s, each, arg, wrong_p);
    tutti__bench_free(bench, s.group, s.apart);
    tutti__bench_free(bench, s.group, s.memory);
    free(s.src_counts);
    free(s.dst_counts);
    free(s.works);
    return status;
}

tutti_status tutti__bench_collective(tutti__bench_table *table, int64_t *wrong_p)
{
    return tutti__bench_sizes(table, measure, NULL, wrong_p);
}
