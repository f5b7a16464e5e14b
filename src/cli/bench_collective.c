/* bench_collective.c -- times one collective at several sizes, and checks what it did.   SPDX-License-Identifier: MIT
 *
 * Every buffer stands for the same picture: `whole`, the elements that all ranks together hold before or after the call.
 * What rank r puts at place i in round k is a small number that is a function of (r, i, k), so anyone can tell what must
 * come out. The first round fills and checks every element; the others, whose time is taken, a few that lie elsewhere each
 * time: to read or write more would move the cache lines that the next round is to move. */
#include "base/half.h"
#include "cli/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 4 };

typedef struct stand {
    const tutti__bench *bench;
    tutti_group *group;
    size_t size, rank, element;
    size_t count, share; /* elements of whole; of one rank's part of it */
    char *whole, *part;  /* part: where reduce_scatter delivers */
    uint64_t round;
    size_t first, stride; /* the elements that a round writes and checks */
    double *times;        /* microseconds of each iteration */
    FILE *json;           /* on rank 0, or NULL */
    char *json_text;
    size_t json_bytes;
} stand;

/* ---- Values -------------------------------------------------------------------------------------------- */

static uint64_t value_at(const stand *s, size_t rank, size_t i)
{
    uint64_t kinds = s->bench->redop == TUTTI_PRODUCT ? 2 : 4; /* powers of two stay exact */

    return 1 + ((i * 2654435761u >> 13) + 3 * rank + s->round) % kinds;
}

/* One element from an integer that wraps, or from a real number. */
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

static void put_reduced(const stand *s, size_t i, char *at)
{
    uint64_t integer = value_at(s, 0, i);
    double real = (double)integer, n = (double)s->size;

    for (size_t r = 1; r < s->size; r++) {
        uint64_t v = value_at(s, r, i);
        double x = (double)v;

        switch (s->bench->redop) {
        case TUTTI_PRODUCT:
            integer *= v;
            real *= x;
            break;
        case TUTTI_MIN:
            integer = v < integer ? v : integer;
            real = x < real ? x : real;
            break;
        case TUTTI_MAX:
            integer = v > integer ? v : integer;
            real = x > real ? x : real;
            break;
        default:
            integer += v;
            real += x;
        }
    }
    if (s->bench->redop == TUTTI_AVG)
        real = s->bench->dtype == TUTTI_F64 ? real / n : (double)((float)real / (float)n);
    put(s, integer, real, at);
}

static bool mine(const stand *s, size_t i)
{
    return i / s->share == s->rank;
}

static void fill(const stand *s)
{
    for (size_t i = s->first; i < s->count; i += s->stride) {
        bool gives = s->bench->kind == TUTTI__OP_ALL_GATHER  ? mine(s, i)
                     : s->bench->kind == TUTTI__OP_BROADCAST ? s->rank == 0
                                                             : true;

        put_small(s, gives ? value_at(s, s->rank, i) : 0, s->whole + i * s->element);
        if (s->bench->kind == TUTTI__OP_REDUCE_SCATTER && mine(s, i))
            put_small(s, 0, s->part + (i - s->rank * s->share) * s->element);
    }
}

static int64_t count_wrong(const stand *s)
{
    int64_t wrong = 0;
    char expected[8];

    for (size_t i = s->first; i < s->count; i += s->stride) {
        const char *got = s->whole + i * s->element;

        if (s->bench->kind == TUTTI__OP_ALL_GATHER)
            put_small(s, value_at(s, i / s->share, i), expected);
        else if (s->bench->kind == TUTTI__OP_BROADCAST)
            put_small(s, value_at(s, 0, i), expected);
        else
            put_reduced(s, i, expected);
        if (s->bench->kind == TUTTI__OP_REDUCE_SCATTER) {
            if (!mine(s, i))
                continue;
            got = s->part + (i - s->rank * s->share) * s->element;
        }
        wrong += memcmp(got, expected, s->element) != 0;
    }
    return wrong;
}

/* ---- Measuring ------------------------------------------------------------------------------------------ */

