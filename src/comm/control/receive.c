/* receive.c -- frames from peers.   SPDX-License-Identifier: MIT
 *
 * Only the thread reads. It notes what it finds out about the communicator in a verdict, and acts on it after reading
 * everything available. Bodies of the handler's frames are read directly into the handler's memory, under the handler's
 * lock, so that a thread that has entered can take that memory away. */
#include "comm/control/control_state.h"

#include "comm/bootstrap/bootstrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES_A_TURN = 1 << 20, FRAME_COST = 4096 };

void tutti__control_farewell(tutti__control *control, int rank, int from, uint64_t last)
{
    const tutti__link *link = &control->links->at[control->members[rank].link];
    const tutti__flood_event event = {.kind =
                                          from == rank ? TUTTI__FLOOD_GOODBYE : TUTTI__FLOOD_LEFT,
                                      .rank = rank,
                                      .from = from,
                                      .connected = link->state == TUTTI__LINK_OPEN && !link->over};
    _Atomic uint64_t *seen = &control->comm->peers[rank].seen;
    const tutti__flood_action action = tutti__flood_step(&control->flood, &event);

    if (action.note_left && atomic_load(seen) < last)
        atomic_store(seen, last);
    if (action.pass_left)
        tutti__control_pass_left(control, rank, from, last);
    if (action.note_left)
        tutti__comm_note_left(control->comm, rank);
}

/* NULL: no group has that id. */
static tutti__control *find(const tutti__links *links, uint64_t group)
{
    tutti__control *control = links->controls;

    group = group == links->first_id ? links->id : group;
    while (control && control->comm->id != group)
        control = control->next;
    return control;
}

static void hear_call(tutti__control *control, int rank, const char *body)
{
    tutti__signature call;

    if (!body)
        return;
    memcpy(&call, body, sizeof call);
    pthread_mutex_lock(&control->links->lock);
    if (control->data.called)
        control->data.called(control->data.self, rank, &call);
    pthread_mutex_unlock(&control->links->lock);
}

/* A whole frame, not the handler's, has arrived. */
static void hear(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    const tutti__frame *head = &link->head.frame;
    tutti__control *control = find(links, link->head.group);
    int rank = control ? control->rank_at[at] : -1;

    if (head->kind == TUTTI__FRAME_BEAT) {
        link->thread = head->id;
    } else if (!control) {
        tutti__early_keep(links, at);
    } else if (rank >= 0 && head->kind == TUTTI__FRAME_CAUSE) {
        tutti__control_judge_cause(control, head, link->text);
    } else if (rank >= 0 && head->kind == TUTTI__FRAME_GOODBYE) {
        tutti__control_farewell(control, rank, rank, head->id);
    } else if (rank >= 0 && head->kind == TUTTI__FRAME_CALL) {
        hear_call(control, rank, link->text);
    } else if (rank >= 0 && head->kind == TUTTI__FRAME_LEFT) {
        if (head->culprit >= 0 && head->culprit < control->comm->size && head->culprit != rank)
            tutti__control_farewell(control, head->culprit, rank, head->id);
    } else if (rank >= 0) {
        tutti__control_keep_handle(control, rank, link->came, head);
        link->came = -1;
    }
    if (link->came >= 0)
        close(link->came);
    link->came = -1;
    free(link->text);
    link->text = NULL;
}

/* Whether the frame's header is valid. */
static bool sound(const tutti__control *control, const tutti__frame *head)
{
    if (head->kind >= TUTTI__FRAME_OTHERS) /* of a group that this rank has left: discarded */
        return !control || control->handler.valid(head);
    if (head->kind == TUTTI__FRAME_TABLE)
        return false;
    if (head->kind == TUTTI__FRAME_CAUSE)
        return head->bytes < sizeof((tutti__cause *)0)->text && head->status != TUTTI_OK;
    return head->bytes == (head->kind == TUTTI__FRAME_CALL ? sizeof(tutti__signature) : 0);
}

/* Keeps the descriptor that came with the bytes of a frame. The kernel drops one if this process has no other free. */
static void keep_fd(tutti__link *link, struct msghdr *message)
{
    const struct cmsghdr *head = CMSG_FIRSTHDR(message);

    if (message->msg_flags & MSG_CTRUNC)
        link->came = TUTTI__LOST;
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
        return;
    if (link->came >= 0)
        close(link->came);
    memcpy(&link->came, CMSG_DATA(head), sizeof link->came);
}

/* Bytes read, at least 1; 0: none available; -1: end of the stream, or an error. */
static ssize_t read_into(tutti__link *link, void *to, size_t bytes)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary;
    struct iovec io = {to, bytes};
    struct msghdr message = {.msg_iov = &io,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof ancillary};
    ssize_t n;

    do
        n = recvmsg(link->fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    link->error = n < 0 ? errno : 0;
    if (n <= 0)
        return -1;
    keep_fd(link, &message);
    link->got += (size_t)n;
    link->known = true;
    link->heard = tutti__now_ms();
    return n;
}

static bool is_theirs(const tutti__link *link)
{
    return link->got >= sizeof link->head && link->head.frame.kind >= TUTTI__FRAME_OTHERS &&
           link->control;
}

/* The header has arrived: finds its group. */
static void find_group(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    tutti__control *control = find(links, link->head.group);

    link->control = control && control->rank_at[at] >= 0 ? control : NULL;
}

