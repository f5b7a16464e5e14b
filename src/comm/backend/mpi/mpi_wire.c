/* mpi_wire.c -- moves the messages of schedules by MPI's sends and receives.   SPDX-License-Identifier: MIT
 *
 * Each operation begins, in both directions of each pair, with a head: the signature, and with it the first message if it is small. Other
 * messages follow in parts, some in flight at a time; a part is received once the peer's call is known to be
 * ours, so that no receive is too short. Heads and parts have a tag each, and MPI keeps the order of those with one tag.
 *
 * Parts have at most PART_BYTES, so that one is copied to or from a slot (below) while others travel. Between two ranks that copy nothing they have
 * up to WHOLE_BYTES: most messages are whole then. Each says in its head which parts it would like, and the smaller ones are taken. An
 * operation's first part to a peer is always small, so that it leaves at once; who would like large ones sends the next when the peer's head is there.
 *
 * A running send or receive cannot be cancelled: if the operation fails, its requests are abandoned, and any later progress of MPI in
 * this process, in any group, may complete them. So requests name only memory that lasts: slots of this wire, through which the program's
 * data are copied; the scratch of algorithms; and the second mapping of memory of tutti_group_alloc. The wire of a group that has
 * failed is never freed.
 *
 * MPI makes progress only when it is called, and gives no descriptor to sleep on: who waits tests, yields, and after a while naps. */
#include "comm/backend/mpi/mpi.h"

#include "comm/transport/plain_memory.h"
#include "comm/transport/tcp/channel.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PART_BYTES = 128 << 10,
    WHOLE_BYTES = 4 << 20,
    WINDOW = 4, /* parts in flight to a peer, and from it */
    SMALL_BYTES = 4 << 10,
    TAG_HEAD = 1,
    TAG_PART = 2
};

/* For so long a rank that waits only tests; then it yields its core, longer if all its peers are in the operation; then it naps.
 * LEFT_NS, LEFT_POLLS: until a peer that has left, and whose head has not come, is given up. */
enum {
    SPIN_NS = 50000,
    YIELD_NS = 500000,
    YIELD_MOVING_NS = 100000000,
    NAP_NS = 20000,
    LEFT_NS = 300000000,
    LEFT_POLLS = 100
};

/* What an operation's messages to a peer begin with. */
typedef struct head {
    tutti__signature signature;
    uint32_t part_bytes;       /* of the largest parts that the rank would like */
    char message[SMALL_BYTES]; /* the first one, if it is small */
} head;

typedef struct part {
    char *slot; /* its memory, of `capacity` bytes */
    size_t capacity, bytes, got;
    bool staged; /* its data go through the slot */
    bool done;
} part;

/* Parts to a peer, or from it: those in flight are parts[(first + i) % WINDOW]. The next one begins `at` bytes into the message `ahead` after
 * the channel's step. */
typedef struct flow {
    part parts[WINDOW];
    unsigned first, n;
    size_t ahead, at;
    part head;              /* without a slot: of head_memory */
    bool head_begun, fresh; /* fresh: no part has followed it */
    head head_memory;
} flow;

/* A head that came before this rank's schedule had its sender. */
typedef struct early {
    struct early *next;
    size_t bytes;
    head memory;
} early;

typedef struct peer {
    flow out, in;
    size_t part_bytes; /* of an operation's largest parts; 0: until the peer's head says so */
    early *early;      /* in the order in which they came */
} peer;

typedef struct mpi_wire {
    tutti__tcp base;
    const tutti__mpi *mpi;
    tutti__mpi_comm comm;
    uint32_t part_bytes, whole_bytes;
    peer **peers; /* by rank; NULL before the first message */
    /* Requests in flight, and their parts. */
    tutti__mpi_request *requests;
    part **owners;
    bool *done;
    size_t *bytes;
    size_t n, capacity;
    uint64_t look_ns; /* idle time after which it looks around */
    uint64_t left_ns; /* idle time at which it saw that a peer has left; 0: none has */
    int left_polls;   /* since then */
    int cores;        /* of this process */
    bool kept;
    struct mpi_wire *next; /* in the list of those that are never freed */
} mpi_wire;

static mpi_wire *wire_of(tutti__tcp *tcp)
{
    return (mpi_wire *)tcp;
}

static tutti_status fail(mpi_wire *w, int error)
{
    tutti__comm *comm = w->base.comm;
    char text[256];

    w->mpi->error_text(error, text, sizeof text);
    return tutti__comm_fail(comm, TUTTI_ERR_PEER, -1, "rank %d: %s reports: %s", comm->rank,
                            w->mpi->name, text);
}

