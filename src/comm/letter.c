/* letter.c -- sends and receives, matched by rank and tag.   SPDX-License-Identifier: MIT
 *
 * A small letter goes at once, whole, as long as its receiver has room for it (credit); it waits there for its receive.
 * Any other is offered, and goes piece by piece when the receiver takes it. So what nobody has asked for takes bounded
 * memory, and a letter that nobody receives holds up neither others nor the rest of the post. Offers and whole letters of
 * one rank come in the order of the sends, so matching in the order of arrival is matching in the order of the calls. */
#include "comm/post.h"

#include "comm/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* COST: of a small letter, beside its bytes. */
enum { SMALL_BYTES = 16 << 10, COST = 64 };

struct tutti__letter {
    tutti__letter *next_open, **place; /* among the open ones */
    tutti__letter *next; /* in one of post->receives, link->offered, link->receiving */
    tutti_work *work;
    tutti__fingerprint print; /* its sequence is its number */
    char *p;
    size_t bytes, moved;
    int peer; /* TUTTI_ANY_RANK until it has come */
    double deadline;
    int timeout_ms;
};

/* ---- Lists ---------------------------------------------------------------------------------------------- */

static void append(tutti__letters *list, tutti__letter *letter)
{
    letter->next = NULL;
    if (list->first)
        list->last->next = letter;
    else
        list->first = letter;
    list->last = letter;
}

/* Takes the one behind `before`, or the first if that is NULL. */
static tutti__letter *take_after(tutti__letters *list, tutti__letter *before)
{
    tutti__letter **place = before ? &before->next : &list->first, *letter = *place;

    *place = letter->next;
    if (list->last == letter)
        list->last = before;
    return letter;
}

static tutti__letter *find_number(const tutti__letters *list, uint64_t number,
                                  tutti__letter **before_p)
{
    *before_p = NULL;
    for (tutti__letter *l = list->first; l; l = l->next) {
        if (l->print.sequence == number)
            return l;
        *before_p = l;
    }
    return NULL;
}

static void take_number(tutti__letters *list, uint64_t number)
{
    tutti__letter *before;

    if (find_number(list, number, &before))
        take_after(list, before);
}

static void finish(tutti__post *post, tutti__letter *letter, tutti_status status, const char *text)
{
    *letter->place = letter->next_open;
    if (letter->next_open)
        letter->next_open->place = letter->place;
    tutti__work_finish(letter->work, status, text, letter->peer);
    free(letter);
    if (!post->open)
        pthread_cond_broadcast(&post->changed);
}

/* ---- Matching -------------------------------------------------------------------------------------------- */

static bool suits(const tutti__letter *receive, int rank, int tag)
{
    return (receive->peer == rank || receive->peer == TUTTI_ANY_RANK) && receive->print.tag == tag;
}

/* Takes the first receive that this letter from `rank` is for; NULL: none is posted. */
static tutti__letter *take_receive(tutti__post *post, int rank, int tag)
{
    tutti__letter *before = NULL, *found = post->receives.first;

    for (; found && !suits(found, rank, tag); found = found->next)
        before = found;
    if (found)
        take_after(&post->receives, before)->peer = rank;
    return found;
}

/* Both speak of the same elements; otherwise the group dies of it, and the receive with it. */
static bool agree(tutti__post *post, const tutti__letter *receive, const tutti__frame *head)
{
    const tutti__fingerprint send = {.op = TUTTI__OP_SEND,
                                     .sequence = head->id,
                                     .count = head->count,
                                     .dtype = (uint8_t)head->dtype,
                                     .root = (uint32_t)post->group->rank,
                                     .tag = head->tag};
    char sent[96], received[96];

    if (head->count == receive->print.count && head->dtype == receive->print.dtype)
        return true;
    if (post->verdict.set)
        return false;
    tutti__print_text(&send, sent, sizeof sent);
    tutti__print_text(&receive->print, received, sizeof received);
    post->verdict = (tutti__verdict){.set = true, .lost = -1};
    post->verdict.cause.status = TUTTI_ERR_MISMATCH;
    post->verdict.cause.culprit = receive->peer;
    snprintf(post->verdict.cause.text, sizeof post->verdict.cause.text,
             "rank %d called %s, but rank %d called %s; both must name the same dtype and count",
             receive->peer, sent, post->group->rank, received);
    return false;
}

