/* control_init.c -- a group's part of the connections: opening and closing it.   SPDX-License-Identifier: MIT */
#include "comm/control/control_state.h"

#include "base/thread.h"
#include "comm/core/failure.h"
#include "comm/core/tree.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINGER_MS = 1000, LINGER_DEAD_MS = 100 };

static void announce(void *self, tutti__cause *cause)
{
    tutti__control_tell(self, cause);
}

/* The thread reports that, and ends the groups that are being made from this one. */
static void note_failed(void *self, bool first)
{
    const tutti__control *control = self;

    if (first)
        tutti__links_wake(control->links);
}

static void control_free(tutti__control *control)
{
    for (int r = 0; r < control->comm->size; r++)
        while (control->members[r].handles) {
            tutti__handle *handle = control->members[r].handles;

            control->members[r].handles = handle->next;
            if (handle->handed.fd >= 0)
                close(handle->handed.fd);
            free(handle);
        }
    free(control->rank_at);
    free(control->near);
    free(control);
}

/* Rank r of `comm` has the link places[r], or r if that is NULL. */
static tutti__control *control_new(tutti__links *links, tutti__comm *comm, const int *places,
                                   const tutti__frame_handler *handler)
{
    size_t n = (size_t)comm->size;
    tutti__control *control = tutti__alloc(sizeof *control + n * sizeof control->members[0]);

    if (control) {
        control->rank_at = tutti__alloc((size_t)links->size * sizeof *control->rank_at);
        control->near = tutti__alloc(TUTTI__NEIGHBOURS * sizeof *control->near);
    }
    if (!control || !control->rank_at || !control->near) {
        if (control) {
            free(control->rank_at);
            free(control->near);
        }
        free(control);
        return NULL;
    }
    control->flood =
        (tutti__flood){.rank = comm->rank,
                       .size = comm->size,
                       .n_to = tutti__tree_neighbours(comm->rank, comm->size, control->near),
                       .to = control->near};
    control->links = links;
    control->comm = comm;
    control->handler = *handler;
    atomic_init(&control->opening, true);
    for (int i = 0; i < links->size; i++)
        control->rank_at[i] = -1;
    for (int r = 0; r < comm->size; r++) {
        control->members[r].link = places ? places[r] : r;
        control->rank_at[control->members[r].link] = r;
    }
    return control;
}

static void add(tutti__control *control)
{
    tutti__links *links = control->links;

    /* Before the thread sees it, which may announce something at once. */
    tutti__comm_observe(
        control->comm,
        &(tutti__observer){.self = control, .announce = announce, .failed = note_failed});
    tutti__links_enter(links);
    pthread_mutex_lock(&links->lock);
    control->next = links->controls;
    links->controls = control;
    pthread_mutex_unlock(&links->lock);
    /* A connection that has ended says so only once. */
    for (int i = 0; i < links->n_used; i++) {
        int rank = control->rank_at[links->used[i]];

        if (rank >= 0 && links->at[links->used[i]].over && !control->verdict.set)
            control->verdict = (tutti__verdict){.set = true, .lost = rank};
    }
    tutti__early_deliver(control);
    if (control->verdict.set || (control->parent && atomic_load(&control->parent->comm->failed)))
        tutti__links_wake(links);
    tutti__links_leave(links);
}

tutti_status tutti__control_open(tutti__control **control_p, tutti__comm *comm,
                                 const tutti__control_opts *opts,
                                 const tutti__frame_handler *handler)
{
    tutti__links *links = tutti__links_new(comm, opts);
    tutti__control *control = links ? control_new(links, comm, NULL, handler) : NULL;
    int error;

    *control_p = NULL;
    if (!control) {
        if (links)
            tutti__links_close(links, 0);
        return TUTTI_ERR_MEMORY;
    }
    add(control);
    error = comm->size > 1 ? tutti__links_start(links) : 0;
    if (error) {
        tutti__comm_forget_observer(comm, control);
        tutti__links_close(links, 0);
        control_free(control);
        return tutti__fail_errno(error, "cannot start the control channel of group \"%s\"",
                                 comm->name);
    }
    *control_p = control;
    return TUTTI_OK;
}

/* A group made from another may have other neighbours. The higher rank connects. */
static void connect_to_neighbours(tutti__control *control)
{
    tutti__links *links = control->links;

    pthread_mutex_lock(&links->lock);
    for (int i = 0; i < control->flood.n_to; i++) {
        int at = control->members[control->near[i]].link;

        if (at < links->rank)
            tutti__link_want(links, at);
    }
    pthread_mutex_unlock(&links->lock);
}

tutti_status tutti__control_share(tutti__control **control_p, tutti__control *parent,
                                  tutti__comm *comm, const int *ranks,
                                  const tutti__frame_handler *handler)
{
    int *places = tutti__alloc((size_t)comm->size * sizeof *places);
    tutti__control *control = NULL;

    for (int r = 0; r < comm->size && places; r++)
        places[r] = parent->members[ranks[r]].link;
    if (places)
        control = control_new(parent->links, comm, places, handler);
    free(places);
    *control_p = control;
    if (!control)
        return TUTTI_ERR_MEMORY;
    control->parent = parent;
    add(control);
    connect_to_neighbours(control);
    return TUTTI_OK;
}