static tutti_status fail_memory(mpi_wire *w)
{
    tutti__comm *comm = w->base.comm;

    return tutti__comm_fail(comm, TUTTI_ERR_MEMORY, comm->rank,
                            "rank %d has no memory for messages", comm->rank);
}

/* ---- Requests ----------------------------------------------------------------------------------------------------- */

static bool reserve(mpi_wire *w)
{
    size_t more = w->capacity ? 2 * w->capacity : 64;
    tutti__mpi_request *requests;
    part **owners;
    size_t *bytes;
    bool *done;

    if (w->n < w->capacity)
        return true;
    requests = realloc(w->requests, more * sizeof *requests);
    w->requests = requests ? requests : w->requests;
    owners = realloc(w->owners, more * sizeof *owners);
    w->owners = owners ? owners : w->owners;
    bytes = realloc(w->bytes, more * sizeof *bytes);
    w->bytes = bytes ? bytes : w->bytes;
    done = realloc(w->done, more * sizeof *done);
    w->done = done ? done : w->done;
    if (!requests || !owners || !bytes || !done)
        return false;
    w->capacity = more;
    return true;
}

/* Sends the part from `memory`, or receives it there. */
static tutti_status start(mpi_wire *w, part *p, char *memory, bool sends, int rank, int tag)
{
    tutti__mpi_request *request;
    int error;

    if (!reserve(w))
        return fail_memory(w);
    request = &w->requests[w->n];
    p->done = false;
    error = sends ? w->mpi->send(w->comm, memory, p->bytes, rank, tag, request)
                  : w->mpi->recv(w->comm, memory, p->bytes, rank, tag, request);
    if (error)
        return fail(w, error);
    w->owners[w->n++] = p;
    return TUTTI_OK;
}

static tutti_status end_requests(mpi_wire *w, bool waits)
{
    size_t kept = 0;
    int error =
        w->n == 0 ? 0 : (waits ? w->mpi->wait : w->mpi->test)(w->requests, w->n, w->done, w->bytes);

    if (error)
        return fail(w, error);
    for (size_t i = 0; i < w->n; i++) {
        if (w->done[i]) {
            w->owners[i]->done = true;
            w->owners[i]->got = w->bytes[i];
            continue;
        }
        w->requests[kept] = w->requests[i];
        w->owners[kept++] = w->owners[i];
    }
    w->n = kept;
    return TUTTI_OK;
}

static tutti_status poll_requests(tutti__tcp *tcp)
{
    return end_requests(wire_of(tcp), false);
}

/* ---- Parts -------------------------------------------------------------------------------------------------------- */

/* The address at which MPI may use this memory, also after the call has failed; NULL: there is none. */
static char *lasting(const tutti__tcp *tcp, char *p, size_t bytes)
{
    if (tcp->scratch && p >= tcp->scratch && p + bytes <= tcp->scratch + tcp->scratch_bytes)
        return p;
    return tcp->memory ? tutti__plain_second(tcp->memory, p, bytes) : NULL;
}

static bool make_slot(part *p)
{
    if (p->capacity >= p->bytes)
        return true;
    free(p->slot);
    p->slot = malloc(p->bytes);
    p->capacity = p->slot ? p->bytes : 0;
    return p->slot != NULL;
}

/* Of the largest parts that this rank would like: large ones, if it has no data to copy. */
static uint32_t wanted_part(const mpi_wire *w)
{
    const tutti__tcp *tcp = &w->base;
    const tutti__operation *op = tcp->schedule.op;
    const size_t element = tutti__element(op->signature.dtype),
                 given = tutti__op_given(tcp->comm->rank, tcp->comm->size, op) * element,
                 taken = tutti__op_taken(tcp->comm->rank, tcp->comm->size, op) * element;

    if (!tcp->memory || (given <= w->part_bytes && taken <= w->part_bytes) ||
        (given > 0 && !tutti__plain_second(tcp->memory, op->src, given)) ||
        (taken > 0 && !tutti__plain_second(tcp->memory, op->dst, taken)))
        return w->part_bytes;
    return w->whole_bytes;
}