/* A small letter has been received: its sender may send as much again. */
static void owe(tutti__post *post, int rank, size_t bytes)
{
    tutti__link *link = &post->links[rank];
    tutti__frame head = {.kind = TUTTI__FRAME_CREDIT};

    link->owed += bytes + COST;
    if (rank == post->group->rank) {
        link->credit += link->owed;
        link->owed = 0;
    } else if (link->owed >= TUTTI__CREDIT_BYTES / 4) {
        head.count = link->owed;
        link->owed = 0;
        tutti__post_say(post, rank, &head, NULL, -1);
    }
}

static void take_offer(tutti__post *post, const tutti__frame *offer, tutti__letter *receive)
{
    const tutti__frame head = {
        .kind = TUTTI__FRAME_TAKE, .id = offer->id, .receive = receive->print.sequence};

    append(&post->links[receive->peer].receiving, receive);
    tutti__post_say(post, receive->peer, &head, NULL, -1);
}

static tutti__arrival *arrive(tutti__post *post, int rank, const tutti__frame *head, size_t bytes)
{
    tutti__link *link = &post->links[rank];
    tutti__arrival *arrival = malloc(sizeof *arrival + bytes);

    if (!arrival) {
        if (!post->verdict.set) {
            post->verdict = (tutti__verdict){.set = true, .lost = -1};
            post->verdict.cause.status = TUTTI_ERR_MEMORY;
            post->verdict.cause.culprit = post->group->rank;
            snprintf(post->verdict.cause.text, sizeof post->verdict.cause.text,
                     "rank %d has no memory for what rank %d sends", post->group->rank, rank);
        }
        return NULL;
    }
    *arrival = (tutti__arrival){.head = *head, .order = post->n_arrivals++};
    if (link->first_arrival)
        link->last_arrival->next = arrival;
    else
        link->first_arrival = arrival;
    link->last_arrival = arrival;
    return arrival;
}

static void copy_to(tutti__letter *receive, const char *from)
{
    if (receive->bytes > 0)
        memcpy(receive->p, from, receive->bytes);
}

/* ---- What comes -------------------------------------------------------------------------------------------- */

bool tutti__letter_sound(const tutti__frame *head)
{
    size_t element = tutti_dtype_size((tutti_dtype)head->dtype);

    switch (head->kind) {
    case TUTTI__FRAME_WHOLE:
        return element > 0 && head->bytes <= SMALL_BYTES && head->count == head->bytes / element &&
               head->bytes % element == 0;
    case TUTTI__FRAME_OFFER:
        return element > 0 && head->bytes == 0;
    case TUTTI__FRAME_PIECE:
        return head->bytes <= TUTTI__PIECE_BYTES;
    case TUTTI__FRAME_CREDIT:
        return head->bytes == 0 && head->count <= TUTTI__CREDIT_BYTES;
    default:
        return head->kind == TUTTI__FRAME_TAKE && head->bytes == 0;
    }
}

static char *begin_whole(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];
    tutti__letter *receive = take_receive(post, rank, link->head.tag);

    if (!receive) {
        link->arriving = arrive(post, rank, &link->head, link->head.bytes);
        return link->arriving ? link->arriving->body : NULL;
    }
    if (!agree(post, receive, &link->head))
        return NULL;
    append(&link->receiving, receive);
    link->coming = receive;
    return receive->p;
}

static char *begin_piece(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];
    tutti__letter *before, *receive = find_number(&link->receiving, link->head.receive, &before);

    if (!receive || link->head.bytes > receive->bytes - receive->moved)
        return NULL;
    link->coming = receive;
    return receive->p + receive->moved;
}

char *tutti__letter_begin(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];

    link->coming = NULL;
    link->arriving = NULL;
    if (link->head.kind == TUTTI__FRAME_WHOLE)
        return begin_whole(post, rank);
    return link->head.kind == TUTTI__FRAME_PIECE ? begin_piece(post, rank) : NULL;
}

static void end_whole(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];
    tutti__arrival *arrival = link->arriving;

    if (link->coming) {
        take_number(&link->receiving, link->coming->print.sequence);
        finish(post, link->coming, TUTTI_OK, NULL);
    }
    if (link->coming || (arrival && arrival->claimed))
        owe(post, rank, link->head.bytes);
    if (arrival)
        arrival->whole = true;
    if (!arrival || !arrival->claimed)
        return;
    if (arrival->receive) {
        copy_to(arrival->receive, arrival->body);
        finish(post, arrival->receive, TUTTI_OK, NULL);
    }
    free(arrival);
}

