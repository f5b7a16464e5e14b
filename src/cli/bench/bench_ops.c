/* bench_ops.c -- the operations of a step in tables: by kind, and by layer.   SPDX-License-Identifier: MIT */
#include "cli/bench/bench.h"

#include <stdlib.h>
#include <string.h>

/* Sum of several rows of a profile. */
typedef struct sum {
    const tutti__profile_row *row; /* the first */
    double ms, calls;              /* per step */
    double flops, bytes;           /* of all calls in a step */
} sum;

static void add(const tutti__bench_ops *o, sum *s, const tutti__profile_row *row)
{
    const double calls = (double)row->calls / (double)o->steps;

    s->ms += (double)row->ns * 1e-6 / (double)o->steps;
    s->calls += calls;
    s->flops += calls * row->flops;
    s->bytes += calls * row->bytes;
}

/* ---- Figures ---------------------------------------------------------------------------------------------- */

static double gflops(const sum *s)
{
    return s->ms > 0 ? s->flops / s->ms * 1e-6 : 0;
}

static double gbps(const sum *s)
{
    return s->ms > 0 ? s->bytes / s->ms * 1e-6 : 0;
}

static double of_peak(const tutti__bench_ops *o, const sum *s)
{
    return o->peak.gflops > 0 ? gflops(s) / (o->peak.gflops * o->threads) : 0;
}

/* Time, share, and GFLOP/s and their part of the peak, or GB/s for operations that only move memory. */
static void print_figures(FILE *out, const tutti__bench_ops *o, const sum *s)
{
    fprintf(out, " %9.3f %6.1f %%", s->ms, 100 * s->ms / o->step_ms);
    if (s->flops > 0)
        fprintf(out, " %8.1f %8.2f\n", gflops(s), of_peak(o, s));
    else if (s->bytes > 0)
        fprintf(out, " %8s %8s %8.1f\n", "", "", gbps(s));
    else
        fprintf(out, "\n");
}

/* ---- By kind ---------------------------------------------------------------------------------------------- */

static int longest_first(const void *a, const void *b)
{
    const sum *x = a, *y = b;

    return (x->ms < y->ms) - (x->ms > y->ms);
}

static size_t add_up_kinds(const tutti__bench_ops *o, sum *kinds)
{
    size_t n = 0;

    for (size_t i = 0; i < tutti__profile_n_rows(o->profile); i++) {
        const tutti__profile_row *row = tutti__profile_at(o->profile, i);
        size_t k = 0;

        if (row->calls == 0)
            continue;
        while (k < n && strcmp(kinds[k].row->name, row->name) != 0)
            k++;
        if (k == n)
            kinds[n++] = (sum){.row = row};
        add(o, &kinds[k], row);
    }
    qsort(kinds, n, sizeof *kinds, longest_first);
    return n;
}

static void print_kinds(FILE *out, const tutti__bench_ops *o, sum *kinds)
{
    const size_t n = add_up_kinds(o, kinds);
    sum rest = {.ms = o->step_ms - o->data_ms - o->exposed_ms};

    fprintf(out,
            "# rank 0, means of %zu step%s of %.2f ms; a core's measured peak: %.1f GFLOP/s (%s, "
            "F32), a copy %.1f GB/s;\n# convolutions as if computed directly; %.0f page faults a "
            "step\n",
            o->steps, tutti__s(o->steps), o->step_ms, o->peak.gflops,
            *o->peak.isa ? o->peak.isa : "unknown", o->peak.gbps, o->page_faults);
    fprintf(out, "#%-27s %7s %9s %8s %8s %8s %8s\n", "operation", "calls", "(ms)", "share",
            "GFLOP/s", "of peak", "GB/s");
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%-28s %7.1f", kinds[i].row->name, kinds[i].calls);
        print_figures(out, o, &kinds[i]);
        rest.ms -= kinds[i].ms;
    }
    fprintf(out, "%-28s %7s", "data", "");
    print_figures(out, o, &(sum){.ms = o->data_ms});
    fprintf(out, "%-28s %7s", "exposed communication", "");
    print_figures(out, o, &(sum){.ms = o->exposed_ms});
    fprintf(out, "%-28s %7s", "between operations", "");
    print_figures(out, o, &rest);
}

/* ---- By layer --------------------------------------------------------------------------------------------- */

static void print_layer(FILE *out, const tutti__bench_ops *o, const tutti__profile_row *row)
{
    sum s = {.row = row};

    if (row->calls == 0)
        return;
    add(o, &s, row);
    fprintf(out, "%-32s %-26s %-52s", *row->layer ? row->layer : "-", row->name, row->shape);
    print_figures(out, o, &s);
}

/* In the order of forward, grouped by layer. */
static void print_layers(FILE *out, const tutti__bench_ops *o)
{
    const size_t n = tutti__profile_n_rows(o->profile);

    fprintf(out, "#%-31s %-26s %-52s %9s %8s %8s %8s %8s\n", "layer", "operation", "shape", "(ms)",
            "share", "GFLOP/s", "of peak", "GB/s");
    for (size_t i = 0; i < n; i++) {
        const tutti__profile_row *row = tutti__profile_at(o->profile, i);
        size_t first = 0;

        while (*row->layer && strcmp(tutti__profile_at(o->profile, first)->layer, row->layer) != 0)
            first++;
        if (!*row->layer)
            print_layer(out, o, row);
        for (size_t k = i; *row->layer && first == i && k < n; k++)
            if (strcmp(tutti__profile_at(o->profile, k)->layer, row->layer) == 0)
                print_layer(out, o, tutti__profile_at(o->profile, k));
    }
}

void tutti__bench_ops_print(FILE *out, const tutti__bench_ops *o, bool layers)
{
    sum *kinds = calloc(tutti__profile_n_rows(o->profile) + 1, sizeof *kinds);

    if (kinds)
        print_kinds(out, o, kinds);
    free(kinds);
    if (layers)
        print_layers(out, o);
    fflush(out);
}

/* ---- JSON ------------------------------------------------------------------------------------------------- */

void tutti__bench_ops_json(FILE *json, const tutti__bench_ops *o)
{
    fprintf(json,
            ", \"peak_isa\": \"%s\", \"peak_gflops\": %.3f, \"copy_gbps\": %.3f, "
            "\"page_faults\": %.1f, \"mean_step_ms\": %.4f, \"ops\": [",
            o->peak.isa, o->peak.gflops, o->peak.gbps, o->page_faults, o->step_ms);
    for (size_t i = 0; i < tutti__profile_n_rows(o->profile); i++) {
        const tutti__profile_row *row = tutti__profile_at(o->profile, i);
        sum s = {.row = row};

        add(o, &s, row);
        fprintf(json,
                "%s{\"name\": \"%s\", \"layer\": \"%s\", \"shape\": \"%s\", \"calls\": %.3f, "
                "\"ms\": %.4f, \"share\": %.5f, \"flops\": %.0f, \"bytes\": %.0f, "
                "\"gflops\": %.6f, \"of_peak\": %.6f, \"gbps\": %.6f}",
                i ? ", " : "", row->name, row->layer, row->shape, s.calls, s.ms, s.ms / o->step_ms,
                row->flops, row->bytes, gflops(&s), of_peak(o, &s), gbps(&s));
    }
    fprintf(json, "]");
}
