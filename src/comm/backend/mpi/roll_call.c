/* roll_call.c -- who has come to an operation, and who has not.   SPDX-License-Identifier: MIT
 *
 * A collective of MPI does not tell. So who has waited too long asks all the others, by small messages of their own; those
 * that wait in the same operation answer. After that the group is dead, and nobody minds messages that are left over. */
#include "comm/backend/mpi/engine.h"

#include <poll.h>
#include <stdlib.h>

enum { TAG = 1, ANSWER_MS = 300 };

typedef enum note_kind { WHO_IS_IN, I_AM_IN } note_kind;

typedef struct note_text {
    int32_t kind, zero;
    uint64_t sequence;
} note_text;

/* MPI may read it until the end. */
struct tutti__mpi_note {
    tutti__mpi_note *next;
    tutti__mpi_request request;
    note_text text;
};

/* What cannot be sent is not: there is nobody else to tell. */
static void send_request(tutti__mpi_state *s, int rank, note_kind kind, uint64_t sequence)
{
    tutti__mpi_note *request = malloc(sizeof *request);

    if (!request)
        return;
    request->text = (note_text){.kind = (int32_t)kind, .sequence = sequence};
    request->next = s->requests;
    s->requests = request;
    (void)s->mpi->send(s->comm, &request->text, sizeof request->text, rank, TAG, &request->request);
}

void tutti__mpi_answer(tutti__mpi_state *s, const tutti__op *op)
{
    note_text text;
    int rank;

    while (s->mpi->take(s->comm, &text, sizeof text, TAG, &rank) == 0 && rank >= 0) {
        if (text.kind == I_AM_IN)
            atomic_store(&s->base.comm->peers[rank].seen, text.sequence + 1);
        else if (text.sequence == op->signature.sequence)
            send_request(s, rank, I_AM_IN, text.sequence);
    }
}

void tutti__mpi_call_roll(tutti__mpi_state *s, const tutti__op *op, bool *missing)
{
    double deadline = tutti__now_ms() + ANSWER_MS;
    uint64_t sequence = op->signature.sequence;
    int n;

    for (int r = 0; r < s->base.comm->size; r++)
        if (r != s->base.comm->rank)
            send_request(s, r, WHO_IS_IN, sequence);
    do {
        tutti__mpi_answer(s, op);
        for (int r = n = 0; r < s->base.comm->size; r++) {
            missing[r] = r != s->base.comm->rank &&
                         atomic_load(&s->base.comm->peers[r].seen) != sequence + 1;
            n += missing[r];
        }
        poll(NULL, 0, 1);
    } while (n > 0 && !tutti__comm_failed(s->base.comm) && tutti__now_ms() < deadline);
}
