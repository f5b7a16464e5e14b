/* post.c -- frames between all ranks of a group, and the thread that reads them.   SPDX-License-Identifier: MIT
 *
 * Who has something to say says it at once, from any thread, or queues it where the socket is full; the thread reads,
 * and writes what was queued. It holds the lock while it handles frames, so what it finds out about the group's life it
 * puts down as a verdict and acts upon afterwards. */
#include "comm/post.h"

#include "comm/thread.h"

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

void tutti__post_enter(tutti__post *post)
{
    atomic_fetch_add(&post->callers, 1);
    pthread_mutex_lock(&post->lock);
    atomic_fetch_sub(&post->callers, 1);
}

void tutti__post_leave(tutti__post *post)
{
    pthread_mutex_unlock(&post->lock);
}

static void append(tutti__parcels *queue, tutti__parcel *parcel)
{
    parcel->next = NULL;
    if (queue->first)
        queue->last->next = parcel;
    else
        queue->first = parcel;
    queue->last = parcel;
}

static tutti__parcel *take_first(tutti__parcels *queue)
{
    tutti__parcel *parcel = queue->first;

    if (parcel)
        queue->first = parcel->next;
    return parcel;
}

static void drop_parcel(tutti__parcel *parcel)
{
    if (parcel->fd >= 0)
        close(parcel->fd);
    if (!parcel->letter && parcel->from != parcel->body)
        free((char *)(uintptr_t)parcel->from);
    free(parcel);
}

bool tutti__link_busy(const tutti__link *link)
{
    return link->current || link->out.first || link->streams.first;
}

static void want_out(tutti__post *post, int rank, bool wants)
{
    tutti__link *link = &post->links[rank];
    struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0u),
                                .data.u32 = (uint32_t)rank};

    if (link->wants_out != wants && !link->over)
        epoll_ctl(post->epoll, EPOLL_CTL_MOD, link->fd, &event);
    link->wants_out = wants;
}

/* 0: all of it is sent; or an errno. */
static int send_parcel(int socket, tutti__parcel *parcel)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    size_t whole = sizeof parcel->head + parcel->head.bytes;

    while (parcel->done < whole) {
        size_t head = sizeof parcel->head, at = parcel->done < head ? 0 : parcel->done - head;
        struct iovec io[2] = {{(char *)&parcel->head + parcel->done, head - parcel->done},
                              {(char *)(uintptr_t)parcel->from + at, parcel->head.bytes - at}};
        struct msghdr message = {.msg_iov = parcel->done < head ? io : io + 1,
                                 .msg_iovlen = parcel->done < head ? 2 : 1};
        ssize_t n;

        if (parcel->fd >= 0 && parcel->done == 0) {
            message.msg_control = &control;
            message.msg_controllen = sizeof control;
            control.align = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                             .cmsg_type = SCM_RIGHTS,
                                             .cmsg_len = CMSG_LEN(sizeof(int))};
            memcpy(CMSG_DATA(&control.align), &parcel->fd, sizeof parcel->fd);
        }
        n = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return errno;
        parcel->done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Sends what can be sent now, but no more than a fair share of it. */
static void push(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];

    for (size_t sent = 0; sent < BYTES_A_TURN;) {
        tutti__parcel *parcel = link->current;
        int error;

        parcel = parcel ? parcel : take_first(&link->out);
        parcel = parcel ? parcel : take_first(&link->streams);
        link->current = parcel;
        if (!parcel)
            break;
        error = link->deaf ? EPIPE : send_parcel(link->fd, parcel);
        if (error == EAGAIN)
            break;
        /* That the peer is gone is found out by reading: what it said before comes first. */
        link->deaf = link->deaf || error;
        link->current = NULL;
        sent += parcel->head.bytes + sizeof parcel->head;
        if (!link->deaf && parcel->letter && tutti__letter_sent(post, parcel))
            append(&link->streams, parcel);
        else
            drop_parcel(parcel);
    }
    want_out(post, rank, tutti__link_busy(link));
    if (!tutti__link_busy(link))
        pthread_cond_broadcast(&post->changed);
}

