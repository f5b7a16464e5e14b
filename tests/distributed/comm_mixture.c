/* comm: all kinds of operations in any order, several in flight, from both kinds of memory: the tail of one overlaps the
 * head of the next, and every result is that of a plain loop. SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "distributed/bodies.h"

/* MOST: more than is sent with a call. */
enum { CHUNK = 512, PLACES = 6, MOST = 700, MOST_RANKS = 5, ROOM = 2 * MOST_RANKS * MOST };

static const tutti__op_kind KINDS[] = {
    TUTTI__OP_ALL_REDUCE, TUTTI__OP_REDUCE,       TUTTI__OP_REDUCE_SCATTER, TUTTI__OP_BROADCAST,
    TUTTI__OP_SCATTER,    TUTTI__OP_GATHER,       TUTTI__OP_ALL_GATHER,     TUTTI__OP_ALL_GATHER_V,
    TUTTI__OP_ALL_TO_ALL, TUTTI__OP_ALL_TO_ALL_V, TUTTI__OP_BARRIER};
static const tutti_redop REDOPS[] = {TUTTI_SUM,  TUTTI_MIN, TUTTI_MAX,
                                     TUTTI_BAND, TUTTI_BOR, TUTTI_BXOR};

/* A call, the same on all ranks, and this rank's memory for it. */
typedef struct call {
    tutti__op_kind kind;
    tutti_redop redop;
    int number, root;
    size_t count;
    int32_t *src, *dst;
    size_t src_counts[MOST_RANKS], dst_counts[MOST_RANKS];
    tutti__operation op; /* to find its pieces */
    tutti_work *work;
} call;

typedef struct stand {
    tutti_group *group;
    int size, rank;
    uint64_t state; /* of the random numbers, the same on all ranks */
    int32_t *plain, *shared;
    call calls[PLACES];
} stand;

static uint64_t draw(stand *s, uint64_t below)
{
    s->state = s->state * 6364136223846793005u + 1442695040888963407u;
    return (s->state >> 33) % below;
}

/* Element k of what `from` sends to `to`. */
static int32_t value(const call *c, int from, int to, size_t k)
{
    const tutti__op_traits *traits = tutti__op_traits_of(&c->op);
    uint32_t x =
        (uint32_t)(c->number * 7919 + from * 104729 + (traits->scatters ? to * 1299709 : 0)) +
        (uint32_t)k * 2654435761u;

    return (int32_t)(x ^ x >> 15);
}

static int32_t combine(tutti_redop op, int32_t a, int32_t b)
{
    switch (op) {
    case TUTTI_MIN:
        return a < b ? a : b;
    case TUTTI_MAX:
        return a > b ? a : b;
    case TUTTI_BAND:
        return a & b;
    case TUTTI_BOR:
        return a | b;
    case TUTTI_BXOR:
        return a ^ b;
    default:
        return (int32_t)((uint32_t)a + (uint32_t)b);
    }
}

/* ---- A call ------------------------------------------------------------------------------------------------ */

