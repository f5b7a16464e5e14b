/* bench_table.c -- the table and JSON file of `tutti bench`, and the measured memory.
 * SPDX-License-Identifier: MIT */
#include "cli/bench/bench.h"

#include "checkpoint/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST = 3 }; /* iterations, however long they take */

/* ---- Table and JSON ------------------------------------------------------------------------------------- */

/* With `--json -` only JSON goes to standard output. */
static bool is_output(const tutti__bench *b)
{
    return b->json && strcmp(b->json, "-") == 0;
}

static bool shows_algorithms(const tutti__bench *b)
{
    return b->algorithms || b->tune;
}

void tutti__bench_table_head(const tutti__bench_table *table)
{
    const tutti__bench *b = table->bench;
    const tutti_group *group = table->group;
    FILE *out = table->out;
    int ranks = tutti_group_size(group);

    if (tutti_group_rank(group) != 0)
        return;
    fprintf(out, "# %s, %d rank%s (%s), %s memory, ", b->name, ranks, ranks == 1 ? "" : "s",
            tutti_group_transport_name(group), b->group_memory ? "group" : "plain");
    if (b->in_flight)
        fprintf(out, "%lld in flight, ", (long long)b->in_flight);
    fprintf(out, "Tutti %s\n", TUTTI_VERSION);
    fprintf(out, "#%11s %12s %6s %8s %5s %10s %10s %9s %9s %7s%s\n", "size", "count", "type",
            "redop", "root", "time", "p95", "algbw", "busbw", "#wrong",
            shows_algorithms(b) ? "  estimate (us), algorithm" : "");
    fprintf(out, "#%11s %12s %6s %8s %5s %10s %10s %9s %9s\n", "(B)", "(elements)", "", "", "",
            "(us)", "(us)", "(GB/s)", "(GB/s)");
    fflush(out);
}

tutti_status tutti__bench_table_open(tutti__bench_table *table, const tutti__bench *bench,
                                     tutti_group *group)
{
    *table = (tutti__bench_table){
        .bench = bench, .group = group, .out = is_output(bench) ? stderr : stdout};
    if (tutti_group_rank(group) != 0)
        return TUTTI_OK;
    tutti__bar_init(&table->bar, stderr);
    if (bench->json) {
        table->json = open_memstream(&table->json_text, &table->json_bytes);
        if (!table->json)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", bench->json);
        TUTTI_TRY(tutti__output_try(bench->json));
    }
    return TUTTI_OK;
}

