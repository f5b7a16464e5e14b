/* device_buffers.c -- operations on device buffers: by a backend, or staged through host memory.   SPDX-License-Identifier: MIT
 *
 * Staging is for tests, and for ranks that share a GPU: each byte crosses the bus twice. The copies run on a stream of the
 * group, so that they wait only for the call's position in the program's stream. */
#include "comm/engine/device_buffers.h"

#include "comm/core/reduce.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIGNMENT ((size_t)64)

struct tutti__pooled_event {
    tutti__pooled_event *next;
    const tutti__device_ops *ops;
    tutti_device device;
    tutti__event *event;
};

/* Stream and buffers for the copies to and from one device. */
typedef struct copy_stream {
    struct copy_stream *next;
    tutti_stream *stream;
    tutti__event *event;
    char *staging; /* host memory, grow-only */
    size_t staging_bytes;
    void *scratch; /* tutti__devices_scratch */
} copy_stream;

typedef struct allocation {
    struct allocation *next;
    const tutti__device_ops *ops; /* NULL: the backend allocated it */
    tutti_device device;
    void *p;
} allocation;

struct tutti__devices {
    tutti__comm *comm;
    tutti__engine *engine;
    tutti__device_backend *backend; /* NULL: everything is staged */
    copy_stream *copy_streams;      /* used by the thread that runs an operation */
    bool noted;
    pthread_mutex_t lock;
    tutti__pooled_event *events; /* unused ones, for reuse */
    allocation *allocations;
};

tutti_status tutti__devices_new(tutti__devices **devices_p, tutti__comm *comm)
{
    tutti__devices *d = tutti__alloc(sizeof *d);

    *devices_p = d;
    if (!d)
        return TUTTI_ERR_MEMORY;
    d->comm = comm;
    pthread_mutex_init(&d->lock, NULL);
    return TUTTI_OK;
}

void tutti__devices_set_engine(tutti__devices *devices, tutti__engine *engine)
{
    devices->engine = engine;
}

void tutti__devices_set_backend(tutti__devices *devices, tutti__device_backend *backend)
{
    devices->backend = backend;
}

static void free_copy_stream(copy_stream *c)
{
    if (c->stream) {
        const tutti__device_ops *ops = c->stream->ops;
        tutti_device device = c->stream->device;

        (void)!ops->stream_wait(c->stream);
        ops->event_free(device, c->event);
        ops->host_free(device, c->staging);
        ops->free(device, c->scratch);
        ops->stream_free(c->stream);
    }
    free(c);
}

static void free_allocation(tutti__devices *d, allocation *a)
{
    if (a->ops)
        a->ops->free(a->device, a->p);
    else
        d->backend->ops->release(d->backend, a->p);
    free(a);
}

