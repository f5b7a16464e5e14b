/* operation.c -- offsets and sizes of an operation's pieces.   SPDX-License-Identifier: MIT */
#include "comm/core/operation.h"

#include "comm/core/reduce.h"

#include <stdlib.h>
#include <string.h>

static size_t sum(const size_t *counts, int n)
{
    size_t all = 0;

    for (int i = 0; i < n; i++)
        all += counts[i];
    return all;
}

static bool gives(const tutti__operation *op, int rank)
{
    return !tutti__op_traits_of(op)->from_root || op->signature.root == (uint32_t)rank;
}

static bool takes(const tutti__operation *op, int rank)
{
    return !tutti__op_traits_of(op)->to_root || op->signature.root == (uint32_t)rank;
}

tutti__piece tutti__piece_out(const tutti__operation *op, int from, int to)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    size_t count = (size_t)op->signature.count;

    if (!gives(op, from) || !takes(op, to))
        return (tutti__piece){0, 0};
    if (traits->uneven && traits->scatters)
        return (tutti__piece){sum(op->src_counts, to), op->src_counts[to]};
    if (traits->uneven)
        return (tutti__piece){0, op->dst_counts[from]};
    return (tutti__piece){traits->scatters ? (size_t)to * count : 0, count};
}

tutti__piece tutti__piece_in(int rank, const tutti__operation *op, int from)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    size_t count = (size_t)op->signature.count;

    if (!gives(op, from) || !takes(op, rank))
        return (tutti__piece){0, 0};
    if (traits->uneven)
        return (tutti__piece){sum(op->dst_counts, from), op->dst_counts[from]};
    return (tutti__piece){traits->gathers ? (size_t)from * count : 0, count};
}

size_t tutti__op_given(int rank, int size, const tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    size_t count = (size_t)op->signature.count;

    if (!gives(op, rank) || op->only_compared)
        return 0;
    if (traits->uneven)
        return traits->scatters ? sum(op->src_counts, size) : op->dst_counts[rank];
    return traits->scatters ? count * (size_t)size : count;
}

size_t tutti__op_taken(int rank, int size, const tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    size_t count = (size_t)op->signature.count;

    if (!takes(op, rank) || op->only_compared)
        return 0;
    if (traits->uneven)
        return sum(op->dst_counts, size);
    return traits->gathers ? count * (size_t)size : count;
}

bool tutti__op_allocates(const tutti__operation *op)
{
    return op->signature.op == TUTTI__OP_ALLOC && !op->only_compared;
}

void tutti__op_in_place(tutti__operation *op)
{
    if (op->src != op->dst && op->signature.count > 0)
        memcpy(op->dst, op->src, tutti__signature_bytes(&op->signature));
    op->src = op->dst;
}

tutti_status tutti__op_scale(int rank, int size, tutti__operation *op, void **copy_p)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    const bool takes_it_all = takes(op, rank) && !traits->scatters;
    size_t n = tutti__op_given(rank, size, op), bytes = n * tutti__element(op->signature.dtype);
    void *to = op->dst;

    if (!op->scales)
        return TUTTI_OK;
    if (!takes_it_all && bytes > 0) {
        to = *copy_p = malloc(bytes);
        if (!to)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to multiply %zu bytes", bytes);
    }
    tutti__scale((tutti_dtype)op->signature.dtype, op->scale, to, op->src, n);
    op->src = to;
    if (!traits->scatters)
        op->dst = to;
    op->scales = false;
    return TUTTI_OK;
}

bool tutti__op_is_empty(const tutti__operation *op)
{
    return op->only_compared || (op->signature.count == 0 && !tutti__op_traits_of(op)->uneven);
}

tutti__piece tutti__part(size_t count, size_t n, size_t i, size_t grain)
{
    size_t part = ((count + n - 1) / n + grain - 1) / grain * grain;
    size_t at = i * part < count ? i * part : count;

    return (tutti__piece){at, count - at < part ? count - at : part};
}
