/* bench_algorithms.c -- collectives by each of their algorithms: compared, explained, and the fastest written to a tuner file.
 * SPDX-License-Identifier: MIT */
#include "checkpoint/output.h"
#include "cli/bench/bench.h"
#include "comm/algorithm/tuner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What was fastest at a size. */
typedef struct fastest {
    const tutti__coll_algorithm *algorithm;
    double us;
    tutti__coll call; /* as the tuner saw it */
} fastest;

typedef struct tuning {
    tutti__bench_table *table;
    FILE *text; /* on rank 0 */
    fastest found[TUTTI__SIZES_MOST];
    size_t n;
} tuning;

static const tutti__coll *last_call(const tutti__bench_table *table)
{
    const tutti__tuner *tuner = tutti__group_tuner(table->group);

    return &tuner->last[table->bench->kind];
}

/* After a first call: ARG if it has not gone by the table. */
static tutti_status check_last(const tutti__bench_table *table)
{
    if (last_call(table)->size > 1 && tutti__coll_find(table->bench->kind, "direct"))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "%s has no choice of algorithms by %s", table->bench->name,
                       tutti_group_transport_name(table->group));
}

/* Reductions whose algorithm depends on the size all sum in one order, so that sizes of buckets do not change results: in a group of few
 * ranks that of `direct`, which is the only one then. */
static bool may_be_chosen(const tutti__coll_algorithm *algorithm, int ranks)
{
    return tutti__op_table[algorithm->op].reduces && ranks <= TUTTI__TUNER_DIRECT
               ? tutti__coll_is_direct(algorithm)
               : tutti__coll_keeps_order(algorithm);
}

/* All that fit; *best: the fastest. */
static tutti_status measure_all(tutti__bench_stand *stand, const tutti__bench_table *table,
                                int64_t bytes, fastest *best, int64_t *wrong_p)
{
    TUTTI_TRY(tutti__bench_try(stand, bytes, wrong_p));
    TUTTI_TRY(check_last(table));
    *best = (fastest){.us = INFINITY, .call = *last_call(table)};
    for (size_t i = 0; i < tutti__coll_n_algorithms; i++) {
        const tutti__coll_algorithm *a = tutti__coll_algorithms[i];
        double us;

        if (!tutti__coll_fits(a, &best->call) ||
            (table->bench->tune && !may_be_chosen(a, best->call.size)))
            continue;
        TUTTI_TRY(tutti__bench_one(stand, bytes, a, &best->call, &us, wrong_p));
        if (us < best->us) {
            best->us = us;
            best->algorithm = a;
        }
    }
    return TUTTI_OK;
}

static tutti_status compare_all(tutti__bench_stand *stand, int64_t bytes, int64_t *wrong_p,
                                void *table_p)
{
    fastest best;

    return measure_all(stand, table_p, bytes, &best, wrong_p);
}

/* "16 ranks, 4096 B: recursive_doubling, the least estimate of those that keep the order of sums: direct 1200 us, recursive_doubling 310 us, ..." */
static tutti_status explain(tutti__bench_stand *stand, int64_t bytes, int64_t *wrong_p,
                            void *table_p)
{
    static const char *const reasons[] = {
        [TUTTI__TUNER_FORCED] = "as TUTTI_ALGORITHM says",
        [TUTTI__TUNER_RULE] = "as TUTTI_TUNER_FILE says",
        [TUTTI__TUNER_FEW] = "for few ranks, unless measured otherwise (--tune)",
        [TUTTI__TUNER_ESTIMATE] = "the least estimate of those that keep the order of sums"};
    tutti__bench_table *table = table_p;
    tutti__tuner *tuner = tutti__group_tuner(table->group);
    const tutti__coll_algorithm *chosen;
    tutti__coll call;

    TUTTI_TRY(tutti__bench_try(stand, bytes, wrong_p));
    TUTTI_TRY(check_last(table));
    if (tutti_group_rank(table->group) != 0)
        return TUTTI_OK;
    call = *last_call(table);
    chosen = tutti__tuner_choose(tuner, &call);
    fprintf(table->out, "%s, %d ranks, %lld B: %s, %s", table->bench->name, call.size,
            (long long)tutti__coll_bytes(&call), chosen->name,
            reasons[tutti__tuner_why(tuner, &call)]);
    for (size_t i = 0, n = 0; tuner->has_links && i < tutti__coll_n_algorithms; i++)
        if (tutti__coll_fits(tutti__coll_algorithms[i], &call))
            fprintf(table->out, "%s%s %.0f us", n++ == 0 ? "; estimates: " : ", ",
                    tutti__coll_algorithms[i]->name,
                    (double)tutti__tuner_estimate(tuner, tutti__coll_algorithms[i], &call) * 1e-3);
    fputc('\n', table->out);
    return TUTTI_OK;
}

tutti_status tutti__bench_algorithms(tutti__bench_table *table, int64_t *wrong_p)
{
    const bool explains = table->bench->explain;

    if (!tutti__group_tuner(table->group))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s: this group, by %s, has no choice of algorithms: that is for TCP and "
            "several hosts (TUTTI_TRANSPORT=tcp)",
            explains ? "--explain" : "--algorithms", tutti_group_transport_name(table->group));
    TUTTI_TRY(tutti__group_measure_links(table->group));
    return tutti__bench_sizes(table, explains ? explain : compare_all, table, wrong_p);
}

/* ---- The tuner file ------------------------------------------------------------------------------------------------- */