/* Entered, if it is the handler's. False: the header is invalid. */
static bool begin(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    const tutti__frame *head = &link->head.frame;
    tutti__control *control = link->control;

    if (!sound(control, head))
        return false;
    if (is_theirs(link))
        control->members[control->rank_at[at]].into =
            control->handler.begin(control->handler.self, control->rank_at[at], head);
    else if (head->kind < TUTTI__FRAME_OTHERS && head->bytes > 0)
        link->text = malloc(head->bytes);
    return true;
}

static ssize_t read_body(tutti__links *links, tutti__link *link, char *into)
{
    size_t at = link->got - sizeof link->head, rest = link->head.frame.bytes - at;

    if (into)
        return read_into(link, into + at, rest);
    return read_into(link, links->nowhere,
                     rest < sizeof links->nowhere ? rest : sizeof links->nowhere);
}

/* Reads more of the frame; entered, if it is the handler's. */
static ssize_t read_on(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    size_t head = sizeof link->head;

    if (link->got < head)
        return read_into(link, (char *)&link->head + link->got, head - link->got);
    return read_body(links, link,
                     is_theirs(link) ? link->control->members[link->control->rank_at[at]].into
                                     : link->text);
}

/* One step of reading: > 0 to continue, as read_into. */
static ssize_t step(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    const tutti__control *entered = is_theirs(link) ? link->control : NULL;
    size_t head = sizeof link->head;
    ssize_t n;

    if (entered)
        entered->handler.enter(entered->handler.self);
    n = read_on(links, at);
    if (n > 0 && link->got == head) {
        find_group(links, at);
        entered = is_theirs(link) ? link->control : NULL;
        if (entered)
            entered->handler.enter(entered->handler.self);
        if (!begin(links, at))
            n = -1;
    }
    if (n > 0 && link->got >= head && link->got == head + link->head.frame.bytes) {
        link->got = 0;
        if (entered)
            entered->handler.end(entered->handler.self, entered->rank_at[at], &link->head.frame);
        else if (link->head.frame.kind < TUTTI__FRAME_OTHERS)
            hear(links, at);
    }
    if (entered)
        entered->handler.leave(entered->handler.self);
    return n;
}

static void judge_all(tutti__links *links, int at, tutti__end_judge *judge, const void *why)
{
    for (tutti__control *c = links->controls; c; c = c->next) {
        int rank = c->rank_at[at];

        if (rank >= 0 && !atomic_load(&c->comm->peers[rank].left) && !c->verdict.set)
            c->verdict = judge(c->comm, rank, why);
    }
}

void tutti__link_end(tutti__links *links, int at, tutti__end_judge *judge, const void *why)
{
    tutti__link *link = &links->at[at];

    if (link->fd >= 0)
        epoll_ctl(links->epoll, EPOLL_CTL_DEL, link->fd, NULL);
    pthread_mutex_lock(&links->lock);
    tutti__link_use(links, at, TUTTI__LINK_OPEN);
    link->over = link->unwritable = true;
    tutti__link_clear(links, at);
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
    judge_all(links, at, judge, why);
}

static tutti__verdict judge_lost(const tutti__comm *comm, int rank, const void *why)
{
    (void)comm;
    (void)why;
    return (tutti__verdict){.set = true, .lost = rank};
}

/* The peer has ended, or has left all groups: those that it has not left have lost it. */
static void hang_up(tutti__links *links, int at)
{
    tutti__link_end(links, at, judge_lost, NULL);
}

typedef struct own_error {
    bool sends;
    int error;
} own_error;

static tutti__verdict judge_own(const tutti__comm *comm, int rank, const void *why)
{
    const own_error *own = why;

    return (tutti__verdict){
        .set = true, .lost = -1, .cause = tutti__own_cause(comm, rank, own->sends, own->error)};
}

void tutti__links_end_broken(tutti__links *links)
{
    if (!atomic_exchange(&links->has_broken, false))
        return;
    for (int i = 0; i < links->n_used; i++) {
        tutti__link *link = &links->at[links->used[i]];
        own_error own = {.sends = true};

        pthread_mutex_lock(&links->lock);
        if (link->state == TUTTI__LINK_OPEN && !link->over)
            own.error = link->send_error;
        pthread_mutex_unlock(&links->lock);
        if (own.error)
            tutti__link_end(links, links->used[i], judge_own, &own);
    }
}

/* The peer is there, and learns from this rank why the groups that both are in die. */
static void be_deaf(tutti__links *links, int at, int error)
{
    pthread_mutex_lock(&links->lock);
    tutti__link_deafen(links, at);
    pthread_mutex_unlock(&links->lock);
    judge_all(links, at, judge_own, &(own_error){.error = error});
}

void tutti__link_read(tutti__links *links, int at)
{
    const tutti__link *link = &links->at[at];
    size_t read = 0;

    if (link->deaf) { /* it hung up */
        hang_up(links, at);
        return;
    }
    while (read < BYTES_A_TURN) {
        ssize_t n = step(links, at);

        if (n < 0 && tutti__is_own_error(link->error))
            be_deaf(links, at, link->error);
        else if (n < 0)
            hang_up(links, at);
        if (n <= 0)
            return;
        read += (size_t)n + FRAME_COST;
    }
}