/* Begins parts of these messages while there is room. */
static tutti_status begin_parts(mpi_wire *w, int rank, flow *f, const tutti__tcp_direction *d,
                                const struct iovec *messages, size_t n_messages, bool sends)
{
    while (f->n < WINDOW && d->step + f->ahead < n_messages) {
        const struct iovec *m = &messages[d->step + f->ahead];
        part *p = &f->parts[(f->first + f->n) % WINDOW];
        const size_t most = f->fresh ? w->part_bytes : w->peers[rank]->part_bytes;
        size_t left = m->iov_len - f->at;
        char *data = (char *)m->iov_base + f->at, *memory;

        if (left > w->part_bytes && most == 0)
            break;
        if (left > 0) {
            p->bytes = most > 0 && left > most ? most : left;
            memory = lasting(&w->base, data, p->bytes);
            p->staged = !memory;
            if (p->staged && !make_slot(p))
                return fail_memory(w);
            if (p->staged && sends)
                memcpy(p->slot, data, p->bytes);
            TUTTI_TRY(start(w, p, memory ? memory : p->slot, sends, rank, TAG_PART));
            f->fresh = false;
            f->n++;
            f->at += p->bytes;
            left -= p->bytes;
        }
        if (left == 0) {
            f->at = 0;
            f->ahead++;
        }
    }
    return TUTTI_OK;
}

/* Messages that are complete, of those that have begun. */
static void advance(flow *f, tutti__tcp_direction *d, const struct iovec *messages, bool *moved)
{
    while (f->ahead > 0 && d->done == messages[d->step].iov_len) {
        f->ahead--;
        d->step++;
        d->done = 0;
        *moved = true;
    }
}

/* Takes parts that are done, in order. */
static void end_parts(flow *f, tutti__tcp_direction *d, const struct iovec *messages, bool sends,
                      bool *moved)
{
    advance(f, d, messages, moved); /* one that came with the head, and those without bytes */
    for (; f->n > 0 && f->parts[f->first].done; f->n--) {
        part *p = &f->parts[f->first];

        if (p->staged && !sends)
            memcpy((char *)messages[d->step].iov_base + d->done, p->slot, p->bytes);
        d->done += p->bytes;
        f->first = (f->first + 1) % WINDOW;
        *moved = true;
        advance(f, d, messages, moved);
    }
}

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

static tutti_status push_head(mpi_wire *w, tutti__channel *c, const tutti__tcp_row *row, peer *p,
                              bool *moved)
{
    flow *f = &p->out;

    if (!f->head_begun) {
        size_t small =
            row->n_out > 0 && row->out[0].iov_len <= SMALL_BYTES ? row->out[0].iov_len : 0;

        f->head_memory.signature = c->said;
        f->head_memory.part_bytes = wanted_part(w);
        p->part_bytes = f->head_memory.part_bytes > w->part_bytes ? 0 : w->part_bytes;
        if (small > 0)
            memcpy(f->head_memory.message, row->out[0].iov_base, small);
        f->ahead = small > 0;
        f->head.bytes = offsetof(head, message) + small;
        f->head_begun = f->fresh = true;
        TUTTI_TRY(start(w, &f->head, (char *)&f->head_memory, true, c->rank, TAG_HEAD));
        TUTTI_TRY(poll_requests(&w->base)); /* a small send is usually done at once */
    }
    if (!f->head.done)
        return TUTTI_OK;
    f->head_begun = false;
    c->out.head = sizeof c->said;
    c->out.done = f->head.bytes - offsetof(head, message);
    *moved = true;
    return TUTTI_OK;
}

/* The peer's head, which may have come early. */
static tutti_status pull_head(mpi_wire *w, tutti__channel *c, peer *p, bool *moved)
{
    flow *f = &p->in;
    early *came = p->early;

    if (!f->head_begun && came) {
        p->early = came->next;
        memcpy(&f->head_memory, &came->memory, came->bytes);
        f->head.got = came->bytes;
        f->head.done = true;
        free(came);
    } else if (!f->head_begun) {
        f->head.bytes = sizeof f->head_memory;
        TUTTI_TRY(start(w, &f->head, (char *)&f->head_memory, false, c->rank, TAG_HEAD));
    }
    f->head_begun = true;
    if (!f->head.done)
        return TUTTI_OK;
    f->head_begun = false;
    f->fresh = true;
    c->heard = f->head_memory.signature;
    if (p->part_bytes == 0) /* this rank has said that it would like large ones */
        p->part_bytes = f->head_memory.part_bytes;
    c->in.head = sizeof c->heard;
    *moved = true;
    return TUTTI_OK;
}

