/* send.c -- frames to peers: sent at once, or queued if the socket is full.   SPDX-License-Identifier: MIT
 *
 * Any thread sends its frame at once, directly from its own memory; only what a full socket does not take is copied and
 * left to the control thread. That thread pulls streams from the handler, one frame at a time, when nothing else waits, so
 * that a message of a gigabyte delays no heartbeat and no cause. */
#include "comm/control/control_state.h"

#include "comm/bootstrap/bootstrap.h"
#include "comm/core/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES_A_TURN = 1 << 20 };

static void append(tutti__outgoing_list *queue, tutti__outgoing *frame)
{
    frame->next = NULL;
    if (queue->first)
        queue->last->next = frame;
    else
        queue->first = frame;
    queue->last = frame;
}

static tutti__outgoing *take_first(tutti__outgoing_list *queue)
{
    tutti__outgoing *frame = queue->first;

    if (frame)
        queue->first = frame->next;
    return frame;
}

static void drop(tutti__link *link, tutti__outgoing *frame)
{
    if (frame == &link->stream)
        return;
    if (frame->fd >= 0)
        close(frame->fd);
    free(frame);
}

bool tutti__link_busy(const tutti__link *link)
{
    return link->current || link->out.first || link->n_streaming > 0;
}

bool tutti__control_busy(const tutti__control *control, int rank)
{
    const tutti__member *member = &control->members[rank];
    const tutti__link *link = &control->links->at[member->link];

    if (member->streaming || (link->current && link->current->head.group == control->comm->id))
        return true;
    for (const tutti__outgoing *frame = link->out.first; frame; frame = frame->next)
        if (frame->head.group == control->comm->id)
            return true;
    return false;
}

static void poll_for(const tutti__links *links, int at)
{
    const tutti__link *link = &links->at[at];
    struct epoll_event event = {.events =
                                    (link->deaf ? 0u : EPOLLIN) | (link->wants_out ? EPOLLOUT : 0u),
                                .data.u32 = (uint32_t)at};

    if (!link->over)
        epoll_ctl(links->epoll, EPOLL_CTL_MOD, link->fd, &event);
}

static void want_out(tutti__links *links, int at, bool wants)
{
    tutti__link *link = &links->at[at];
    const bool differs = link->wants_out != wants;

    if (link->state != TUTTI__LINK_OPEN) /* all is sent when it is */
        return;
    link->wants_out = wants;
    if (differs)
        poll_for(links, at);
}

void tutti__link_deafen(tutti__links *links, int at)
{
    links->at[at].deaf = true;
    poll_for(links, at);
}

static void set_streaming(tutti__control *control, int rank, bool streaming)
{
    tutti__member *member = &control->members[rank];

    control->links->at[member->link].n_streaming += streaming - member->streaming;
    member->streaming = streaming;
}

/* Nothing more can be sent. The end of the peer is found by reading, after all that it sent before; what this process or host lacks, by the
 * thread. With the lock. */
static void end_sending(tutti__links *links, int at, int error)
{
    tutti__link *link = &links->at[at];

    link->unwritable = true;
    if (!tutti__is_own_error(error))
        return;
    link->send_error = error;
    atomic_store(&links->has_broken, true);
    tutti__links_wake(links);
}

/* 0: all of it is sent; or an errno. */
static int send_frame(int socket, tutti__outgoing *frame)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary = {0};
    size_t whole = sizeof frame->head + frame->head.frame.bytes;

    while (frame->done < whole) {
        const size_t head = sizeof frame->head, at = frame->done < head ? 0 : frame->done - head;
        struct iovec io[2];
        struct msghdr message = {.msg_iov = io};
        ssize_t n;

        if (frame->done < head)
            io[message.msg_iovlen++] =
                (struct iovec){(char *)&frame->head + frame->done, head - frame->done};
        if (frame->head.frame.bytes > at) /* a frame without bytes has no memory */
            io[message.msg_iovlen++] =
                (struct iovec){(char *)(uintptr_t)frame->from + at, frame->head.frame.bytes - at};

        if (frame->fd >= 0 && frame->done == 0) {
            message.msg_control = &ancillary;
            message.msg_controllen = sizeof ancillary;
            ancillary.align = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                               .cmsg_type = SCM_RIGHTS,
                                               .cmsg_len = CMSG_LEN(sizeof(int))};
            memcpy(CMSG_DATA(&ancillary.align), &frame->fd, sizeof frame->fd);
        }
        n = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return errno;
        frame->done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* The next frame of the group's stream, or NULL. */
static tutti__outgoing *next_streamed(tutti__control *control, int rank)
{
    tutti__link *link = &control->links->at[control->members[rank].link];
    tutti__outgoing *frame = &link->stream;

    *frame = (tutti__outgoing){.fd = -1, .head.group = control->comm->id};
    frame->from = control->handler.next(control->handler.self, rank, &frame->head.frame);
    if (!frame->from)
        set_streaming(control, rank, false);
    return frame->from ? frame : NULL;
}

