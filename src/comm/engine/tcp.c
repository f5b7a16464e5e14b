/* tcp.c -- ranks that share no memory: messages over one connection a pair, or more.   SPDX-License-Identifier: MIT
 *
 * Rows of messages to and from each peer (wire.c), as fast as the sockets take and give them; all_reduce is shares to
 * their owners and results back (shares.c). Goodbyes and failures go by the post. */
#include "comm/transport/tcp/wire.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20 };

static void tcp_wake(tutti_group *group, int rank)
{
    (void)rank;
    tutti__wire_wake(group);
}

/* ---- Operations --------------------------------------------------------------------------------------------------- */

static void set_pass(tutti_group *group, int rank, const void *out, size_t out_bytes, void *in,
                     size_t in_bytes)
{
    tutti__wire_room(group)->passes[rank] =
        (tutti__pass){{(char *)(uintptr_t)out, out_bytes}, {in, in_bytes}};
}

static tutti_status all_reduce(tutti_group *group, const tutti__op *op)
{
    const tutti__direct shares = {.ranks = tutti__wire_everyone(group),
                                  .n = group->comm.size,
                                  .me = group->comm.rank,
                                  .p = op->dst,
                                  .count = (size_t)op->signature.count,
                                  .redop = (tutti_redop)op->signature.redop,
                                  .divisor = (size_t)group->comm.size};

    return tutti__tcp_all_reduce(group, op, true, &shares);
}

/* Elements of a chunk; of the last, what is left. */
static size_t chunk_elements(const tutti_group *group, size_t element)
{
    return tutti__comm_chunk_bytes(&group->comm, CHUNK_BYTES) / element;
}

/* Sends each rank its part of src (parts[r]), and reduces what comes from all, at most `room` elements each, into dst. */
static tutti_status reduce_parts(tutti_group *group, const tutti__op *op, size_t room, void *dst,
                                 bool heads)
{
    const tutti__room *t = tutti__wire_room(group);
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           mine = t->parts[group->comm.rank].count;
    char *scratch = tutti__wire_scratch(group, room * element * (size_t)group->comm.size);

    if (!scratch)
        return tutti__comm_status(&group->comm);
    for (int r = 0; r < group->comm.size; r++) {
        const char *own = (const char *)op->src + t->parts[r].at * element;
        char *theirs = scratch + (size_t)r * room * element;

        set_pass(group, r, own, t->parts[r].count * element, theirs, mine * element);
        t->src[r] = r == group->comm.rank ? own : theirs;
    }
    TUTTI_TRY(tutti__wire_exchange(group, op, heads));
    dst = dst ? dst : scratch + (size_t)group->comm.rank * room * element;
    tutti__reduce((tutti_dtype)op->signature.dtype, (tutti_redop)op->signature.redop, &dst, 1,
                  t->src, (size_t)group->comm.size, mine);
    return TUTTI_OK;
}

static tutti_status reduce_scatter(tutti_group *group, const tutti__op *op)
{
    const tutti__room *t = tutti__wire_room(group);
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           count = (size_t)op->signature.count, chunk = chunk_elements(group, element);

    for (size_t k = 0; k < count; k += chunk) {
        size_t n = count - k < chunk ? count - k : chunk;

        for (int r = 0; r < group->comm.size; r++)
            t->parts[r] = (tutti__piece){(size_t)r * count + k, n};
        TUTTI_TRY(reduce_parts(group, op, n, (char *)op->dst + k * element, k == 0));
    }
    return TUTTI_OK;
}

