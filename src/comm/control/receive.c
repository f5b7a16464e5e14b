/* receive.c -- frames from peers.   SPDX-License-Identifier: MIT
 *
 * Only the thread reads. It notes what it finds out about the communicator in a verdict, and acts on it after reading
 * everything available. Bodies of the handler's frames are read directly into the handler's memory, under the handler's
 * lock, so that a thread that has entered can take that memory away. */
#include "comm/control/control_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES_A_TURN = 1 << 20, FRAME_COST = 4096 };

static void judge_cause(tutti__control *control, const tutti__link *link)
{
    tutti__verdict *verdict = &control->verdict;

    if (verdict->set)
        return;
    *verdict = (tutti__verdict){.set = true, .lost = -1, .theirs = true};
    verdict->cause.status = link->head.status;
    verdict->cause.culprit = link->head.culprit;
    verdict->cause.own = link->head.own;
    if (link->text)
        memcpy(verdict->cause.text, link->text, link->head.bytes);
}

static void keep_handle(tutti__control *control, tutti__link *link)
{
    const tutti__handle handle = {.fd = link->came, .number = link->head.id};

    link->came = -1;
    pthread_mutex_lock(&control->lock);
    if (link->n_handles < TUTTI__MAX_HANDLES)
        link->handles[link->n_handles++] = handle;
    else if (handle.fd >= 0)
        close(handle.fd);
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static void bid_farewell(tutti__control *control, int rank)
{
    _Atomic uint64_t *seen = &control->comm->peers[rank].seen;

    if (atomic_load(seen) < control->links[rank].head.id)
        atomic_store(seen, control->links[rank].head.id);
    tutti__comm_note_left(control->comm, rank);
}

/* A whole frame, not the handler's, has arrived. */
static void hear(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    if (link->head.kind == TUTTI__FRAME_CAUSE)
        judge_cause(control, link);
    else if (link->head.kind == TUTTI__FRAME_GOODBYE)
        bid_farewell(control, rank);
    else if (link->head.kind == TUTTI__FRAME_BEAT)
        link->thread = link->head.id;
    else
        keep_handle(control, link);
    free(link->text);
    link->text = NULL;
}

/* Whether the frame's header is valid. */
static bool sound(const tutti__control *control, const tutti__frame *head)
{
    if (head->kind >= TUTTI__FRAME_OTHERS)
        return control->handler.valid(head);
    if (head->kind == TUTTI__FRAME_CAUSE)
        return head->bytes < sizeof((tutti__cause *)0)->text && head->status != TUTTI_OK;
    return head->bytes == 0;
}

/* Keeps the descriptor that came with the bytes of a frame. */
static void keep_fd(tutti__link *link, struct msghdr *message)
{
    const struct cmsghdr *head = CMSG_FIRSTHDR(message);

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
    return link->got >= sizeof link->head && link->head.kind >= TUTTI__FRAME_OTHERS;
}

/* The header has arrived. False: it is invalid. */
static bool begin(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    if (!sound(control, &link->head))
        return false;
    if (is_theirs(link))
        link->into = control->handler.begin(control->handler.self, rank, &link->head);
    else if (link->head.bytes > 0)
        link->text = malloc(link->head.bytes);
    return true;
}

static ssize_t read_body(tutti__control *control, tutti__link *link, char *into)
{
    size_t at = link->got - sizeof link->head, rest = link->head.bytes - at;

    if (into)
        return read_into(link, into + at, rest);
    return read_into(link, control->nowhere,
                     rest < sizeof control->nowhere ? rest : sizeof control->nowhere);
}

/* Reads more of the frame; entered, if it is the handler's. */
static ssize_t read_on(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    size_t head = sizeof link->head;

    if (link->got < head)
        return read_into(link, (char *)&link->head + link->got, head - link->got);
    return is_theirs(link) ? read_body(control, link, link->into)
                           : read_body(control, link, link->text);
}

/* One step of reading: > 0 to continue, as read_into. */
static ssize_t step(tutti__control *control, int rank)
{
    const tutti__frame_handler *handler = &control->handler;
    tutti__link *link = &control->links[rank];
    size_t head = sizeof link->head;
    bool entered = is_theirs(link);
    ssize_t n;

    if (entered)
        handler->enter(handler->self);
    n = read_on(control, rank);
    if (n > 0 && !entered && is_theirs(link)) {
        handler->enter(handler->self);
        entered = true;
    }
    if (n > 0 && link->got == head && !begin(control, rank))
        n = -1;
    if (n > 0 && link->got >= head && link->got == head + link->head.bytes) {
        link->got = 0;
        if (entered)
            handler->end(handler->self, rank, &link->head);
        else
            hear(control, rank);
    }
    if (entered)
        handler->leave(handler->self);
    return n;
}

static void hang_up(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    epoll_ctl(control->epoll, EPOLL_CTL_DEL, link->fd, NULL);
    pthread_mutex_lock(&control->lock);
    link->over = link->deaf = true;
    tutti__link_clear(control, rank);
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
    if (!atomic_load(&control->comm->peers[rank].left) && !control->verdict.set) {
        control->verdict.set = true;
        control->verdict.lost = rank;
    }
}

void tutti__link_read(tutti__control *control, int rank)
{
    size_t read = 0;

    while (read < BYTES_A_TURN) {
        ssize_t n = step(control, rank);

        if (n < 0)
            hang_up(control, rank);
        if (n <= 0)
            return;
        read += (size_t)n + FRAME_COST;
    }
}