/* The group in whose memory the next frame is; groups take turns. NULL: none, it is a copy. */
static tutti__control *choose_streamer(const tutti__links *links, int at)
{
    const tutti__link *link = &links->at[at];
    tutti__control *last = link->streamer, *c;

    if (link->current)
        return link->current == &link->stream ? last : NULL;
    if (link->out.first || link->n_streaming == 0)
        return NULL;
    for (c = last ? last->next : NULL; c; c = c->next)
        if (c->rank_at[at] >= 0 && c->members[c->rank_at[at]].streaming)
            return c;
    for (c = links->controls; c; c = c->next)
        if (c->rank_at[at] >= 0 && c->members[c->rank_at[at]].streaming)
            return c;
    return NULL;
}

/* Sends one frame. False: there is none, the socket is full, or nothing more can be sent. */
static bool push_one(tutti__links *links, int at, tutti__control *streamer, size_t *sent)
{
    tutti__link *link = &links->at[at];
    int error;

    if (link->unwritable)
        return false;
    if (!link->current)
        link->current = take_first(&link->out);
    if (!link->current && streamer && streamer->members[streamer->rank_at[at]].streaming) {
        link->streamer = streamer;
        link->current = next_streamed(streamer, streamer->rank_at[at]);
    }
    if (!link->current)
        return link->n_streaming > 0;
    error = send_frame(link->fd, link->current);
    if (error == EAGAIN)
        return false;
    if (error)
        end_sending(links, at, error);
    *sent += link->current->head.frame.bytes + sizeof link->current->head;
    drop(link, link->current);
    link->current = NULL;
    return true;
}

void tutti__link_push(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    bool more = true;

    for (size_t sent = 0; sent < BYTES_A_TURN && more;) {
        tutti__control *streamer;

        pthread_mutex_lock(&links->lock);
        streamer = choose_streamer(links, at);
        pthread_mutex_unlock(&links->lock);
        if (streamer)
            streamer->handler.enter(streamer->handler.self);
        pthread_mutex_lock(&links->lock);
        more = push_one(links, at, streamer, &sent);
        pthread_mutex_unlock(&links->lock);
        if (streamer)
            streamer->handler.leave(streamer->handler.self);
    }
    pthread_mutex_lock(&links->lock);
    if (link->unwritable)
        tutti__link_clear(links, at);
    want_out(links, at, tutti__link_busy(link));
    if (!tutti__link_busy(link))
        pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
}

static tutti__frame goodbye_of(const tutti__control *control)
{
    return (tutti__frame){.kind = TUTTI__FRAME_GOODBYE,
                          .id = atomic_load(&control->comm->peers[control->comm->rank].seen)};
}

static tutti__frame cause_of(const tutti__control *control, const tutti__cause *cause)
{
    return tutti__cause_frame(cause, atomic_load(&control->opening) &&
                                         atomic_load(&control->heard) != TUTTI__HEARD_CAUSE);
}

/* What this rank's groups have told all that were connected: it has not, and sees only the connection's end. With the lock. */
static void tell_newcomer(tutti__links *links, int at)
{
    for (tutti__control *c = links->controls; c; c = c->next) {
        const bool dead = atomic_load(&c->comm->failed);
        const tutti__wire_head head = {c->comm->id,
                                       dead ? cause_of(c, &c->comm->cause) : goodbye_of(c)};

        if (c->rank_at[at] >= 0 && (dead || c->says_goodbye))
            tutti__link_send(links, at, &head, dead ? c->comm->cause.text : NULL, -1);
    }
}

int tutti__link_opened(tutti__links *links, int at, int fd)
{
    bool is_new;
    int error;

    pthread_mutex_lock(&links->lock);
    is_new = links->at[at].state == TUTTI__LINK_NONE;
    tutti__link_use(links, at, TUTTI__LINK_OPEN);
    links->at[at].fd = fd;
    error = links->at[at].send_error; /* a frame that waited for this is lost */
    if (!error)
        error = tutti__link_poll(links, at, fd);
    if (!error && is_new)
        tell_newcomer(links, at);
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
    tutti__link_push(links, at);
    return error;
}

void tutti__link_clear(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    tutti__outgoing *frame;

    if (link->current)
        drop(link, link->current);
    link->current = NULL;
    for (tutti__control *c = links->controls; c; c = c->next)
        if (c->rank_at[at] >= 0)
            set_streaming(c, c->rank_at[at], false);
    while ((frame = take_first(&link->out)) != NULL)
        drop(link, frame);
}

/* Puts a copy of the frame, part of which may be sent, in the queue, or in `current` if it is begun. */
static void keep(tutti__links *links, int at, const tutti__outgoing *frame)
{
    tutti__link *link = &links->at[at];
    size_t bytes = frame->head.frame.bytes;
    tutti__outgoing *copy = malloc(sizeof *copy + bytes);

    if (!copy) {
        end_sending(links, at, ENOMEM);
        if (frame->fd >= 0)
            close(frame->fd);
        return;
    }
    *copy = *frame;
    copy->from = (char *)(copy + 1);
    if (bytes > 0)
        memcpy(copy + 1, frame->from, bytes);
    if (frame->done > 0)
        link->current = copy;
    else
        append(&link->out, copy);
}

