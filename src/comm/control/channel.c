/* post.c -- frames between all ranks of a group, and the thread that reads them.   SPDX-License-Identifier: MIT
 *
 * Who has something to say says it at once, from any thread, or queues it where the socket is full; the thread reads,
 * and writes what was queued. It holds the lock while it handles frames, so what it finds out about the group's life it
 * puts down as a verdict and acts upon afterwards. */
#include "comm/control/channel.h"

#include "comm/core/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    N_EVENTS = 64,
    BYTES_A_TURN = 1 << 20,
    FRAME_COST = 4096,
    YIELDS = 64,
    TELL_MS = 20,
    LINGER_MS = 1000,
    LINGER_DEAD_MS = 100
};

/* ---- Writing ------------------------------------------------------------------------------------------ */

void tutti__control_lock(tutti__control *control)
{
    atomic_fetch_add(&control->callers, 1);
    pthread_mutex_lock(&control->lock);
    atomic_fetch_sub(&control->callers, 1);
}

void tutti__control_unlock(tutti__control *control)
{
    pthread_mutex_unlock(&control->lock);
}

static void append(tutti__outgoing_list *queue, tutti__outgoing *out_frame)
{
    out_frame->next = NULL;
    if (queue->first)
        queue->last->next = out_frame;
    else
        queue->first = out_frame;
    queue->last = out_frame;
}

static tutti__outgoing *take_first(tutti__outgoing_list *queue)
{
    tutti__outgoing *out_frame = queue->first;

    if (out_frame)
        queue->first = out_frame->next;
    return out_frame;
}

static void drop_frame(tutti__outgoing *out_frame)
{
    if (out_frame->fd >= 0)
        close(out_frame->fd);
    if (!out_frame->request && out_frame->from != out_frame->body)
        free((char *)(uintptr_t)out_frame->from);
    free(out_frame);
}

bool tutti__link_busy(const tutti__link *link)
{
    return link->current || link->out.first || link->streams.first;
}

static void want_out(tutti__control *control, int rank, bool wants)
{
    tutti__link *link = &control->links[rank];
    struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0u),
                                .data.u32 = (uint32_t)rank};

    if (link->wants_out != wants && !link->over)
        epoll_ctl(control->epoll, EPOLL_CTL_MOD, link->fd, &event);
    link->wants_out = wants;
}

/* 0: all of it is sent; or an errno. */
static int send_frame(int socket, tutti__outgoing *out_frame)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary = {0};
    size_t whole = sizeof out_frame->head + out_frame->head.bytes;

    while (out_frame->done < whole) {
        size_t head = sizeof out_frame->head,
               at = out_frame->done < head ? 0 : out_frame->done - head;
        struct iovec io[2] = {
            {(char *)&out_frame->head + out_frame->done, head - out_frame->done},
            {(char *)(uintptr_t)out_frame->from + at, out_frame->head.bytes - at}};
        struct msghdr message = {.msg_iov = out_frame->done < head ? io : io + 1,
                                 .msg_iovlen = out_frame->done < head ? 2 : 1};
        ssize_t n;

        if (out_frame->fd >= 0 && out_frame->done == 0) {
            message.msg_control = &ancillary;
            message.msg_controllen = sizeof ancillary;
            ancillary.align = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                               .cmsg_type = SCM_RIGHTS,
                                               .cmsg_len = CMSG_LEN(sizeof(int))};
            memcpy(CMSG_DATA(&ancillary.align), &out_frame->fd, sizeof out_frame->fd);
        }
        n = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return errno;
        out_frame->done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Sends what can be sent now, but no more than a fair share of it. */
static void push(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    for (size_t sent = 0; sent < BYTES_A_TURN;) {
        tutti__outgoing *out_frame = link->current;
        int error;

        out_frame = out_frame ? out_frame : take_first(&link->out);
        out_frame = out_frame ? out_frame : take_first(&link->streams);
        link->current = out_frame;
        if (!out_frame)
            break;
        error = link->deaf ? EPIPE : send_frame(link->fd, out_frame);
        if (error == EAGAIN)
            break;
        /* That the peer is gone is found out by reading: what it said before comes first. */
        link->deaf = link->deaf || error;
        link->current = NULL;
        sent += out_frame->head.bytes + sizeof out_frame->head;
        if (!link->deaf && out_frame->request && tutti__p2p_frame_sent(control, out_frame))
            append(&link->streams, out_frame);
        else
            drop_frame(out_frame);
    }
    want_out(control, rank, tutti__link_busy(link));
    if (!tutti__link_busy(link))
        pthread_cond_broadcast(&control->changed);
}