/* To root alone: the others reduce their shares in scratch, their own buffers stay as they are. */
static tutti_status reduce(tutti_group *group, const tutti__op *op)
{
    const tutti__room *t = tutti__wire_room(group);
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           size = (size_t)group->comm.size, count = (size_t)op->signature.count,
           chunk = chunk_elements(group, element) * size;
    int root = (int)op->signature.root;
    char *dst = group->comm.rank == root ? op->dst : NULL;

    for (size_t k = 0; k < count; k += chunk) {
        size_t n = count - k < chunk ? count - k : chunk, most = tutti__part(n, size, 0, 1).count;
        const tutti__piece *mine = &t->parts[group->comm.rank];
        const char *result;

        for (size_t r = 0; r < size; r++) {
            t->parts[r] = tutti__part(n, size, r, 1);
            t->parts[r].at += k;
        }
        TUTTI_TRY(reduce_parts(group, op, most, dst ? dst + mine->at * element : NULL, k == 0));
        result = tutti__wire_scratch(group, 0) + (size_t)group->comm.rank * most * element;
        for (int r = 0; r < group->comm.size; r++)
            set_pass(group, r, result, r == root ? mine->count * element : 0,
                     dst ? dst + t->parts[r].at * element : NULL,
                     dst ? t->parts[r].count * element : 0);
        TUTTI_TRY(tutti__wire_exchange(group, op, false));
    }
    return TUTTI_OK;
}

/* What does not reduce: every piece straight to where it belongs. */
static tutti_status move(tutti_group *group, const tutti__op *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype);
    const char *src = op->src;
    char *dst = op->dst;

    for (int r = 0; r < group->comm.size; r++) {
        tutti__piece out = tutti__piece_out(op, group->comm.rank, r),
                     in = tutti__piece_in(group->comm.rank, op, r);

        set_pass(group, r, src + out.at * element, out.count * element, dst + in.at * element,
                 in.count * element);
        if (r != group->comm.rank)
            continue;
        TUTTI_TRY(tutti__comm_check_sent(&group->comm, &op->signature, r, r, out.count, in.count));
        if (out.count > 0 && src + out.at * element != dst + in.at * element)
            memcpy(dst + in.at * element, src + out.at * element, out.count * element);
    }
    return tutti__wire_exchange(group, op, true);
}

/* Fingerprints only. */
static tutti_status meet(tutti_group *group, const tutti__op *op)
{
    for (int r = 0; r < group->comm.size; r++)
        set_pass(group, r, NULL, 0, NULL, 0);
    return tutti__wire_exchange(group, op, true);
}

tutti_status tutti__tcp_run(tutti_group *group, const tutti__op *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);

    if (tutti__op_is_empty(op))
        return meet(group, op);
    if (!traits->reduces)
        return move(group, op);
    return (traits->scatters ? reduce_scatter : traits->to_root ? reduce : all_reduce)(group, op);
}

static tutti_status run(tutti_group *group, tutti__op *op)
{
    tutti_status status;

    if (op->signature.op != TUTTI__OP_ALLOC)
        return tutti__tcp_run(group, op);
    TUTTI_TRY(meet(group, op));
    status = tutti__plain_alloc(group, op);
    if (status != TUTTI_OK) /* the others have theirs: they must not go on without this rank */
        (void)tutti__comm_fail(&group->comm, status, group->comm.rank, "rank %d: %s",
                               group->comm.rank, tutti_last_error());
    return status;
}

/* ---- Coming and going ----------------------------------------------------------------------------------------------- */

static void tcp_close(tutti_group *group)
{
    tutti__wire_free(group);
    tutti__plain_free_all(group);
}

static const tutti__transport TCP = {.name = "tcp",
                                     .run = run,
                                     .wake = tcp_wake,
                                     .release = tutti__plain_release,
                                     .close = tcp_close};

tutti_status tutti__tcp_open(tutti_group *group, const int *sockets, int channels)
{
    size_t n = (size_t)group->comm.size * (size_t)channels;
    int *own = malloc(n * sizeof *own);

    if (!own) {
        for (size_t i = 0; i < n; i++)
            if (sockets[i] >= 0)
                close(sockets[i]);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the connections of %d ranks",
                           group->comm.size);
    }
    memcpy(own, sockets, n * sizeof *own);
    group->transport = &TCP;
    return tutti__wire_new(group, own, channels);
}
