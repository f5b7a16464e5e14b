/* transport.c -- a group whose collectives are MPI's.   SPDX-License-Identifier: MIT
 *
 * Every operation begins with a small all_reduce that shows whether all ranks called the same, since MPI would crash, or mix
 * up bytes, where they did not; then the data move by one non-blocking collective, or by several in a row. Whoever runs it,
 * the communication thread or a caller who waits anyway, drives MPI by testing, and between tests looks after failures and
 * the time. Once ranks have agreed, each begins what was agreed, whatever it has heard meanwhile: others count on it. */
#include "comm/backend/backend.h"
#include "comm/backend/mpi/engine.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    WINDOW = 4, /* collectives of one operation in flight */
    TESTS = 16, /* between two looks at the clock */
    NAP_NS = 20000,
    GRACE_MS = 250, /* for the last that a rank sent before it left */
    DRAIN_MS = 500
};

/* Milliseconds of waiting until a rank yields its core, and until it naps between tests. */
static const double SPIN_MS = 0.05, NAP_AFTER_MS = 0.5, NAP_AFTER_MOVING_MS = 100;

/* ---- Waiting ------------------------------------------------------------------------------------------------ */

static tutti_status fail_mpi(tutti__mpi_state *s, const char *what, int error)
{
    char text[256];

    s->mpi->error_text(error, text, sizeof text);
    if (!s->base.comm->id) /* in the set-up */
        return tutti__fail(TUTTI_ERR_PEER, "%s reports, in %s: %s", s->mpi->name, what, text);
    return tutti__comm_fail(s->base.comm, TUTTI_ERR_PEER, -1, "rank %d: %s reports, in %s: %s",
                            s->base.comm->rank, s->mpi->name, what, text);
}

/* Of the set-up, in which ranks have no names yet. */
static tutti_status fail_setup_late(const tutti__mpi_state *s)
{
    return tutti__fail(TUTTI_ERR_PEER,
                       "waited %.3g s in vain for the other %d rank%s: one has died, hangs, or "
                       "makes its groups in another order",
                       s->base.comm->timeout_ms / 1e3, s->base.comm->size - 1,
                       s->base.comm->size == 2 ? "" : "s");
}