void tutti__devices_free(tutti__devices *d)
{
    if (!d)
        return;
    while (d->copy_streams) {
        copy_stream *c = d->copy_streams;

        d->copy_streams = c->next;
        free_copy_stream(c);
    }
    while (d->allocations) {
        allocation *a = d->allocations;

        d->allocations = a->next;
        free_allocation(d, a);
    }
    if (d->backend)
        d->backend->ops->close(d->backend);
    while (d->events) {
        tutti__pooled_event *event = d->events;

        d->events = event->next;
        event->ops->event_free(event->device, event->event);
        free(event);
    }
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- Events ------------------------------------------------------------------------------------------- */

static bool same_device(tutti_device a, tutti_device b)
{
    return a.kind == b.kind && a.index == b.index;
}

static tutti__pooled_event *take_event(tutti__devices *d, tutti_device device)
{
    tutti__pooled_event **place, *event;

    pthread_mutex_lock(&d->lock);
    for (place = &d->events; *place && !same_device((*place)->device, device);)
        place = &(*place)->next;
    event = *place;
    if (event)
        *place = event->next;
    pthread_mutex_unlock(&d->lock);
    return event;
}

static tutti_status new_event(tutti_stream *stream, tutti__pooled_event **event_p)
{
    tutti__pooled_event *event = tutti__alloc(sizeof *event);
    tutti_status status = event ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (event) {
        event->ops = stream->ops;
        event->device = stream->device;
        status = stream->ops->event_new(stream->device, &event->event);
    }
    if (status != TUTTI_OK) {
        free(event);
        event = NULL;
    }
    *event_p = event;
    return status;
}

tutti_status tutti__devices_record(tutti__devices *d, tutti_stream *stream,
                                   tutti__pooled_event **event_p)
{
    tutti__pooled_event *event = take_event(d, stream->device);
    tutti_status status = event ? TUTTI_OK : new_event(stream, &event);

    if (status == TUTTI_OK)
        status = stream->ops->event_record(event->event, stream);
    if (status != TUTTI_OK) {
        tutti__devices_release_event(d, event);
        event = NULL;
    }
    *event_p = event;
    return status;
}

void tutti__devices_release_event(tutti__devices *d, tutti__pooled_event *event)
{
    if (!event)
        return;
    pthread_mutex_lock(&d->lock);
    event->next = d->events;
    d->events = event;
    pthread_mutex_unlock(&d->lock);
}

tutti__event *tutti__pooled_event_of(const tutti__pooled_event *event)
{
    return event->event;
}

/* ---- Waiting ------------------------------------------------------------------------------------------ */

void tutti__devices_pause(unsigned *n)
{
    enum { YIELDS = 200, SHORT = 400, SHORT_NS = 20000, LONG_NS = 100000 };

    if ((*n)++ < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = *n < SHORT ? SHORT_NS : LONG_NS}, NULL);
}

tutti_status tutti__devices_fail(tutti__comm *comm)
{
    return tutti__comm_abort(comm, tutti__last_status(), "failed", tutti_last_error());
}

tutti_status tutti__devices_await(tutti__comm *comm, const tutti__operation *op,
                                  tutti_stream *stream, tutti__event *event, bool abandons,
                                  const char *what)
{
    char call[TUTTI__SIGNATURE_TEXT + 2] = "", who[128];
    bool passed;

    for (unsigned n = 0;; tutti__devices_pause(&n)) {
        if (stream->ops->event_passed(event, &passed) != TUTTI_OK)
            return tutti__devices_fail(comm);
        if (passed)
            return TUTTI_OK;
        if (abandons && tutti__comm_failed(comm))
            return tutti__comm_status(comm);
        if (tutti__now_ms() >= op->deadline)
            break;
    }
    if (op->signature.op < TUTTI__N_OPS) {
        tutti__signature_text(&op->signature, call, sizeof call - 2);
        strcat(call, ": ");
    }
    tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
    return tutti__comm_fail(
        comm, TUTTI_ERR_TIMEOUT, comm->rank,
        "%s%s timed out after %.3g s waiting for %s (device %s:%d): its kernels hang, or "
        "are much slower than elsewhere (TUTTI_TIMEOUT_S or "
        "tutti_group_set_timeout sets the limit)",
        call, who, op->timeout_ms / 1e3, what, stream->ops->name, stream->device.index);
}

tutti_status tutti__devices_reach(tutti__comm *comm, const tutti__operation *op,
                                  const tutti__pooled_event *event)
{
    return tutti__devices_await(comm, op, op->stream, event->event, true,
                                "work submitted to the stream before");
}

/* Work submitted to the copy stream ends by itself, so this waits for it even if the group is dead. */
static tutti_status await_copy_stream(const tutti__devices *d, const tutti__operation *op,
                                      const copy_stream *c, const char *what)
{
    if (c->stream->ops->event_record(c->event, c->stream) != TUTTI_OK)
        return tutti__devices_fail(d->comm);
    return tutti__devices_await(d->comm, op, c->stream, c->event, false, what);
}

