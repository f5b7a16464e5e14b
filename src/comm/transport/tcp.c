/* tcp.c -- ranks that share no memory: messages over two connections a pair.   SPDX-License-Identifier: MIT
 *
 * Data: everything is one primitive, an exchange: to each peer something is sent while from each something is received,
 * as fast as the sockets take and give it. all_reduce is two of them a chunk: everybody sends each rank its share, who
 * reduces it in rank order and sends the result to everybody. The first message to each peer in an operation begins with
 * the operation's fingerprint, which the receiver compares before it reads on.
 * Control: a watcher thread reads goodbyes and causes of failure, and takes an end without a goodbye for a death. */
#include "comm/group.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, VERDICT_MS = 500 };

/* What travels on a control connection: a cause of failure, or with status OK a goodbye. */
typedef tutti__cause control_frame;

/* One direction of an exchange with one peer. `head` bytes of the fingerprint go first. */
typedef struct lane {
    const char *out;
    char *in;
    size_t out_bytes, in_bytes, out_done, in_done; /* head included in all */
    size_t head;
    tutti__fingerprint heard;
} lane;

typedef struct tcp_state {
    int *sockets; /* control[size], data[size] */
    int wake;     /* rung when a peer has failed or left */
    tutti__watcher *watcher;
    pthread_mutex_t send_lock; /* of the control connections */
    control_frame *frames;     /* a rank: what has been read of its next frame */
    size_t *frame_got;
    lane *lanes;
    struct pollfd *polls;
    char *scratch;
    size_t chunk_bytes;
    const void **src;
} tcp_state;