static tutti_status fail_late(tutti__mpi_state *s, const tutti__op *op)
{
    bool *missing = calloc((size_t)s->base.comm->size, sizeof *missing);
    tutti_status status;
    char text[TUTTI__SIGNATURE_TEXT];
    int n = 0;

    if (!missing)
        return tutti__comm_fail(s->base.comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    tutti__mpi_call_roll(s, op, missing);
    for (int r = 0; r < s->base.comm->size; r++)
        n += missing[r];
    tutti__signature_text(&op->signature, text, sizeof text);
    status = n > 0 ? tutti__comm_fail_late(s->base.comm, op, missing)
                   : tutti__comm_fail(s->base.comm, TUTTI_ERR_TIMEOUT, -1,
                                      "%s has not ended in %.3g s, although all ranks are in it: "
                                      "the network is slow or has failed (TUTTI_TIMEOUT_S or "
                                      "tutti_group_set_timeout sets the limit)",
                                      text, op->timeout_ms / 1e3);
    free(missing);
    return status;
}

/* Who has left will not come any more. *since: when that was noticed. */
static tutti_status check_left(tutti__mpi_state *s, double now, double *since)
{
    for (int r = 0; r < s->base.comm->size; r++) {
        if (!tutti__comm_has_left(s->base.comm, r))
            continue;
        *since = *since > 0 ? *since : now;
        if (now - *since > GRACE_MS)
            return tutti__comm_fail_lost(s->base.comm, r);
    }
    return TUTTI_OK;
}

static void relax(double waited, bool crowded, double nap_after)
{
    if (waited > nap_after)
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    else if (crowded || waited > SPIN_MS)
        sched_yield();
}

typedef struct patience {
    const tutti__op *op; /* NULL: in the set-up */
    double deadline;
    bool moving; /* all ranks are in it */
} patience;

/* Between tests: TUTTI_OK to go on. */
static tutti_status look_around(tutti__mpi_state *s, const patience *p, double waited, double *left)
{
    double now = tutti__now_ms();

    if (!p->op && s->base.comm->parent && tutti__comm_failed(s->base.comm->parent))
        return tutti__comm_error(s->base.comm->parent, NULL);
    if (p->op && tutti__comm_failed(s->base.comm))
        return tutti__comm_status(s->base.comm);
    if (p->op && waited > NAP_AFTER_MS) {
        tutti__mpi_answer(s, p->op);
        if (!p->moving)
            TUTTI_TRY(check_left(s, now, left));
    }
    if (now < p->deadline)
        return TUTTI_OK;
    return p->op ? fail_late(s, p->op) : fail_setup_late(s);
}

/* Until the request is done, the group has failed, or the time is up. */
static tutti_status await(tutti__mpi_state *s, tutti__mpi_request *request, const patience *p)
{
    double begin = tutti__now_ms(), waited = 0, left = 0;

    for (;;) {
        for (int i = 0; i < TESTS; i++) {
            bool done = false;
            int error = s->mpi->test(request, &done);

            if (error)
                return fail_mpi(s, p->op ? "a collective" : "the set-up", error);
            if (done)
                return TUTTI_OK;
        }
        waited = tutti__now_ms() - begin;
        TUTTI_TRY(look_around(s, p, waited, &left));
        relax(waited, s->base.comm->local_size > s->cores,
              p->moving ? NAP_AFTER_MOVING_MS : NAP_AFTER_MS);
    }
}

/* Of a group that has failed: lets what is under way come to its end, if it does soon. */
static void drain(tutti__mpi_state *s, tutti__mpi_request *request)
{
    double deadline = tutti__now_ms() + DRAIN_MS;
    bool done = false;

    while (!done && tutti__now_ms() < deadline) {
        if (s->mpi->test(request, &done) != 0)
            break;
        sched_yield();
    }
    s->abandoned = s->abandoned || !done;
}

/* Begins one collective and waits for it. */
static tutti_status call(tutti__mpi_state *s, const tutti__mpi_call *c, const patience *p)
{
    tutti__mpi_request request;
    int error = s->mpi->begin(c, &request);
    tutti_status status;

    if (error)
        return fail_mpi(s, tutti__op_name(c->kind), error);
    status = await(s, &request, p);
    if (status != TUTTI_OK && p->moving)
        drain(s, &request);
    else if (status != TUTTI_OK) /* it is in memory of ours, which can wait */
        s->abandoned = true;
    return status;
}

/* ---- Agreeing ------------------------------------------------------------------------------------------------- */

static tutti__mpi_call bytes_call(const tutti__mpi_state *s, tutti__op_kind kind, const void *src,
                                  void *dst, size_t bytes)
{
    return (tutti__mpi_call){
        .kind = kind, .comm = s->comm, .src = src, .dst = dst, .count = bytes, .dtype = TUTTI_U8};
}

static tutti_status reduce_verdict(tutti__mpi_state *s, const tutti__op *op, size_t n,
                                   tutti_redop redop)
{
    tutti__mpi_call c = {.kind = TUTTI__OP_ALL_REDUCE,
                         .comm = s->comm,
                         .src = s->verdict,
                         .dst = s->verdict,
                         .count = n,
                         .dtype = TUTTI_I64,
                         .redop = redop};

    return call(s, &c, &(patience){.op = op, .deadline = op->deadline});
}

/* All ranks call the same, or all learn the same two calls that differ. Nobody leaves before everybody has come. */
static tutti_status meet(tutti__mpi_state *s, const tutti__op *op)
{
    int64_t hash = (int64_t)tutti__hash64(&op->signature, sizeof op->signature);
    const patience moving = {.op = op, .deadline = op->deadline, .moving = true};
    tutti__mpi_call c;
    int r;

    s->verdict[0] = hash;
    s->verdict[1] = ~hash;
    TUTTI_TRY(reduce_verdict(s, op, 2, TUTTI_MIN));
    if (s->verdict[0] == ~s->verdict[1]) { /* the least is the greatest */
        for (r = 0; r < s->base.comm->size; r++)
            atomic_store_explicit(&s->base.comm->peers[r].seen, op->signature.sequence + 1,
                                  memory_order_relaxed);
        return TUTTI_OK;
    }
    s->mine = op->signature;
    c = bytes_call(s, TUTTI__OP_ALL_GATHER, &s->mine, s->signatures, sizeof s->mine);
    TUTTI_TRY(call(s, &c, &moving));
    for (r = 1; r < s->base.comm->size - 1 &&
                tutti__signature_equal(&s->signatures[r], &s->signatures[0]);)
        r++;
    return tutti__comm_fail_different(s->base.comm, 0, &s->signatures[0], r, &s->signatures[r]);
}

/* ---- Reducing and broadcasting: chunk by chunk ---------------------------------------------------------------- */

static size_t chunk_elements(const tutti__mpi_state *s, size_t element)
{
    size_t bytes =
        s->base.comm->tuning.chunk_bytes ? s->base.comm->tuning.chunk_bytes : s->mpi->chunk_bytes;

    return bytes > element ? bytes / element : 1;
}

/* Elements [at, at + n) of all that is called. */
static tutti__mpi_call part_of(const tutti__mpi_state *s, const tutti__op *op, size_t at, size_t n)
{
    size_t offset = at * tutti_dtype_size((tutti_dtype)op->signature.dtype);

    return (tutti__mpi_call){.kind = (tutti__op_kind)op->signature.op,
                             .comm = s->comm,
                             .src = (const char *)op->src + offset,
                             .dst = (char *)op->dst + offset,
                             .count = n,
                             .dtype = (tutti_dtype)op->signature.dtype,
                             .redop = (tutti_redop)op->signature.redop,
                             .root = (int)op->signature.root};
}

static void divide(const tutti__mpi_state *s, const tutti__op *op, void *p, size_t n)
{
    const void *src = p;

    if (op->signature.redop == TUTTI_AVG)
        tutti__average((tutti_dtype)op->signature.dtype, (size_t)s->base.comm->size, p, &src, 1, n);
}

/* Several chunks in flight: one is copied while another is reduced. */
static tutti_status by_chunks(tutti__mpi_state *s, const tutti__op *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           count = (size_t)op->signature.count, chunk = chunk_elements(s, element);
    size_t n_chunks = (count + chunk - 1) / chunk, begun = 0, done = 0;
    const patience moving = {.op = op, .deadline = op->deadline, .moving = true};
    bool divides =
        op->signature.op == TUTTI__OP_ALL_REDUCE ||
        (op->signature.op == TUTTI__OP_REDUCE && (int)op->signature.root == s->base.comm->rank);
    tutti__mpi_request requests[WINDOW];
    tutti_status status = TUTTI_OK;

    while (done < n_chunks && status == TUTTI_OK) {
        size_t at = done * chunk, n = count - at < chunk ? count - at : chunk;

        while (begun < n_chunks && begun - done < WINDOW && status == TUTTI_OK) {
            size_t next = begun * chunk;
            tutti__mpi_call c = part_of(s, op, next, count - next < chunk ? count - next : chunk);
            int error = s->mpi->begin(&c, &requests[begun % WINDOW]);

            if (error)
                status = fail_mpi(s, tutti__op_name(c.kind), error);
            else
                begun++;
        }
        if (status == TUTTI_OK)
            status = await(s, &requests[done % WINDOW], &moving);
        if (status != TUTTI_OK)
            break;
        if (divides)
            divide(s, op, (char *)op->dst + at * element, n);
        done++;
    }
    for (; done < begun; done++)
        drain(s, &requests[done % WINDOW]);
    return status;
}

/* The pieces of a chunk are brought together in scratch: that is where MPI wants them, and dst may lie in src. */
static tutti_status reduce_scatter(tutti__mpi_state *s, const tutti__op *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           count = (size_t)op->signature.count, size = (size_t)s->base.comm->size;
    size_t chunk = chunk_elements(s, element);
    const patience moving = {.op = op, .deadline = op->deadline, .moving = true};
    const char *src = op->src;

    if (!s->scratch) /* chunk * element is at most this, or one element */
        s->scratch = tutti__alloc_unset(size * chunk_elements(s, 1) + size * sizeof(int64_t));
    if (!s->scratch)
        return tutti__comm_fail(s->base.comm, TUTTI_ERR_MEMORY, s->base.comm->rank,
                                "rank %d has no memory for a chunk of each rank",
                                s->base.comm->rank);
    for (size_t at = 0; at < count; at += chunk) {
        size_t n = count - at < chunk ? count - at : chunk;
        tutti__mpi_call c = part_of(s, op, at, n);

        for (size_t r = 0; r < size; r++)
            memcpy(s->scratch + r * n * element, src + (r * count + at) * element, n * element);
        c.src = s->scratch;
        TUTTI_TRY(call(s, &c, &moving));
        divide(s, op, c.dst, n);
    }
    return TUTTI_OK;
}

/* ---- Moving pieces --------------------------------------------------------------------------------------------- */

/* What goes wrong in an uneven operation, as numbers of which the greatest is everybody's verdict. */
static int64_t judge_counts(const tutti__mpi_state *s, const tutti__op *op)
{
    size_t out = tutti__op_given(s->base.comm->rank, s->base.comm->size, op), in = 0;
    int64_t verdict = 0;

    for (int from = 0; from < s->base.comm->size; from++) {
        in += op->dst_counts[from];
        if (s->counts[s->base.comm->size + from] != (int64_t)op->dst_counts[from])
            verdict = 1 + (int64_t)from * s->base.comm->size + s->base.comm->rank;
    }
    if (verdict == 0 && (in > INT_MAX || out > INT_MAX))
        verdict = 1 + (int64_t)s->base.comm->size * s->base.comm->size + s->base.comm->rank;
    return verdict;
}

/* Ranks give the same counts for what goes from one to the other, or all learn which two do not. */
static tutti_status agree_on_counts(tutti__mpi_state *s, const tutti__op *op)
{
    const patience moving = {.op = op, .deadline = op->deadline, .moving = true};
    tutti__mpi_call c = bytes_call(s, TUTTI__OP_ALL_TO_ALL, s->counts,
                                   s->counts + s->base.comm->size, sizeof *s->counts);
    int from, to;

    for (int r = 0; r < s->base.comm->size; r++)
        s->counts[r] = (int64_t)tutti__piece_out(op, s->base.comm->rank, r).count;
    TUTTI_TRY(call(s, &c, &moving));
    s->verdict[0] = judge_counts(s, op);
    TUTTI_TRY(reduce_verdict(s, op, 1, TUTTI_MAX));
    if (s->verdict[0] == 0)
        return TUTTI_OK;
    from = (int)((s->verdict[0] - 1) / s->base.comm->size);
    to = (int)((s->verdict[0] - 1) % s->base.comm->size);
    if (from == s->base.comm->size)
        return tutti__comm_fail(s->base.comm, TUTTI_ERR_UNSUPPORTED, to,
                                "%s over MPI moves at most %d elements a rank, but rank %d has "
                                "more: call it for parts of them",
                                tutti__op_name((tutti__op_kind)op->signature.op), INT_MAX, to);
    s->verdict[0] = s->counts[s->base.comm->size + from];
    s->verdict[1] = (int64_t)op->dst_counts[from];
    c = bytes_call(s, TUTTI__OP_BROADCAST, s->verdict, s->verdict, sizeof s->verdict);
    c.root = to;
    TUTTI_TRY(call(s, &c, &moving));
    return tutti__comm_check_sent(s->base.comm, &op->signature, from, to, (size_t)s->verdict[0],
                                  (size_t)s->verdict[1]);
}

static tutti_status move_uneven(tutti__mpi_state *s, const tutti__op *op)
{
    const patience moving = {.op = op, .deadline = op->deadline, .moving = true};
    tutti__mpi_call c = part_of(s, op, 0, 0);
    int n = s->base.comm->size;

    TUTTI_TRY(agree_on_counts(s, op));
    for (int r = 0; r < n; r++) {
        tutti__piece out = tutti__piece_out(op, s->base.comm->rank, r),
                     in = tutti__piece_in(s->base.comm->rank, op, r);

        s->pieces[r] = (int)out.count;
        s->pieces[n + r] = (int)out.at;
        s->pieces[2 * n + r] = (int)in.count;
        s->pieces[3 * n + r] = (int)in.at;
    }
    c.src_counts = s->pieces;
    c.src_at = s->pieces + n;
    c.dst_counts = s->pieces + 2 * n;
    c.dst_at = s->pieces + 3 * n;
    return call(s, &c, &moving);
}

static tutti_status move_even(tutti__mpi_state *s, const tutti__op *op)
{
    const patience moving = {.op = op, .deadline = op->deadline, .moving = true};
    tutti__mpi_call c = part_of(s, op, 0, (size_t)op->signature.count);

    return call(s, &c, &moving);
}

/* ---- Operations --------------------------------------------------------------------------------------------------- */

static tutti_status alloc(tutti__mpi_state *s, const tutti__op *op)
{
    tutti_status status = tutti__plain_alloc(&s->memory, op);

    if (status != TUTTI_OK) /* the others have theirs: they must not go on without this rank */
        (void)tutti__comm_fail(s->base.comm, status, s->base.comm->rank, "rank %d: %s",
                               s->base.comm->rank, tutti_last_error());
    return status;
}

static tutti_status run(tutti__engine *engine, tutti__op *op)
{
    tutti__mpi_state *s = (tutti__mpi_state *)engine;

    TUTTI_TRY(meet(s, op));
    if (op->signature.op == TUTTI__OP_ALLOC)
        return alloc(s, op);
    if (tutti__op_is_empty(op))
        return TUTTI_OK;
    switch (op->signature.op) {
    case TUTTI__OP_ALL_REDUCE:
    case TUTTI__OP_REDUCE:
    case TUTTI__OP_BROADCAST:
        return by_chunks(s, op);
    case TUTTI__OP_REDUCE_SCATTER:
        return reduce_scatter(s, op);
    default:
        return tutti__op_traits_of(op)->uneven ? move_uneven(s, op) : move_even(s, op);
    }
}

/* ---- Init, teardown ----------------------------------------------------------------------------------------------- */

static void free_state(tutti__mpi_state *s)
{
    free(s->signatures);
    free(s->counts);
    free(s->pieces);
    free(s->scratch);
    free(s);
}

/* What a dead group leaves under way, MPI may still read or write: that memory stays, with the communicator. */
static void leave_behind(tutti__mpi_state *s)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tutti__mpi_state *left_behind;

    pthread_mutex_lock(&lock);
    s->next = left_behind;
    left_behind = s;
    pthread_mutex_unlock(&lock);
}