bool tutti__control_await_neighbours(tutti__control *control, double deadline)
{
    tutti__links *links = control->links;
    bool late = false;
    int missing;

    pthread_mutex_lock(&links->lock);
    do {
        missing = 0;
        for (int i = 0; i < control->flood.n_to; i++)
            missing += links->at[control->members[control->near[i]].link].state != TUTTI__LINK_OPEN;
        if (missing > 0 && !atomic_load(&control->comm->failed))
            late = !tutti__cond_wait(&links->changed, &links->lock, deadline);
    } while (missing > 0 && !late && !atomic_load(&control->comm->failed));
    pthread_mutex_unlock(&links->lock);
    return missing == 0;
}

void tutti__control_opened(tutti__control *control)
{
    tutti__links_enter(control->links);
    control->parent = NULL;
    control->orphaned = 0;
    tutti__links_leave(control->links);
    atomic_store(&control->opening, false);
}

bool tutti__control_was_refused(const tutti__control *control)
{
    return atomic_load(&control->heard) == TUTTI__HEARD_REFUSAL;
}

void tutti__control_refuse(tutti__control *parent, uint64_t group, const int *ranks, int n,
                           const tutti__cause *cause)
{
    const tutti__wire_head head = {group, tutti__cause_frame(cause, true)};
    tutti__links *links = parent->links;
    int near[TUTTI__NEIGHBOURS], n_near = 0, place = 0;

    while (place < n && ranks[place] != parent->comm->rank)
        place++;
    if (place < n)
        n_near = tutti__tree_neighbours(place, n, near);
    pthread_mutex_lock(&links->lock);
    for (int i = 0; i < n_near; i++)
        tutti__link_send(links, parent->members[ranks[near[i]]].link, &head, cause->text, -1);
    pthread_mutex_unlock(&links->lock);
}

/* ---- The end ----------------------------------------------------------------------------------------------- */

static void linger(tutti__control *control, double deadline)
{
    const tutti__links *links = control->links;
    bool busy = true;

    for (int ms = 0; busy && tutti__now_ms() < deadline; ms = 1) {
        busy = false;
        pthread_mutex_lock(&control->links->lock);
        for (int i = 0; i < links->n_used && !busy; i++)
            if (control->rank_at[links->used[i]] >= 0)
                busy = tutti__control_busy(control, control->rank_at[links->used[i]]);
        pthread_mutex_unlock(&control->links->lock);
        if (busy)
            poll(NULL, 0, ms);
    }
}

/* The thread knows it no longer. True if it was the last group of these links. */
static bool take_out(tutti__control *control)
{
    tutti__links *links = control->links;
    tutti__control **place;
    bool last;

    tutti__links_enter(links);
    tutti__control_forget(control);
    pthread_mutex_lock(&links->lock);
    for (place = &links->controls; *place != control;)
        place = &(*place)->next;
    *place = control->next;
    last = !links->controls;
    for (int i = 0; i < links->n_used; i++) {
        tutti__link *link = &links->at[links->used[i]];

        link->control = link->control == control ? NULL : link->control;
        link->streamer = link->streamer == control ? NULL : link->streamer;
    }
    tutti__control_drop_data(control);
    pthread_mutex_unlock(&links->lock);
    tutti__links_leave(links);
    pthread_mutex_lock(&links->lock);
    while (control->report == TUTTI__REPORT_RUNNING)
        pthread_cond_wait(&links->changed, &links->lock);
    pthread_mutex_unlock(&links->lock);
    return last;
}

void tutti__control_close(tutti__control *control)
{
    double deadline;
    bool failed;

    if (!control)
        return;
    failed = tutti__comm_failed(control->comm);
    deadline = tutti__now_ms() + (failed ? LINGER_DEAD_MS : LINGER_MS);
    /* In a dead group, tells the cause instead of goodbye: a peer may receive this before the message of the rank that found
     * the failure. */
    if (failed) {
        tutti__control_tell(control, &control->comm->cause);
    } else {
        /* what waits for a connection first: a goodbye that comes by others must not overtake it */
        if (control->flood.n_to < control->comm->size - 1)
            linger(control, deadline);
        tutti__control_say_goodbye(control);
    }
    linger(control, deadline);
    if (take_out(control))
        tutti__links_close(control->links, deadline);
    control_free(control);
}

/* ---- Queries ----------------------------------------------------------------------------------------------- */

void tutti__control_wake(tutti__control *control)
{
    atomic_store(&control->has_work, true);
    tutti__links_wake(control->links);
}

void tutti__control_watch(tutti__control *control, int rank)
{
    pthread_mutex_lock(&control->links->lock);
    tutti__link_want(control->links, control->members[rank].link);
    pthread_mutex_unlock(&control->links->lock);
}

int tutti__control_n_connections(tutti__control *control)
{
    tutti__links *links = control->links;
    int n = 0;

    pthread_mutex_lock(&links->lock);
    for (int i = 0; i < links->n_used; i++)
        n += links->at[links->used[i]].state == TUTTI__LINK_OPEN && !links->at[links->used[i]].over;
    pthread_mutex_unlock(&links->lock);
    return n;
}

/* Whether the peer has closed its end: its process has ended, or it has left. */
static bool control_is_over(tutti__control *control, int rank)
{
    bool over;

    pthread_mutex_lock(&control->links->lock);
    over = control->links->at[control->members[rank].link].over;
    pthread_mutex_unlock(&control->links->lock);
    return over;
}

bool tutti__control_is_silent(tutti__control *control, int rank)
{
    const tutti__links *links = control->links;
    const tutti__link *link = &links->at[control->members[rank].link];

    return links->limit_ms > 0 && link->known && !control_is_over(control, rank) &&
           tutti__now_ms() - link->heard >= links->limit_ms - links->beat_ms;
}