static tutti_status call(const stand *s)
{
    tutti_buf whole = {s->whole, s->count, s->bench->dtype};
    tutti_buf own = {s->whole + s->rank * s->share * s->element, s->share, s->bench->dtype};
    tutti_buf part = {s->part, s->share, s->bench->dtype};

    switch (s->bench->kind) {
    case TUTTI__OP_ALL_GATHER:
        return tutti_all_gather(s->group, own, whole, NULL);
    case TUTTI__OP_REDUCE_SCATTER:
        return tutti_reduce_scatter(s->group, whole, part, s->bench->redop, NULL);
    case TUTTI__OP_BROADCAST:
        return tutti_broadcast(s->group, whole, 0, NULL);
    default:
        return tutti_all_reduce(s->group, whole, s->bench->redop, NULL);
    }
}

static tutti_status one_round(stand *s, double *us_p, int64_t *wrong_p)
{
    uint64_t begin;

    s->round++;
    s->first = s->round * 17 % s->stride; /* from one cache line to the next */
    fill(s);
    TUTTI_TRY(tutti_barrier(s->group, NULL));
    begin = tutti__now_ns();
    TUTTI_TRY(call(s));
    *us_p = (double)(tutti__now_ns() - begin) * 1e-3;
    *wrong_p += count_wrong(s);
    /* Nobody writes the next round's numbers into memory that others still check. */
    return tutti_barrier(s->group, NULL);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double bus_factor(const stand *s)
{
    double n = (double)s->size;

    return s->bench->kind == TUTTI__OP_BROADCAST    ? 1
           : s->bench->kind == TUTTI__OP_ALL_REDUCE ? 2 * (n - 1) / n
                                                    : (n - 1) / n;
}

static void report(stand *s, int64_t iterations, int64_t wrong)
{
    const tutti__bench *b = s->bench;
    size_t bytes = s->count * s->element;
    double median, p95, algbw;

    qsort(s->times, (size_t)iterations, sizeof *s->times, compare);
    median = s->times[iterations / 2];
    p95 = s->times[(iterations * 95 + 99) / 100 - 1];
    algbw = (double)bytes / (median * 1e3);
    printf("%12zu %12zu %6s %8s %10.2f %10.2f %9.3f %9.3f %7lld\n", bytes, s->count, b->dtype_name,
           b->redop_name, median, p95, algbw, algbw * bus_factor(s), (long long)wrong);
    fflush(stdout);
    if (!s->json)
        return;
    fprintf(s->json,
            "%s  {\"op\": \"%s\", \"bytes\": %zu, \"dtype\": \"%s\", \"ranks\": %zu, "
            "\"iterations\": %lld, \"median_us\": %.3f, \"p95_us\": %.3f, "
            "\"algbw_gbps\": %.6f, \"busbw_gbps\": %.6f, \"wrong\": %lld}",
            ftell(s->json) > 0 ? ",\n" : "[\n", tutti__op_name(b->kind), bytes, b->dtype_name,
            s->size, (long long)iterations, median, p95, algbw, algbw * bus_factor(s),
            (long long)wrong);
}

/* Many where they are quick: about a second at the speed of memory. */
static int64_t iterations_for(const tutti__bench *b, size_t bytes)
{
    double k = 1e9 / ((double)bytes + 5e5);

    return b->iterations > 0 ? b->iterations : k < 10 ? 10 : k > 1000 ? 1000 : (int64_t)k;
}

static size_t count_for(const stand *s, int64_t bytes)
{
    size_t count = (size_t)bytes / s->element;

    if (s->bench->kind == TUTTI__OP_ALL_GATHER || s->bench->kind == TUTTI__OP_REDUCE_SCATTER)
        count = count < s->size ? s->size : count / s->size * s->size;
    return count ? count : 1;
}

static tutti_status measure(stand *s, int64_t bytes, int64_t *wrong_p)
{
    int64_t iterations, wrong = 0;
    double us;

    s->count = count_for(s, bytes);
    s->share = s->bench->kind == TUTTI__OP_ALL_GATHER || s->bench->kind == TUTTI__OP_REDUCE_SCATTER
                   ? s->count / s->size
                   : s->count;
    iterations = iterations_for(s->bench, s->count * s->element);
    s->times = calloc((size_t)iterations, sizeof *s->times);
    if (!s->times)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %lld times", (long long)iterations);
    s->stride = 1;
    TUTTI_TRY(one_round(s, &us, &wrong));
    memset(s->whole, 0, s->count * s->element);
    s->stride = s->count / SAMPLE + 1;
    for (int64_t i = 1; i < s->bench->warmup; i++)
        TUTTI_TRY(one_round(s, &us, &wrong));
    for (int64_t i = 0; i < iterations; i++)
        TUTTI_TRY(one_round(s, &s->times[i], &wrong));
    /* What an iteration took is the mean over ranks, as in nccl-tests. */
    TUTTI_TRY(tutti_all_reduce(s->group, (tutti_buf){s->times, (size_t)iterations, TUTTI_F64},
                               TUTTI_AVG, NULL));
    TUTTI_TRY(tutti_all_reduce(s->group, (tutti_buf){&wrong, 1, TUTTI_I64}, TUTTI_SUM, NULL));
    *wrong_p += wrong;
    if (s->rank == 0)
        report(s, iterations, wrong);
    free(s->times);
    s->times = NULL;
    return TUTTI_OK;
}

/* ---- The whole ------------------------------------------------------------------------------------------ */

static tutti_status take_memory(stand *s)
{
    size_t most = 0;

    for (size_t i = 0; i < s->bench->n_sizes; i++) {
        size_t bytes = count_for(s, s->bench->sizes[i]) * s->element;

        most = bytes > most ? bytes : most;
    }
    if (s->bench->kind == TUTTI__OP_REDUCE_SCATTER && !(s->part = tutti__alloc(most / s->size)))
        return TUTTI_ERR_MEMORY;
    if (s->bench->group_memory)
        return tutti_group_alloc(s->group, most, (void **)&s->whole);
    s->whole = tutti__alloc(most);
    return s->whole ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void print_head(const stand *s)
{
    const tutti__bench *b = s->bench;

    printf("# %s, %zu rank%s (%s), %s memory, Tutti %s\n", tutti__op_name(b->kind), s->size,
           s->size == 1 ? "" : "s", tutti_group_transport_name(s->group),
           b->group_memory ? "group" : "plain", TUTTI_VERSION);
    printf("#%11s %12s %6s %8s %10s %10s %9s %9s %7s\n", "size", "count", "type", "redop", "time",
           "p95", "algbw", "busbw", "#wrong");
    printf("#%11s %12s %6s %8s %10s %10s %9s %9s\n", "(B)", "(elements)", "", "", "(us)", "(us)",
           "(GB/s)", "(GB/s)");
    fflush(stdout);
}

/* At once, empty: a path that cannot be written is known before the measuring. */
static tutti_status open_json(stand *s)
{
    if (s->rank != 0 || !s->bench->json)
        return TUTTI_OK;
    s->json = open_memstream(&s->json_text, &s->json_bytes);
    if (!s->json)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", s->bench->json);
    return tutti__write_file(s->bench->json, "[]\n", 3);
}

static tutti_status write_json(stand *s)
{
    if (!s->json)
        return TUTTI_OK;
    fputs("\n]\n", s->json);
    if (fflush(s->json) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", s->bench->json);
    return tutti__write_file(s->bench->json, s->json_text, s->json_bytes);
}

static tutti_status run(stand *s, int64_t *wrong_p)
{
    TUTTI_TRY(open_json(s));
    TUTTI_TRY(take_memory(s));
    if (s->rank == 0)
        print_head(s);
    for (size_t i = 0; i < s->bench->n_sizes; i++)
        TUTTI_TRY(measure(s, s->bench->sizes[i], wrong_p));
    return write_json(s);
}

tutti_status tutti__bench_collective(const tutti__bench *bench, int64_t *wrong_p)
{
    stand s = {.bench = bench, .element = tutti_dtype_size(bench->dtype)};
    tutti_status status = tutti_group_init(&s.group, NULL);

    *wrong_p = 0;
    if (status != TUTTI_OK)
        return status;
    s.size = (size_t)tutti_group_size(s.group);
    s.rank = (size_t)tutti_group_rank(s.group);
    status = run(&s, wrong_p);
    free(s.times);
    if (s.json)
        fclose(s.json);
    free(s.json_text);
    free(s.part);
    if (bench->group_memory)
        tutti_group_release(s.group, s.whole);
    else
        free(s.whole);
    tutti_group_free(s.group);
    return status;
}
