/* carrier.c -- operations and memory that NCCL carries.   SPDX-License-Identifier: MIT */
#include "comm/backend/backend.h"
#include "comm/backend/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

typedef struct tutti__nccl_region {
    struct tutti__nccl_region *next;
    tutti__nccl_memory memory; /* handle: while the communicator lives */
    bool own;                  /* NCCL's allocator's, else the device's */
} region;

static tutti__nccl_carrier *carrier_of(tutti__carrier *carrier)
{
    return (tutti__nccl_carrier *)carrier;
}

/* ---- What it takes --------------------------------------------------------------------------------------- */

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* NCCL divides each rank's numbers before it adds them. Of 16-bit floats, whose sums might overflow, that is as good; of a
 * power of two of ranks it is the same. Else the sum is divided, which is there for F32. */
static bool takes_average(const tutti__comm *comm, tutti_dtype dtype)
{
    return is_power_of_two(comm->size) || dtype != TUTTI_F64;
}

static bool divides_the_sum(const tutti__comm *comm, const tutti__op *op)
{
    return op->signature.redop == TUTTI_AVG && op->signature.dtype == TUTTI_F32 &&
           tutti__op_traits_of(op)->reduces && !is_power_of_two(comm->size);
}

static bool takes(const tutti__carrier *carrier, const tutti__op *op)
{
    const tutti__nccl_carrier *c = (const tutti__nccl_carrier *)carrier;

    if (op->stream->device.kind != TUTTI_CUDA || c->choice == TUTTI__NCCL_STAGED)
        return false;
    if (!tutti__op_traits_of(op)->reduces)
        return true;
    switch ((tutti_redop)op->signature.redop) {
    case TUTTI_AVG:
        return takes_average(carrier->comm, (tutti_dtype)op->signature.dtype);
    case TUTTI_BAND:
    case TUTTI_BOR:
    case TUTTI_BXOR:
        return false;
    default:
        return true;
    }
}

/* ---- Operations ------------------------------------------------------------------------------------------ */

static tutti__nccl_call call_of(const tutti__nccl_carrier *c, const tutti__op *op)
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

static tutti_status move(tutti__nccl_carrier *c, const tutti__op *op)
{
    const tutti__comm *comm = c->base.comm;
    const tutti__nccl_call call = call_of(c, op);
    const tutti__device_ops *ops = c->stream->ops;
    const char *name = tutti__op_traits_of(op)->name;
    tutti__event *mark = tutti__mark_event(op->mark);
    const size_t taken = tutti__op_taken(comm->rank, comm->size, op);

    if (mark && ops->event_wait(mark, c->stream) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    TUTTI_TRY(tutti__nccl_settle(c, op, c->nccl->begin(&call), name));
    if (taken > 0 && divides_the_sum(comm, op) &&
        ops->flat->scale(c->stream, op->dst, taken, 1.0F / (float)comm->size) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    return tutti__nccl_await(c, op, name);
}

static tutti_status check_device(const tutti__nccl_carrier *c, tutti_device device)
{
    if (device.index == c->device.index)
        return TUTTI_OK;
    (void)tutti__fail(TUTTI_ERR_ARG,
                      "the buffer is on cuda:%d, but those of its calls before were on cuda:%d, and "
                      "NCCL has one GPU for a rank of a group",
                      device.index, c->device.index);
    return tutti__devices_fail(c->base.comm);
}

/* Chooses at the first call, in which all ranks are. */
static tutti_status choose(tutti__nccl_carrier *c, const tutti__op *op, tutti_device device)
{
    if (c->choice != TUTTI__NCCL_UNDECIDED)
        return TUTTI_OK;
    c->device = device;
    return tutti__nccl_choose(c, op);
}

static tutti_status run(tutti__carrier *carrier, tutti__op *op)
{
    tutti__nccl_carrier *c = carrier_of(carrier);
    tutti_status status;

    TUTTI_TRY(choose(c, op, op->stream->device));
    if (c->choice == TUTTI__NCCL_STAGED)
        return tutti__devices_stage(c->devices, op);
    if (tutti__op_is_empty(op))
        return TUTTI_OK;
    status = check_device(c, op->stream->device);
    if (status == TUTTI_OK)
        status = tutti__nccl_open(c, op);
    if (status == TUTTI_OK)
        status = move(c, op);
    if (status != TUTTI_OK)
        tutti__nccl_abort(c);
    return status;
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static tutti_status zero(tutti__nccl_carrier *c, const tutti__op *op, void *p, size_t bytes)
{
    if (c->stream->ops->zero(c->stream, p, bytes) != TUTTI_OK)
        return tutti__devices_fail(c->base.comm);
    return tutti__nccl_await(c, op, "zeroing memory");
}

/* NCCL's own memory, which it is told of. What it does not register it carries all the same. */
static tutti_status make_region(tutti__nccl_carrier *c, const tutti__op *op, size_t bytes, region *r)
{
    int result;

    TUTTI_TRY(tutti__nccl_open(c, op));
    TUTTI_TRY(tutti__nccl_use(c));
    result = c->nccl->alloc(&r->memory.p, bytes);
    if (result != TUTTI__NCCL_OK || !r->memory.p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory");
    r->own = true;
    r->memory.bytes = bytes;
    TUTTI_TRY(zero(c, op, r->memory.p, bytes));
    result = c->nccl->add(c->comm, &r->memory);
    return tutti__nccl_settle(c, op, result, "registering memory");
}
