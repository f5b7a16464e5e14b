/* trace.c -- writes spans as Chrome's JSON.   SPDX-License-Identifier: MIT */
#include "tensor/op_profile.h"
#include "train/output/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_time(const void *a, const void *b)
{
    const tutti__time_span *x = a, *y = b;

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

/* The unit of an event's number. */
static const char *unit_of(const tutti__time_span *e)
{
    if (strcmp(e->category, "comm") == 0)
        return "bucket";
    return strcmp(e->category, "data") == 0 ? "batch" : "step";
}

static void print_times(FILE *out, const char *name, const tutti_ddp_times *t)
{
    fprintf(out,
            ",\n  \"%s\":{\"forward_ms\":%.3f,\"backward_ms\":%.3f,\"comm_ms\":%.3f,"
            "\"exposed_ms\":%.3f,\"overlap_ms\":%.3f}",
            name, t->forward_ms, t->backward_ms, t->comm_ms, t->exposed_ms, t->overlap_ms);
}

/* Prints the buckets. */
static void print_buckets(FILE *out, const tutti_reducer *r)
{
    fprintf(out, ",\n  \"buckets\":[");
    for (size_t b = 0; b < tutti_reducer_n_buckets(r); b++) {
        const tutti_bucket_info info = tutti_reducer_bucket(r, b);

        fprintf(out, "%s\n    {\"bytes\":%zu,\"parameters\":[", b ? "," : "", info.bytes);
        for (size_t k = 0; k < info.n; k++) {
            fputs(k ? "," : "", out);
            tutti__json_string(out, tutti_reducer_name(r, tutti_reducer_at(r, info.first + k)));
        }
        fprintf(out, "]}");
    }
    fprintf(out, "]");
}

/* Prints the offsets to rank 0's clock at both ends of the window, and their errors. */
static void print_clock(FILE *out, const tutti__clock *c)
{
    fprintf(out,
            ",\n  \"clock\":{\"of_rank\":0,\"offset_ns\":[%lld,%lld],\"error_ns\":[%lld,%lld]}",
            (long long)c->first.offset_ns, (long long)c->last.offset_ns,
            (long long)c->first.error_ns, (long long)c->last.error_ns);
}

static void print_ddp(FILE *out, tutti_ddp *ddp, const tutti__clock *clock)
{
    const tutti_ddp_stats s = tutti_ddp_get_stats(ddp);

    fprintf(out,
            "\"otherData\":{\"rank\":%d,\"world_size\":%d,\"transport\":\"%s\",\"hook\":\"%s\","
            "\"first_bucket_mb\":%g,\"bucket_mb\":%g,\"find_unused\":%s,\"static_graph\":%s,"
            "\"broadcast_buffers\":%s,\"parameters\":%zu,\"parameter_bytes\":%zu,\"buffers\":%zu,"
            "\"steps\":%llu,\"wire_bytes\":%llu",
            s.rank, s.world_size, s.transport, s.hook, s.first_bucket_mb, s.bucket_mb,
            s.find_unused ? "true" : "false", s.static_graph ? "true" : "false",
            s.broadcast_buffers ? "true" : "false", s.n_parameters, s.parameter_bytes, s.n_buffers,
            (unsigned long long)s.steps, (unsigned long long)s.traffic.wire_bytes);
    print_times(out, "last", &s.last);
    print_times(out, "mean", &s.mean);
    print_clock(out, clock);
    if (tutti_ddp_reducer(ddp))
        print_buckets(out, tutti_ddp_reducer(ddp));
    fprintf(out, "},\n");
}

/* GB/s are 1e9 bytes a second, of the least bytes that must be read and written. */
static void print_operation(FILE *out, const tutti__time_span *e)
{
    const tutti__profile_row *row = (const void *)(uintptr_t)e->detail[0];
    const double ns = e->end_ns > e->begin_ns ? (double)(e->end_ns - e->begin_ns) : 1;

    fprintf(out, ",\"args\":{");
    if (*row->layer) {
        fprintf(out, "\"layer\":");
        tutti__json_string(out, row->layer);
        fprintf(out, ",");
    }
    fprintf(out, "\"shape\":\"%s\",\"flops\":%.0f,\"bytes\":%.0f,\"gflops\":%.5g,\"gbps\":%.5g}",
            row->shape, row->flops, row->bytes, row->flops / ns, row->bytes / ns);
}

static void print_trace(FILE *out, const tutti__time_span *events, size_t n, const tutti__trace *t)
{
    int last_loader = 0;
    bool writes = false;

    fprintf(out, "{\"displayTimeUnit\":\"ms\",");
    print_ddp(out, t->ddp, t->clock);
    fprintf(out, "\"traceEvents\":[\n");
    name_thread(out, t->rank, TUTTI__THREAD_MAIN, "main");
    name_thread(out, t->rank, TUTTI__THREAD_COMM, "communication");
    for (size_t i = 0; i < n; i++)
        if (events[i].thread == TUTTI__THREAD_WRITER)
            writes = true;
        else
            last_loader = events[i].thread > last_loader ? events[i].thread : last_loader;
    for (int thread = TUTTI__THREAD_LOADER; thread <= last_loader; thread++)
        name_thread(out, t->rank, thread, "loader");
    if (writes)
        name_thread(out, t->rank, TUTTI__THREAD_WRITER, "checkpoints");
    for (size_t i = 0; i < n; i++) {
        const tutti__time_span *e = &events[i];

        if (e->begin_ns < t->begin_ns || e->begin_ns > t->end_ns)
            continue;
        fprintf(out,
                "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
                "\"dur\":%.3f",
                e->name, e->category, t->rank, e->thread,
                (double)tutti__clock_of_rank0(t->clock, e->begin_ns) * 1e-3,
                (double)(e->end_ns - e->begin_ns) * 1e-3);
        if (strcmp(e->category, TUTTI__PROFILE_CATEGORY) == 0)
            print_operation(out, e);
        else if (e->arg >= 0)
            fprintf(out, ",\"args\":{\"%s\":%lld}", unit_of(e), (long long)e->arg);
        fprintf(out, "},\n");
    }
    fprintf(
        out,
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}\n]}\n",
        t->rank, t->rank);
}

tutti_status tutti__trace_write(const tutti__trace *t)
{
    tutti__time_span *events = tutti__alloc(t->capacity * sizeof *events);
    char *text = NULL;
    size_t bytes = 0, n;
    FILE *out = events ? open_memstream(&text, &bytes) : NULL;
    tutti_status status;

    if (!out) {
        free(events);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the trace of %zu events", t->capacity);
    }
    n = tutti__recorder_read(t->recorder, events, t->capacity);
    qsort(events, n, sizeof *events, by_time);
    print_trace(out, events, n, t);
    fclose(out);
    status = text ? tutti__write_file(t->path, text, bytes)
                  : tutti__fail(TUTTI_ERR_MEMORY, "no memory for the trace");
    free(text);
    free(events);
    return status;
}