/* With room for a copy of so many bytes. NULL: no memory. */
static tutti__outgoing *frame_new(int rank, const tutti__frame *head, size_t copy)
{
    tutti__outgoing *out_frame = malloc(sizeof *out_frame + copy);

    if (!out_frame) {
        tutti_log(TUTTI_LOG_ERROR, "comm", "no memory for a message to rank %d", rank);
        return NULL;
    }
    *out_frame = (tutti__outgoing){.head = *head, .fd = -1, .from = out_frame->body};
    return out_frame;
}

void tutti__control_send(tutti__control *control, int rank, const tutti__frame *head,
                         const void *body, int fd)
{
    tutti__link *link = &control->links[rank];
    tutti__outgoing *out_frame = link->deaf ? NULL : frame_new(rank, head, head->bytes);

    if (!out_frame) {
        if (fd >= 0)
            close(fd);
        return;
    }
    out_frame->fd = fd;
    if (body)
        memcpy(out_frame->body, body, head->bytes);
    append(&link->out, out_frame);
    if (!link->wants_out)
        push(control, rank);
}

void tutti__control_send_data(tutti__control *control, int rank, const tutti__frame *head,
                              tutti__p2p_request *request, const char *from)
{
    tutti__link *link = &control->links[rank];
    tutti__outgoing *out_frame = link->deaf ? NULL : frame_new(rank, head, 0);

    if (!out_frame)
        return; /* it ends with the group, or at its time limit */
    out_frame->request = request;
    out_frame->from = from;
    append(head->kind == TUTTI__FRAME_DATA ? &link->streams : &link->out, out_frame);
    if (!link->wants_out)
        push(control, rank);
}

/* Forgets the letters: their memory is no longer ours. What has been begun is sent to its end, from a copy. */
static void forget(tutti__link *link)
{
    tutti__outgoing_list kept = {NULL, NULL};
    tutti__outgoing *out_frame = link->current;

    if (out_frame && out_frame->request) {
        char *copy = malloc(out_frame->head.bytes + 1);

        if (copy)
            memcpy(copy, out_frame->from, out_frame->head.bytes);
        else
            link->deaf = true;
        out_frame->request = NULL;
        out_frame->from = copy ? copy : out_frame->body;
    }
    while ((out_frame = take_first(&link->out)) != NULL) {
        if (out_frame->request)
            drop_frame(out_frame);
        else
            append(&kept, out_frame);
    }
    link->out = kept;
    while ((out_frame = take_first(&link->streams)) != NULL)
        drop_frame(out_frame);
}

void tutti__control_forget_data(tutti__control *control)
{
    for (int r = 0; r < control->group->comm.size; r++)
        forget(&control->links[r]);
}

void tutti__control_tell(tutti_group *group, const tutti__cause *cause)
{
    tutti__control *control = group->control;
    const tutti__frame head = {.kind = TUTTI__FRAME_CAUSE,
                               .status = cause->status,
                               .culprit = cause->culprit,
                               .bytes = (uint32_t)strlen(cause->text)};

    if (!control)
        return;
    tutti__control_lock(control);
    for (int r = 0; r < group->comm.size; r++)
        tutti__control_send(control, r, &head, cause->text, -1);
    tutti__control_unlock(control);
}

/* ---- Descriptors ---------------------------------------------------------------------------------------- */

int tutti__control_send_fd(tutti__control *control, int rank, int fd)
{
    const tutti__frame head = {.kind = TUTTI__FRAME_FD};
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own < 0)
        return errno;
    tutti__control_lock(control);
    tutti__control_send(control, rank, &head, NULL, own);
    tutti__control_unlock(control);
    return 0;
}

int tutti__control_take_fd(tutti__control *control, int rank, int *fd_p, double deadline)
{
    tutti__link *link = &control->links[rank];
    int error = 0;

    tutti__control_lock(control);
    while (link->n_fds == 0 && error == 0) {
        if (link->over || atomic_load(&control->group->comm.failed))
            error = ECONNRESET;
        else if (!tutti__cond_wait(&control->changed, &control->lock, deadline) && link->n_fds == 0)
            error = ETIMEDOUT;
    }
    if (!error) {
        *fd_p = link->fds[0];
        memmove(link->fds, link->fds + 1, (size_t)--link->n_fds * sizeof link->fds[0]);
    }
    tutti__control_unlock(control);
    return error;
}