static tutti_status write_json(tutti__bench_table *table)
{
    fputs("\n]\n", table->json);
    if (fflush(table->json) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", table->bench->json);
    if (is_output(table->bench))
        return tutti__write_all(STDOUT_FILENO, "standard output", table->json_text,
                                table->json_bytes);
    return tutti__write_file(table->bench->json, table->json_text, table->json_bytes);
}

tutti_status tutti__bench_table_close(tutti__bench_table *table, tutti_status status)
{
    if (table->json && status == TUTTI_OK)
        status = write_json(table);
    if (table->json)
        fclose(table->json);
    free(table->json_text);
    return status;
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

/* By size, about a second at the speed of memory. */
static int64_t most_iterations(size_t bytes)
{
    const double k = 1e9 / ((double)bytes + 5e5);

    return k < 10 ? 10 : k > 1000 ? 1000 : (int64_t)k;
}

/* least_ns: of a round so far, on rank 0. */
static tutti_status decide(tutti__bench_table *table, tutti__bench_row *row, uint64_t least_ns)
{
    const int64_t in_a_second = (int64_t)(1000000000 / (least_ns + 1));
    tutti_buf n = {&row->iterations, 1, TUTTI_I64, NULL};

    if (table->bench->iterations > 0)
        return TUTTI_OK;
    if (in_a_second < row->iterations)
        row->iterations = in_a_second < LEAST ? LEAST : in_a_second;
    return tutti_broadcast(table->group, n, 0, NULL);
}

tutti_status tutti__bench_rounds(tutti__bench_table *table, tutti__bench_row *row, size_t bytes,
                                 tutti__bench_round *round, void *stand)
{
    const tutti__bench *b = table->bench;
    const int64_t before = b->warmup - 1;
    uint64_t least_ns = UINT64_MAX, begin;
    char doing[64];
    double us = 0;

    row->iterations = b->iterations > 0 ? b->iterations : most_iterations(bytes);
    row->times = calloc((size_t)row->iterations, sizeof *row->times);
    if (!row->times)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %lld times",
                           (long long)row->iterations);
    snprintf(doing, sizeof doing, "%s, %zu B", b->name, row->bytes);
    for (int64_t i = -before; i < row->iterations; i++) {
        tutti__bar_count(&table->bar, doing, "calls", (size_t)(before + i),
                         (size_t)(before + row->iterations));
        begin = tutti__now_ns();
        TUTTI_TRY(round(stand, i < 0 ? &us : &row->times[i], &row->wrong));
        if (i <= 0 && tutti__now_ns() - begin < least_ns)
            least_ns = tutti__now_ns() - begin;
        if (i == 0)
            TUTTI_TRY(decide(table, row, least_ns));
    }
    tutti__bar_clear(&table->bar);
    return TUTTI_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void tutti__bench_sort(double *times, size_t n, double *median_p, double *p95_p)
{
    qsort(times, n, sizeof *times, compare);
    *median_p = times[n / 2];
    *p95_p = times[(n * 95 + 99) / 100 - 1];
}

/* A number of JSON; null for rates without a measurable time. */
static double number(double value)
{
    return isfinite(value) ? value : 0;
}

void tutti__bench_json_row(tutti__bench_table *table, const tutti__bench_figures *f,
                           const char *more)
{
    const char *transport = tutti_group_transport_name(table->group);

    if (!table->json)
        return;
    fprintf(table->json,
            "%s  {\"op\": \"%s\", \"bytes\": %zu, \"dtype\": \"%s\", \"redop\": \"%s\", "
            "\"root\": %d, \"ranks\": %d, \"transport\": \"%s\", \"memory\": \"%s\", "
            "\"backend\": \"%s\", \"iterations\": %lld, \"median_us\": %.3f, \"p95_us\": %.3f, "
            "\"algbw_gbps\": %.6f, \"busbw_gbps\": %.6f, \"wrong\": %lld%s}",
            ftell(table->json) > 0 ? ",\n" : "[\n", table->bench->name, f->bytes, f->dtype,
            f->redop, f->root, tutti_group_size(table->group), transport, f->memory,
            strcmp(transport, "mpi") == 0 ? "mpi" : "native", (long long)f->iterations,
            f->median_us, f->p95_us, number(f->algbw), number(f->busbw), (long long)f->wrong, more);
}

static void print_row(tutti__bench_table *table, const tutti__bench_row *row, double median,
                      double p95)
{
    const tutti__bench *b = table->bench;
    double algbw = (double)row->bytes / (median * 1e3), busbw = algbw * row->bus_factor;
    tutti__bench_figures figures = {.bytes = row->bytes,
                                    .dtype = b->dtype_name,
                                    .redop = b->redop_name,
                                    .memory = b->group_memory ? "group" : "plain",
                                    .root = row->root,
                                    .iterations = row->iterations,
                                    .wrong = row->wrong,
                                    .median_us = median,
                                    .p95_us = p95,
                                    .algbw = algbw,
                                    .busbw = busbw};
    char more[128] = "";

    fprintf(table->out, "%12zu %12zu %6s %8s %5d %10.2f %10.2f %9.3f %9.3f %7lld", row->bytes,
            row->count, b->dtype_name, b->redop_name, row->root, median, p95, algbw, busbw,
            (long long)row->wrong);
    if (row->algorithm) {
        fprintf(table->out, " %10.1f %s", row->estimate_us, row->algorithm);
        snprintf(more, sizeof more, ", \"algorithm\": \"%s\", \"estimate_us\": %.3f",
                 row->algorithm, row->estimate_us);
    }
    fputc('\n', table->out);
    fflush(table->out);
    tutti__bench_json_row(table, &figures, more);
}

tutti_status tutti__bench_table_add(tutti__bench_table *table, tutti__bench_row *row)
{
    tutti_buf times = {row->times, (size_t)row->iterations, TUTTI_F64, NULL},
              wrong = {&row->wrong, 1, TUTTI_I64, NULL};
    double median, p95;

    TUTTI_TRY(tutti_all_reduce(table->group, times, TUTTI_SUM, NULL));
    TUTTI_TRY(tutti_all_reduce(table->group, wrong, TUTTI_SUM, NULL));
    for (int64_t i = 0; i < row->iterations; i++)
        row->times[i] /= row->timers;
    tutti__bench_sort(row->times, (size_t)row->iterations, &median, &p95);
    row->median_us = median;
    if (tutti_group_rank(table->group) == 0)
        print_row(table, row, median, p95);
    return TUTTI_OK;
}

/* ---- Memory --------------------------------------------------------------------------------------------- */

tutti_status tutti__bench_alloc(const tutti__bench *bench, tutti_group *group, size_t bytes,
                                char **memory_p)
{
    void *p = NULL;

    if (bench->group_memory)
        TUTTI_TRY(tutti_group_alloc(group, bytes, &p));
    else
        p = tutti__alloc(bytes);
    *memory_p = p;
    return p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tutti__bench_free(const tutti__bench *bench, tutti_group *group, char *memory)
{
    if (bench->group_memory)
        tutti_group_release(group, memory);
    else
        free(memory);
}
