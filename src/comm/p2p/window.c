/* window.c -- memory of this rank that others read while it computes: they ask, and a send answers.   SPDX-License-Identifier: MIT
 *
 *     reader   receive posted, GET  ->  owner's control channel: the bytes leave as of any send, by rendezvous or in frames
 *
 * A reader names the version that it wants. Until the owner has it, the question waits here; so readers need not wait for the owner. */
#include "comm/p2p/p2p_state.h"

#include <stdio.h>
#include <stdlib.h>

static tutti__p2p_window *find(const tutti__p2p *p2p, int tag)
{
    tutti__p2p_window *w = p2p->windows;

    while (w && w->tag != tag)
        w = w->next;
    return w;
}

tutti_status tutti__p2p_set_window(tutti__p2p *p2p, const tutti__p2p_window *window)
{
    tutti__p2p_window *w = find(p2p, window->tag), *next;

    if (!w) {
        w = tutti__alloc(sizeof *w);
        if (!w)
            return TUTTI_ERR_MEMORY;
        w->next = p2p->windows;
        p2p->windows = w;
    }
    next = w->next;
    *w = *window;
    w->next = next;
    return TUTTI_OK;
}

static void fail(tutti__p2p *p2p, tutti_status status, const char *why, int rank)
{
    tutti__cause *cause = &p2p->verdict.cause;

    if (p2p->verdict.set)
        return;
    p2p->verdict = (tutti__p2p_verdict){.set = true, .lost = -1};
    cause->status = status;
    cause->culprit = status == TUTTI_ERR_MEMORY ? p2p->comm->rank : rank;
    snprintf(cause->text, sizeof cause->text, "rank %d %s rank %d", p2p->comm->rank, why, rank);
}

void tutti__p2p_end_get(tutti__p2p *p2p, int rank, const tutti__frame *head)
{
    tutti__p2p_question *ask = malloc(sizeof *ask);

    if (!ask) {
        fail(p2p, TUTTI_ERR_MEMORY, "has no memory for what is asked by", rank);
        return;
    }
    *ask = (tutti__p2p_question){.rank = rank, .head = *head};
    if (p2p->first_ask)
        p2p->last_ask->next = ask;
    else
        p2p->first_ask = ask;
    p2p->last_ask = ask;
}

static void drop(tutti__p2p_request *request)
{
    free(request->message);
    free(request);
}

static tutti__p2p_request *answer_to(tutti__p2p *p2p, const tutti__p2p_question *ask,
                                     const tutti__p2p_window *w)
{
    const tutti__frame *head = &ask->head;
    tutti__p2p_request *send;

    if (head->id > w->bytes || head->count > w->bytes - head->id) {
        fail(p2p, TUTTI_ERR_MISMATCH, "has less memory to read than is asked by", ask->rank);
        return NULL;
    }
    send = malloc(sizeof *send);
    if (!send) {
        fail(p2p, TUTTI_ERR_MEMORY, "has no memory for an answer to", ask->rank);
        return NULL;
    }
    *send = (tutti__p2p_request){.p2p = p2p,
                                 .signature = {.op = TUTTI__OP_SEND,
                                               .group = p2p->comm->id,
                                               .sequence = p2p->n_requests++,
                                               .count = head->count,
                                               .dtype = TUTTI_U8,
                                               .root = (uint32_t)ask->rank,
                                               .tag = head->tag},
                                 .p = (char *)(uintptr_t)w->p + head->id,
                                 .bytes = (size_t)head->count,
                                 .peer = ask->rank,
                                 .timeout_ms = w->timeout_ms,
                                 .deadline = tutti__now_ms() + w->timeout_ms,
                                 .drop = drop};
    return send;
}

tutti__p2p_request *tutti__p2p_next_answer(tutti__p2p *p2p)
{
    tutti__p2p_question *before = NULL, *ask = p2p->first_ask;
    const tutti__p2p_window *w = NULL;
    tutti__p2p_request *send;

    if (p2p->failed || atomic_load(&p2p->comm->failed))
        return NULL;
    for (; ask; before = ask, ask = ask->next) {
        w = find(p2p, ask->head.tag);
        if (w && w->p && w->version >= ask->head.receive)
            break;
    }
    if (!ask)
        return NULL;
    if (before)
        before->next = ask->next;
    else
        p2p->first_ask = ask->next;
    if (p2p->last_ask == ask)
        p2p->last_ask = before;
    send = answer_to(p2p, ask, w);
    free(ask);
    return send;
}

void tutti__p2p_drop_windows(tutti__p2p *p2p)
{
    while (p2p->windows) {
        tutti__p2p_window *w = p2p->windows;

        p2p->windows = w->next;
        free(w);
    }
    while (p2p->first_ask) {
        tutti__p2p_question *ask = p2p->first_ask;

        p2p->first_ask = ask->next;
        free(ask);
    }
}