/* With room for a copy of so many bytes. NULL: no memory. */
static tutti__parcel *parcel_new(int rank, const tutti__frame *head, size_t copy)
{
    tutti__parcel *parcel = malloc(sizeof *parcel + copy);

    if (!parcel) {
        tutti_log(TUTTI_LOG_ERROR, "comm", "no memory for a message to rank %d", rank);
        return NULL;
    }
    *parcel = (tutti__parcel){.head = *head, .fd = -1, .from = parcel->body};
    return parcel;
}

void tutti__post_say(tutti__post *post, int rank, const tutti__frame *head, const void *body,
                     int fd)
{
    tutti__link *link = &post->links[rank];
    tutti__parcel *parcel = link->deaf ? NULL : parcel_new(rank, head, head->bytes);

    if (!parcel) {
        if (fd >= 0)
            close(fd);
        return;
    }
    parcel->fd = fd;
    if (body)
        memcpy(parcel->body, body, head->bytes);
    append(&link->out, parcel);
    if (!link->wants_out)
        push(post, rank);
}

void tutti__post_send(tutti__post *post, int rank, const tutti__frame *head, tutti__letter *letter,
                      const char *from)
{
    tutti__link *link = &post->links[rank];
    tutti__parcel *parcel = link->deaf ? NULL : parcel_new(rank, head, 0);

    if (!parcel)
        return; /* it ends with the group, or at its time limit */
    parcel->letter = letter;
    parcel->from = from;
    append(head->kind == TUTTI__FRAME_PIECE ? &link->streams : &link->out, parcel);
    if (!link->wants_out)
        push(post, rank);
}

/* Forgets the letters: their memory is no longer ours. What has been begun is sent to its end, from a copy. */
static void forget(tutti__link *link)
{
    tutti__parcels kept = {NULL, NULL};
    tutti__parcel *parcel = link->current;

    if (parcel && parcel->letter) {
        char *copy = malloc(parcel->head.bytes + 1);

        if (copy)
            memcpy(copy, parcel->from, parcel->head.bytes);
        else
            link->deaf = true;
        parcel->letter = NULL;
        parcel->from = copy ? copy : parcel->body;
    }
    while ((parcel = take_first(&link->out)) != NULL) {
        if (parcel->letter)
            drop_parcel(parcel);
        else
            append(&kept, parcel);
    }
    link->out = kept;
    while ((parcel = take_first(&link->streams)) != NULL)
        drop_parcel(parcel);
}

void tutti__post_forget(tutti__post *post)
{
    for (int r = 0; r < post->group->size; r++)
        forget(&post->links[r]);
}

void tutti__post_tell(tutti_group *group, const tutti__cause *cause)
{
    tutti__post *post = group->post;
    const tutti__frame head = {.kind = TUTTI__FRAME_CAUSE,
                               .status = cause->status,
                               .culprit = cause->culprit,
                               .bytes = (uint32_t)strlen(cause->text)};

    if (!post)
        return;
    tutti__post_enter(post);
    for (int r = 0; r < group->size; r++)
        tutti__post_say(post, r, &head, cause->text, -1);
    tutti__post_leave(post);
}

/* ---- Descriptors ---------------------------------------------------------------------------------------- */

/* The post that serves this group, and what `rank` is called there. */
static tutti__post *post_of(tutti_group *group, int *rank)
{
    for (; group->outer; group = group->outer)
        *rank = group->outer_ranks[*rank];
    return group->post;
}

int tutti__post_send_fd(tutti_group *group, int rank, int fd)
{
    const tutti__frame head = {.kind = TUTTI__FRAME_FD};
    tutti__post *post = post_of(group, &rank);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own < 0)
        return errno;
    tutti__post_enter(post);
    tutti__post_say(post, rank, &head, NULL, own);
    tutti__post_leave(post);
    return 0;
}

int tutti__post_take_fd(tutti_group *group, int rank, int *fd_p, double deadline)
{
    tutti__post *post = post_of(group, &rank);
    tutti__link *link = &post->links[rank];
    int error = 0;

    tutti__post_enter(post);
    while (link->n_fds == 0 && error == 0) {
        if (link->over || atomic_load(&post->group->failed))
            error = ECONNRESET;
        else if (!tutti__cond_wait(&post->changed, &post->lock, deadline) && link->n_fds == 0)
            error = ETIMEDOUT;
    }
    if (!error) {
        *fd_p = link->fds[0];
        memmove(link->fds, link->fds + 1, (size_t)--link->n_fds * sizeof link->fds[0]);
    }
    tutti__post_leave(post);
    return error;
}

