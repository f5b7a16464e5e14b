/* hierarchy.c -- several hosts: shared memory inside each, TCP between them.   SPDX-License-Identifier: MIT
 *
 * Every host's ranks form a group of their own (`local`), whose memory they all see. The i-th rank of every host moves the
 * i-th shard of the data between the hosts, over its own connections:
 *
 *     all_reduce   it sums its shard over its host's ranks, piece by piece, while earlier pieces are summed between the
 *                  hosts (shares.c), and writes each result into the memory of all ranks of its host
 *     broadcast    on root's host it sends its shard of root's memory; elsewhere it writes what comes into everyone's
 *     all_gather   a rank's piece goes once to each other host, to one rank there, which writes it into everyone's memory
 *     reduce_scatter   the reverse: on each host one rank sums what its host has for a rank of another, and sends that
 *
 * Only the ends of a call, or of a block where some memory cannot be read by peers, are meetings. A host with more ranks
 * than another has some that move no shard. What only moves pieces between pairs of ranks goes straight, by TCP.
 *
 * Sums are those of the hosts, in the order of their first ranks, of the sums of their ranks, in rank order. 16-bit types
 * are rounded once a host and once in all; their averages are divided inside the host, so that they cannot overflow. */
#include "comm/algorithm/tcp.h"
#include "comm/core/reduce.h"
#include "comm/engine/engine.h"
#include "comm/transport/shared_memory/shm.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 4 << 20, CHUNK_BYTES = 256 << 10, SMALL_BYTES = 8 << 10, LAG_MS = 500 };

typedef struct hierarchy {
    tutti__engine base;
    tutti__wire *wire;
    tutti__comm *host;     /* this host's ranks */
    tutti__shm *shm;       /* their memory */
    int n_hosts, n_shards; /* n_shards: the least number of ranks on a host */
    int *hosts, *places;   /* of each rank: its host, and which of that host's ranks it is */
    int *cross;            /* of each host: the rank at this one's place, if that moves a shard */
    /* Ranks of other hosts that this one exchanges pieces with: those it gives its own, those whose it takes for its host. */
    int *links, n_links;
    bool *gives, *takes, *moved;
    char *stage; /* this host's ranks' parts, for memory that peers cannot read */
    size_t stage_stride, block_bytes;
    char **at;        /* of each local rank: its buffer, NULL if that is staged */
    char **here;      /* its block */
    const void **src; /* room for as many as there are ranks */
} hierarchy;

/* One call. */
typedef struct job {
    tutti__comm *comm;
    hierarchy *h;
    tutti__op *op;
    tutti_dtype dtype;
    size_t element, count, block; /* block: elements */
    int me;                       /* this rank's place */
    bool gives;                   /* what its buffer held counts */
    bool staged, any_staged;      /* this rank's buffer; any of this host's */
    size_t shard;                 /* where this rank's begins in the block */
} job;

/* ---- Where things lie ------------------------------------------------------------------------------------------- */

static char *stage_of(const hierarchy *h, int place)
{
    return h->stage + (size_t)place * h->stage_stride;
}

/* The part of n elements of a block that this rank moves, of `shards`; j->shard: where it begins. */
static size_t take_shard(job *j, size_t n, int shards)
{
    tutti__piece part = tutti__part(n, (size_t)shards, (size_t)j->me, 64 / j->element);

    j->shard = part.at;
    return part.count;
}

/* How many ranks a host share the work: little is better left to one. */
static int shards_of(const job *j)
{
    return j->count * j->element <= SMALL_BYTES ? 1 : j->h->n_shards;
}

/* Who has not come is judged first inside the hosts, then between them, then by those who wait for their result: a rank
 * that waits for another is not the one to blame. */
static void next_stage(const job *j)
{
    double lag = (double)j->op->timeout_ms / 16;

    j->op->deadline += lag < LAG_MS ? lag : LAG_MS;
}

/* Says where this rank's buffer lies, or that it goes through the stage. */
static void declare(job *j, const void *p, size_t bytes)
{
    j->staged = !tutti__shm_declare(j->h->shm, j->op, p, bytes) && bytes > 0;
}

