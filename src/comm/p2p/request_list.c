/* request_list.c -- lists of requests, and the end of one.   SPDX-License-Identifier: MIT */
#include "comm/p2p/p2p_state.h"

#include <string.h>

void tutti__p2p_open(tutti__p2p *p2p, tutti__p2p_request *request)
{
    request->next_open = p2p->open;
    request->place = &p2p->open;
    if (p2p->open)
        p2p->open->place = &request->next_open;
    p2p->open = request;
}

void tutti__p2p_append(tutti__p2p_list *list, tutti__p2p_request *request)
{
    request->next = NULL;
    if (list->first)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

tutti__p2p_request *tutti__p2p_take_after(tutti__p2p_list *list, tutti__p2p_request *before)
{
    tutti__p2p_request **place = before ? &before->next : &list->first, *request = *place;

    *place = request->next;
    if (list->last == request)
        list->last = before;
    return request;
}

tutti__p2p_request *tutti__p2p_take_number(tutti__p2p_list *list, uint64_t number)
{
    tutti__p2p_request *before = NULL;

    for (tutti__p2p_request *r = list->first; r; before = r, r = r->next)
        if (r->signature.sequence == number)
            return tutti__p2p_take_after(list, before);
    return NULL;
}

void tutti__p2p_finish(tutti__p2p *p2p, tutti__p2p_request *request, tutti_status status)
{
    char text[1400];

    *request->place = request->next_open;
    if (request->next_open)
        request->next_open->place = request->place;
    request->status = status;
    if (status != TUTTI_OK) {
        tutti__comm_error_text(p2p->comm, &request->signature, text, sizeof text);
        request->message = strdup(text);
    }
    p2p->finished = true;
    if (request->drop) {
        request->drop(request);
        return;
    }
    if (request->notify) {
        request->next_notified = p2p->notified;
        p2p->notified = request;
        atomic_fetch_sub(&p2p->n_watched, 1);
    }
    atomic_store_explicit(&request->done, true, memory_order_release);
}
