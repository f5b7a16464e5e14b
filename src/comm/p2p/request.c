/* letter.c -- sends and receives, matched by rank and tag.   SPDX-License-Identifier: MIT
 *
 * A small letter goes at once, whole, as long as its receiver has room for it (credit); it waits there for its receive.
 * Any other is offered, and goes piece by piece when the receiver takes it. So what nobody has asked for takes bounded
 * memory, and a letter that nobody receives holds up neither others nor the rest of the post. Offers and whole letters of
 * one rank come in the order of the sends, so matching in the order of arrival is matching in the order of the calls. */
#include "comm/control/channel.h"

#include "comm/core/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* COST: of a small letter, beside its bytes. */
enum { SMALL_BYTES = 16 << 10, COST = 64 };

struct tutti__p2p_request {
    tutti__p2p_request *next_open, **place; /* among the open ones */
    tutti__p2p_request *next; /* in one of post->receives, link->offered, link->receiving */
    tutti_work *work;
    tutti__signature signature; /* its sequence is its number */
    char *p;
    size_t bytes, moved;
    int peer; /* TUTTI_ANY_RANK until it has come */
    double deadline;
    int timeout_ms;
};

/* ---- Lists ---------------------------------------------------------------------------------------------- */

static void append(tutti__p2p_list *list, tutti__p2p_request *request)
{
    request->next = NULL;
    if (list->first)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

/* Takes the one behind `before`, or the first if that is NULL. */
static tutti__p2p_request *take_after(tutti__p2p_list *list, tutti__p2p_request *before)
{
    tutti__p2p_request **place = before ? &before->next : &list->first, *request = *place;

    *place = request->next;
    if (list->last == request)
        list->last = before;
    return request;
}

static tutti__p2p_request *find_number(const tutti__p2p_list *list, uint64_t number,
                                       tutti__p2p_request **before_p)
{
    *before_p = NULL;
    for (tutti__p2p_request *l = list->first; l; l = l->next) {
        if (l->signature.sequence == number)
            return l;
        *before_p = l;
    }
    return NULL;
}

static void take_number(tutti__p2p_list *list, uint64_t number)
{
    tutti__p2p_request *before;

    if (find_number(list, number, &before))
        take_after(list, before);
}

static void finish(tutti__control *control, tutti__p2p_request *request, tutti_status status,
                   const char *text)
{
    *request->place = request->next_open;
    if (request->next_open)
        request->next_open->place = request->place;
    tutti__work_finish(request->work, status, text, request->peer);
    free(request);
    if (!control->open)
        pthread_cond_broadcast(&control->changed);
}

/* ---- Matching -------------------------------------------------------------------------------------------- */

static bool suits(const tutti__p2p_request *receive, int rank, int tag)
{
    return (receive->peer == rank || receive->peer == TUTTI_ANY_RANK) &&
           receive->signature.tag == tag;
}

/* Takes the first receive that this letter from `rank` is for; NULL: none is posted. */
static tutti__p2p_request *take_receive(tutti__control *control, int rank, int tag)
{
    tutti__p2p_request *before = NULL, *found = control->posted.first;

    for (; found && !suits(found, rank, tag); found = found->next)
        before = found;
    if (found)
        take_after(&control->posted, before)->peer = rank;
    return found;
}

/* Both speak of the same elements; otherwise the group dies of it, and the receive with it. */
static bool agree(tutti__control *control, const tutti__p2p_request *receive,
                  const tutti__frame *head)
{
    const tutti__signature send = {.op = TUTTI__OP_SEND,
                                   .sequence = head->id,
                                   .count = head->count,
                                   .dtype = (uint8_t)head->dtype,
                                   .root = (uint32_t)control->group->comm.rank,
                                   .tag = head->tag};
    char sent[96], received[96];

    if (head->count == receive->signature.count && head->dtype == receive->signature.dtype)
        return true;
    if (control->verdict.set)
        return false;
    tutti__signature_text(&send, sent, sizeof sent);
    tutti__signature_text(&receive->signature, received, sizeof received);
    control->verdict = (tutti__verdict){.set = true, .lost = -1};
    control->verdict.cause.status = TUTTI_ERR_MISMATCH;
    control->verdict.cause.culprit = receive->peer;
    snprintf(control->verdict.cause.text, sizeof control->verdict.cause.text,
             "rank %d called %s, but rank %d called %s; both must name the same dtype and count",
             receive->peer, sent, control->group->comm.rank, received);
    return false;
}

/* A small letter has been received: its sender may send as much again. */
static void owe(tutti__control *control, int rank, size_t bytes)
{
    tutti__link *link = &control->links[rank];
    tutti__frame head = {.kind = TUTTI__FRAME_CREDIT};

    link->owed += bytes + COST;
    if (rank == control->group->comm.rank) {
        link->credit += link->owed;
        link->owed = 0;
    } else if (link->owed >= TUTTI__CREDIT_BYTES / 4) {
        head.count = link->owed;
        link->owed = 0;
        tutti__control_send(control, rank, &head, NULL, -1);
    }
}

static void accept_rts(tutti__control *control, const tutti__frame *offer,
                       tutti__p2p_request *receive)
{
    const tutti__frame head = {
        .kind = TUTTI__FRAME_CTS, .id = offer->id, .receive = receive->signature.sequence};

    append(&control->links[receive->peer].receiving, receive);
    tutti__control_send(control, receive->peer, &head, NULL, -1);
}

static tutti__unexpected *arrive(tutti__control *control, int rank, const tutti__frame *head,
                                 size_t bytes)
{
    tutti__link *link = &control->links[rank];
    tutti__unexpected *unexpected = malloc(sizeof *unexpected + bytes);

    if (!unexpected) {
        if (!control->verdict.set) {
            control->verdict = (tutti__verdict){.set = true, .lost = -1};
            control->verdict.cause.status = TUTTI_ERR_MEMORY;
            control->verdict.cause.culprit = control->group->comm.rank;
            snprintf(control->verdict.cause.text, sizeof control->verdict.cause.text,
                     "rank %d has no memory for what rank %d sends", control->group->comm.rank,
                     rank);
        }
        return NULL;
    }
    *unexpected = (tutti__unexpected){.head = *head, .order = control->n_unexpected++};
    if (link->first_unexpected)
        link->last_unexpected->next = unexpected;
    else
        link->first_unexpected = unexpected;
    link->last_unexpected = unexpected;
    return unexpected;
}

static void copy_to(tutti__p2p_request *receive, const char *from)
{
    if (receive->bytes > 0)
        memcpy(receive->p, from, receive->bytes);
}

/* ---- What comes -------------------------------------------------------------------------------------------- */

bool tutti__p2p_frame_valid(const tutti__frame *head)
{
    size_t element = tutti_dtype_size((tutti_dtype)head->dtype);

    switch (head->kind) {
    case TUTTI__FRAME_EAGER:
        return element > 0 && head->bytes <= SMALL_BYTES && head->count == head->bytes / element &&
               head->bytes % element == 0;
    case TUTTI__FRAME_RTS:
        return element > 0 && head->bytes == 0;
    case TUTTI__FRAME_DATA:
        return head->bytes <= TUTTI__DATA_BYTES;
    case TUTTI__FRAME_CREDIT:
        return head->bytes == 0 && head->count <= TUTTI__CREDIT_BYTES;
    default:
        return head->kind == TUTTI__FRAME_CTS && head->bytes == 0;
    }
}

static char *begin_eager(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    tutti__p2p_request *receive = take_receive(control, rank, link->head.tag);

    if (!receive) {
        link->arriving = arrive(control, rank, &link->head, link->head.bytes);
        return link->arriving ? link->arriving->body : NULL;
    }
    if (!agree(control, receive, &link->head))
        return NULL;
    append(&link->receiving, receive);
    link->coming = receive;
    return receive->p;
}

static char *begin_data(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    tutti__p2p_request *before,
        *receive = find_number(&link->receiving, link->head.receive, &before);

    if (!receive || link->head.bytes > receive->bytes - receive->moved)
        return NULL;
    link->coming = receive;
    return receive->p + receive->moved;
}

char *tutti__p2p_frame_begin(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    link->coming = NULL;
    link->arriving = NULL;
    if (link->head.kind == TUTTI__FRAME_EAGER)
        return begin_eager(control, rank);
    return link->head.kind == TUTTI__FRAME_DATA ? begin_data(control, rank) : NULL;
}

static void end_eager(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    tutti__unexpected *unexpected = link->arriving;

    if (link->coming) {
        take_number(&link->receiving, link->coming->signature.sequence);
        finish(control, link->coming, TUTTI_OK, NULL);
    }
    if (link->coming || (unexpected && unexpected->claimed))
        owe(control, rank, link->head.bytes);
    if (unexpected)
        unexpected->whole = true;
    if (!unexpected || !unexpected->claimed)
        return;
    if (unexpected->receive) {
        copy_to(unexpected->receive, unexpected->body);
        finish(control, unexpected->receive, TUTTI_OK, NULL);
    }
    free(unexpected);
}

static void end_rts(tutti__control *control, int rank)
{
    const tutti__frame *head = &control->links[rank].head;
    tutti__p2p_request *receive = take_receive(control, rank, head->tag);

    if (!receive)
        (void)arrive(control, rank, head, 0);
    else if (agree(control, receive, head))
        accept_rts(control, head, receive);
}

/* The receiver asks for it. */
static void end_cts(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    tutti__p2p_request *before, *send = find_number(&link->rts_sent, link->head.id, &before);
    tutti__frame head = {.kind = TUTTI__FRAME_DATA, .receive = link->head.receive};

    if (!send)
        return;
    take_after(&link->rts_sent, before);
    head.bytes = (uint32_t)(send->bytes < TUTTI__DATA_BYTES ? send->bytes : TUTTI__DATA_BYTES);
    tutti__control_send_data(control, rank, &head, send, send->p);
}

static void end_data(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    tutti__p2p_request *receive = link->coming;

    if (!receive)
        return;
    receive->moved += link->head.bytes;
    if (receive->moved < receive->bytes)
        return;
    take_number(&link->receiving, receive->signature.sequence);
    finish(control, receive, TUTTI_OK, NULL);
}

void tutti__p2p_frame_end(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    if (link->head.kind == TUTTI__FRAME_EAGER)
        end_eager(control, rank);
    else if (link->head.kind == TUTTI__FRAME_RTS)
        end_rts(control, rank);
    else if (link->head.kind == TUTTI__FRAME_CTS)
        end_cts(control, rank);
    else if (link->head.kind == TUTTI__FRAME_DATA)
        end_data(control, rank);
    else
        link->credit += (size_t)link->head.count;
    link->coming = NULL;
    link->arriving = NULL;
}

bool tutti__p2p_frame_sent(tutti__control *control, tutti__outgoing *out_frame)
{
    tutti__p2p_request *request = out_frame->request;
    size_t rest;

    request->moved += out_frame->head.bytes;
    rest = request->bytes - request->moved;
    out_frame->done = 0;
    out_frame->from = request->p + request->moved;
    out_frame->head.bytes = (uint32_t)(rest < TUTTI__DATA_BYTES ? rest : TUTTI__DATA_BYTES);
    if (rest > 0)
        return true;
    out_frame->request = NULL;
    out_frame->from = out_frame->body;
    finish(control, request, TUTTI_OK, NULL);
    return false;
}

/* ---- What goes ------------------------------------------------------------------------------------------------ */

static tutti__frame frame_of(const tutti__p2p_request *send, tutti__frame_kind kind)
{
    return (tutti__frame){.kind = kind,
                          .bytes = kind == TUTTI__FRAME_EAGER ? (uint32_t)send->bytes : 0,
                          .tag = send->signature.tag,
                          .dtype = send->signature.dtype,
                          .count = send->signature.count,
                          .id = send->signature.sequence};
}

/* Small, and the receiver has room. */
static bool goes_eager(tutti__link *link, const tutti__p2p_request *send)
{
    if (send->bytes > SMALL_BYTES || link->credit < send->bytes + COST)
        return false;
    link->credit -= send->bytes + COST;
    return true;
}

static void send_to_self(tutti__control *control, tutti__p2p_request *send)
{
    int self = control->group->comm.rank;
    tutti__frame head = frame_of(send, TUTTI__FRAME_RTS);
    tutti__p2p_request *receive = take_receive(control, self, send->signature.tag);
    tutti__unexpected *unexpected;

    if (receive) {
        if (!agree(control, receive, &head))
            return;
        copy_to(receive, send->p);
        finish(control, receive, TUTTI_OK, NULL);
        finish(control, send, TUTTI_OK, NULL);
        return;
    }
    if (!goes_eager(&control->links[self], send)) {
        unexpected = arrive(control, self, &head, 0);
        if (unexpected)
            unexpected->own = send;
        return;
    }
    head = frame_of(send, TUTTI__FRAME_EAGER);
    unexpected = arrive(control, self, &head, send->bytes);
    if (!unexpected)
        return;
    unexpected->whole = true;
    if (send->bytes > 0)
        memcpy(unexpected->body, send->p, send->bytes);
    finish(control, send, TUTTI_OK, NULL);
}

static void send_request(tutti__control *control, tutti__p2p_request *send)
{
    tutti__link *link = &control->links[send->peer];
    tutti__frame head;

    if (send->peer == control->group->comm.rank) {
        send_to_self(control, send);
    } else if (goes_eager(link, send)) {
        head = frame_of(send, TUTTI__FRAME_EAGER);
        tutti__control_send_data(control, send->peer, &head, send, send->p);
    } else {
        head = frame_of(send, TUTTI__FRAME_RTS);
        append(&link->rts_sent, send);
        tutti__control_send(control, send->peer, &head, NULL, -1);
    }
}

/* The first arrival that this receive is for, and the one before it in its list. */
static tutti__unexpected *find_arrival(tutti__control *control, const tutti__p2p_request *receive,
                                       int *rank_p, tutti__unexpected **before_p)
{
    tutti__unexpected *best = NULL;

    for (int r = 0; r < control->group->comm.size; r++) {
        tutti__unexpected *before = NULL, *a = control->links[r].first_unexpected;

        for (; a && !suits(receive, r, a->head.tag); a = a->next)
            before = a;
        if (a && (!best || a->order < best->order)) {
            best = a;
            *rank_p = r;
            *before_p = before;
        }
    }
    return best;
}

/* Gives the receive what has arrived for it, which is no longer in its list. */
static void hand_over(tutti__control *control, tutti__unexpected *unexpected,
                      tutti__p2p_request *receive)
{
    int rank = receive->peer;

    if (unexpected->whole) {
        copy_to(receive, unexpected->body);
        owe(control, rank, unexpected->head.bytes);
        finish(control, receive, TUTTI_OK, NULL);
    } else if (unexpected->own) {
        copy_to(receive, unexpected->own->p);
        finish(control, receive, TUTTI_OK, NULL);
        finish(control, unexpected->own, TUTTI_OK, NULL);
    } else if (unexpected->head.kind == TUTTI__FRAME_RTS) {
        accept_rts(control, &unexpected->head, receive);
    } else { /* it is just coming in */
        unexpected->claimed = true;
        unexpected->receive = receive;
        return;
    }
    free(unexpected);
}

/* False if nothing has arrived that can still be had. What came whole can, even of a dead group. */
static bool receive_arrived(tutti__control *control, tutti__p2p_request *receive)
{
    tutti__unexpected *before = NULL, *unexpected;
    tutti__link *link;
    int rank = -1;

    unexpected = find_arrival(control, receive, &rank, &before);
    if (!unexpected || (!unexpected->whole && atomic_load(&control->group->comm.failed)))
        return false;
    link = &control->links[rank];
    receive->peer = rank;
    if (!agree(control, receive, &unexpected->head))
        return true;
    if (before)
        before->next = unexpected->next;
    else
        link->first_unexpected = unexpected->next;
    if (link->last_unexpected == unexpected)
        link->last_unexpected = before;
    hand_over(control, unexpected, receive);
    return true;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* Nobody is left who could send it, or take it. */
static bool is_orphan(const tutti__control *control, const tutti__p2p_request *request)
{
    const tutti_group *group = control->group;

    if (request->peer != TUTTI_ANY_RANK)
        return request->peer != group->comm.rank &&
               atomic_load(&group->comm.peers[request->peer].left);
    for (int r = 0; r < group->comm.size; r++)
        if (r != group->comm.rank && !atomic_load(&group->comm.peers[r].left))
            return false;
    return group->comm.size > 1;
}

void tutti__p2p_rank_left(tutti__control *control, int rank)
{
    for (const tutti__p2p_request *l = control->open; l && !control->verdict.set; l = l->next_open)
        if ((l->peer == rank || l->peer == TUTTI_ANY_RANK) && is_orphan(control, l)) {
            control->verdict.set = true;
            control->verdict.lost = rank;
        }
}

static void expire(void *self, tutti_work *work)
{
    tutti__p2p_expire(self, work);
}

static tutti__p2p_request *request_new(tutti_group *group, const tutti__signature *signature,
                                       void *p, int timeout_ms)
{
    tutti__p2p_request *request = tutti__alloc(sizeof *request);
    double now = tutti__now_ms();

    if (!request)
        return NULL;
    request->signature = *signature;
    request->p = p;
    request->bytes = tutti__signature_bytes(signature);
    request->peer = (int)signature->root;
    request->timeout_ms = timeout_ms;
    request->deadline = now + timeout_ms;
    request->work = tutti__work_open(group->queue, signature, request->deadline, expire, group);
    if (request->work)
        return request;
    free(request);
    return NULL;
}

/* With the lock. The work is done, or will be. */
static void post_request(tutti__control *control, tutti__p2p_request *request)
{
    bool failed = atomic_load(&control->group->comm.failed),
         sends = request->signature.op == TUTTI__OP_SEND;
    char text[1400];

    request->next_open = control->open;
    request->place = &control->open;
    if (control->open)
        control->open->place = &request->next_open;
    control->open = request;
    if (!sends && receive_arrived(control, request))
        return;
    if (failed) {
        tutti__comm_error_text(&control->group->comm, &request->signature, text, sizeof text);
        finish(control, request, tutti__comm_status(&control->group->comm), text);
    } else if (is_orphan(control, request)) {
        if (!control->verdict.set) {
            control->verdict.set = true;
            control->verdict.lost =
                request->peer < 0 ? (control->group->comm.rank == 0) : request->peer;
        }
    } else if (sends) {
        send_request(control, request);
    } else {
        append(&control->posted, request);
    }
}

tutti_status tutti__p2p_post(tutti_group *group, tutti__signature *signature, void *p,
                             int timeout_ms, tutti_work **work_p)
{
    tutti__control *control = group->control;
    tutti__p2p_request *request;
    tutti_work *work;
    tutti_status status;

    (void)tutti__comm_failed(&group->comm); /* looks whether it has */
    signature->group = group->comm.id;
    signature->sequence = atomic_fetch_add(&control->n_requests, 1);
    request = request_new(group, signature, p, timeout_ms);
    if (!request)
        return TUTTI_ERR_MEMORY;
    work = request->work;
    tutti__control_lock(control);
    post_request(control, request);
    tutti__control_unlock(control);
    tutti__control_settle(control);
    if (work_p) {
        *work_p = work;
        return TUTTI_OK;
    }
    status = tutti_work_wait(work);
    if (status != TUTTI_OK)
        tutti__flight_report(&group->flight); /* the program may end as soon as it knows */
    return status;
}

/* ---- Ends --------------------------------------------------------------------------------------------------------- */

void tutti__p2p_fail_all(tutti_group *group)
{
    tutti__control *control = group->control;
    char text[1400];

    if (!control)
        return;
    tutti__control_lock(control);
    tutti__control_forget_data(control);
    control->posted = (tutti__p2p_list){NULL, NULL};
    for (int r = 0; r < group->comm.size; r++) {
        tutti__link *link = &control->links[r];

        link->rts_sent = link->receiving = (tutti__p2p_list){NULL, NULL};
        link->into = link->coming ? NULL : link->into;
        link->coming = NULL;
        if (link->arriving)
            link->arriving->receive = NULL;
        for (tutti__unexpected *a = link->first_unexpected; a; a = a->next)
            a->own = NULL;
    }
    while (control->open) {
        tutti__comm_error_text(&group->comm, &control->open->signature, text, sizeof text);
        finish(control, control->open, tutti__comm_status(&group->comm), text);
    }
    tutti__control_unlock(control);
}

static void fail_late(tutti_group *group, const tutti__p2p_request *request)
{
    char signature[96], peer[128] = "any rank";

    tutti__signature_text(&request->signature, signature, sizeof signature);
    if (request->peer != TUTTI_ANY_RANK)
        tutti__comm_peer_text(&group->comm, request->peer, peer, sizeof peer);
    (void)tutti__comm_fail(
        &group->comm, TUTTI_ERR_TIMEOUT, request->peer,
        "%s of rank %d waited %.3g s in vain for %s to call %s: it hangs, is much slower, or "
        "names another tag or rank (TUTTI_TIMEOUT_S, tutti_group_set_timeout set the limit)",
        signature, group->comm.rank, request->timeout_ms / 1e3, peer,
        request->signature.op == TUTTI__OP_SEND ? "tutti_recv" : "tutti_send");
}

void tutti__p2p_expire(tutti_group *group, tutti_work *work)
{
    tutti__control *control = group->control;
    tutti__p2p_request copy;
    bool open = false;

    tutti__control_lock(control);
    for (const tutti__p2p_request *l = control->open; l && !open; l = l->next_open) {
        open = l->work == work;
        if (open)
            copy = *l;
    }
    tutti__control_unlock(control);
    if (open)
        fail_late(group, &copy);
}

void tutti__p2p_flush(tutti__control *control)
{
    tutti__p2p_request late;

    /* What this rank still owes itself can never come. */
    if (control->group->comm.size == 1 && control->open)
        (void)tutti__comm_fail(&control->group->comm, TUTTI_ERR_STATE, 0,
                               "the group was left before both tutti_send and tutti_recv were "
                               "called");
    tutti__control_lock(control);
    while (control->open && !atomic_load(&control->group->comm.failed)) {
        const tutti__p2p_request *first = control->open;

        for (const tutti__p2p_request *l = first; l; l = l->next_open)
            first = l->deadline < first->deadline ? l : first;
        late = *first;
        if (tutti__now_ms() < late.deadline) {
            tutti__cond_wait(&control->changed, &control->lock, late.deadline);
            continue;
        }
        tutti__control_unlock(control);
        fail_late(control->group, &late);
        tutti__control_lock(control);
    }
    tutti__control_unlock(control);
}

void tutti__p2p_free(tutti__control *control)
{
    for (int r = 0; r < control->group->comm.size; r++) {
        tutti__link *link = &control->links[r];

        if (link->arriving && link->arriving->claimed)
            free(link->arriving);
        while (link->first_unexpected) {
            tutti__unexpected *unexpected = link->first_unexpected;

            link->first_unexpected = unexpected->next;
            free(unexpected);
        }
    }
}