/* Meets this host's ranks, who then know each other's buffers. */
static tutti_status begin(job *j, size_t bytes)
{
    hierarchy *h = j->h;

    TUTTI_TRY(tutti__shm_enter(h->shm, j->op));
    next_stage(j);
    if (bytes == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__shm_find_contributions(h->shm, 0, h->host->size, h->at));
    for (int r = 0; r < h->host->size; r++)
        j->any_staged = j->any_staged || !h->at[r];
    return TUTTI_OK;
}

/* Declares dst, with its first block on the stage if it must, and begins. */
static tutti_status begin_in_place(job *j)
{
    size_t bytes = j->count * j->element, block = j->block * j->element;

    declare(j, j->op->dst, bytes);
    if (j->staged && j->gives)
        memcpy(stage_of(j->h, j->me), j->op->dst, bytes < block ? bytes : block);
    return begin(j, bytes);
}

/* From one block to the next: everyone has done with the last. */
static tutti_status enter_block(job *j, size_t first, size_t n)
{
    hierarchy *h = j->h;

    if (first > 0 && j->any_staged) {
        if (j->staged && j->gives)
            memcpy(stage_of(h, j->me), (char *)j->op->dst + first * j->element, n * j->element);
        TUTTI_TRY(tutti__shm_barrier(h->shm, j->op));
    }
    for (int r = 0; r < h->host->size; r++)
        h->here[r] = h->at[r] ? h->at[r] + first * j->element : stage_of(h, r);
    return TUTTI_OK;
}

static tutti_status leave_block(job *j, size_t first, size_t n)
{
    if (first == 0)
        next_stage(j);
    if (j->any_staged || first + n == j->count)
        TUTTI_TRY(tutti__shm_barrier(j->h->shm, j->op));
    if (j->staged)
        memcpy((char *)j->op->dst + first * j->element, stage_of(j->h, j->me), n * j->element);
    return TUTTI_OK;
}

/* ---- all_reduce --------------------------------------------------------------------------------------------------- */

static bool is_half(tutti_dtype dtype)
{
    return tutti_dtype_size(dtype) == 2;
}

/* The sum over this host's ranks of what h->src points at. */
static void sum_over_host(const job *j, void *dst, size_t n)
{
    const hierarchy *h = j->h;
    tutti_redop op = (tutti_redop)j->op->signature.redop;

    if (op == TUTTI_AVG && is_half(j->dtype))
        tutti__average(j->dtype, (size_t)j->comm->size, dst, h->src, (size_t)h->host->size, n);
    else
        tutti__reduce(j->dtype, op == TUTTI_AVG ? TUTTI_SUM : op, &dst, 1, h->src,
                      (size_t)h->host->size, n);
}

/* This host's sum of a piece of the shard, into this rank's memory. */
static void sum_here(void *self, size_t begin, size_t n)
{
    const job *j = self;
    hierarchy *h = j->h;
    bool divides = j->op->signature.redop == TUTTI_AVG && is_half(j->dtype);
    size_t at = (j->shard + begin) * j->element;

    if (h->host->size == 1 && !divides)
        return;
    for (int r = 0; r < h->host->size; r++)
        h->src[r] = h->here[r] + at;
    sum_over_host(j, h->here[j->me] + at, n);
}

/* A piece of the shard is complete: into the memory of the other ranks of this host. */
static void hand_out(void *self, size_t begin, size_t n)
{
    const job *j = self;
    size_t at = (j->shard + begin) * j->element;

    for (int i = 1; i < j->h->host->size; i++) {
        int r = (j->me + i) % j->h->host->size;

        memcpy(j->h->here[r] + at, j->h->here[j->me] + at, n * j->element);
    }
}

