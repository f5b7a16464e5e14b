/* tcp.c -- ranks that share no memory: messages over two connections a pair, or more.   SPDX-License-Identifier: MIT
 *
 * Data: rows of messages to and from each peer (wire.c), as fast as the sockets take and give them; all_reduce is shares to
 * their owners and results back (shares.c).
 * Control: a watcher thread reads goodbyes and causes of failure, and takes an end without a goodbye for a death. */
#include "comm/transport/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20 };

/* What travels on a control connection: a cause of failure, or with status OK a goodbye. */
typedef tutti__cause control_frame;

typedef struct tcp_state {
    int *sockets; /* control */
    tutti__watcher *watcher;
    pthread_mutex_t send_lock; /* of the control connections */
    control_frame *frames;     /* a rank: what has been read of its next frame */
    size_t *frame_got;
    tutti__pass *passes;
    const void **src;
} tcp_state;

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
    tutti__wire_wake(group);
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
        tutti__wire_wake(group);
    }
    if (!atomic_load(&group->peers[rank].left))
        (void)tutti__fail_lost(group, rank);
    return false;
}

/* ---- Operations --------------------------------------------------------------------------------------------------- */

/* One message to and one from each peer; of an operation's first, each begins with the fingerprint. */
static tutti_status exchange(tutti_group *group, const tutti__op *op, bool heads)
{
    const tcp_state *t = group->transport_state;

    return tutti__wire_exchange(group, op, t->passes, heads);
}

static void set_lane(tutti_group *group, int rank, const void *out, size_t out_bytes, void *in,
                     size_t in_bytes)
{
    tcp_state *t = group->transport_state;

    t->passes[rank] = (tutti__pass){{(char *)(uintptr_t)out, out_bytes}, {in, in_bytes}};
}

static tutti_status all_reduce(tutti_group *group, const tutti__op *op)
{
    const tutti__shares shares = {.ranks = tutti__wire_everyone(group),
                                  .n = group->size,
                                  .me = group->rank,
                                  .p = op->dst,
                                  .count = (size_t)op->print.count,
                                  .redop = (tutti_redop)op->print.redop};

    return tutti__wire_all_reduce(group, op, true, &shares);
}

static tutti_status reduce_scatter(tutti_group *group, const tutti__op *op)
{
    const tcp_state *t = group->transport_state;
    size_t element = tutti_dtype_size((tutti_dtype)op->print.dtype),
           count = (size_t)op->print.count,
           bytes = group->tuning.chunk_bytes ? group->tuning.chunk_bytes : CHUNK_BYTES;
    size_t chunk = (bytes + 63) / 64 * 64 / element, most = count < chunk ? count : chunk;
    char *scratch = tutti__wire_scratch(group, most * element * (size_t)group->size);
    const char *src = op->src;

    for (size_t k = 0; k < count; k += chunk) {
        size_t n = count - k < chunk ? count - k : chunk;
        void *dst = (char *)op->dst + k * element;

        if (!scratch)
            return (tutti_status)group->cause.status;
        for (int r = 0; r < group->size; r++) {
            const char *own = src + ((size_t)r * count + k) * element;
            char *theirs = scratch + (size_t)r * most * element;

            set_lane(group, r, own, n * element, theirs, n * element);
            t->src[r] = r == group->rank ? own : theirs;
        }
        TUTTI_TRY(exchange(group, op, k == 0));
        tutti__reduce((tutti_dtype)op->print.dtype, (tutti_redop)op->print.redop, &dst, 1, t->src,
                      (size_t)group->size, n);
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
    for (int r = 0; r < group->size; r++)
        if (t->sockets[r] >= 0)
            close(t->sockets[r]);
    tutti__wire_free(group);
    pthread_mutex_destroy(&t->send_lock);
    free(t->sockets);
    free(t->frames);
    free(t->frame_got);
    free(t->passes);
    free(t->src);
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

static void close_all(int *sockets, int n)
{
    for (int i = 0; sockets && i < n; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    free(sockets);
}

tutti_status tutti__tcp_open(tutti_group *group, int *sockets, int channels)
{
    size_t n = (size_t)group->size;
    tcp_state *t = tutti__alloc(sizeof *t);
    int *data = malloc(n * (size_t)channels * sizeof *data);

    if (!t || !data) {
        free(t);
        free(data);
        close_all(sockets, group->size * (1 + channels));
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the connections of %d ranks",
                           group->size);
    }
    memcpy(data, sockets + n, n * (size_t)channels * sizeof *data);
    group->transport_state = t;
    group->transport = &TCP;
    pthread_mutex_init(&t->send_lock, NULL);
    t->sockets = sockets;
    t->frames = calloc(n, sizeof *t->frames);
    t->frame_got = calloc(n, sizeof *t->frame_got);
    t->passes = calloc(n, sizeof *t->passes);
    t->src = calloc(n, sizeof *t->src);
    TUTTI_TRY(tutti__wire_new(group, data, channels));
    if (!t->frames || !t->frame_got || !t->passes || !t->src)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the connections of %d ranks",
                           group->size);
    return tutti__watcher_new(&t->watcher, group, sockets, true, hear);
}