static void ring(const tcp_state *t)
{
    if (write(t->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0)
        return; /* full: it is readable, which is all that is wanted */
}

/* ---- Control ------------------------------------------------------------------------------------------------ */

static void tell_all(tutti_group *group, const control_frame *frame)
{
    tcp_state *t = group->transport_state;

    pthread_mutex_lock(&t->send_lock);
    for (int r = 0; r < group->size; r++)
        /* A frame or two is all that ever goes this way: it fits the socket's buffer, or the peer is gone. */
        if (t->sockets[r] >= 0 &&
            send(t->sockets[r], frame, sizeof *frame, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            continue;
    pthread_mutex_unlock(&t->send_lock);
}

static void tcp_announce(tutti_group *group, tutti__cause *cause)
{
    tell_all(group, cause);
}

static void tcp_wake(tutti_group *group)
{
    ring(group->transport_state);
}

static bool hear(tutti_group *group, int rank, int fd)
{
    tcp_state *t = group->transport_state;
    control_frame *frame = &t->frames[rank];

    for (;;) {
        ssize_t n =
            recv(fd, (char *)frame + t->frame_got[rank], sizeof *frame - t->frame_got[rank], 0);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n <= 0)
            break;
        t->frame_got[rank] += (size_t)n;
        if (t->frame_got[rank] < sizeof *frame)
            continue;
        t->frame_got[rank] = 0;
        frame->text[sizeof frame->text - 1] = '\0';
        if (frame->status != TUTTI_OK) {
            /* Passed on before this rank acts on it: its own end must not reach anyone before the cause does. */
            if (!atomic_load(&group->failed))
                tell_all(group, frame);
            tutti__group_adopt(group, frame);
            continue;
        }
        atomic_store(&group->peers[rank].left, true);
        ring(t);
    }
    if (!atomic_load(&group->peers[rank].left))
        (void)tutti__fail_lost(group, rank);
    return false;
}

/* ---- Exchange ------------------------------------------------------------------------------------------------- */

static bool lane_done(const lane *l)
{
    return l->out_done == l->out_bytes && l->in_done == l->in_bytes;
}

/* 0, EAGAIN, or why the connection is of no more use. */
static int push(int fd, lane *l, const tutti__fingerprint *print)
{
    while (l->out_done < l->out_bytes) {
        bool in_head = l->out_done < l->head;
        size_t body_done = in_head ? 0 : l->out_done - l->head;
        struct iovec io[2] = {
            {(char *)(uintptr_t)print + l->out_done, in_head ? l->head - l->out_done : 0},
            {(char *)(uintptr_t)l->out + body_done, l->out_bytes - l->head - body_done}};
        struct msghdr message = {.msg_iov = in_head ? io : io + 1, .msg_iovlen = in_head ? 2 : 1};
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        l->out_done += (size_t)n;
    }
    return 0;
}

static int pull(int fd, lane *l)
{
    while (l->in_done < l->in_bytes) {
        bool in_head = l->in_done < l->head;
        char *to = in_head ? (char *)&l->heard + l->in_done : l->in + (l->in_done - l->head);
        ssize_t n = recv(fd, to, in_head ? l->head - l->in_done : l->in_bytes - l->in_done, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ECONNRESET;
        l->in_done += (size_t)n;
        if (in_head && l->in_done == l->head)
            return EBADMSG; /* the caller compares before the body is read */
    }
    return 0;
}

/* The data connection is gone. Whether the peer died or left, the watcher knows a moment later. */
static tutti_status lost(tutti_group *group, int rank)
{
    tcp_state *t = group->transport_state;
    double deadline = tutti__now_ms() + VERDICT_MS;

    while (!tutti__group_failed(group) && !atomic_load(&group->peers[rank].left) &&
           tutti__now_ms() < deadline) {
        uint64_t rings;

        poll(&(struct pollfd){t->wake, POLLIN, 0}, 1, tutti__poll_ms(deadline));
        if (read(t->wake, &rings, sizeof rings) < 0 && errno != EAGAIN)
            break;
    }
    return tutti__fail_lost(group, rank);
}

static tutti_status progress(tutti_group *group, const tutti__op *op, int rank)
{
    tcp_state *t = group->transport_state;
    lane *l = &t->lanes[rank];
    int fd = t->sockets[group->size + rank], error = push(fd, l, &op->print);

    if (error == 0 || error == EAGAIN)
        error = pull(fd, l);
    if (error == EBADMSG) {
        TUTTI_TRY(tutti__check_print(group, &op->print, rank, &l->heard));
        error = pull(fd, l);
    }
    return error == 0 || error == EAGAIN ? TUTTI_OK : lost(group, rank);
}

static tutti_status late(tutti_group *group, const tutti__op *op)
{
    const tcp_state *t = group->transport_state;
    bool *missing = calloc((size_t)group->size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__group_fail(group, TUTTI_ERR_TIMEOUT, -1, "timed out");
    for (int r = 0; r < group->size; r++)
        missing[r] = r != group->rank && !lane_done(&t->lanes[r]);
    status = tutti__fail_late(group, op, missing);
    free(missing);
    return status;
}

/* Runs the lanes to their ends. With heads, each begins with the fingerprint. */
static tutti_status exchange(tutti_group *group, const tutti__op *op, bool heads)
{
    tcp_state *t = group->transport_state;
    int open = 0;
    uint64_t rings;

    for (int r = 0; r < group->size; r++) {
        lane *l = &t->lanes[r];

        l->head = heads ? sizeof op->print : 0;
        l->out_bytes += l->head;
        l->in_bytes += l->head;
        l->out_done = l->in_done = 0;
    }
    for (;;) {
        for (int r = open = 0; r < group->size; r++) {
            lane *l = &t->lanes[r];

            t->polls[r] = (struct pollfd){.fd = -1};
            if (r == group->rank || lane_done(l))
                continue;
            TUTTI_TRY(progress(group, op, r));
            if (lane_done(l))
                continue;
            t->polls[r].fd = t->sockets[group->size + r];
            t->polls[r].events = (short)((l->out_done < l->out_bytes ? POLLOUT : 0) |
                                         (l->in_done < l->in_bytes ? POLLIN : 0));
            open++;
        }
        if (open == 0)
            return TUTTI_OK;
        if (tutti__group_failed(group))
            return (tutti_status)group->cause.status;
        if (tutti__now_ms() >= op->deadline)
            return late(group, op);
        t->polls[group->size] = (struct pollfd){t->wake, POLLIN, 0};
        poll(t->polls, (nfds_t)group->size + 1, tutti__poll_ms(op->deadline));
        if (t->polls[group->size].revents && read(t->wake, &rings, sizeof rings) < 0 &&
            errno != EAGAIN)
            return tutti__group_fail(group, TUTTI_ERR_INTERNAL, group->rank, "eventfd: %s",
                                     strerror(errno));
    }
}

static void set_lane(tutti_group *group, int rank, const void *out, size_t out_bytes, void *in,
                     size_t in_bytes)
{
    tcp_state *t = group->transport_state;

    t->lanes[rank] = (lane){.out = out, .in = in, .out_bytes = out_bytes, .in_bytes = in_bytes};
}

/* ---- Operations --------------------------------------------------------------------------------------------------- */

/* Room for `bytes` from each rank. */
static tutti_status need_scratch(tutti_group *group, size_t bytes)
{
    tcp_state *t = group->transport_state;

    if (t->scratch)
        return TUTTI_OK;
    t->scratch = malloc(bytes * (size_t)group->size);
    if (!t->scratch)
        return tutti__group_fail(group, TUTTI_ERR_MEMORY, group->rank,
                                 "rank %d has no memory for %zu bytes", group->rank,
                                 bytes * (size_t)group->size);
    return TUTTI_OK;
}

/* The part of n elements that a rank reduces. */
static size_t share(size_t n, int size, int rank, size_t *length_p)
{
    size_t part = (n + (size_t)size - 1) / (size_t)size,
           begin = (size_t)rank * part < n ? (size_t)rank * part : n;

    *length_p = n - begin < part ? n - begin : part;
    return begin;
}

/* Reduces `n` elements of everybody: those of the peers lie in scratch, this rank's at `own`. */
static void reduce(tutti_group *group, const tutti__op *op, const void *own, void *dst, size_t n)
{
    tcp_state *t = group->transport_state;

    for (int r = 0; r < group->size; r++)
        t->src[r] = r == group->rank ? own : t->scratch + (size_t)r * t->chunk_bytes;
    tutti__reduce((tutti_dtype)op->print.dtype, (tutti_redop)op->print.redop, &dst, 1, t->src,
                  (size_t)group->size, n);
}

static tutti_status all_reduce_chunk(tutti_group *group, const tutti__op *op, char *p, size_t n,
                                     bool heads)
{
    tcp_state *t = group->transport_state;
    size_t element = tutti_dtype_size((tutti_dtype)op->print.dtype), length, mine_length;
    size_t mine = share(n, group->size, group->rank, &mine_length), begin;

    for (int r = 0; r < group->size; r++) {
        begin = share(n, group->size, r, &length);
        set_lane(group, r, p + begin * element, length * element,
                 t->scratch + (size_t)r * t->chunk_bytes, mine_length * element);
    }
    TUTTI_TRY(exchange(group, op, heads));
    reduce(group, op, p + mine * element, p + mine * element, mine_length);
    for (int r = 0; r < group->size; r++) {
        begin = share(n, group->size, r, &length);
        set_lane(group, r, p + mine * element, mine_length * element, p + begin * element,
                 length * element);
    }
    return exchange(group, op, false);
}

static tutti_status all_reduce(tutti_group *group, const tutti__op *op)
{
    const tcp_state *t = group->transport_state;
    size_t element = tutti_dtype_size((tutti_dtype)op->print.dtype),
           count = (size_t)op->print.count;
    size_t chunk = t->chunk_bytes / element * (size_t)group->size;

    TUTTI_TRY(need_scratch(group, t->chunk_bytes));
    for (size_t k = 0; k < count; k += chunk)
        TUTTI_TRY(all_reduce_chunk(group, op, (char *)op->dst + k * element,
                                   count - k < chunk ? count - k : chunk, k == 0));
    return TUTTI_OK;
}

static tutti_status reduce_scatter(tutti_group *group, const tutti__op *op)
{
    const tcp_state *t = group->transport_state;
    size_t element = tutti_dtype_size((tutti_dtype)op->print.dtype),
           count = (size_t)op->print.count;
    size_t chunk = t->chunk_bytes / element;
    const char *src = op->src;

    TUTTI_TRY(need_scratch(group, t->chunk_bytes));
    for (size_t k = 0; k < count; k += chunk) {
        size_t n = count - k < chunk ? count - k : chunk;

        for (int r = 0; r < group->size; r++)
            set_lane(group, r, src + ((size_t)r * count + k) * element, n * element,
                     t->scratch + (size_t)r * t->chunk_bytes, n * element);
        TUTTI_TRY(exchange(group, op, k == 0));
        reduce(group, op, src + ((size_t)group->rank * count + k) * element,
               (char *)op->dst + k * element, n);
    }
    return TUTTI_OK;
}

static tutti_status all_gather(tutti_group *group, const tutti__op *op)
{
    size_t bytes = tutti__op_bytes(&op->print);
    char *dst = op->dst, *own = dst + (size_t)group->rank * bytes;

    if (own != op->src)
        memcpy(own, op->src, bytes);
    for (int r = 0; r < group->size; r++)
        set_lane(group, r, own, bytes, dst + (size_t)r * bytes, bytes);
    return exchange(group, op, true);
}

static tutti_status broadcast(tutti_group *group, const tutti__op *op)
{
    size_t bytes = tutti__op_bytes(&op->print);
    int root = (int)op->print.root;

    for (int r = 0; r < group->size; r++)
        set_lane(group, r, op->src, group->rank == root ? bytes : 0, op->dst,
                 r == root ? bytes : 0);
    return exchange(group, op, true);
}

/* Fingerprints only. */
static tutti_status meet(tutti_group *group, const tutti__op *op)
{
    for (int r = 0; r < group->size; r++)
        set_lane(group, r, NULL, 0, NULL, 0);
    return exchange(group, op, true);
}

static tutti_status tcp_run(tutti_group *group, tutti__op *op)
{
    tutti_status status;

    if (op->print.count == 0 && op->print.op != TUTTI__OP_ALLOC) /* a barrier, for one */
        return meet(group, op);
    switch (op->print.op) {
    case TUTTI__OP_ALL_REDUCE:
        return all_reduce(group, op);
    case TUTTI__OP_REDUCE_SCATTER:
        return reduce_scatter(group, op);
    case TUTTI__OP_ALL_GATHER:
        return all_gather(group, op);
    case TUTTI__OP_BROADCAST:
        return broadcast(group, op);
    default:
        TUTTI_TRY(meet(group, op));
        status = tutti__plain_alloc(group, op);
        if (status != TUTTI_OK) /* the others have theirs: they must not go on without this rank */
            (void)tutti__group_fail(group, status, group->rank, "rank %d: %s", group->rank,
                                    tutti_last_error());
        return status;
    }
}

/* ---- Coming and going ----------------------------------------------------------------------------------------------- */

static void tcp_free(tutti_group *group)
{
    tcp_state *t = group->transport_state;

    tutti__watcher_free(t->watcher);
    for (int i = 0; i < 2 * group->size; i++)
        if (t->sockets[i] >= 0)
            close(t->sockets[i]);
    if (t->wake >= 0)
        close(t->wake);
    pthread_mutex_destroy(&t->send_lock);
    free(t->sockets);
    free(t->frames);
    free(t->frame_got);
    free(t->lanes);
    free(t->polls);
    free(t->src);
    free(t->scratch);
    free(t);
    group->transport_state = NULL;
}

static void tcp_close(tutti_group *group)
{
    const control_frame goodbye = {.status = TUTTI_OK};

    /* From a dead group nobody just leaves: a peer may hear this before it hears of the failure from who found it. */
    tell_all(group, tutti__group_failed(group) ? &group->cause : &goodbye);
    tcp_free(group);
    tutti__plain_free_all(group);
}

static const tutti__transport TCP = {.name = "tcp",
                                     .run = tcp_run,
                                     .announce = tcp_announce,
                                     .wake = tcp_wake,
                                     .release = tutti__plain_release,
                                     .close = tcp_close};

tutti_status tutti__tcp_open(tutti_group *group, int *sockets)
{
    size_t n = (size_t)group->size,
           chunk = group->tuning.chunk_bytes ? group->tuning.chunk_bytes : CHUNK_BYTES;
    tcp_state *t = tutti__alloc(sizeof *t);

    if (!t) {
        for (size_t i = 0; i < 2 * n; i++)
            if (sockets[i] >= 0)
                close(sockets[i]);
        free(sockets);
        return TUTTI_ERR_MEMORY;
    }
    group->transport_state = t;
    group->transport = &TCP;
    pthread_mutex_init(&t->send_lock, NULL);
    t->sockets = sockets;
    t->chunk_bytes = (chunk + 63) / 64 * 64;
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->frames = calloc(n, sizeof *t->frames);
    t->frame_got = calloc(n, sizeof *t->frame_got);
    t->lanes = calloc(n, sizeof *t->lanes);
    t->polls = calloc(n + 1, sizeof *t->polls);
    t->src = calloc(n, sizeof *t->src);
    if (t->wake < 0 || !t->frames || !t->frame_got || !t->lanes || !t->polls || !t->src)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory, or no descriptor, for the connections of %d ranks",
                           group->size);
    return tutti__watcher_new(&t->watcher, group, sockets, true, hear);
}