static tutti_status all_reduce(job *j)
{
    hierarchy *h = j->h;
    tutti_redop op = (tutti_redop)j->op->signature.redop;
    int shards = shards_of(j);

    TUTTI_TRY(begin_in_place(j));
    for (size_t first = 0, n; first < j->count; first += n) {
        n = j->count - first < j->block ? j->count - first : j->block;
        TUTTI_TRY(enter_block(j, first, n));
        if (j->me < shards) {
            tutti__direct shares = {.ranks = h->cross,
                                    .n = h->n_hosts,
                                    .me = h->hosts[j->comm->rank],
                                    .redop = op == TUTTI_AVG && is_half(j->dtype) ? TUTTI_SUM : op,
                                    .divisor = (size_t)j->comm->size,
                                    .prepare = sum_here,
                                    .finish = hand_out,
                                    .self = j};

            shares.count = take_shard(j, n, shards);
            shares.p = h->here[j->me] + j->shard * j->element;
            TUTTI_TRY(tutti__tcp_all_reduce(j->h->wire, j->op, first == 0, &shares));
        }
        TUTTI_TRY(leave_block(j, first, n));
    }
    return TUTTI_OK;
}

/* ---- broadcast ------------------------------------------------------------------------------------------------------ */

typedef struct cast {
    tutti__schedule schedule;
    job *j;
    int root_host; /* number in `cross` */
    char *p;       /* this rank's shard: in root's memory on its host, else its own */
    size_t count, chunk, n_handed; /* elements; chunks handed out */
} cast;

static struct iovec cast_chunk(const cast *c, size_t step)
{
    size_t begin = step * c->chunk, left = c->count - begin;

    return (struct iovec){c->p + begin * c->j->element,
                          (left < c->chunk ? left : c->chunk) * c->j->element};
}

static bool cast_out(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const cast *c = (const cast *)schedule;

    (void)i;
    *io = cast_chunk(c, step);
    if (c->j->h->hosts[c->j->comm->rank] != c->root_host)
        io->iov_len = 0;
    return true;
}

static bool cast_in(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const cast *c = (const cast *)schedule;

    *io = cast_chunk(c, step);
    if (i != c->root_host)
        io->iov_len = 0;
    return true;
}

static void cast_came(tutti__schedule *schedule)
{
    cast *c = (cast *)schedule;
    size_t came = tutti__wire_came(c->j->h->wire, schedule, c->root_host);

    if (c->j->h->hosts[c->j->comm->rank] == c->root_host)
        return;
    for (; c->n_handed < came; c->n_handed++)
        hand_out(c->j, c->n_handed * c->chunk, cast_chunk(c, c->n_handed).iov_len / c->j->element);
}

/* The shard of n elements of the block travels to all hosts. */
static tutti_status cast_shard(job *j, size_t n, int shards, bool heads)
{
    hierarchy *h = j->h;
    int root = (int)j->op->signature.root;
    bool here = h->hosts[root] == h->hosts[j->comm->rank];
    cast c = {.schedule = {.op = j->op,
                           .heads = heads,
                           .ranks = h->cross,
                           .n_ranks = h->n_hosts,
                           .out = cast_out,
                           .in = cast_in,
                           .came = cast_came},
              .j = j,
              .root_host = h->hosts[root],
              .chunk = CHUNK_BYTES / j->element};

    c.count = take_shard(j, n, shards);
    c.p = h->here[here ? h->places[root] : j->me] + j->shard * j->element;
    c.schedule.n_steps = (c.count + c.chunk - 1) / c.chunk;
    c.schedule.bytes = tutti__signature_bytes(&j->op->signature);
    TUTTI_TRY(tutti__wire_run(j->h->wire, &c.schedule));
    return TUTTI_OK;
}

static tutti_status broadcast(job *j)
{
    hierarchy *h = j->h;
    int root = (int)j->op->signature.root, shards = shards_of(j);
    bool here = h->hosts[root] == h->hosts[j->comm->rank];

    TUTTI_TRY(begin_in_place(j));
    for (size_t first = 0, n; first < j->count; first += n) {
        n = j->count - first < j->block ? j->count - first : j->block;
        TUTTI_TRY(enter_block(j, first, n));
        if (here && j->comm->rank != root)
            memcpy(h->here[j->me], h->here[h->places[root]], n * j->element);
        if (j->me < shards)
            TUTTI_TRY(cast_shard(j, n, shards, first == 0));
        TUTTI_TRY(leave_block(j, first, n));
    }
    return TUTTI_OK;
}