void tutti__link_want(tutti__links *links, int at)
{
    if (links->at[at].state != TUTTI__LINK_NONE || links->at[at].unwritable)
        return;
    tutti__link_use(links, at, TUTTI__LINK_WANTED);
    atomic_fetch_add(&links->n_wanted, 1);
    tutti__links_wake(links);
}

void tutti__link_send(tutti__links *links, int at, const tutti__wire_head *head, const void *body,
                      int fd)
{
    tutti__link *link = &links->at[at];
    tutti__outgoing frame = {.head = *head, .fd = fd, .from = body};
    int error = link->unwritable ? EPIPE : EAGAIN;

    tutti__link_want(links, at);
    if (link->state == TUTTI__LINK_OPEN && !link->unwritable && !link->current &&
        !link->out.first) {
        error = send_frame(link->fd, &frame);
        if (error && error != EAGAIN)
            end_sending(links, at, error);
    }
    if (error == EAGAIN) {
        keep(links, at, &frame);
        want_out(links, at, tutti__link_busy(link));
    } else if (fd >= 0) {
        close(fd);
    }
}

void tutti__control_send(tutti__control *control, int rank, const tutti__frame *head,
                         const void *body)
{
    const tutti__wire_head whole = {control->comm->id, *head};

    pthread_mutex_lock(&control->links->lock);
    tutti__link_send(control->links, control->members[rank].link, &whole, body, -1);
    pthread_mutex_unlock(&control->links->lock);
}

/* To the neighbours, and to all others of the group that have a connection. With the lock. */
static void send_near(tutti__control *control, const tutti__frame *head, const char *body)
{
    const tutti__wire_head whole = {control->comm->id, *head};
    tutti__links *links = control->links;
    int n = links->n_used;

    for (int i = 0; i < n; i++)
        if (control->rank_at[links->used[i]] >= 0)
            tutti__link_send(links, links->used[i], &whole, body, -1);
    for (int i = 0; i < control->flood.n_to; i++) {
        int at = control->members[control->flood.to[i]].link;

        if (links->at[at].state == TUTTI__LINK_NONE)
            tutti__link_send(links, at, &whole, body, -1);
    }
}

void tutti__control_say_goodbye(tutti__control *control)
{
    const tutti__frame goodbye = goodbye_of(control);

    pthread_mutex_lock(&control->links->lock);
    control->says_goodbye = true;
    send_near(control, &goodbye, NULL);
    pthread_mutex_unlock(&control->links->lock);
}

void tutti__control_pass_left(tutti__control *control, int rank, int from, uint64_t seen)
{
    const tutti__wire_head whole = {control->comm->id,
                                    {.kind = TUTTI__FRAME_LEFT, .culprit = rank, .id = seen}};

    pthread_mutex_lock(&control->links->lock);
    for (int i = 0; i < control->flood.n_to; i++) {
        int to = control->flood.to[i];

        if (to != rank && to != from)
            tutti__link_send(control->links, control->members[to].link, &whole, NULL, -1);
    }
    pthread_mutex_unlock(&control->links->lock);
}

void tutti__control_tell(tutti__control *control, const tutti__cause *cause)
{
    const tutti__frame head = cause_of(control, cause);
    tutti__flood_action action;

    pthread_mutex_lock(&control->links->lock);
    action = tutti__flood_step(&control->flood, &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD});
    if (action.tell)
        send_near(control, &head, cause->text);
    pthread_mutex_unlock(&control->links->lock);
}

void tutti__control_stream(tutti__control *control, int rank)
{
    tutti__link *link = &control->links->at[control->members[rank].link];

    pthread_mutex_lock(&control->links->lock);
    set_streaming(control, rank, !link->unwritable);
    want_out(control->links, control->members[rank].link, tutti__link_busy(link));
    pthread_mutex_unlock(&control->links->lock);
}

/* A frame that is partly sent is finished from a copy. */
static void forget(tutti__control *control, int rank)
{
    int at = control->members[rank].link;
    tutti__link *link = &control->links->at[at];

    control->members[rank].into = NULL;
    set_streaming(control, rank, false);
    if (link->current != &link->stream || link->streamer != control)
        return;
    link->current = NULL;
    if (link->stream.done > 0)
        keep(control->links, at, &link->stream);
}

void tutti__control_forget(tutti__control *control)
{
    tutti__links *links = control->links;

    pthread_mutex_lock(&links->lock);
    for (int i = 0; i < links->n_used; i++)
        if (control->rank_at[links->used[i]] >= 0)
            forget(control, control->rank_at[links->used[i]]);
    pthread_mutex_unlock(&links->lock);
}