static void end_offer(tutti__post *post, int rank)
{
    const tutti__frame *head = &post->links[rank].head;
    tutti__letter *receive = take_receive(post, rank, head->tag);

    if (!receive)
        (void)arrive(post, rank, head, 0);
    else if (agree(post, receive, head))
        take_offer(post, head, receive);
}

/* The receiver asks for it. */
static void end_take(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];
    tutti__letter *before, *send = find_number(&link->offered, link->head.id, &before);
    tutti__frame head = {.kind = TUTTI__FRAME_PIECE, .receive = link->head.receive};

    if (!send)
        return;
    take_after(&link->offered, before);
    head.bytes = (uint32_t)(send->bytes < TUTTI__PIECE_BYTES ? send->bytes : TUTTI__PIECE_BYTES);
    tutti__post_send(post, rank, &head, send, send->p);
}

static void end_piece(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];
    tutti__letter *receive = link->coming;

    if (!receive)
        return;
    receive->moved += link->head.bytes;
    if (receive->moved < receive->bytes)
        return;
    take_number(&link->receiving, receive->print.sequence);
    finish(post, receive, TUTTI_OK, NULL);
}

void tutti__letter_end(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];

    if (link->head.kind == TUTTI__FRAME_WHOLE)
        end_whole(post, rank);
    else if (link->head.kind == TUTTI__FRAME_OFFER)
        end_offer(post, rank);
    else if (link->head.kind == TUTTI__FRAME_TAKE)
        end_take(post, rank);
    else if (link->head.kind == TUTTI__FRAME_PIECE)
        end_piece(post, rank);
    else
        link->credit += (size_t)link->head.count;
    link->coming = NULL;
    link->arriving = NULL;
}

bool tutti__letter_sent(tutti__post *post, tutti__parcel *parcel)
{
    tutti__letter *letter = parcel->letter;
    size_t rest;

    letter->moved += parcel->head.bytes;
    rest = letter->bytes - letter->moved;
    parcel->done = 0;
    parcel->from = letter->p + letter->moved;
    parcel->head.bytes = (uint32_t)(rest < TUTTI__PIECE_BYTES ? rest : TUTTI__PIECE_BYTES);
    if (rest > 0)
        return true;
    parcel->letter = NULL;
    parcel->from = parcel->body;
    finish(post, letter, TUTTI_OK, NULL);
    return false;
}

/* ---- What goes ------------------------------------------------------------------------------------------------ */

static tutti__frame frame_of(const tutti__letter *send, tutti__frame_kind kind)
{
    return (tutti__frame){.kind = kind,
                          .bytes = kind == TUTTI__FRAME_WHOLE ? (uint32_t)send->bytes : 0,
                          .tag = send->print.tag,
                          .dtype = send->print.dtype,
                          .count = send->print.count,
                          .id = send->print.sequence};
}

/* Small, and the receiver has room. */
static bool goes_whole(tutti__link *link, const tutti__letter *send)
{
    if (send->bytes > SMALL_BYTES || link->credit < send->bytes + COST)
        return false;
    link->credit -= send->bytes + COST;
    return true;
}

static void send_to_self(tutti__post *post, tutti__letter *send)
{
    int self = post->group->rank;
    tutti__frame head = frame_of(send, TUTTI__FRAME_OFFER);
    tutti__letter *receive = take_receive(post, self, send->print.tag);
    tutti__arrival *arrival;

    if (receive) {
        if (!agree(post, receive, &head))
            return;
        copy_to(receive, send->p);
        finish(post, receive, TUTTI_OK, NULL);
        finish(post, send, TUTTI_OK, NULL);
        return;
    }
    if (!goes_whole(&post->links[self], send)) {
        arrival = arrive(post, self, &head, 0);
        if (arrival)
            arrival->own = send;
        return;
    }
    head = frame_of(send, TUTTI__FRAME_WHOLE);
    arrival = arrive(post, self, &head, send->bytes);
    if (!arrival)
        return;
    arrival->whole = true;
    if (send->bytes > 0)
        memcpy(arrival->body, send->p, send->bytes);
    finish(post, send, TUTTI_OK, NULL);
}

static void send_letter(tutti__post *post, tutti__letter *send)
{
    tutti__link *link = &post->links[send->peer];
    tutti__frame head;

    if (send->peer == post->group->rank) {
        send_to_self(post, send);
    } else if (goes_whole(link, send)) {
        head = frame_of(send, TUTTI__FRAME_WHOLE);
        tutti__post_send(post, send->peer, &head, send, send->p);
    } else {
        head = frame_of(send, TUTTI__FRAME_OFFER);
        append(&link->offered, send);
        tutti__post_say(post, send->peer, &head, NULL, -1);
    }
}