/* ---- Reading ---------------------------------------------------------------------------------------------- */

static void judge_cause(tutti__post *post, const tutti__link *link)
{
    tutti__verdict *verdict = &post->verdict;

    if (verdict->set)
        return;
    *verdict = (tutti__verdict){.set = true, .lost = -1, .theirs = true};
    verdict->cause.status = link->head.status;
    verdict->cause.culprit = link->head.culprit;
    if (link->text)
        memcpy(verdict->cause.text, link->text, link->head.bytes);
}

/* A whole frame has come. */
static void hear(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];
    tutti_group *group = post->group;

    if (link->head.kind >= TUTTI__FRAME_WHOLE) {
        tutti__letter_end(post, rank);
    } else if (link->head.kind == TUTTI__FRAME_CAUSE) {
        judge_cause(post, link);
    } else if (link->head.kind == TUTTI__FRAME_GOODBYE) {
        atomic_store(&group->peers[rank].left, true);
        tutti__letters_left(post, rank);
        if (atomic_load(&group->opened) && group->transport->wake)
            group->transport->wake(group, rank);
    } else if (link->head.kind == TUTTI__FRAME_BEAT) {
        link->thread = link->head.id;
    } else if (link->head.kind == TUTTI__FRAME_FD) {
        pthread_cond_broadcast(&post->changed);
    }
}

/* What the frame that begins may be. */
static bool sound(const tutti__frame *head)
{
    if (head->kind >= TUTTI__FRAME_WHOLE)
        return tutti__letter_sound(head);
    if (head->kind == TUTTI__FRAME_CAUSE)
        return head->bytes < sizeof((tutti__cause *)0)->text && head->status != TUTTI_OK;
    return head->bytes == 0;
}

/* Where the body of the frame that begins goes. */
static void begin(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];

    link->into = NULL;
    if (link->head.kind >= TUTTI__FRAME_WHOLE)
        link->into = tutti__letter_begin(post, rank);
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
static ssize_t read_some(tutti__post *post, tutti__link *link)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    size_t head = sizeof link->head, at = link->got < head ? 0 : link->got - head,
           rest = link->got < head ? head - link->got : link->head.bytes - at;
    struct iovec io = {link->into + at, rest};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n;

    if (link->got < head)
        io.iov_base = (char *)&link->head + link->got;
    else if (!link->into)
        io = (struct iovec){post->nowhere,
                            rest < sizeof post->nowhere ? rest : sizeof post->nowhere};
    n = recvmsg(link->fd, &message, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    keep_fd(link, &message);
    return n;
}

static void hang_up(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];

    epoll_ctl(post->epoll, EPOLL_CTL_DEL, link->fd, NULL);
    link->over = link->deaf = true;
    while (tutti__link_busy(link))
        push(post, rank); /* drops it */
    if (!atomic_load(&post->group->peers[rank].left) && !post->verdict.set) {
        post->verdict.set = true;
        post->verdict.lost = rank;
    }
}

/* Reads what there is, but no more than a fair share of it. */
static void read_link(tutti__post *post, int rank)
{
    tutti__link *link = &post->links[rank];
    size_t head = sizeof link->head, read = 0;

    while (read < BYTES_A_TURN && !link->over) {
        ssize_t n = read_some(post, link);

        if (n == -EAGAIN)
            return;
        if (n == -EINTR)
            continue;
        if (n > 0)
            link->got += (size_t)n;
        if (n <= 0 || (link->got == head && !sound(&link->head))) {
            hang_up(post, rank);
            return;
        }
        read += (size_t)n + FRAME_COST;
        link->known = true;
        link->heard = tutti__now_ms();
        if (link->got == head)
            begin(post, rank);
        if (link->got < head || link->got < head + link->head.bytes)
            continue;
        hear(post, rank);
        free(link->text);
        link->text = link->into = NULL;
        link->got = 0;
    }
}

