/* trace.c -- spans to Chrome's JSON.   SPDX-License-Identifier: MIT */
#include "train/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_time(const void *a, const void *b)
{
    const tutti__event *x = a, *y = b;

    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->end_ns > y->end_ns ? -1 : x->end_ns < y->end_ns; /* the outer one first */
}

static void name_thread(FILE *out, int rank, int thread, const char *name)
{
    fprintf(out,
            "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%"
            "s\"}},\n",
            rank, thread, name);
}

/* What an event's number counts. */
static const char *unit_of(const tutti__event *e)
{
    if (strcmp(e->category, "comm") == 0)
        return "bucket";
    return strcmp(e->category, "data") == 0 ? "batch" : "step";
}

static void print_trace(FILE *out, const tutti__event *events, size_t n, int rank,
                        uint64_t begin_ns, uint64_t end_ns)
{
    int last_loader = 0;

    fprintf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    name_thread(out, rank, TUTTI__THREAD_MAIN, "main");
    name_thread(out, rank, TUTTI__THREAD_COMM, "communication");
    for (size_t i = 0; i < n; i++)
        last_loader = events[i].thread > last_loader ? events[i].thread : last_loader;
    for (int thread = TUTTI__THREAD_LOADER; thread <= last_loader; thread++)
        name_thread(out, rank, thread, "loader");
    for (size_t i = 0; i < n; i++) {
        const tutti__event *e = &events[i];

        if (e->begin_ns < begin_ns || e->begin_ns > end_ns)
            continue;
        fprintf(out,
                "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
                "\"dur\":%.3f",
                e->name, e->category, rank, e->thread, (double)e->begin_ns * 1e-3,
                (double)(e->end_ns - e->begin_ns) * 1e-3);
        if (e->arg >= 0)
            fprintf(out, ",\"args\":{\"%s\":%lld}", unit_of(e), (long long)e->arg);
        fprintf(out, "},\n");
    }
    fprintf(
        out,
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}\n]}\n",
        rank, rank);
}

tutti_status tutti__trace_write(const char *path, tutti__recorder *recorder, size_t capacity,
                                int rank, uint64_t begin_ns, uint64_t end_ns)
{
    tutti__event *events = tutti__alloc(capacity * sizeof *events);
    char *text = NULL;
    size_t bytes = 0, n;
    FILE *out = events ? open_memstream(&text, &bytes) : NULL;
    tutti_status status;

    if (!out) {
        free(events);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the trace of %zu events", capacity);
    }
    n = tutti__recorder_read(recorder, events, capacity);
    qsort(events, n, sizeof *events, by_time);
    print_trace(out, events, n, rank, begin_ns, end_ns);
    fclose(out);
    status = text ? tutti__write_file(path, text, bytes)
                  : tutti__fail(TUTTI_ERR_MEMORY, "no memory for the trace");
    free(text);
    free(events);
    return status;
}