/* The first arrival that this receive is for, and the one before it in its list. */
static tutti__arrival *find_arrival(tutti__post *post, const tutti__letter *receive, int *rank_p,
                                    tutti__arrival **before_p)
{
    tutti__arrival *best = NULL;

    for (int r = 0; r < post->group->size; r++) {
        tutti__arrival *before = NULL, *a = post->links[r].first_arrival;

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
static void hand_over(tutti__post *post, tutti__arrival *arrival, tutti__letter *receive)
{
    int rank = receive->peer;

    if (arrival->whole) {
        copy_to(receive, arrival->body);
        owe(post, rank, arrival->head.bytes);
        finish(post, receive, TUTTI_OK, NULL);
    } else if (arrival->own) {
        copy_to(receive, arrival->own->p);
        finish(post, receive, TUTTI_OK, NULL);
        finish(post, arrival->own, TUTTI_OK, NULL);
    } else if (arrival->head.kind == TUTTI__FRAME_OFFER) {
        take_offer(post, &arrival->head, receive);
    } else { /* it is just coming in */
        arrival->claimed = true;
        arrival->receive = receive;
        return;
    }
    free(arrival);
}

/* False if nothing has arrived that can still be had. What came whole can, even of a dead group. */
static bool receive_arrived(tutti__post *post, tutti__letter *receive)
{
    tutti__arrival *before = NULL, *arrival;
    tutti__link *link;
    int rank = -1;

    arrival = find_arrival(post, receive, &rank, &before);
    if (!arrival || (!arrival->whole && atomic_load(&post->group->failed)))
        return false;
    link = &post->links[rank];
    receive->peer = rank;
    if (!agree(post, receive, &arrival->head))
        return true;
    if (before)
        before->next = arrival->next;
    else
        link->first_arrival = arrival->next;
    if (link->last_arrival == arrival)
        link->last_arrival = before;
    hand_over(post, arrival, receive);
    return true;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* Nobody is left who could send it, or take it. */
static bool is_orphan(const tutti__post *post, const tutti__letter *letter)
{
    const tutti_group *group = post->group;

    if (letter->peer != TUTTI_ANY_RANK)
        return letter->peer != group->rank && atomic_load(&group->peers[letter->peer].left);
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && !atomic_load(&group->peers[r].left))
            return false;
    return group->size > 1;
}

void tutti__letters_left(tutti__post *post, int rank)
{
    for (const tutti__letter *l = post->open; l && !post->verdict.set; l = l->next_open)
        if ((l->peer == rank || l->peer == TUTTI_ANY_RANK) && is_orphan(post, l)) {
            post->verdict.set = true;
            post->verdict.lost = rank;
        }
}

static tutti__letter *letter_new(tutti_group *group, const tutti__fingerprint *print, void *p,
                                 int timeout_ms)
{
    tutti__letter *letter = tutti__alloc(sizeof *letter);
    double now = tutti__now_ms();

    if (!letter)
        return NULL;
    letter->print = *print;
    letter->p = p;
    letter->bytes = tutti__op_bytes(print);
    letter->peer = (int)print->root;
    letter->timeout_ms = timeout_ms;
    letter->deadline = now + timeout_ms;
    letter->work = tutti__work_open(group, print, letter->deadline);
    if (letter->work)
        return letter;
    free(letter);
    return NULL;
}

/* With the lock. The work is done, or will be. */
static void post_letter(tutti__post *post, tutti__letter *letter)
{
    bool failed = atomic_load(&post->group->failed), sends = letter->print.op == TUTTI__OP_SEND;
    char text[1400];

    letter->next_open = post->open;
    letter->place = &post->open;
    if (post->open)
        post->open->place = &letter->next_open;
    post->open = letter;
    if (!sends && receive_arrived(post, letter))
        return;
    if (failed) {
        tutti__error_text(post->group, &letter->print, text, sizeof text);
        finish(post, letter, tutti__group_status(post->group), text);
    } else if (is_orphan(post, letter)) {
        if (!post->verdict.set) {
            post->verdict.set = true;
            post->verdict.lost = letter->peer < 0 ? (post->group->rank == 0) : letter->peer;
        }
    } else if (sends) {
        send_letter(post, letter);
    } else {
        append(&post->receives, letter);
    }
}

tutti_status tutti__letter_post(tutti_group *group, tutti__fingerprint *print, void *p,
                                int timeout_ms, tutti_work **work_p)
{
    tutti__post *post = group->post;
    tutti__letter *letter;
    tutti_work *work;
    tutti_status status;

    (void)tutti__group_failed(group); /* looks whether it has */
    print->group = group->id;
    print->sequence = atomic_fetch_add(&post->n_letters, 1);
    letter = letter_new(group, print, p, timeout_ms);
    if (!letter)
        return TUTTI_ERR_MEMORY;
    work = letter->work;
    tutti__post_enter(post);
    post_letter(post, letter);
    tutti__post_leave(post);
    tutti__post_settle(post);
    if (work_p) {
        *work_p = work;
        return TUTTI_OK;
    }
    status = tutti_work_wait(work);
    if (status != TUTTI_OK)
        tutti__flight_report(group); /* the program may end as soon as it knows */
    return status;
}

/* ---- Ends --------------------------------------------------------------------------------------------------------- */

void tutti__letters_fail(tutti_group *group)
{
    tutti__post *post = group->post;
    char text[1400];

    if (!post)
        return;
    tutti__post_enter(post);
    tutti__post_forget(post);
    post->receives = (tutti__letters){NULL, NULL};
    for (int r = 0; r < group->size; r++) {
        tutti__link *link = &post->links[r];

        link->offered = link->receiving = (tutti__letters){NULL, NULL};
        link->into = link->coming ? NULL : link->into;
        link->coming = NULL;
        if (link->arriving)
            link->arriving->receive = NULL;
        for (tutti__arrival *a = link->first_arrival; a; a = a->next)
            a->own = NULL;
    }
    while (post->open) {
        tutti__error_text(group, &post->open->print, text, sizeof text);
        finish(post, post->open, tutti__group_status(group), text);
    }
    tutti__post_leave(post);
}

static void fail_late(tutti_group *group, const tutti__letter *letter)
{
    char print[96], peer[128] = "any rank";

    tutti__print_text(&letter->print, print, sizeof print);
    if (letter->peer != TUTTI_ANY_RANK)
        tutti__peer_text(group, letter->peer, peer, sizeof peer);
    (void)tutti__group_fail(
        group, TUTTI_ERR_TIMEOUT, letter->peer,
        "%s of rank %d waited %.3g s in vain for %s to call %s: it hangs, is much slower, or "
        "names another tag or rank (TUTTI_TIMEOUT_S, tutti_group_set_timeout set the limit)",
        print, group->rank, letter->timeout_ms / 1e3, peer,
        letter->print.op == TUTTI__OP_SEND ? "tutti_recv" : "tutti_send");
}

void tutti__letter_expire(tutti_group *group, tutti_work *work)
{
    tutti__post *post = group->post;
    tutti__letter copy;
    bool open = false;

    tutti__post_enter(post);
    for (const tutti__letter *l = post->open; l && !open; l = l->next_open) {
        open = l->work == work;
        if (open)
            copy = *l;
    }
    tutti__post_leave(post);
    if (open)
        fail_late(group, &copy);
}

void tutti__letters_flush(tutti__post *post)
{
    tutti__letter late;

    /* What this rank still owes itself can never come. */
    if (post->group->size == 1 && post->open)
        (void)tutti__group_fail(post->group, TUTTI_ERR_STATE, 0,
                                "the group was left before both tutti_send and tutti_recv were "
                                "called");
    tutti__post_enter(post);
    while (post->open && !atomic_load(&post->group->failed)) {
        const tutti__letter *first = post->open;

        for (const tutti__letter *l = first; l; l = l->next_open)
            first = l->deadline < first->deadline ? l : first;
        late = *first;
        if (tutti__now_ms() < late.deadline) {
            tutti__cond_wait(&post->changed, &post->lock, late.deadline);
            continue;
        }
        tutti__post_leave(post);
        fail_late(post->group, &late);
        tutti__post_enter(post);
    }
    tutti__post_leave(post);
}

void tutti__letters_free(tutti__post *post)
{
    for (int r = 0; r < post->group->size; r++) {
        tutti__link *link = &post->links[r];

        if (link->arriving && link->arriving->claimed)
            free(link->arriving);
        while (link->first_arrival) {
            tutti__arrival *arrival = link->first_arrival;

            link->first_arrival = arrival->next;
            free(arrival);
        }
    }
}