/* ---- all_gather and reduce_scatter -------------------------------------------------------------------------------- */

/* A lot: elements [first, first + n) of every rank's piece. */
typedef struct lot {
    tutti__schedule schedule;
    job *j;
    size_t most, first, n;
    char *sums;  /* reduce_scatter: for each rank, what goes to it or has come from it */
    bool *moved; /* of each link: handed out, or summed */
} lot;

/* Piece q as the rank at that place has it. */
static char *piece_of(const lot *l, int place, int q)
{
    const job *j = l->j;
    char *at = j->h->at[place];

    return at ? at + ((size_t)q * j->count + l->first) * j->element
              : stage_of(j->h, place) + (size_t)q * l->most * j->element;
}

static char *sum_of(const lot *l, int rank)
{
    return l->sums + (size_t)rank * l->most * l->j->element;
}

static bool gather_out(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const lot *l = (const lot *)schedule;
    const job *j = l->j;

    (void)step;
    *io = (struct iovec){(char *)(uintptr_t)j->op->src + l->first * j->element,
                         j->h->gives[i] ? l->n * j->element : 0};
    return true;
}

static bool gather_in(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const lot *l = (const lot *)schedule;
    const hierarchy *h = l->j->h;

    (void)step;
    *io =
        (struct iovec){piece_of(l, l->j->me, h->links[i]), h->takes[i] ? l->n * l->j->element : 0};
    return true;
}

/* A piece into the memory of all ranks of this host that lack it. */
static void spread(const lot *l, int q, const char *piece)
{
    const job *j = l->j;

    for (int i = 0; i < j->h->host->size; i++) {
        char *to = piece_of(l, (j->me + i) % j->h->host->size, q);

        if (to != piece)
            memcpy(to, piece, l->n * j->element);
    }
}

static void gather_came(tutti__schedule *schedule)
{
    lot *l = (lot *)schedule;
    const hierarchy *h = l->j->h;

    for (int i = 0; i < h->n_links; i++)
        if (h->takes[i] && !l->moved[i] && tutti__wire_came(l->j->h->wire, schedule, i) == 1) {
            spread(l, h->links[i], piece_of(l, l->j->me, h->links[i]));
            l->moved[i] = true;
        }
}

/* What this host has for rank q, summed. */
static void sum_piece(const lot *l, int q)
{
    hierarchy *h = l->j->h;

    for (int r = 0; r < h->host->size; r++)
        h->src[r] = piece_of(l, r, q);
    sum_over_host(l->j, sum_of(l, q), l->n);
}

static bool scatter_out(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const lot *l = (const lot *)schedule;
    const hierarchy *h = l->j->h;
    int q = h->links[i];

    (void)step;
    *io = (struct iovec){sum_of(l, q), h->takes[i] ? l->n * l->j->element : 0};
    if (h->takes[i] && !l->moved[i]) {
        sum_piece(l, q);
        l->moved[i] = true;
    }
    return true;
}

/* Sums that come lie behind those that go. */
static bool scatter_in(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const lot *l = (const lot *)schedule;
    const hierarchy *h = l->j->h;

    (void)step;
    *io = (struct iovec){sum_of(l, l->j->comm->size + h->hosts[h->links[i]]),
                         h->gives[i] ? l->n * l->j->element : 0};
    return true;
}

static void finish_scatter(const lot *l)
{
    const job *j = l->j;
    hierarchy *h = j->h;
    tutti_redop op = (tutti_redop)j->op->signature.redop;
    int rank = j->comm->rank;
    void *dst = (char *)j->op->dst + l->first * j->element;

    sum_piece(l, rank);
    for (int i = 0; i < h->n_hosts; i++)
        h->src[i] = i == h->hosts[rank] ? sum_of(l, rank) : sum_of(l, j->comm->size + i);
    if (op == TUTTI_AVG && !is_half(j->dtype))
        tutti__average(j->dtype, (size_t)j->comm->size, dst, h->src, (size_t)h->n_hosts, l->n);
    else
        tutti__reduce(j->dtype, op == TUTTI_AVG ? TUTTI_SUM : op, &dst, 1, h->src,
                      (size_t)h->n_hosts, l->n);
}