static void close_engine(tutti__engine *engine)
{
    tutti__mpi_state *s = (tutti__mpi_state *)engine;
    bool dead = !s->usable || s->abandoned || tutti__comm_failed(s->base.comm);

    tutti__mpi_note_closed(dead);
    if (!s->abandoned)
        tutti__plain_destroy(&s->memory);
    if (dead) {
        leave_behind(s);
        return;
    }
    (void)s->mpi->free(&s->comm);
    free_state(s);
}

static void release(tutti__engine *engine, void *p)
{
    tutti__plain_release(&((tutti__mpi_state *)engine)->memory, engine->comm, p);
}

static const tutti__engine_ops MPI = {
    .name = "mpi", .run = run, .release = release, .close = close_engine};

static tutti__mpi_state *state_new(tutti__comm *comm)
{
    size_t n = (size_t)comm->size;
    tutti__mpi_state *s = tutti__alloc(sizeof *s);

    if (!s)
        return NULL;
    s->base = (tutti__engine){&MPI, comm};
    s->mpi = tutti__mpi_loaded();
    s->cores = tutti__cores();
    s->signatures = calloc(n, sizeof *s->signatures);
    s->counts = calloc(2 * n, sizeof *s->counts);
    s->pieces = calloc(4 * n, sizeof *s->pieces);
    tutti__plain_init(&s->memory);
    if (s->signatures && s->counts && s->pieces)
        return s;
    free_state(s);
    (void)tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", comm->size);
    return NULL;
}

