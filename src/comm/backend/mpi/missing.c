/* missing.c -- after a time limit: which ranks are in the operation, and which are not.   SPDX-License-Identifier: MIT
 *
 * An MPI collective does not tell. So a rank that has waited too long queries all others by small messages; those that
 * wait in the same operation reply. After that the group is dead, and leftover messages do no harm. */
#include "comm/backend/mpi/mpi_engine.h"

#include <poll.h>
#include <stdlib.h>

enum { TAG = 1, REPLY_MS = 300 };

typedef enum query_kind { WHO_IS_IN, I_AM_IN } query_kind;

typedef struct query_text {
    int32_t kind, zero;
    uint64_t sequence;
} query_text;

/* MPI may read it until the program ends. */
struct tutti__mpi_query {
    tutti__mpi_query *next;
    tutti__mpi_request request;
    query_text text;
};

/* Errors are ignored: no other rank can be told. */
static void send_query(tutti__mpi_engine *e, int rank, query_kind kind)
{
    tutti__mpi_query *query = malloc(sizeof *query);

    if (!query)
        return;
    query->text = (query_text){.kind = (int32_t)kind, .sequence = e->op->signature.sequence};
    query->next = e->queries;
    e->queries = query;
    (void)e->mpi->send(e->comm, &query->text, sizeof query->text, rank, TAG, &query->request);
}

void tutti__mpi_reply(tutti__mpi_engine *e)
{
    query_text text;
    int rank;

    while (e->mpi->take(e->comm, &text, sizeof text, TAG, &rank) == 0 && rank >= 0) {
        if (text.kind == I_AM_IN)
            atomic_store(&e->base.comm->peers[rank].seen, text.sequence + 1);
        else if (text.sequence == e->op->signature.sequence)
            send_query(e, rank, I_AM_IN);
    }
}

void tutti__mpi_find_missing(tutti__mpi_engine *e, bool *missing)
{
    tutti__comm *comm = e->base.comm;
    double deadline = tutti__now_ms() + REPLY_MS;
    int n;

    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            send_query(e, r, WHO_IS_IN);
    do {
        tutti__mpi_reply(e);
        for (int r = n = 0; r < comm->size; r++) {
            missing[r] = r != comm->rank &&
                         atomic_load(&comm->peers[r].seen) != e->op->signature.sequence + 1;
            n += missing[r];
        }
        poll(NULL, 0, 1);
    } while (n > 0 && !tutti__comm_failed(comm) && tutti__now_ms() < deadline);
}