/* Between the stage and this rank's own memory: every piece of the lot. */
static void copy_lot(const lot *l, char *own, bool in)
{
    const job *j = l->j;

    for (int q = 0; q < j->comm->size; q++) {
        char *mine = own + ((size_t)q * j->count + l->first) * j->element,
             *staged = stage_of(j->h, j->me) + (size_t)q * l->most * j->element;

        memcpy(in ? staged : mine, in ? mine : staged, l->n * j->element);
    }
}

static tutti_status run_lot(lot *l, bool scatters)
{
    job *j = l->j;
    hierarchy *h = j->h;
    bool last = l->first + l->n == j->count;

    if (l->first > 0 && j->any_staged) {
        if (scatters && j->staged)
            copy_lot(l, (char *)(uintptr_t)j->op->src, true);
        TUTTI_TRY(tutti__shm_barrier(h->shm, j->op));
    }
    memset(l->moved, 0, (size_t)h->n_links * sizeof *l->moved);
    l->schedule.heads = l->first == 0;
    if (!scatters)
        spread(l, j->comm->rank, (const char *)j->op->src + l->first * j->element);
    TUTTI_TRY(tutti__wire_run(j->h->wire, &l->schedule));
    if (scatters)
        finish_scatter(l);
    if (l->first == 0)
        next_stage(j);
    if (j->any_staged || last)
        TUTTI_TRY(tutti__shm_barrier(h->shm, j->op));
    if (!scatters && j->staged)
        copy_lot(l, j->op->dst, false);
    return TUTTI_OK;
}

static tutti_status gather_or_scatter(job *j, bool scatters)
{
    hierarchy *h = j->h;
    size_t size = (size_t)j->comm->size, bytes = size * j->count * j->element;
    char *whole = scatters ? (char *)(uintptr_t)j->op->src : j->op->dst;
    lot l = {.schedule = {.op = j->op,
                          .n_steps = 1,
                          .ranks = h->links,
                          .n_ranks = h->n_links,
                          .out = scatters ? scatter_out : gather_out,
                          .in = scatters ? scatter_in : gather_in,
                          .came = scatters ? NULL : gather_came},
             .j = j,
             .most = j->block / size < j->count ? j->block / size : j->count,
             .moved = h->moved};

    l.n = l.most;
    l.schedule.bytes = bytes;
    if (scatters) {
        l.sums = tutti__wire_scratch(j->h->wire, (size + (size_t)h->n_hosts) * l.most * j->element);
        if (!l.sums)
            return tutti__comm_status(j->comm);
    }
    declare(j, whole, bytes);
    if (scatters && j->staged)
        copy_lot(&l, whole, true);
    TUTTI_TRY(begin(j, bytes));
    for (; l.first < j->count; l.first += l.n) {
        l.n = j->count - l.first < l.most ? j->count - l.first : l.most;
        TUTTI_TRY(run_lot(&l, scatters));
    }
    return TUTTI_OK;
}

/* ---- The others ------------------------------------------------------------------------------------------------------ */

/* The first ranks of all hosts compare their calls. */
static tutti_status meet_hosts(job *j)
{
    tutti__schedule schedule = {
        .op = j->op, .heads = true, .ranks = j->h->cross, .n_ranks = j->h->n_hosts};

    return j->me == 0 ? tutti__wire_run(j->h->wire, &schedule) : TUTTI_OK;
}

/* Nobody leaves before everybody has come. */
static tutti_status meet_all(job *j)
{
    declare(j, NULL, 0);
    TUTTI_TRY(begin(j, 0));
    TUTTI_TRY(meet_hosts(j));
    next_stage(j);
    return tutti__shm_barrier(j->h->shm, j->op);
}