/* ---- The thread ------------------------------------------------------------------------------------------- */

/* Acts upon what was found out; not under the lock. */
void tutti__post_settle(tutti__post *post)
{
    tutti_group *group = post->group;
    tutti__verdict verdict;

    pthread_mutex_lock(&post->lock);
    verdict = post->verdict;
    post->verdict.set = false;
    if (verdict.set)
        pthread_cond_broadcast(&post->changed);
    pthread_mutex_unlock(&post->lock);
    if (!verdict.set)
        return;
    if (verdict.lost >= 0) {
        (void)tutti__fail_lost(group, verdict.lost);
    } else if (!verdict.theirs) {
        (void)tutti__group_fail(group, (tutti_status)verdict.cause.status, verdict.cause.culprit,
                                "%s", verdict.cause.text);
    } else if (!tutti__group_failed(group)) {
        /* Passed on before this rank acts on it: its own end must not reach anyone before the cause does. */
        tutti__post_tell(group, &verdict.cause);
        tutti__group_adopt(group, &verdict.cause);
    }
    pthread_mutex_lock(&post->lock); /* for those who wait for the group's failure */
    pthread_cond_broadcast(&post->changed);
    pthread_mutex_unlock(&post->lock);
}

static void serve(tutti__post *post, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        int rank = (int)events[i].data.u32;

        if (rank == post->group->size || post->links[rank].over)
            continue; /* the bell is only for waking up */
        if (events[i].events & EPOLLOUT)
            push(post, rank);
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            read_link(post, rank);
    }
}

static bool untold(const tutti_group *group)
{
    return atomic_load(&group->failed) && group->flights > 0 && !atomic_load(&group->reported);
}

/* The group is dead, and no call of this rank may ever say so: it computes, or hangs. One that is on its way comes first,
 * since it knows more. */
static void report(tutti__post *post, double *since)
{
    double now = tutti__now_ms();

    if (!untold(post->group))
        return;
    if (*since == 0)
        *since = now;
    if (now - *since >= TELL_MS)
        tutti__flight_report(post->group);
}

static void *post_main(void *arg)
{
    tutti__post *post = arg;
    struct epoll_event events[N_EVENTS];
    bool stopping = false;
    double died = 0;

    tutti__log_set_rank(post->group->rank);
    pthread_mutex_lock(&post->lock);
    post->tid = (uint64_t)syscall(SYS_gettid);
    tutti__heartbeat_turn(post, false);
    pthread_cond_broadcast(&post->changed);
    pthread_mutex_unlock(&post->lock);
    while (!stopping) {
        int wait, n;

        pthread_mutex_lock(&post->lock);
        wait = tutti__heartbeat_wait(post);
        pthread_mutex_unlock(&post->lock);
        if (untold(post->group))
            wait = TELL_MS;
        n = epoll_wait(post->epoll, events, N_EVENTS, wait);
        if (n < 0 && errno != EINTR) {
            tutti_log(TUTTI_LOG_ERROR, "comm", "group \"%s\" is no longer watched: %s",
                      post->group->name, strerror(errno));
            return NULL;
        }
        /* A lock is not fair to those who sleep for it. */
        for (int i = 0; i < YIELDS && atomic_load(&post->callers) > 0; i++)
            sched_yield();
        pthread_mutex_lock(&post->lock);
        serve(post, events, n);
        tutti__heartbeat_turn(post, n < N_EVENTS);
        stopping = post->stopping;
        pthread_mutex_unlock(&post->lock);
        tutti__post_settle(post);
        report(post, &died);
    }
    return NULL;
}

/* ---- Coming and going --------------------------------------------------------------------------------------- */

static void post_free(tutti__post *post)
{
    for (int r = 0; r < post->group->size; r++) {
        tutti__link *link = &post->links[r];

        link->over = link->deaf = true;
        while (tutti__link_busy(link))
            push(post, r);
        if (link->fd >= 0)
            close(link->fd);
        while (link->n_fds > 0)
            close(link->fds[--link->n_fds]);
        free(link->text);
    }
    tutti__letters_free(post);
    if (post->epoll >= 0)
        close(post->epoll);
    if (post->bell >= 0)
        close(post->bell);
    pthread_cond_destroy(&post->changed);
    pthread_mutex_destroy(&post->lock);
    free(post);
}