/* ---- Reading ---------------------------------------------------------------------------------------------- */

static void judge_cause(tutti__control *control, const tutti__link *link)
{
    tutti__verdict *verdict = &control->verdict;

    if (verdict->set)
        return;
    *verdict = (tutti__verdict){.set = true, .lost = -1, .theirs = true};
    verdict->cause.status = link->head.status;
    verdict->cause.culprit = link->head.culprit;
    if (link->text)
        memcpy(verdict->cause.text, link->text, link->head.bytes);
}

/* A whole frame has come. */
static void hear(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    tutti_group *group = control->group;

    if (link->head.kind >= TUTTI__FRAME_EAGER) {
        tutti__p2p_frame_end(control, rank);
    } else if (link->head.kind == TUTTI__FRAME_CAUSE) {
        judge_cause(control, link);
    } else if (link->head.kind == TUTTI__FRAME_GOODBYE) {
        tutti__comm_note_left(&group->comm, rank);
    } else if (link->head.kind == TUTTI__FRAME_BEAT) {
        link->thread = link->head.id;
    } else if (link->head.kind == TUTTI__FRAME_FD) {
        pthread_cond_broadcast(&control->changed);
    }
}

/* What the frame that begins may be. */
static bool sound(const tutti__frame *head)
{
    if (head->kind >= TUTTI__FRAME_EAGER)
        return tutti__p2p_frame_valid(head);
    if (head->kind == TUTTI__FRAME_CAUSE)
        return head->bytes < sizeof((tutti__cause *)0)->text && head->status != TUTTI_OK;
    return head->bytes == 0;
}

/* Where the body of the frame that begins goes. */
static void begin(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    link->into = NULL;
    if (link->head.kind >= TUTTI__FRAME_EAGER)
        link->into = tutti__p2p_frame_begin(control, rank);
    else if (link->head.bytes > 0)
        link->into = link->text = malloc(link->head.bytes);
}

/* Takes in the descriptor that came with bytes of a frame. */
static void keep_fd(tutti__link *link, struct msghdr *message)
{
    const struct cmsghdr *head = CMSG_FIRSTHDR(message);
    int fd;

    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
        return;
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    if (link->n_fds < TUTTI__MAX_FDS)
        link->fds[link->n_fds++] = fd;
    else
        close(fd);
}

/* Reads on in the frame. Bytes read, 0 at the end of the stream, or -errno. */
static ssize_t read_some(tutti__control *control, tutti__link *link)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary;
    size_t head = sizeof link->head, at = link->got < head ? 0 : link->got - head,
           rest = link->got < head ? head - link->got : link->head.bytes - at;
    struct iovec io = {link->into + at, rest};
    struct msghdr message = {.msg_iov = &io,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof ancillary};
    ssize_t n;

    if (link->got < head)
        io.iov_base = (char *)&link->head + link->got;
    else if (!link->into)
        io = (struct iovec){control->nowhere,
                            rest < sizeof control->nowhere ? rest : sizeof control->nowhere};
    n = recvmsg(link->fd, &message, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    keep_fd(link, &message);
    return n;
}

static void hang_up(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];

    epoll_ctl(control->epoll, EPOLL_CTL_DEL, link->fd, NULL);
    link->over = link->deaf = true;
    while (tutti__link_busy(link))
        push(control, rank); /* drops it */
    if (!atomic_load(&control->group->comm.peers[rank].left) && !control->verdict.set) {
        control->verdict.set = true;
        control->verdict.lost = rank;
    }
}

/* Reads what there is, but no more than a fair share of it. */
static void read_link(tutti__control *control, int rank)
{
    tutti__link *link = &control->links[rank];
    size_t head = sizeof link->head, read = 0;

    while (read < BYTES_A_TURN && !link->over) {
        ssize_t n = read_some(control, link);

        if (n == -EAGAIN)
            return;
        if (n == -EINTR)
            continue;
        if (n > 0)
            link->got += (size_t)n;
        if (n <= 0 || (link->got == head && !sound(&link->head))) {
            hang_up(control, rank);
            return;
        }
        read += (size_t)n + FRAME_COST;
        link->known = true;
        link->heard = tutti__now_ms();
        if (link->got == head)
            begin(control, rank);
        if (link->got < head || link->got < head + link->head.bytes)
            continue;
        hear(control, rank);
        free(link->text);
        link->text = link->into = NULL;
        link->got = 0;
    }
}

/* ---- The thread ------------------------------------------------------------------------------------------- */