static tutti_status alloc(job *j, tutti__op *op)
{
    tutti__comm *comm = j->comm;
    tutti_status status = tutti__shm_alloc(j->h->shm, op);

    if (status != TUTTI_OK) { /* the others have theirs: they must not go on without this host */
        if (!tutti__comm_failed(comm))
            (void)tutti__comm_fail(comm, status, comm->rank, "rank %d: %s", comm->rank,
                                   tutti_last_error());
        return status;
    }
    TUTTI_TRY(meet_hosts(j));
    next_stage(j);
    return tutti__shm_barrier(j->h->shm, j->op);
}

static tutti_status run(tutti__engine *engine, tutti__op *op)
{
    hierarchy *h = (hierarchy *)engine;
    job j = {.comm = engine->comm,
             .h = h,
             .op = op,
             .dtype = (tutti_dtype)op->signature.dtype,
             .element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
             .count = (size_t)op->signature.count,
             .me = h->places[engine->comm->rank],
             .gives = op->signature.op != TUTTI__OP_BROADCAST ||
                      op->signature.root == (uint32_t)engine->comm->rank};

    j.block = h->block_bytes / j.element;
    if (op->signature.op == TUTTI__OP_ALLOC)
        return alloc(&j, op);
    if (tutti__op_is_empty(op))
        return meet_all(&j);
    if (op->signature.op == TUTTI__OP_ALL_REDUCE)
        return all_reduce(&j);
    if (op->signature.op == TUTTI__OP_BROADCAST)
        return broadcast(&j);
    if ((op->signature.op == TUTTI__OP_ALL_GATHER ||
         op->signature.op == TUTTI__OP_REDUCE_SCATTER) &&
        j.block >= (size_t)engine->comm->size)
        return gather_or_scatter(&j, op->signature.op == TUTTI__OP_REDUCE_SCATTER);
    declare(&j, NULL, 0);
    TUTTI_TRY(begin(&j, 0)); /* a rank of this host that calls something else may wait only there */
    return tutti__tcp_run(h->wire, op);
}

/* ---- Init, teardown ----------------------------------------------------------------------------------------------- */

static void wake(tutti__engine *engine, int rank)
{
    const hierarchy *h = (const hierarchy *)engine;

    tutti__wire_wake(h->wire);
    if (rank < 0 || h->hosts[rank] == h->hosts[engine->comm->rank])
        tutti__shm_wake_all(h->shm);
}

static void see(tutti__engine *engine)
{
    const hierarchy *h = (const hierarchy *)engine;

    tutti__shm_see(h->shm);
    for (int r = 0; r < h->host->size; r++) {
        uint64_t seen = atomic_load(&h->host->peers[r].seen);
        _Atomic uint64_t *known = &engine->comm->peers[h->host->outer_ranks[r]].seen;

        if (atomic_load(known) < seen)
            atomic_store(known, seen);
    }
}

static void release(tutti__engine *engine, void *p)
{
    tutti__shm_release(((hierarchy *)engine)->shm, p);
}

static void free_host(tutti__comm *host, tutti__shm *shm)
{
    tutti__shm_close(shm);
    tutti__comm_destroy(host);
    free(host);
}

static void close_engine(tutti__engine *engine)
{
    hierarchy *h = (hierarchy *)engine;

    free_host(h->host, h->shm);
    tutti__wire_free(h->wire);
    free(h->hosts);
    free(h->places);
    free(h->cross);
    free(h->links);
    free(h->gives);
    free(h->takes);
    free(h->moved);
    free(h->at);
    free(h->here);
    free(h->src);
    free(h);
}

static const tutti__engine_ops HIERARCHICAL = {.name = "shared memory + tcp",
                                               .run = run,
                                               .wake = wake,
                                               .see = see,
                                               .release = release,
                                               .close = close_engine};

