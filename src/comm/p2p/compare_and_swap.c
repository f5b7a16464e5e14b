/* compare_and_swap.c -- an atomic integer a rank, which others change in shared memory, or by asking its rank.   SPDX-License-Identifier: MIT
 *
 * A rank that computes does not answer requests: its control channel's thread does. */
#include "comm/p2p/p2p_state.h"

_Atomic uint64_t *tutti__p2p_atomic(tutti__p2p *p2p, int rank)
{
    tutti__doorbell *doorbell = rank == p2p->comm->rank ? p2p->doorbell : p2p->peers[rank].doorbell;

    return doorbell ? &doorbell->atomic : NULL;
}

void tutti__p2p_send_swap(tutti__p2p *p2p, const tutti__p2p_request *request)
{
    const tutti__compare_and_swap *exchange = (const void *)request->p;
    const tutti__frame head = {.kind = TUTTI__FRAME_SWAP,
                               .count = exchange->expected,
                               .id = request->signature.sequence,
                               .receive = exchange->wanted};

    tutti__p2p_send_frame(p2p, request->peer, &head, NULL);
}

void tutti__p2p_end_swap(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    uint64_t was = head->count;
    tutti__frame answer = {.kind = TUTTI__FRAME_SWAPPED, .id = head->id};

    atomic_compare_exchange_strong(&p2p->doorbell->atomic, &was, head->receive);
    answer.count = was;
    tutti__p2p_send_frame(p2p, rank, &answer, NULL);
}

void tutti__p2p_end_swapped(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_request *request = p2p->open;

    while (request && (request->signature.op != TUTTI__OP_COMPARE_AND_SWAP ||
                       request->peer != rank || request->signature.sequence != head->id))
        request = request->next_open;
    if (!request) /* it has ended with the group */
        return;
    ((tutti__compare_and_swap *)(void *)request->p)->was = head->count;
    tutti__p2p_finish(p2p, request, TUTTI_OK);
}