/* ---- Staging ------------------------------------------------------------------------------------------ */

static tutti_status new_copy_stream(tutti_stream *stream, copy_stream **copy_stream_p)
{
    copy_stream *c = *copy_stream_p = tutti__alloc(sizeof *c);

    if (!c)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(stream->ops->stream_new(&c->stream, stream->device, NULL));
    return stream->ops->event_new(stream->device, &c->event);
}

static tutti_status copy_stream_of(tutti__devices *d, tutti_stream *stream,
                                   copy_stream **copy_stream_p)
{
    copy_stream *c = d->copy_streams;

    while (c && !same_device(c->stream->device, stream->device))
        c = c->next;
    if (!c) {
        if (new_copy_stream(stream, &c) != TUTTI_OK) {
            if (c)
                free_copy_stream(c);
            return tutti__devices_fail(d->comm);
        }
        c->next = d->copy_streams;
        d->copy_streams = c;
    }
    *copy_stream_p = c;
    return TUTTI_OK;
}

static tutti_status need_staging(const tutti__devices *d, copy_stream *c, size_t bytes)
{
    const tutti__device_ops *ops = c->stream->ops;
    tutti_device device = c->stream->device;

    if (bytes <= c->staging_bytes)
        return TUTTI_OK;
    ops->host_free(device, c->staging);
    c->staging_bytes = 0;
    c->staging = ops->host_alloc(device, bytes);
    if (!c->staging)
        return tutti__devices_fail(d->comm);
    c->staging_bytes = bytes;
    return TUTTI_OK;
}

static void note_staging(tutti__devices *d, const tutti_stream *stream)
{
    if (d->noted || stream->device.kind != TUTTI_CUDA)
        return;
    d->noted = true;
    tutti_log(TUTTI_LOG_INFO, "comm",
              "group \"%s\" copies data on %s:%d through host memory, which is meant for "
              "tests and for ranks that share a GPU",
              d->comm->name, stream->ops->name, stream->device.index);
}