/* Acts upon what was found out; not under the lock. */
void tutti__control_settle(tutti__control *control)
{
    tutti_group *group = control->group;
    tutti__verdict verdict;

    pthread_mutex_lock(&control->lock);
    verdict = control->verdict;
    control->verdict.set = false;
    if (verdict.set)
        pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
    if (!verdict.set)
        return;
    if (verdict.lost >= 0) {
        (void)tutti__comm_fail_lost(&group->comm, verdict.lost);
    } else if (!verdict.theirs) {
        (void)tutti__comm_fail(&group->comm, (tutti_status)verdict.cause.status,
                               verdict.cause.culprit, "%s", verdict.cause.text);
    } else if (!tutti__comm_failed(&group->comm)) {
        /* Passed on before this rank acts on it: its own end must not reach anyone before the cause does. */
        tutti__control_tell(group, &verdict.cause);
        tutti__comm_adopt(&group->comm, &verdict.cause);
    }
    pthread_mutex_lock(&control->lock); /* for those who wait for the group's failure */
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static void serve(tutti__control *control, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        int rank = (int)events[i].data.u32;

        if (rank == control->group->comm.size || control->links[rank].over)
            continue; /* the bell is only for waking up */
        if (events[i].events & EPOLLOUT)
            push(control, rank);
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            read_link(control, rank);
    }
}

static bool untold(const tutti_group *group)
{
    return atomic_load(&group->comm.failed) && group->flight.n > 0 &&
           !atomic_load(&group->flight.reported);
}

/* The group is dead, and no call of this rank may ever say so: it computes, or hangs. One that is on its way comes first,
 * since it knows more. */
static void report(tutti__control *control, double *since)
{
    double now = tutti__now_ms();

    if (!untold(control->group))
        return;
    if (*since == 0)
        *since = now;
    if (now - *since >= TELL_MS)
        tutti__flight_report(&control->group->flight);
}

static void *control_main(void *arg)
{
    tutti__control *control = arg;
    struct epoll_event events[N_EVENTS];
    bool stopping = false;
    double died = 0;

    tutti__log_set_rank(control->group->comm.rank);
    pthread_mutex_lock(&control->lock);
    control->tid = (uint64_t)syscall(SYS_gettid);
    tutti__heartbeat_turn(control, false);
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
    while (!stopping) {
        int wait, n;

        pthread_mutex_lock(&control->lock);
        wait = tutti__heartbeat_wait(control);
        pthread_mutex_unlock(&control->lock);
        if (untold(control->group))
            wait = TELL_MS;
        n = epoll_wait(control->epoll, events, N_EVENTS, wait);
        if (n < 0 && errno != EINTR) {
            tutti_log(TUTTI_LOG_ERROR, "comm", "group \"%s\" is no longer watched: %s",
                      control->group->comm.name, strerror(errno));
            return NULL;
        }
        /* A lock is not fair to those who sleep for it. */
        for (int i = 0; i < YIELDS && atomic_load(&control->callers) > 0; i++)
            sched_yield();
        pthread_mutex_lock(&control->lock);
        serve(control, events, n);
        tutti__heartbeat_turn(control, n < N_EVENTS);
        stopping = control->stopping;
        pthread_mutex_unlock(&control->lock);
        tutti__control_settle(control);
        report(control, &died);
    }
    return NULL;
}

/* ---- Coming and going --------------------------------------------------------------------------------------- */

static void control_free(tutti__control *control)
{
    for (int r = 0; r < control->group->comm.size; r++) {
        tutti__link *link = &control->links[r];

        link->over = link->deaf = true;
        while (tutti__link_busy(link))
            push(control, r);
        if (link->fd >= 0)
            close(link->fd);
        while (link->n_fds > 0)
            close(link->fds[--link->n_fds]);
        free(link->text);
    }
    tutti__p2p_free(control);
    if (control->epoll >= 0)
        close(control->epoll);
    if (control->wait_word >= 0)
        close(control->wait_word);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    free(control);
}

