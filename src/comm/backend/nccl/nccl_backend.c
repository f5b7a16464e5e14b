/* nccl_backend.c -- operations and memory of NCCL.   SPDX-License-Identifier: MIT */
#include "comm/backend/backend.h"
#include "comm/backend/nccl/nccl.h"
#include "device/cuda/cuda.h"
#include "device/flat.h"

#include <stdlib.h>
#include <string.h>

typedef struct tutti__nccl_region {
    struct tutti__nccl_region *next;
    tutti__nccl_memory memory; /* handle: valid while the communicator exists */
    bool own;                  /* from NCCL's allocator, else from the device's */
    bool released;
} region;

static tutti__nccl_backend *nccl_of(tutti__device_backend *backend)
{
    return (tutti__nccl_backend *)backend;
}

/* ---- What it supports ------------------------------------------------------------------------------------ */

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* NCCL computes AVG by multiplying each rank's values by 1 / size, in their dtype, before adding them. For 16-bit floats,
 * whose sums might overflow, that costs only one rounding more; for a power of two of ranks it is exact. Otherwise (F32;
 * F64 is staged) the sum is divided instead. */
static bool divides_the_sum(const tutti__comm *comm, const tutti__operation *op)
{
    return op->signature.redop == TUTTI_AVG && op->signature.dtype == TUTTI_F32 &&
           tutti__op_traits_of(op)->reduces && !is_power_of_two(comm->size);
}

/* True also for operations that will be staged: this is asked before the choice, which is made in an operation's turn. */
static bool takes(const tutti__device_backend *backend, const tutti__operation *op)
{
    if (!tutti__op_traits_of(op)->reduces)
        return true;
    if (op->signature.dtype == TUTTI_I16 || op->signature.dtype == TUTTI_U16 ||
        op->signature.scaled)
        return false;
    switch ((tutti_redop)op->signature.redop) {
    case TUTTI_AVG:
        return is_power_of_two(backend->comm->size) || op->signature.dtype != TUTTI_F64;
    case TUTTI_BAND:
    case TUTTI_BOR:
    case TUTTI_BXOR:
        return false;
    default:
        return true;
    }
}

/* ---- Choosing --------------------------------------------------------------------------------------------- */

static tutti_status check_device(const tutti__nccl_backend *c, tutti_device device)
{
    if (device.index == c->device.index)
        return TUTTI_OK;
    (void)tutti__fail(TUTTI_ERR_ARG,
                      "the buffer is on cuda:%d, but those of earlier calls were on cuda:%d: with "
                      "NCCL, a rank of a group uses one GPU",
                      device.index, c->device.index);
    return tutti__devices_fail(c->base.comm);
}