/* Between the two copies it is an operation on host memory. Only what it gives or takes is copied. */
tutti_status tutti__devices_stage(tutti__devices *d, tutti__operation *op)
{
    const int rank = d->comm->rank, size = d->comm->size;
    const size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
                 given = tutti__op_given(rank, size, op) * element,
                 taken = tutti__op_taken(rank, size, op) * element,
                 room = (given + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const bool in_place = op->src == op->dst,
               keeps = in_place && given > 0 && tutti__op_traits_of(op)->from_root;
    tutti__operation inner = *op;
    copy_stream *c;

    note_staging(d, op->stream);
    TUTTI_TRY(tutti__devices_reach(d->comm, op, op->after));
    TUTTI_TRY(copy_stream_of(d, op->stream, &c));
    TUTTI_TRY(need_staging(d, c, in_place ? (given > taken ? given : taken) : room + taken));
    if (given > 0) {
        if (tutti__copy_out(c->stream, c->staging, op->src, given) != TUTTI_OK)
            return tutti__devices_fail(d->comm);
        TUTTI_TRY(await_copy_stream(d, op, c, "a copy to the host"));
        if (op->scales)
            tutti__scale((tutti_dtype)op->signature.dtype, op->scale, c->staging, c->staging,
                         given / element);
    }
    inner.scales = false;
    inner.stream = NULL;
    inner.after = NULL;
    inner.src = c->staging;
    inner.dst = in_place || !c->staging ? c->staging : c->staging + room;
    TUTTI_TRY(d->engine->ops->run(d->engine, &inner));
    if (taken == 0 || keeps)
        return TUTTI_OK;
    if (tutti__copy_in(c->stream, op->dst, inner.dst, taken) != TUTTI_OK)
        return tutti__devices_fail(d->comm);
    return await_copy_stream(d, op, c, "a copy from the host");
}

/* ---- By the backend, or in a group of one ---------------------------------------------------------------- */

/* Checks that the counts that ranks send equal those that their receivers expect. */
static tutti_status compare_counts(const tutti__devices *d, const tutti__operation *op)
{
    const int rank = d->comm->rank;
    const size_t size = (size_t)d->comm->size;
    uint64_t *counts = tutti__alloc(2 * size * sizeof *counts);
    tutti__operation exchange = {.signature = op->signature,
                                 .src = counts,
                                 .dst = counts ? counts + size : NULL,
                                 .timeout_ms = op->timeout_ms,
                                 .deadline = op->deadline};
    tutti_status status;

    if (!counts)
        return tutti__devices_fail(d->comm);
    exchange.signature.op = TUTTI__OP_ALL_TO_ALL;
    exchange.signature.dtype = TUTTI_I64;
    exchange.signature.count = 1;
    for (int r = 0; r < d->comm->size; r++)
        counts[r] = tutti__piece_out(op, rank, r).count;
    status = d->engine->ops->run(d->engine, &exchange);
    for (int r = 0; r < d->comm->size && status == TUTTI_OK; r++)
        status = tutti__comm_check_sent(d->comm, &op->signature, r, rank,
                                        (size_t)counts[size + (size_t)r],
                                        tutti__piece_in(rank, op, r).count);
    free(counts);
    return status;
}

/* Checks that all ranks make the same call. */
static tutti_status compare(const tutti__devices *d, const tutti__operation *op)
{
    tutti__operation compared = {.signature = op->signature,
                                 .only_compared = true,
                                 .timeout_ms = op->timeout_ms,
                                 .deadline = op->deadline};

    TUTTI_TRY(d->engine->ops->run(d->engine, &compared));
    return tutti__op_traits_of(op)->uneven ? compare_counts(d, op) : TUTTI_OK;
}

/* A group of one: at most a copy on the device. */
static tutti_status run_alone(tutti__devices *d, const tutti__operation *op)
{
    const size_t bytes =
        tutti__op_given(0, 1, op) * tutti_dtype_size((tutti_dtype)op->signature.dtype);
    copy_stream *c;

    TUTTI_TRY(tutti__devices_reach(d->comm, op, op->after));
    if (op->src == op->dst || bytes == 0)
        return TUTTI_OK;
    TUTTI_TRY(copy_stream_of(d, op->stream, &c));
    if (tutti__copy(c->stream, op->dst, op->src, bytes) != TUTTI_OK)
        return tutti__devices_fail(d->comm);
    return await_copy_stream(d, op, c, "a copy");
}

void tutti__devices_claim(const tutti__devices *d, tutti__operation *op)
{
    const tutti__device_backend *c = d->backend;

    op->signature.on_device =
        c && op->stream && op->stream->device.kind == c->kind && c->ops->takes(c, op);
}

tutti_status tutti__devices_run(tutti__devices *d, tutti__operation *op)
{
    if (op->signature.on_device) {
        TUTTI_TRY(compare(d, op));
        return d->backend->ops->run(d->backend, op);
    }
    if (d->comm->size > 1 || op->scales)
        return tutti__devices_stage(d, op);
    if (tutti__op_traits_of(op)->uneven)
        TUTTI_TRY(compare(d, op));
    return run_alone(d, op);
}

/* ---- Coalesced calls ------------------------------------------------------------------------------------ */

tutti_status tutti__devices_scratch(tutti__devices *d, tutti_stream *stream, size_t bytes, void **p,
                                    tutti_stream **own_p)
{
    copy_stream *c = NULL;

    TUTTI_TRY(copy_stream_of(d, stream, &c));
    if (!c->scratch)
        c->scratch = c->stream->ops->alloc(c->stream->device, bytes, true);
    *p = c->scratch;
    *own_p = c->stream;
    return c->scratch ? TUTTI_OK : tutti__devices_fail(d->comm);
}

tutti_status tutti__devices_settle(tutti__devices *d, const tutti__operation *op)
{
    copy_stream *c = NULL;

    TUTTI_TRY(copy_stream_of(d, op->stream, &c));
    return await_copy_stream(d, op, c, "copies of small buffers");
}

/* ---- Messages ------------------------------------------------------------------------------------------- */

static void bounce_free(tutti__bounce *bounce)
{
    if (!bounce->stream)
        return;
    bounce->stream->ops->host_free(bounce->stream->device, bounce->host);
    tutti_stream_free(bounce->stream);
    *bounce = (tutti__bounce){0};
}

/* Fills the bounce buffer of a send. */
static tutti_status bounce_fill(const tutti__bounce *bounce, tutti__devices *d,
                                tutti__operation *op)
{
    tutti__pooled_event *event;
    tutti_status status;

    TUTTI_TRY(tutti__devices_record(d, op->stream, &event));
    status = tutti__devices_reach(d->comm, op, event);
    tutti__devices_release_event(d, event);
    if (status != TUTTI_OK)
        return tutti__comm_error(d->comm, &op->signature);
    return tutti__read(bounce->stream, bounce->host, op->src, bounce->bytes);
}

tutti_status tutti__bounce_open(tutti__bounce *bounce, tutti__devices *d, tutti__operation *op)
{
    tutti_stream *stream = op->stream;
    tutti_status status;

    *bounce = (tutti__bounce){.dst = op->signature.op == TUTTI__OP_RECV ? op->dst : NULL,
                              .bytes = tutti__signature_bytes(&op->signature)};
    TUTTI_TRY(stream->ops->stream_new(&bounce->stream, stream->device, NULL));
    bounce->host = stream->ops->host_alloc(stream->device, bounce->bytes + 1);
    status = !bounce->host ? TUTTI_ERR_MEMORY : bounce->dst ? TUTTI_OK : bounce_fill(bounce, d, op);
    if (status != TUTTI_OK)
        bounce_free(bounce);
    return status;
}

tutti_status tutti__bounce_close(tutti__bounce *bounce, bool arrived)
{
    tutti_stream *stream = bounce->stream;
    tutti_status status = TUTTI_OK;

    if (stream && bounce->dst && arrived) {
        status = tutti__copy_in(stream, bounce->dst, bounce->host, bounce->bytes);
        if (status == TUTTI_OK)
            status = stream->ops->stream_wait(stream);
    }
    bounce_free(bounce);
    return status;
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

tutti_status tutti__devices_alloc(tutti__devices *d, tutti_stream *stream, size_t bytes, void **p)
{
    tutti_device device = tutti_stream_device(stream);
    const tutti__device_ops *ops = tutti__stream_or_cpu(stream)->ops;
    tutti__device_backend *c = d->backend;
    allocation *a = tutti__alloc(sizeof *a);
    tutti_status status = a ? TUTTI_OK : TUTTI_ERR_MEMORY;

    *p = NULL;
    if (a && c && c->ops->alloc && device.kind == c->kind) {
        status = c->ops->alloc(c, device, bytes, p);
        ops = NULL;
    } else if (a) {
        *p = ops->alloc(device, bytes ? bytes : 1, true);
        status = *p ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    if (status != TUTTI_OK) {
        free(a);
        return status;
    }
    *a = (allocation){NULL, ops, device, *p};
    pthread_mutex_lock(&d->lock);
    a->next = d->allocations;
    d->allocations = a;
    pthread_mutex_unlock(&d->lock);
    return TUTTI_OK;
}

bool tutti__devices_release(tutti__devices *d, void *p)
{
    allocation **place, *a;

    pthread_mutex_lock(&d->lock);
    for (place = &d->allocations; *place && (*place)->p != p;)
        place = &(*place)->next;
    a = *place;
    if (a)
        *place = a->next;
    pthread_mutex_unlock(&d->lock);
    if (a)
        free_allocation(d, a);
    return a != NULL;
}
