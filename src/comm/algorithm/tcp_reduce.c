/* tcp_reduce.c -- reduce and reduce_scatter over sockets: shares to their owners, which reduce them.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp.h"

enum { CHUNK_BYTES = 1 << 20 };

static void set_pass(tutti__wire *wire, int rank, const void *out, size_t out_bytes, void *in,
                     size_t in_bytes)
{
    wire->room.passes[rank] = (tutti__pass){{(char *)(uintptr_t)out, out_bytes}, {in, in_bytes}};
}

/* Elements of a chunk; of the last, what is left. */
static size_t chunk_elements(const tutti__wire *wire, size_t element)
{
    return tutti__comm_chunk_bytes(wire->comm, CHUNK_BYTES) / element;
}

/* Sends each rank its part of src (parts[r]), and reduces what comes from all, at most `room` elements each, into dst. */
static tutti_status reduce_parts(tutti__wire *wire, const tutti__op *op, size_t room, void *dst,
                                 bool heads)
{
    const tutti__room *t = &wire->room;
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           mine = t->parts[wire->comm->rank].count;
    char *scratch = tutti__wire_scratch(wire, room * element * (size_t)wire->comm->size);

    if (!scratch)
        return tutti__comm_status(wire->comm);
    for (int r = 0; r < wire->comm->size; r++) {
        const char *own = (const char *)op->src + t->parts[r].at * element;
        char *theirs = scratch + (size_t)r * room * element;

        set_pass(wire, r, own, t->parts[r].count * element, theirs, mine * element);
        t->src[r] = r == wire->comm->rank ? own : theirs;
    }
    TUTTI_TRY(tutti__wire_exchange(wire, op, heads));
    dst = dst ? dst : scratch + (size_t)wire->comm->rank * room * element;
    tutti__reduce((tutti_dtype)op->signature.dtype, (tutti_redop)op->signature.redop, &dst, 1,
                  t->src, (size_t)wire->comm->size, mine);
    return TUTTI_OK;
}

tutti_status tutti__tcp_reduce_scatter(tutti__wire *wire, const tutti__op *op)
{
    const tutti__room *t = &wire->room;
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           count = (size_t)op->signature.count, chunk = chunk_elements(wire, element);

    for (size_t k = 0; k < count; k += chunk) {
        size_t n = count - k < chunk ? count - k : chunk;

        for (int r = 0; r < wire->comm->size; r++)
            t->parts[r] = (tutti__piece){(size_t)r * count + k, n};
        TUTTI_TRY(reduce_parts(wire, op, n, (char *)op->dst + k * element, k == 0));
    }
    return TUTTI_OK;
}

/* To root alone: the others reduce their shares in scratch, their own buffers stay as they are. */
tutti_status tutti__tcp_reduce(tutti__wire *wire, const tutti__op *op)
{
    const tutti__room *t = &wire->room;
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           size = (size_t)wire->comm->size, count = (size_t)op->signature.count,
           chunk = chunk_elements(wire, element) * size;
    int root = (int)op->signature.root;
    char *dst = wire->comm->rank == root ? op->dst : NULL;

    for (size_t k = 0; k < count; k += chunk) {
        size_t n = count - k < chunk ? count - k : chunk, most = tutti__part(n, size, 0, 1).count;
        const tutti__piece *mine = &t->parts[wire->comm->rank];
        const char *result;

        for (size_t r = 0; r < size; r++) {
            t->parts[r] = tutti__part(n, size, r, 1);
            t->parts[r].at += k;
        }
        TUTTI_TRY(reduce_parts(wire, op, most, dst ? dst + mine->at * element : NULL, k == 0));
        result = tutti__wire_scratch(wire, 0) + (size_t)wire->comm->rank * most * element;
        for (int r = 0; r < wire->comm->size; r++)
            set_pass(wire, r, result, r == root ? mine->count * element : 0,
                     dst ? dst + t->parts[r].at * element : NULL,
                     dst ? t->parts[r].count * element : 0);
        TUTTI_TRY(tutti__wire_exchange(wire, op, false));
    }
    return TUTTI_OK;
}