/* Numbers the hosts in the order of their first ranks, and the ranks on each. */
static void number_hosts(hierarchy *h, const uint64_t *host_ids, int size)
{
    int n_here[2] = {0, 0};

    h->n_shards = size;
    for (int r = 0; r < size; r++) {
        int first = 0;

        while (host_ids[first] != host_ids[r])
            first++;
        h->hosts[r] = first == r ? h->n_hosts++ : h->hosts[first];
        n_here[0] = n_here[1] = 0;
        for (int other = 0; other < size; other++)
            if (host_ids[other] == host_ids[r])
                n_here[other < r]++;
        h->places[r] = n_here[1];
        if (n_here[0] + n_here[1] < h->n_shards)
            h->n_shards = n_here[0] + n_here[1];
    }
}

static int ranks_of(const hierarchy *h, int host, int size)
{
    int n = 0;

    for (int r = 0; r < size; r++)
        n += h->hosts[r] == host;
    return n;
}

/* A rank gives its piece to one rank of each other host, in turn where numbers differ. */
static void find_links(hierarchy *h, const tutti__comm *comm)
{
    int me = h->places[comm->rank], here = h->host->size;

    for (int r = 0; r < comm->size; r++) {
        bool gives = me % ranks_of(h, h->hosts[r], comm->size) == h->places[r],
             takes = h->places[r] % here == me;

        if (h->hosts[r] == h->hosts[comm->rank] || (!gives && !takes))
            continue;
        h->links[h->n_links] = r;
        h->gives[h->n_links] = gives;
        h->takes[h->n_links++] = takes;
    }
}

/* Memory through which that of others goes, in this host's group. */
static tutti_status make_stage(const tutti__comm *comm, hierarchy *h)
{
    size_t page = 4096;
    void *own;
    tutti__op op = {.signature = {.op = TUTTI__OP_ALLOC, .group = comm->id, .dtype = TUTTI_U8},
                    .dst = &own,
                    .deadline = tutti__now_ms() + comm->timeout_ms};

    h->block_bytes = tutti__comm_chunk_bytes(comm, BLOCK_BYTES);
    h->stage_stride = (h->block_bytes + page - 1) / page * page;
    op.signature.count = h->stage_stride;
    TUTTI_TRY(tutti__shm_alloc(h->shm, &op));
    h->stage = (char *)own - (size_t)h->host->rank * h->stage_stride;
    return TUTTI_OK;
}

tutti_status tutti__engine_hierarchical(tutti__engine **engine_p, tutti__comm *comm,
                                        tutti__wire *wire, tutti__comm *host, tutti__shm *shm,
                                        const uint64_t *host_ids)
{
    size_t n = (size_t)comm->size, n_here = (size_t)host->size;
    hierarchy *h = tutti__alloc(sizeof *h);

    *engine_p = h ? &h->base : NULL;
    if (!h) {
        tutti__wire_free(wire);
        free_host(host, shm);
        return TUTTI_ERR_MEMORY;
    }
    h->base = (tutti__engine){&HIERARCHICAL, comm};
    h->wire = wire;
    h->host = host;
    h->shm = shm;
    h->hosts = calloc(n, sizeof *h->hosts);
    h->places = calloc(n, sizeof *h->places);
    h->cross = calloc(n, sizeof *h->cross);
    h->at = calloc(n_here, sizeof *h->at);
    h->here = calloc(n_here, sizeof *h->here);
    h->src = calloc(n, sizeof *h->src);
    h->links = calloc(n, sizeof *h->links);
    h->gives = calloc(n, sizeof *h->gives);
    h->takes = calloc(n, sizeof *h->takes);
    h->moved = calloc(n, sizeof *h->moved);
    if (!h->hosts || !h->places || !h->cross || !h->at || !h->here || !h->src || !h->links ||
        !h->gives || !h->takes || !h->moved)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", comm->size);
    number_hosts(h, host_ids, comm->size);
    find_links(h, comm);
    for (int r = 0; r < comm->size; r++)
        if (h->places[r] == h->places[comm->rank])
            h->cross[h->hosts[r]] = r;
    return make_stage(comm, h);
}
