/* flight_recorder.c -- the last collectives of a rank, reported when its group dies.   SPDX-License-Identifier: MIT
 *
 * queue.c writes the ring as operations begin and end. The first failing call of a rank makes its report, so that it
 * includes that call; for a rank that makes none, the control channel's thread does. Under tutti run, reports go to the
 * launcher's store, and the launcher merges them into one table. */
#include "comm/engine/flight_recorder.h"

#include "comm/bootstrap/store/store.h"
#include "comm/engine/flight_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_FLIGHTS = 1 << 20, STORE_MS = 500 };

static void report_failure(void *self)
{
    tutti__flight_report(self);
}

tutti_status tutti__flight_open(tutti__flight *flight)
{
    long n;

    TUTTI_TRY(tutti__env_int(TUTTI__ENV_FLIGHT, 0, MOST_FLIGHTS, &n));
    pthread_mutex_init(&flight->report_lock, NULL);
    flight->n = (int)n;
    tutti__comm_observe(flight->comm, &(tutti__observer){.self = flight, .report = report_failure});
    if (n == 0)
        return TUTTI_OK;
    flight->recorder = tutti__recorder_new((size_t)n);
    return flight->recorder ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti__signature print_of(const tutti__time_span *e)
{
    return (tutti__signature){.sequence = (uint64_t)e->arg,
                              .count = e->detail[0],
                              .op = (uint8_t)e->detail[1],
                              .dtype = (uint8_t)(e->detail[1] >> 8),
                              .redop = (uint8_t)(e->detail[1] >> 16),
                              .coalesced = e->detail[1] >> 24 & 1,
                              .on_device = e->detail[1] >> 25 & 1,
                              .root = (uint32_t)(e->detail[1] >> 32),
                              .reducer = (uint16_t)(e->detail[2] >> 48),
                              .bucket = (uint16_t)(e->detail[2] >> 32),
                              .tag = (int32_t)(uint32_t)e->detail[2]};
}

/* ---- The report --------------------------------------------------------------------------------------- */

/* Wall-clock time of a monotonic one, in seconds since 1970; printed as integers, so that no locale inserts a comma. */
static void print_time(FILE *out, const char *name, uint64_t ns)
{
    const uint64_t since_1970_ns = tutti__wall_ns() - (tutti__now_ns() - ns);

    fprintf(out, ", \"%s\": %" PRIu64 ".%09u", name, since_1970_ns / 1000000000u,
            (unsigned)(since_1970_ns % 1000000000u));
}

static void print_string(FILE *out, const char *name, const char *text)
{
    fprintf(out, ", \"%s\": ", name);
    tutti__json_string(out, text);
}

/* The object is left open, for times. */
static void print_call(FILE *out, const tutti__signature *signature, const char *state)
{
    char text[TUTTI__SIGNATURE_TEXT];

    tutti__signature_text(signature, text, sizeof text);
    fprintf(out, "{\"sequence\": %" PRIu64 ", \"count\": %" PRIu64 ", \"bytes\": %zu",
            signature->sequence, signature->count, (size_t)tutti__signature_bytes(signature));
    print_string(out, "op", tutti__op_name((tutti__op_kind)signature->op));
    print_string(out, "dtype", tutti_dtype_name((tutti_dtype)signature->dtype));
    print_string(out, "text", text);
    print_string(out, "state", state);
}

static void print_calls(FILE *out, tutti__flight *flight)
{
    size_t n = flight->n < TUTTI__FLIGHT_CALLS ? (size_t)flight->n : TUTTI__FLIGHT_CALLS;
    tutti__time_span *events = calloc(n + 1, sizeof *events);
    tutti__signature *queued = calloc(n + 1, sizeof *queued);
    size_t n_events =
        flight->recorder && events ? tutti__recorder_read(flight->recorder, events, n) : 0;
    size_t n_queued = queued && flight->queue ? flight->queued(flight->queue, queued, n) : 0;
    const char *separator = "";

    fprintf(out, ", \"calls\": [");
    for (size_t i = 0; i < n_events; i++, separator = ", ") {
        const tutti__signature signature = print_of(&events[i]);

        fputs(separator, out);
        print_call(out, &signature, events[i].end_ns ? "done" : "running");
        print_time(out, "began", events[i].begin_ns);
        if (events[i].end_ns)
            print_time(out, "ended", events[i].end_ns);
        putc('}', out);
    }
    for (size_t i = 0; i < n_queued && i < n; i++, separator = ", ") {
        fputs(separator, out);
        print_call(out, &queued[i], "queued");
        putc('}', out);
    }
    putc(']', out);
    free(events);
    free(queued);
}

static void print_ranks(FILE *out, tutti__flight *flight)
{
    if (flight->engine && flight->engine->ops->see)
        flight->engine->ops->see(flight->engine);
    fprintf(out, ", \"members\": [");
    for (int r = 0; r < flight->comm->size; r++)
        fprintf(out, "%s%d", r ? ", " : "", (int)flight->comm->peers[r].world_rank);
    fprintf(out, "], \"seen\": [");
    for (int r = 0; r < flight->comm->size; r++)
        fprintf(out, "%s%" PRId64, r ? ", " : "",
                (int64_t)atomic_load(&flight->comm->peers[r].seen) - 1);
    putc(']', out);
}

static void print_report(FILE *out, tutti__flight *flight)
{
    const tutti__peer *self = &flight->comm->peers[flight->comm->rank];

    fprintf(out,
            "{\"version\": %d, \"id\": \"%016" PRIx64
            "\", \"size\": %d, \"rank\": %d, \"world_rank\": %d, \"pid\": %lld, \"culprit\": %d",
            TUTTI__FLIGHT_VERSION, (uint64_t)flight->comm->id, flight->comm->size,
            flight->comm->rank, (int)self->world_rank, (long long)self->pid,
            (int)flight->comm->cause.culprit);
    print_string(out, "group", flight->comm->name);
    print_string(out, "host", self->host);
    print_string(out, "status", tutti_status_name((tutti_status)flight->comm->cause.status));
    print_string(out, "cause", flight->comm->cause.text);
    print_time(out, "time", tutti__now_ns());
    print_calls(out, flight);
    print_ranks(out, flight);
    putc('}', out);
}

/* NULL: out of memory. */
static char *report_text(tutti__flight *flight)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        return NULL;
    print_report(out, flight);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- Where it goes ------------------------------------------------------------------------------------ */

/* Gives up after half a second: the launcher's host may be the one that died. */
static tutti_status tell_launcher(tutti__flight *flight, const char *text)
{
    char key[64];
    tutti__reply reply = {0};

    snprintf(key, sizeof key, TUTTI__FLIGHT_COUNT, flight->attempt);
    TUTTI_TRY(flight->store->ops->ask(
        flight->store,
        &(tutti__request){.op = TUTTI__ADD, .key = key, .number = 1, .patience_ms = STORE_MS},
        &reply));
    if (reply.number > TUTTI__FLIGHT_REPORTS)
        return TUTTI_OK;
    snprintf(key, sizeof key, TUTTI__FLIGHT_REPORT, flight->attempt, (long long)reply.number);
    return flight->store->ops->ask(flight->store,
                                   &(tutti__request){.op = TUTTI__SET,
                                                     .key = key,
                                                     .value = text,
                                                     .value_bytes = strlen(text),
                                                     .patience_ms = STORE_MS},
                                   &reply);
}

static tutti_status write_report(const tutti__flight *flight, const char *folder, const char *text)
{
    char name[sizeof flight->comm->name], path[4096];

    snprintf(name, sizeof name, "%s", flight->comm->name);
    for (char *c = name; *c; c++)
        *c = *c == '/' ? '_' : *c;
    if (snprintf(path, sizeof path, "%s/flight-%s-rank-%d.json", folder, name,
                 (int)flight->comm->peers[flight->comm->rank].world_rank) >= (int)sizeof path)
        return tutti__fail(TUTTI_ERR_ARG, "TUTTI_FLIGHT_DIR %.60s...: the path is too long",
                           folder);
    TUTTI_TRY(tutti__make_dirs(folder));
    return tutti__write_file(path, text, strlen(text));
}

static void log_last_calls(tutti__flight *flight)
{
    tutti__time_span events[8];
    size_t n = flight->recorder
                   ? tutti__recorder_read(flight->recorder, events, TUTTI__COUNT_OF(events))
                   : 0;
    char done[TUTTI__SIGNATURE_TEXT] = "nothing", running[TUTTI__SIGNATURE_TEXT] = "none";

    for (size_t i = 0; i < n; i++) {
        const tutti__signature signature = print_of(&events[i]);

        if (events[i].end_ns)
            tutti__signature_text(&signature, done, sizeof done);
        else
            tutti__signature_text(&signature, running, sizeof running);
    }
    tutti_log(TUTTI_LOG_INFO, "comm",
              "group \"%s\" is dead; this rank had finished %s; call in progress: %s",
              flight->comm->name, done, running);
}

static void report(tutti__flight *flight)
{
    const char *folder = tutti__env_text(TUTTI__ENV_FLIGHT_DIR);
    char message[2048], *text;
    tutti_status status = TUTTI_OK;

    log_last_calls(flight);
    if (!flight->launched && !*folder)
        return;
    snprintf(message, sizeof message, "%s", tutti_last_error());
    text = report_text(flight);
    if (!text)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the report");
    if (text && flight->launched)
        status = tell_launcher(flight, text);
    if (status != TUTTI_OK &&
        text) /* the same on all ranks, unlike the key, so that it is shown once */
        status = tutti__fail(status,
                             "%s has not taken them within %g s: it is busy, or its host is lost",
                             flight->store->where, STORE_MS * 1e-3);
    if (text && *folder && status == TUTTI_OK)
        status = write_report(flight, folder, text);
    if (status != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "comm", "cannot report the last collectives of this rank: %s",
                  tutti_last_error());
    (void)tutti__fail_again(status, message); /* restores the caller's message */
    free(text);
}

void tutti__flight_report(tutti__flight *flight)
{
    /* id 0: of a group whose ranks do not know each other yet, and have made no call */
    if (flight->n == 0 || flight->comm->size == 1 || flight->comm->id == 0 ||
        atomic_load(&flight->reported))
        return;
    /* a second caller waits until the report is written */
    pthread_mutex_lock(&flight->report_lock);
    if (!atomic_load(&flight->reported))
        report(flight);
    atomic_store(&flight->reported, true);
    pthread_mutex_unlock(&flight->report_lock);
}

void tutti__flight_close(tutti__flight *flight)
{
    if (atomic_load(&flight->comm->failed))
        tutti__flight_report(flight);
    pthread_mutex_lock(&flight->report_lock);
    atomic_store(&flight->reported, true);
    pthread_mutex_unlock(&flight->report_lock);
}

void tutti__flight_destroy(tutti__flight *flight)
{
    tutti__recorder_free(flight->recorder);
    pthread_mutex_destroy(&flight->report_lock);
}