static void choose(stand *s, call *c, int number, int place)
{
    static const size_t COUNTS[] = {0, 1, 3, 31, 32, 33, 127, 128, 129, MOST};
    uint64_t mixed = draw(s, 8);
    int32_t *memory;

    *c = (call){.kind = KINDS[draw(s, TUTTI__COUNT_OF(KINDS))],
                .redop = REDOPS[draw(s, TUTTI__COUNT_OF(REDOPS))],
                .number = number,
                .root = (int)draw(s, (uint64_t)s->size),
                .count = COUNTS[draw(s, TUTTI__COUNT_OF(COUNTS))]};
    if (c->kind == TUTTI__OP_BARRIER)
        c->count = 0;
    /* In half of the calls all ranks use one kind of memory. */
    memory = (mixed < 4 ? (mixed + (uint64_t)s->rank) % 2 : mixed % 2) ? s->shared : s->plain;
    c->src = memory + (size_t)place * 2 * ROOM;
    c->dst = c->src + ROOM;
    for (int r = 0; r < s->size; r++) {
        bool one = c->kind == TUTTI__OP_ALL_GATHER_V;

        c->src_counts[r] = c->count * (size_t)((s->rank * 2 + (one ? 1 : r)) % 3) / 2;
        c->dst_counts[r] = c->count * (size_t)((r * 2 + (one ? 1 : s->rank)) % 3) / 2;
    }
    c->op = (tutti__operation){.signature = {.op = (uint8_t)c->kind,
                                             .count = c->count,
                                             .dtype = TUTTI_I32,
                                             .root = (uint32_t)c->root},
                               .src_counts = c->src_counts,
                               .dst_counts = c->dst_counts};
    if (tutti__op_traits_of(&c->op)->uneven)
        c->op.signature.count = 0;
    if (c->kind == TUTTI__OP_ALL_REDUCE || c->kind == TUTTI__OP_REDUCE ||
        c->kind == TUTTI__OP_BROADCAST)
        c->src = c->dst; /* in place */
}

static size_t taken(const stand *s, const call *c)
{
    size_t n = 0;

    for (int from = 0; from < s->size; from++) {
        tutti__piece in = tutti__piece_in(s->group->comm.rank, &c->op, from);

        n = in.at + in.count > n ? in.at + in.count : n;
    }
    return n;
}

static tutti_status issue(stand *s, call *c, tutti_work **work_p)
{
    tutti_buf src = {c->src, tutti__op_given(s->group->comm.rank, s->group->comm.size, &c->op),
                     TUTTI_I32, NULL},
              dst = {c->dst, taken(s, c), TUTTI_I32, NULL},
              own = {c->dst, c->count, TUTTI_I32, NULL};
    bool is_root = s->rank == c->root;

    switch (c->kind) {
    case TUTTI__OP_ALL_REDUCE:
        return tutti_all_reduce(s->group, own, c->redop, work_p);
    case TUTTI__OP_REDUCE:
        return tutti_reduce(s->group, own, c->redop, c->root, work_p);
    case TUTTI__OP_REDUCE_SCATTER:
        return tutti_reduce_scatter(s->group, tutti_buf_const(src), dst, c->redop, work_p);
    case TUTTI__OP_BROADCAST:
        return tutti_broadcast(s->group, own, c->root, work_p);
    case TUTTI__OP_SCATTER:
        return tutti_scatter(s->group, tutti_buf_const(is_root ? src : (tutti_buf){0}), dst,
                             c->root, work_p);
    case TUTTI__OP_GATHER:
        return tutti_gather(s->group, tutti_buf_const(src), is_root ? dst : (tutti_buf){0}, c->root,
                            work_p);
    case TUTTI__OP_ALL_GATHER:
        return tutti_all_gather(s->group, tutti_buf_const(src), dst, work_p);
    case TUTTI__OP_ALL_GATHER_V:
        return tutti_all_gather_v(s->group, tutti_buf_const(src), dst, c->dst_counts, work_p);
    case TUTTI__OP_ALL_TO_ALL:
        return tutti_all_to_all(s->group, tutti_buf_const(src), dst, work_p);
    case TUTTI__OP_ALL_TO_ALL_V:
        return tutti_all_to_all_v(s->group, tutti_buf_const(src), c->src_counts, dst, c->dst_counts,
                                  work_p);
    default:
        return tutti_barrier(s->group, work_p);
    }
}

static void fill(const stand *s, const call *c)
{
    memset(c->dst, 0x3c, ROOM * sizeof *c->dst);
    for (int to = 0; to < s->size; to++) {
        tutti__piece out = tutti__piece_out(&c->op, s->rank, to);

        for (size_t k = 0; k < out.count; k++)
            c->src[out.at + k] = value(c, s->rank, to, k);
    }
}

static int32_t expected(const stand *s, const call *c, int from, size_t k)
{
    int32_t x = value(c, from, s->rank, k);

    if (tutti__op_traits_of(&c->op)->reduces)
        for (int r = from + 1; r < s->size; r++)
            x = combine(c->redop, x, value(c, r, s->rank, k));
    return x;
}