static tutti_status make_comm(tutti__mpi_state *s, const tutti__mpi_state *parent, const int *ranks,
                              int tag, double deadline)
{
    tutti__mpi_request request;
    int error;

    if (parent) {
        error = s->mpi->sub(parent->comm, ranks, s->base.comm->size, tag, &s->comm);
    } else {
        error = s->mpi->dup(tutti__mpi_world_comm(), &s->comm, &request);
        if (!error)
            TUTTI_TRY(await(s, &request, &(patience){.deadline = deadline}));
    }
    if (!error)
        error = s->mpi->return_errors(s->comm);
    if (error)
        return fail_mpi(s, "making a communicator", error);
    s->usable = true;
    return TUTTI_OK;
}

tutti_status tutti__mpi_open(tutti__engine **engine_p, tutti__comm *comm, tutti__engine *parent,
                             const int *ranks, int tag, double deadline)
{
    tutti__mpi_state *s = state_new(comm);

    *engine_p = s ? &s->base : NULL;
    if (!s)
        return TUTTI_ERR_MEMORY;
    tutti__mpi_note_open();
    return make_comm(s, (tutti__mpi_state *)parent, ranks, tag, deadline);
}

tutti_status tutti__mpi_exchange(tutti__engine *engine, const void *mine, void *all, size_t bytes,
                                 double deadline)
{
    tutti__mpi_state *s = (tutti__mpi_state *)engine;
    size_t n = (size_t)engine->comm->size;
    tutti__mpi_call c;

    s->scratch = tutti__alloc((n + 1) * bytes);
    if (!s->scratch)
        return TUTTI_ERR_MEMORY;
    memcpy(s->scratch + n * bytes, mine, bytes);
    c = bytes_call(s, TUTTI__OP_ALL_GATHER, s->scratch + n * bytes, s->scratch, bytes);
    TUTTI_TRY(call(s, &c, &(patience){.deadline = deadline}));
    memcpy(all, s->scratch, n * bytes);
    free(s->scratch);
    s->scratch = NULL;
    return TUTTI_OK;
}