/* 0 or an errno. */
static int start(tutti__control *control)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)control->group->comm.size};
    int error;

    control->epoll = epoll_create1(EPOLL_CLOEXEC);
    control->wait_word = eventfd(0, EFD_CLOEXEC);
    if (control->epoll < 0 || control->wait_word < 0 ||
        epoll_ctl(control->epoll, EPOLL_CTL_ADD, control->wait_word, &event) != 0)
        return errno;
    for (int r = 0; r < control->group->comm.size; r++) {
        event.data.u32 = (uint32_t)r;
        if (control->links[r].fd >= 0 &&
            epoll_ctl(control->epoll, EPOLL_CTL_ADD, control->links[r].fd, &event) != 0)
            return errno;
        /* What waits to be sent waits here, where more urgent things can still overtake it. Not of unix sockets. */
        (void)setsockopt(control->links[r].fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){128 << 10},
                         sizeof(int));
    }
    error = tutti__thread_start(&control->thread, control_main, control);
    control->has_thread = error == 0;
    /* Its first beat is on its way before the group is used: only who has been heard can be missed. */
    pthread_mutex_lock(&control->lock);
    while (control->has_thread && control->tid == 0)
        pthread_cond_wait(&control->changed, &control->lock);
    pthread_mutex_unlock(&control->lock);
    return error;
}

static void announce(void *self, tutti__cause *cause)
{
    tutti__control_tell(self, cause);
}

static void fail_requests(void *self, bool first)
{
    if (first)
        tutti__p2p_fail_all(self);
}

static void forget_rank(void *self, int rank)
{
    const tutti_group *group = self;

    tutti__p2p_rank_left(group->control, rank);
}

tutti_status tutti__control_open(tutti_group *group, const int *sockets, int heartbeat_ms)
{
    size_t n = (size_t)group->comm.size;
    tutti__control *control = tutti__alloc(sizeof *control + n * sizeof control->links[0]);
    int error;

    if (!control) {
        for (size_t r = 0; r < n; r++)
            if (sockets[r] >= 0)
                close(sockets[r]);
        return TUTTI_ERR_MEMORY;
    }
    control->group = group;
    control->epoll = control->wait_word = -1;
    pthread_mutex_init(&control->lock, NULL);
    tutti__cond_init(&control->changed);
    for (size_t r = 0; r < n; r++)
        control->links[r] = (tutti__link){.fd = sockets[r],
                                          .over = sockets[r] < 0,
                                          .deaf = sockets[r] < 0,
                                          .credit = TUTTI__CREDIT_BYTES};
    tutti__heartbeat_start(control, heartbeat_ms);
    group->control = control; /* before its thread, which may have something to tell at once */
    tutti__comm_observe(&group->comm, &(tutti__observer){.self = group, .announce = announce});
    tutti__comm_observe(
        &group->comm,
        &(tutti__observer){.self = group, .failed = fail_requests, .left = forget_rank});
    error = n > 1 ? start(control) : 0;
    if (error) {
        group->control = NULL;
        control_free(control);
        return tutti__fail_errno(error, "cannot start the post of group \"%s\"", group->comm.name);
    }
    return TUTTI_OK;
}

/* Closing a TCP socket destroys what it still has to send if the peer says something meanwhile. */
static bool on_its_way(const tutti__link *link)
{
    int bytes = 0, family = 0;
    socklen_t size = sizeof family;

    if (tutti__link_busy(link))
        return true;
    if (link->deaf || getsockopt(link->fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 ||
        family == AF_UNIX)
        return false;
    return ioctl(link->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void linger(tutti__control *control, double deadline)
{
    bool busy = true;

    for (int ms = 0; busy && tutti__now_ms() < deadline; ms = 1) {
        poll(NULL, 0, ms);
        busy = false;
        tutti__control_lock(control);
        for (int r = 0; r < control->group->comm.size && !busy; r++)
            busy = on_its_way(&control->links[r]);
        tutti__control_unlock(control);
    }
}

void tutti__control_close(tutti_group *group)
{
    const tutti__frame goodbye = {.kind = TUTTI__FRAME_GOODBYE};
    tutti__control *control = group->control;
    bool failed;

    if (!control)
        return;
    tutti__p2p_flush(control);
    failed = tutti__comm_failed(&group->comm);
    /* From a dead group nobody just leaves: a peer may hear this before it hears of the failure from who found it. */
    if (failed)
        tutti__control_tell(group, &group->comm.cause);
    tutti__control_lock(control);
    for (int r = 0; r < group->comm.size && !failed; r++)
        tutti__control_send(control, r, &goodbye, NULL, -1);
    tutti__control_unlock(control);
    linger(control, tutti__now_ms() + (failed ? LINGER_DEAD_MS : LINGER_MS));
    tutti__control_lock(control);
    control->stopping = true;
    tutti__control_unlock(control);
    if (control->has_thread && write(control->wait_word, &(uint64_t){1}, sizeof(uint64_t)) > 0)
        pthread_join(control->thread, NULL);
    control_free(control);
    group->control = NULL;
}