static tutti_status tune_size(tutti__bench_stand *stand, int64_t bytes, int64_t *wrong_p,
                              void *tuning_p)
{
    tuning *t = tuning_p;

    TUTTI_TRY(tutti__bench_try(stand, bytes, wrong_p));
    if (t->table->bench->tune_all && last_call(t->table)->size < 2)
        return TUTTI_OK; /* between hosts it goes another way */
    TUTTI_TRY(measure_all(stand, t->table, bytes, &t->found[t->n], wrong_p));
    t->n++;
    return TUTTI_OK;
}

/* A line for each run of sizes with one algorithm, which ends between it and the next; the last has no end. */
static void write_rules(const tuning *t)
{
    const char *name = t->table->bench->name;

    for (size_t i = 0; i < t->n; i++) {
        const fastest *f = &t->found[i], *next = i + 1 < t->n ? &t->found[i + 1] : NULL;
        double bytes = (double)tutti__coll_bytes(&f->call);

        if (next && next->algorithm == f->algorithm)
            continue;
        if (next)
            bytes = sqrt((bytes + 1) * (double)tutti__coll_bytes(&next->call));
        else
            bytes = 1e15;
        fprintf(t->text, "%s %d %.0f %s\n", name, f->call.size, bytes, f->algorithm->name);
    }
}

static tutti_status tune_kind(tuning *t, tutti__op_kind kind, const char *name, int64_t *wrong_p)
{
    tutti__bench bench = *t->table->bench;
    const tutti__bench *before = t->table->bench;
    tutti_status status;

    bench.kind = kind;
    bench.name = name;
    bench.redop_name = tutti__op_table[kind].reduces ? bench.redop_name : "none";
    if (kind == TUTTI__OP_BARRIER)
        bench.sizes.n = 1;
    t->n = 0;
    t->table->bench = &bench;
    status = tutti__bench_sizes(t->table, tune_size, t, wrong_p);
    if (status == TUTTI_OK && t->text)
        write_rules(t);
    t->table->bench = before;
    return status;
}

/* Bytes are those of a host's link, which its ranks share: so the lines also are of other numbers of ranks. */
static void write_links(FILE *text, const tutti__tuner *tuner)
{
    const tutti__shape *shapes = tuner->shapes;
    const int share = shapes[1].size > 0 ? shapes[1].share : shapes[0].share;

    fprintf(text, "# What messages cost, by level (0: in a host, 1: between hosts, 2: between "
                  "switches):\n# links LEVEL LATENCY_NS MESSAGE_NS BYTE_PS REDUCE_PS\n");
    for (int i = shapes[0].farthest > 0 && !tutti__shape_has_hosts(&shapes[0]);
         i <= shapes[0].farthest; i++)
        fprintf(text, "links %d %llu %llu %llu %llu\n", i,
                (unsigned long long)tuner->links.level[i].latency_ns,
                (unsigned long long)tuner->links.level[i].message_ns,
                (unsigned long long)tuner->links.level[i].byte_ps /
                    (unsigned)(tuner->given || i == 0 ? 1 : share),
                (unsigned long long)tuner->links.reduce_ps);
}

static tutti_status tune_all(tuning *t, int64_t *wrong_p)
{
    const tutti__bench *b = t->table->bench;
    const tutti__tuner *tuner = tutti__group_tuner(t->table->group);
    tutti__op_kind kind = TUTTI__N_OPS;

    if (t->text)
        fprintf(
            t->text,
            "# Which algorithm: OPERATION RANKS BYTES ALGORITHM, up to so many bytes of the larger "
            "buffer.\n# Written by tutti bench --tune, Tutti %s, %s, %d ranks.\n",
            TUTTI_VERSION, tutti_group_transport_name(t->table->group),
            tutti_group_size(t->table->group));
    if (t->text)
        write_links(t->text, tuner);
    for (size_t i = 0; i < tutti__coll_n_algorithms; i++) {
        const tutti__op_kind op = tutti__coll_algorithms[i]->op;

        if (op == kind || (!b->tune_all && op != b->kind))
            continue;
        kind = op;
        TUTTI_TRY(tune_kind(t, op, tutti__op_name(op), wrong_p));
    }
    return TUTTI_OK;
}

/* Before it measures: whether there is anything to measure, and where to write it. */
static tutti_status open_tuning(const tuning *t)
{
    tutti_group *group = t->table->group;

    if (!tutti__group_tuner(group))
        return tutti__fail(TUTTI_ERR_ARG,
                           "--tune: this group, by %s, has no choice of algorithms: that is for "
                           "TCP and several hosts (TUTTI_TRANSPORT=tcp)",
                           tutti_group_transport_name(group));
    TUTTI_TRY(
        tutti__group_agree(group, t->text ? tutti__output_try(t->table->bench->tune) : TUTTI_OK));
    return tutti__group_measure_links(group);
}

tutti_status tutti__bench_tune(tutti__bench_table *table, int64_t *wrong_p)
{
    const tutti__bench *b = table->bench;
    tuning *t = tutti__alloc(sizeof *t);
    char *text = NULL;
    size_t bytes;
    tutti_status status;

    if (!t)
        return TUTTI_ERR_MEMORY;
    *t = (tuning){.table = table};
    if (tutti_group_rank(table->group) == 0)
        t->text = open_memstream(&text, &bytes);
    status = open_tuning(t);
    if (status == TUTTI_OK)
        status = tune_all(t, wrong_p);
    if (t->text)
        fclose(t->text);
    if (status == TUTTI_OK && text && *wrong_p == 0)
        status = tutti__write_file(b->tune, text, bytes);
    if (status == TUTTI_OK && text && *wrong_p == 0)
        fprintf(table->out, "# written: %s (TUTTI_TUNER_FILE)\n", b->tune);
    free(text);
    free(t);
    return status;
}