/* Chooses at the first call, which all ranks make. */
static tutti_status choose(tutti__nccl_backend *c, const tutti__operation *op, tutti_device device)
{
    if (c->choice != TUTTI__NCCL_UNDECIDED)
        return TUTTI_OK;
    c->device = device;
    if (tutti__device_ops_of(device.kind, &c->ops) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    return tutti__nccl_choose(c, op);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static void free_region(tutti__nccl_backend *c, region *r)
{
    const bool usable = !r->own || tutti__nccl_use(c) == TUTTI_OK;

    if (c->comm && r->memory.handle && usable)
        (void)c->nccl->remove(c->comm, &r->memory);
    if (c->stuck) /* it may still be written */
        return;
    if (!r->own)
        c->ops->free(c->device, r->memory.p);
    else if (usable)
        (void)c->nccl->free(r->memory.p);
    free(r);
}

/* Frees released memory; `all`: all memory. By the thread that runs an operation, because a communicator may be used by
 * one thread at a time only. */
static void sweep(tutti__nccl_backend *c, bool all)
{
    region *gone = NULL;

    pthread_mutex_lock(&c->lock);
    for (region **place = &c->memory; *place;) {
        region *r = *place;

        if (all || r->released) {
            *place = r->next;
            r->next = gone;
            gone = r;
        } else {
            place = &r->next;
        }
    }
    pthread_mutex_unlock(&c->lock);
    while (gone) {
        region *r = gone;

        gone = r->next;
        free_region(c, r);
    }
}

static void release(tutti__device_backend *backend, void *p)
{
    tutti__nccl_backend *c = nccl_of(backend);

    pthread_mutex_lock(&c->lock);
    for (region *r = c->memory; r; r = r->next)
        r->released = r->released || r->memory.p == p;
    pthread_mutex_unlock(&c->lock);
}

/* NCCL's own memory, registered on all ranks or on none: NCCL then moves data in it without copies of its own. */
static tutti_status get_registered(tutti__nccl_backend *c, const tutti__operation *op, region *r)
{
    tutti_status status;
    int result;

    TUTTI_TRY(tutti__nccl_open(c, op));
    if (tutti__nccl_use(c) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    result = c->nccl->alloc(&r->memory.p, r->memory.bytes);
    r->own = result == TUTTI__NCCL_OK && r->memory.p;
    if (r->own && c->ops->zero(c->stream, r->memory.p, r->memory.bytes) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    TUTTI_TRY(tutti__nccl_await(c, op, "zeroing memory"));
    status = tutti__nccl_agree(c, op, r->own ? TUTTI_OK : TUTTI_ERR_MEMORY);
    if (status == TUTTI_OK) {
        result = c->nccl->add(c->comm, &r->memory);
        return tutti__nccl_settle(c, op, result, "registering memory");
    }
    return status != TUTTI_ERR_MEMORY || r->own
               ? status
               : tutti__fail(
                     TUTTI_ERR_MEMORY,
                     "cuda:%d: out of memory: ncclMemAlloc of %zu bytes failed; try a smaller "
                     "--batch-size, --amp bf16, or backend native",
                     c->device.index, r->memory.bytes);
}

static tutti_status get(tutti__nccl_backend *c, const tutti__operation *op, region *r)
{
    tutti_status status;

    if (c->choice == TUTTI__NCCL_CHOSEN && c->library.registers) {
        status = get_registered(c, op, r);
        if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
            tutti__nccl_abort(c);
        return status == TUTTI_ERR_MEMORY && r->own ? TUTTI_OK : status; /* another rank has none */
    }
    r->memory.p = c->ops->alloc(c->device, r->memory.bytes, true);
    return r->memory.p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status alloc(tutti__device_backend *backend, tutti_device device, size_t bytes,
                          void **p)
{
    tutti__nccl_backend *c = nccl_of(backend);
    const int timeout_ms = backend->comm->timeout_ms;
    tutti__operation op = {.timeout_ms = timeout_ms, .deadline = tutti__now_ms() + timeout_ms};
    region *r;
    tutti_status status;

    op.signature.op = TUTTI__OP_ALLOC;
    op.signature.group = backend->comm->id;
    op.signature.count = bytes;
    op.signature.dtype = TUTTI_U8;
    sweep(c, false);
    TUTTI_TRY(choose(c, &op, device));
    TUTTI_TRY(check_device(c, device));
    r = tutti__alloc(sizeof *r);
    if (!r)
        return tutti__devices_fail(backend->comm);
    r->memory.bytes = bytes ? bytes : 1;
    status = get(c, &op, r);
    if (status != TUTTI_OK && !r->memory.p) {
        free(r);
        return status;
    }
    r->released = status != TUTTI_OK;
    pthread_mutex_lock(&c->lock);
    r->next = c->memory;
    c->memory = r;
    pthread_mutex_unlock(&c->lock);
    *p = status == TUTTI_OK ? r->memory.p : NULL;
    return status;
}

/* ---- Operations ------------------------------------------------------------------------------------------ */

static tutti__nccl_call call_of(const tutti__nccl_backend *c, const tutti__operation *op)
{
    const tutti__comm *comm = c->base.comm;
    tutti__nccl_call call = {.kind = (tutti__op_kind)op->signature.op,
                             .comm = c->comm,
                             .stream = tutti__cuda_native(c->stream),
                             .src = op->src,
                             .dst = op->dst,
                             .count = (size_t)op->signature.count,
                             .element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
                             .dtype = (tutti_dtype)op->signature.dtype,
                             .redop = (tutti_redop)op->signature.redop,
                             .rank = comm->rank,
                             .size = comm->size,
                             .root = (int)op->signature.root,
                             .out = c->pieces,
                             .in = c->pieces + comm->size};

    for (int r = 0; r < comm->size; r++) {
        c->pieces[r] = tutti__piece_out(op, comm->rank, r);
        c->pieces[comm->size + r] = tutti__piece_in(comm->rank, op, r);
    }
    if (divides_the_sum(comm, op))
        call.redop = TUTTI_SUM;
    return call;
}

static tutti_status move(tutti__nccl_backend *c, const tutti__operation *op)
{
    const tutti__comm *comm = c->base.comm;
    const tutti__nccl_call call = call_of(c, op);
    const char *name = tutti__op_traits_of(op)->name;
    tutti__event *after = tutti__pooled_event_of(op->after);
    const size_t taken = tutti__op_taken(comm->rank, comm->size, op);

    if (after && c->ops->event_wait(after, c->stream) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    TUTTI_TRY(tutti__nccl_settle(c, op, c->nccl->begin(&call), name));
    if (taken > 0 && divides_the_sum(comm, op) &&
        c->ops->flat->scale(c->stream, op->dst, taken, 1.0F / (float)comm->size) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    return tutti__nccl_await(c, op, name);
}

static tutti_status run(tutti__device_backend *backend, tutti__operation *op)
{
    tutti__nccl_backend *c = nccl_of(backend);
    tutti_status status;

    TUTTI_TRY(choose(c, op, op->stream->device));
    if (c->choice == TUTTI__NCCL_STAGED)
        return tutti__devices_stage(c->devices, op);
    if (tutti__op_is_empty(op))
        return TUTTI_OK;
    sweep(c, false);
    status = check_device(c, op->stream->device);
    if (status == TUTTI_OK)
        status = tutti__nccl_open(c, op);
    if (status == TUTTI_OK)
        status = move(c, op);
    if (status != TUTTI_OK)
        tutti__nccl_abort(c);
    return status;
}

/* ---- Init and end ------------------------------------------------------------------------------------------ */

static void close_backend(tutti__device_backend *backend)
{
    tutti__nccl_backend *c = nccl_of(backend);

    if (c->comm && tutti__comm_failed(backend->comm))
        tutti__nccl_abort(c);
    sweep(c, true);
    tutti__nccl_close(c);
    if (c->stream && !c->stuck) {
        c->ops->event_free(c->device, c->event);
        tutti_stream_free(c->stream);
    }
    free(c->pieces);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const tutti__device_backend_ops NCCL = {.name = "nccl",
                                               .takes = takes,
                                               .run = run,
                                               .alloc = alloc,
                                               .release = release,
                                               .close = close_backend};

tutti_status tutti__nccl_backend_new(tutti__device_backend **backend_p, tutti__comm *comm,
                                     tutti__devices *devices, tutti__engine *engine, bool required)
{
    tutti__nccl_backend *c;
    tutti__nccl_library library;
    const tutti__nccl *nccl;
    const tutti__device_ops *ops;
    tutti_status status;

    *backend_p = NULL;
    if (required) { /* fails when the group is made, not at its first call */
        TUTTI_TRY(tutti__nccl_load(&nccl, &library));
        status = tutti__device_ops_of(TUTTI_CUDA, &ops);
        if (status == TUTTI_OK)
            status = ops->why();
        if (status != TUTTI_OK)
            return tutti__fail(status, "backend nccl is for GPUs (auto and native need none): %s",
                               tutti_last_error());
    }
    c = tutti__alloc(sizeof *c);
    if (!c)
        return TUTTI_ERR_MEMORY;
    c->base = (tutti__device_backend){&NCCL, comm, TUTTI_CUDA};
    c->engine = engine;
    c->devices = devices;
    c->required = required;
    pthread_mutex_init(&c->lock, NULL);
    *backend_p = &c->base;
    return TUTTI_OK;
}
