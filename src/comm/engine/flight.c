/* flight.c -- the last collectives of a rank, told when its group dies.   SPDX-License-Identifier: MIT
 *
 * The ring is written by queue.c as operations begin and end. The first call of each rank that fails makes the report, so
 * that it holds that call; a rank that makes none is reported by the control channel's thread. Under tutti run reports go to the launcher's
 * store, and it merges them into one table. */
#include "comm/engine/flight.h"

#include "comm/bootstrap/store/store.h"
#include "comm/engine/flight_report.h"

#include <jansson.h>
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

static tutti__signature print_of(const tutti__event *e)
{
    return (tutti__signature){.sequence = (uint64_t)e->arg,
                              .count = e->detail[0],
                              .op = (uint8_t)e->detail[1],
                              .dtype = (uint8_t)(e->detail[1] >> 8),
                              .redop = (uint8_t)(e->detail[1] >> 16),
                              .root = (uint32_t)(e->detail[1] >> 32)};
}

/* ---- The report --------------------------------------------------------------------------------------- */

static json_t *call_object(const tutti__signature *signature, const char *state)
{
    char text[128];

    tutti__signature_text(signature, text, sizeof text);
    return json_pack(
        "{s:I, s:s, s:s, s:I, s:I, s:s, s:s}", "sequence", (json_int_t)signature->sequence, "op",
        tutti__op_name((tutti__op_kind)signature->op), "dtype",
        tutti_dtype_name((tutti_dtype)signature->dtype), "count", (json_int_t)signature->count,
        "bytes", (json_int_t)tutti__signature_bytes(signature), "text", text, "state", state);
}

/* Monotonic nanoseconds to seconds since 1970. */
static double calendar_s(uint64_t ns)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9 -
           ((double)tutti__now_ns() - (double)ns) * 1e-9;
}

static void add_time(json_t *call, const char *name, uint64_t ns)
{
    json_object_set_new(call, name, json_real(calendar_s(ns)));
}

static json_t *calls_array(tutti__flight *flight)
{
    size_t n = flight->n < TUTTI__FLIGHT_CALLS ? (size_t)flight->n : TUTTI__FLIGHT_CALLS;
    tutti__event *events = calloc(n + 1, sizeof *events);
    tutti__signature *queued = calloc(n + 1, sizeof *queued);
    json_t *calls = json_array();
    size_t n_events =
        flight->recorder && events ? tutti__recorder_read(flight->recorder, events, n) : 0;
    size_t n_queued = queued && flight->queue ? flight->queued(flight->queue, queued, n) : 0;

    for (size_t i = 0; i < n_events; i++) {
        const tutti__signature signature = print_of(&events[i]);
        json_t *call = call_object(&signature, events[i].end_ns ? "done" : "running");

        add_time(call, "began", events[i].begin_ns);
        if (events[i].end_ns)
            add_time(call, "ended", events[i].end_ns);
        json_array_append_new(calls, call);
    }
    for (size_t i = 0; i < n_queued && i < n; i++)
        json_array_append_new(calls, call_object(&queued[i], "queued"));
    free(events);
    free(queued);
    return calls;
}

static json_t *members_array(const tutti__flight *flight)
{
    json_t *members = json_array();

    for (int r = 0; r < flight->comm->size; r++)
        json_array_append_new(members, json_integer(flight->comm->peers[r].world_rank));
    return members;
}

static json_t *seen_array(tutti__flight *flight)
{
    json_t *seen = json_array();

    if (flight->engine && flight->engine->ops->see)
        flight->engine->ops->see(flight->engine);
    for (int r = 0; r < flight->comm->size; r++)
        json_array_append_new(
            seen, json_integer((json_int_t)atomic_load(&flight->comm->peers[r].seen) - 1));
    return seen;
}

/* NULL: no memory. */
static char *report_text(tutti__flight *flight)
{
    const tutti__peer *self = &flight->comm->peers[flight->comm->rank];
    char id[24], *text;
    json_t *report;

    snprintf(id, sizeof id, "%016llx", (unsigned long long)flight->comm->id);
    report = json_pack(
        "{s:i, s:s, s:s, s:i, s:i, s:i, s:s, s:I, s:f, s:s, s:i, s:s, s:o, s:o, s:o}", "version",
        TUTTI__FLIGHT_VERSION, "group", flight->comm->name, "id", id, "size", flight->comm->size,
        "rank", flight->comm->rank, "world_rank", (int)self->world_rank, "host", self->host, "pid",
        (json_int_t)self->pid, "time", calendar_s(tutti__now_ns()), "status",
        tutti_status_name((tutti_status)flight->comm->cause.status), "culprit",
        (int)flight->comm->cause.culprit, "cause", flight->comm->cause.text, "calls",
        calls_array(flight), "members", members_array(flight), "seen", seen_array(flight));
    text = report ? json_dumps(report, JSON_REAL_PRECISION(16)) : NULL;
    json_decref(report);
    return text;
}

/* ---- Where it goes ------------------------------------------------------------------------------------ */

/* In half a second or not at all: the launcher's host may be what was lost. */
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
    tutti__event events[8];
    size_t n = flight->recorder
                   ? tutti__recorder_read(flight->recorder, events, TUTTI__COUNT_OF(events))
                   : 0;
    char done[128] = "nothing", running[128] = "none";

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
    if (text && *folder && status == TUTTI_OK)
        status = write_report(flight, folder, text);
    if (status != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "comm", "the last collectives of this rank are not told: %s",
                  tutti_last_error());
    (void)tutti__fail_again(status, message); /* what the caller was about to say */
    free(text);
}

void tutti__flight_report(tutti__flight *flight)
{
    if (flight->n == 0 || flight->comm->size == 1 || atomic_load(&flight->reported))
        return;
    pthread_mutex_lock(&flight->report_lock); /* and who comes second waits until it is told */
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