/* The first message, if it came with the head, once it is known where it goes. */
static void take_small(tutti__channel *c, const tutti__tcp_row *row, flow *f)
{
    size_t small = f->head.got - offsetof(head, message);

    if (f->head.got <= offsetof(head, message) || row->n_in == 0)
        return;
    if (small > row->in[0].iov_len) /* of another call, which fails */
        small = row->in[0].iov_len;
    memcpy(row->in[0].iov_base, f->head_memory.message, small);
    f->head.got = 0;
    f->ahead = 1;
    c->in.done = row->in[0].iov_len;
}

/* ---- The wire ----------------------------------------------------------------------------------------------------- */

static tutti_status connect_peer(tutti__tcp *tcp, tutti__channel *c, bool *connected)
{
    mpi_wire *w = wire_of(tcp);
    peer **p = &w->peers[c->rank];

    if (!*p)
        *p = calloc(1, sizeof **p);
    *connected = *p != NULL;
    return *p ? TUTTI_OK : fail_memory(w);
}

static tutti_status push(tutti__tcp *tcp, tutti__channel *c, bool *moved)
{
    mpi_wire *w = wire_of(tcp);
    const tutti__tcp_row *row = &tcp->rows[c->rank];
    flow *f = &w->peers[c->rank]->out;

    if (c->first && c->out.head == 0)
        TUTTI_TRY(push_head(w, c, row, w->peers[c->rank], moved));
    if (!c->first ||
        c->out.head > 0) /* parts may be done before it, but the first message comes first */
        end_parts(f, &c->out, row->out, true, moved);
    return begin_parts(w, c->rank, f, &c->out, row->out, row->n_out, true);
}

static tutti_status pull(tutti__tcp *tcp, tutti__channel *c, bool *moved)
{
    mpi_wire *w = wire_of(tcp);
    const tutti__tcp_row *row = &tcp->rows[c->rank];
    flow *f = &w->peers[c->rank]->in;

    if (c->first && c->in.head == 0)
        TUTTI_TRY(pull_head(w, c, w->peers[c->rank], moved));
    if (c->first && c->in.head > 0)
        take_small(c, row, f);
    end_parts(f, &c->in, row->in, false, moved);
    if (c->first && !c->checked)
        return TUTTI_OK;
    return begin_parts(w, c->rank, f, &c->in, row->in, row->n_in, false);
}

/* Heads of ranks for which no receive waits. */
static tutti_status take_early(mpi_wire *w)
{
    for (;;) {
        early *came = malloc(sizeof *came), **last;
        int rank = -1, error;
        bool connected;

        if (!came)
            return fail_memory(w);
        came->next = NULL;
        error = w->mpi->take(w->comm, &came->memory, sizeof came->memory, TAG_HEAD, &rank,
                             &came->bytes);
        if (error || rank < 0) {
            free(came);
            return error ? fail(w, error) : TUTTI_OK;
        }
        TUTTI_TRY(connect_peer(&w->base, &(tutti__channel){.rank = rank}, &connected));
        for (last = &w->peers[rank]->early; *last;)
            last = &(*last)->next;
        *last = came;
    }
}

static tutti_status look(tutti__tcp *tcp)
{
    mpi_wire *w = wire_of(tcp);
    const tutti__signature *mine = &tcp->schedule.op->signature;

    TUTTI_TRY(take_early(w));
    for (int r = 0; r < tcp->comm->size; r++) {
        tutti__signature heard;

        if (!w->peers[r] || !w->peers[r]->early || tcp->rows[r].channel > 0)
            continue;
        heard = w->peers[r]->early->memory.signature;
        if (heard.group == mine->group && heard.sequence <= mine->sequence)
            TUTTI_TRY(tutti__tcp_check_other(tcp, r, &heard));
    }
    return TUTTI_OK;
}

/* A peer whose head has not come, -1: none; `left`: that has left. */
static int not_heard(const tutti__tcp *tcp, bool left)
{
    for (int i = 0; i < tcp->n_channels; i++) {
        const tutti__channel *c = &tcp->channels[i];

        if (c->first && c->in.head == 0 && (!left || tutti__comm_has_left(tcp->comm, c->rank)))
            return c->rank;
    }
    return -1;
}

/* Its last messages may still be on their way, and here if this rank itself was stopped. */
static tutti_status check_left(mpi_wire *w, uint64_t idle_ns)
{
    int left = tutti__comm_any_left(w->base.comm) ? not_heard(&w->base, true) : -1;

    if (left < 0 || w->left_ns == 0) {
        w->left_ns = left < 0 ? 0 : idle_ns;
        w->left_polls = 0;
        return TUTTI_OK;
    }
    return ++w->left_polls > LEFT_POLLS && idle_ns - w->left_ns > LEFT_NS
               ? tutti__tcp_fail_lost(&w->base, left)
               : TUTTI_OK;
}

