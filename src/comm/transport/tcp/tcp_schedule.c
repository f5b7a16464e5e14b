/* tcp_schedule.c -- rows of messages, and which of them have arrived.   SPDX-License-Identifier: MIT */
#include "comm/transport/tcp/channel.h"

#include <stdlib.h>

enum { MANY_BYTES = 4 << 20 };

/* Grows a peer's row, keeping its messages; both directions are one block. */
static bool reserve(tutti__tcp_row *row, size_t n)
{
    struct iovec *messages;

    row->n_out = row->n_in = 0;
    if (row->capacity >= n)
        return true;
    messages = realloc(row->out, 2 * n * sizeof *messages);
    if (!messages)
        return false;
    *row = (tutti__tcp_row){
        .out = messages, .in = messages + n, .capacity = n, .channel = row->channel};
    return true;
}

/* Peers are served in the order in which they are added: if all ranks began with the same one, its link would carry what is for it while those of the others wait. */
tutti_status tutti__tcp_start(tutti__tcp *tcp, const tutti__schedule *schedule)
{
    const int n = schedule->n_ranks;
    int me = 0;

    for (int i = 0; i < tcp->n_channels; i++)
        tcp->rows[tcp->channels[i].rank].channel = 0;
    tcp->schedule = *schedule;
    tcp->n_channels = 0;
    tcp->look_ms = TUTTI__TCP_LOOK_MS;
    tcp->used_sockets = schedule->bytes >= MANY_BYTES ? tcp->n_sockets : 1;
    while (me < n && schedule->ranks[me] != tcp->comm->rank)
        me++;
    for (int i = 1; i <= n; i++) {
        const int rank = schedule->ranks[(me + i) % n];

        if (rank != tcp->comm->rank)
            TUTTI_TRY(tutti__tcp_add_peer(tcp, rank, schedule->n_messages));
    }
    return TUTTI_OK;
}

tutti_status tutti__tcp_add_peer(tutti__tcp *tcp, int rank, size_t n_messages)
{
    tutti__tcp_row *row = &tcp->rows[rank];

    if (row->channel > 0)
        return TUTTI_OK;
    if (!reserve(row, n_messages))
        return tutti__comm_fail(tcp->comm, TUTTI_ERR_MEMORY, tcp->comm->rank,
                                "rank %d has no memory for %zu messages", tcp->comm->rank,
                                n_messages);
    row->channel = 1 + tcp->n_channels;
    for (int part = 0; part < tcp->used_sockets; part++)
        tcp->channels[tcp->n_channels++] = (tutti__channel){.fd = -1,
                                                            .rank = rank,
                                                            .part = part,
                                                            .n_parts = tcp->used_sockets,
                                                            .first = tcp->schedule.first,
                                                            .said = tcp->schedule.op->signature};
    return TUTTI_OK;
}

bool tutti__tcp_reuse_row(tutti__tcp *tcp, int rank)
{
    tutti__tcp_row *row = &tcp->rows[rank];
    tutti__channel *c = &tcp->channels[row->channel - 1];

    for (int part = 0; part < tcp->used_sockets; part++)
        if (c[part].out.step < row->n_out || c[part].in.step < row->n_in)
            return false;
    for (int part = 0; part < tcp->used_sockets; part++)
        c[part].out.step = c[part].in.step = 0;
    row->n_out = row->n_in = 0;
    return true;
}

tutti_status tutti__tcp_start_all(tutti__tcp *tcp, const tutti__operation *op, bool first,
                                  size_t n_messages)
{
    return tutti__tcp_start(
        tcp,
        &(tutti__schedule){.op = op,
                           .first = first,
                           .bytes = n_messages > 0 ? tutti__signature_bytes(&op->signature) : 0,
                           .ranks = tcp->everyone,
                           .n_ranks = tcp->comm->size,
                           .n_messages = n_messages});
}

/* Of an uneven operation the signature counts the elements of the only message. */
static void count_elements(tutti__tcp *tcp, int rank, size_t bytes)
{
    const tutti__operation *op = tcp->schedule.op;

    for (int i = 0; i < tcp->n_channels; i++)
        if (tcp->channels[i].rank == rank)
            tcp->channels[i].said.count =
                bytes / tutti_dtype_size((tutti_dtype)op->signature.dtype);
}

void tutti__tcp_send(tutti__tcp *tcp, int rank, const void *p, size_t bytes)
{
    tutti__tcp_row *row = &tcp->rows[rank];

    if (rank == tcp->comm->rank)
        return;
    if (tutti__op_traits_of(tcp->schedule.op)->uneven)
        count_elements(tcp, rank, bytes);
    row->out[row->n_out++] = (struct iovec){(char *)(uintptr_t)p, bytes};
}

void tutti__tcp_recv(tutti__tcp *tcp, int rank, void *p, size_t bytes)
{
    tutti__tcp_row *row = &tcp->rows[rank];

    if (rank != tcp->comm->rank)
        row->in[row->n_in++] = (struct iovec){p, bytes};
}

size_t tutti__tcp_arrived(const tutti__tcp *tcp, int rank)
{
    size_t least = SIZE_MAX;

    for (int i = 0; i < tcp->n_channels; i++) {
        const tutti__channel *c = &tcp->channels[i];

        if ((rank < 0 || c->rank == rank) && c->in.step < least)
            least = c->in.step;
    }
    return least;
}