static bool right(const stand *s, const call *c)
{
    bool reduces = tutti__op_traits_of(&c->op)->reduces;

    for (int from = 0; from < (reduces ? 1 : s->size); from++) {
        tutti__piece in = tutti__piece_in(s->group->comm.rank, &c->op, from);

        for (size_t k = 0; k < in.count; k++)
            if (c->dst[in.at + k] != expected(s, c, from, k))
                return false;
    }
    if (taken(s, c) == 0 && c->src == c->dst) /* a reduce to another root: unchanged */
        for (size_t k = 0; k < c->count; k++)
            if (c->dst[k] != value(c, s->rank, 0, k))
                return false;
    return true;
}

static int check(const stand *s, const call *c)
{
    if (!right(s, c))
        fprintf(stderr, "call %d: %s of %zu, size %d, root %d, rank %d\n", c->number,
                tutti__op_name(c->kind), c->count, s->size, c->root, s->rank);
    CHECK(right(s, c));
    return 0;
}

/* ---- Many -------------------------------------------------------------------------------------------------- */

static int run_many(stand *s, int n)
{
    for (int number = 0; number < n + PLACES; number++) {
        int place = number % PLACES;
        call *c = &s->calls[place];

        if (c->work) {
            CHECK(tutti_work_wait(c->work) == TUTTI_OK);
            c->work = NULL;
            CHECK(check(s, c) == 0);
        }
        if (number >= n)
            continue;
        choose(s, c, number, place);
        fill(s, c);
        if (draw(s, 3) == 0) {
            CHECK(issue(s, c, NULL) == TUTTI_OK);
            CHECK(check(s, c) == 0);
        } else {
            CHECK(issue(s, c, &c->work) == TUTTI_OK);
        }
    }
    return 0;
}

static int mixture(tutti_group *group, void *arg)
{
    size_t bytes = (size_t)PLACES * 2 * ROOM * sizeof(int32_t);
    stand *s = calloc(1, sizeof *s);
    void *shared;
    int result;

    CHECK(s != NULL && tutti_group_alloc(group, bytes, &shared) == TUTTI_OK);
    s->group = group;
    s->size = tutti_group_size(group);
    s->rank = tutti_group_rank(group);
    s->state = 42 + (uint64_t)s->size;
    s->shared = shared;
    s->plain = malloc(bytes);
    result = run_many(s, *(const int *)arg);
    free(s->plain);
    free(s);
    return result;
}

static void run_sizes(void **state)
{
    tutti_ranks_opts opts = *(const tutti_ranks_opts *)*state;
    static const int SIZES[] = {1, 2, 3, 5};
    int n = 600;

    opts.tuning.chunk_bytes = CHUNK;
    for (size_t i = 0; i < TUTTI__COUNT_OF(SIZES); i++)
        assert_int_equal(tutti_run_ranks(SIZES[i], mixture, &n, &opts), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON(run_sizes, threads_direct, .processes = false),
        TEST_ON(run_sizes, threads_staged, .tuning.stage_all = true),
        TEST_ON(run_sizes, processes_over_shared_memory, .processes = true),
        /* as if the kernel did not let them read each other's memory */
        TEST_ON(run_sizes, processes_staged, .processes = true, .tuning.stage_all = true),
        TEST_ON(run_sizes, threads_by_a_tree, .tuning.fan = 2),
        TEST_ON(run_sizes, threads_by_a_tree_staged, .tuning = {.fan = 3, .stage_all = true}),
        TEST_ON(run_sizes, processes_by_a_tree, .processes = true, .tuning.fan = 2),
        TEST_ON(run_sizes, processes_over_tcp, .processes = true, .transport = TUTTI_TRANSPORT_TCP),
        TEST_ON(run_sizes, processes_on_two_hosts, .processes = true, .hosts = tutti_two_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