static tutti_status idle(tutti__tcp *tcp, uint64_t idle_ns)
{
    mpi_wire *w = wire_of(tcp);

    if (w->mpi->wait)
        return end_requests(w, true);
    if (idle_ns == 0 || idle_ns < w->left_ns) /* something has moved since */
        w->left_ns = 0;
    if (idle_ns < SPIN_NS && tcp->comm->local_size <= w->cores)
        return TUTTI_OK;
    if (idle_ns < YIELD_NS) {
        w->look_ns = (uint64_t)tcp->look_ms * 1000000;
        w->left_ns = 0;
        sched_yield();
        return TUTTI_OK;
    }
    TUTTI_TRY(check_left(w, idle_ns));
    if (idle_ns >= w->look_ns) {
        w->look_ns = idle_ns + (uint64_t)tcp->look_ms * 1000000;
        TUTTI_TRY(tutti__tcp_look_around(tcp));
    }
    if (idle_ns < YIELD_MOVING_NS && not_heard(tcp, false) < 0)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    return TUTTI_OK;
}

/* ---- Init, teardown ----------------------------------------------------------------------------------------------- */

static void free_flow(flow *f)
{
    for (int i = 0; i < WINDOW; i++)
        free(f->parts[i].slot);
}

static void free_wire(mpi_wire *w)
{
    for (int r = 0; w->peers && r < w->base.comm->size; r++) {
        peer *p = w->peers[r];

        if (!p)
            continue;
        free_flow(&p->out);
        free_flow(&p->in);
        while (p->early) {
            early *next = p->early->next;

            free(p->early);
            p->early = next;
        }
        free(p);
    }
    free(w->peers);
    free(w->requests);
    free(w->owners);
    free(w->bytes);
    free(w->done);
    tutti__tcp_clear(&w->base);
    free(w);
}

/* MPI may still use the memory of abandoned requests, and needs the communicator. */
static void keep_for_ever(mpi_wire *w)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static mpi_wire *kept;

    pthread_mutex_lock(&lock);
    w->next = kept;
    kept = w;
    pthread_mutex_unlock(&lock);
}

static void close_wire(tutti__tcp *tcp)
{
    mpi_wire *w = wire_of(tcp);
    bool failed = w->kept || tutti__comm_failed(tcp->comm);

    tutti__mpi_note_closed(failed);
    if (failed) {
        close(tcp->wake);
        keep_for_ever(w);
        return;
    }
    (void)w->mpi->free(&w->comm);
    free_wire(w);
}

static const tutti__wire_ops MPI = {.name = "mpi",
                                    .with_shared_memory = "shared memory + mpi",
                                    .lasting = true,
                                    .connect = connect_peer,
                                    .poll = poll_requests,
                                    .push = push,
                                    .pull = pull,
                                    .idle = idle,
                                    .look = look,
                                    .close = close_wire};

tutti_status tutti__mpi_wire_new(tutti__tcp **tcp_p, tutti__comm *comm, const tutti__mpi *mpi,
                                 tutti__mpi_comm mpi_comm)
{
    mpi_wire *w = tutti__alloc(sizeof *w);
    tutti_status status;

    *tcp_p = w ? &w->base : NULL;
    if (!w)
        return TUTTI_ERR_MEMORY;
    status = tutti__tcp_init(&w->base, &MPI, comm, 1);
    w->mpi = mpi;
    w->comm = mpi_comm;
    w->part_bytes = (uint32_t)tutti__comm_chunk_bytes(comm, PART_BYTES);
    w->whole_bytes = (uint32_t)tutti__comm_chunk_bytes(comm, WHOLE_BYTES);
    w->cores = tutti__cores();
    w->peers = calloc((size_t)comm->size, sizeof(peer *));
    if (status == TUTTI_OK && !w->peers)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", comm->size);
    if (status == TUTTI_OK) {
        tutti__mpi_note_open();
        return TUTTI_OK;
    }
    free_wire(w);
    *tcp_p = NULL;
    return status;
}

void tutti__mpi_wire_keep(tutti__tcp *tcp)
{
    wire_of(tcp)->kept = true;
}

tutti__mpi_comm tutti__mpi_wire_comm(const tutti__tcp *tcp)
{
    return ((const mpi_wire *)tcp)->comm;
}