/* 0 or an errno. */
static int start(tutti__post *post)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)post->group->size};
    int error;

    post->epoll = epoll_create1(EPOLL_CLOEXEC);
    post->bell = eventfd(0, EFD_CLOEXEC);
    if (post->epoll < 0 || post->bell < 0 ||
        epoll_ctl(post->epoll, EPOLL_CTL_ADD, post->bell, &event) != 0)
        return errno;
    for (int r = 0; r < post->group->size; r++) {
        event.data.u32 = (uint32_t)r;
        if (post->links[r].fd >= 0 &&
            epoll_ctl(post->epoll, EPOLL_CTL_ADD, post->links[r].fd, &event) != 0)
            return errno;
        /* What waits to be sent waits here, where more urgent things can still overtake it. Not of unix sockets. */
        (void)setsockopt(post->links[r].fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){128 << 10},
                         sizeof(int));
    }
    error = tutti__thread_start(&post->thread, post_main, post);
    post->has_thread = error == 0;
    /* Its first beat is on its way before the group is used: only who has been heard can be missed. */
    pthread_mutex_lock(&post->lock);
    while (post->has_thread && post->tid == 0)
        pthread_cond_wait(&post->changed, &post->lock);
    pthread_mutex_unlock(&post->lock);
    return error;
}

tutti_status tutti__post_open(tutti_group *group, const int *sockets, int heartbeat_ms)
{
    size_t n = (size_t)group->size;
    tutti__post *post = tutti__alloc(sizeof *post + n * sizeof post->links[0]);
    int error;

    if (!post) {
        for (size_t r = 0; r < n; r++)
            if (sockets[r] >= 0)
                close(sockets[r]);
        return TUTTI_ERR_MEMORY;
    }
    post->group = group;
    post->epoll = post->bell = -1;
    pthread_mutex_init(&post->lock, NULL);
    tutti__cond_init(&post->changed);
    for (size_t r = 0; r < n; r++)
        post->links[r] = (tutti__link){.fd = sockets[r],
                                       .over = sockets[r] < 0,
                                       .deaf = sockets[r] < 0,
                                       .credit = TUTTI__CREDIT_BYTES};
    tutti__heartbeat_start(post, heartbeat_ms);
    group->post = post; /* before its thread, which may have something to tell at once */
    error = n > 1 ? start(post) : 0;
    if (error) {
        group->post = NULL;
        post_free(post);
        return tutti__fail_errno(error, "cannot start the post of group \"%s\"", group->name);
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

static void linger(tutti__post *post, double deadline)
{
    bool busy = true;

    for (int ms = 0; busy && tutti__now_ms() < deadline; ms = 1) {
        poll(NULL, 0, ms);
        busy = false;
        tutti__post_enter(post);
        for (int r = 0; r < post->group->size && !busy; r++)
            busy = on_its_way(&post->links[r]);
        tutti__post_leave(post);
    }
}

void tutti__post_close(tutti_group *group)
{
    const tutti__frame goodbye = {.kind = TUTTI__FRAME_GOODBYE};
    tutti__post *post = group->post;
    bool failed;

    if (!post)
        return;
    tutti__letters_flush(post);
    failed = tutti__group_failed(group);
    /* From a dead group nobody just leaves: a peer may hear this before it hears of the failure from who found it. */
    if (failed)
        tutti__post_tell(group, &group->cause);
    tutti__post_enter(post);
    for (int r = 0; r < group->size && !failed; r++)
        tutti__post_say(post, r, &goodbye, NULL, -1);
    tutti__post_leave(post);
    linger(post, tutti__now_ms() + (failed ? LINGER_DEAD_MS : LINGER_MS));
    tutti__post_enter(post);
    post->stopping = true;
    tutti__post_leave(post);
    if (post->has_thread && write(post->bell, &(uint64_t){1}, sizeof(uint64_t)) > 0)
        pthread_join(post->thread, NULL);
    post_free(post);
    group->post = NULL;
}
