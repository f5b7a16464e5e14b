/* comm: operations that move data unchanged (gather, scatter, all_to_all, all_gather of unequal pieces) write every piece to
 * its place and nothing else, for any transport, size, memory and counts. SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "distributed/bodies.h"

enum { CHUNK = 1024, MOST_RANKS = 7, GUARD = 0x5a }; /* CHUNK: bytes of a staging buffer */

/* ---- Pieces ---------------------------------------------------------------------------------------------- */

/* Byte i of what `from` sends to `to` in a round; to -1: the same for all. */
static unsigned char byte_at(int from, int to, size_t i, int round)
{
    return (unsigned char)(i * 7 + i / 251 + (size_t)(from * 31 + to * 17 + round * 5) + 1);
}

static void put(unsigned char *p, size_t bytes, int from, int to, int round)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = byte_at(from, to, i, round);
}

static bool holds(const unsigned char *p, size_t bytes, int from, int to, int round)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != byte_at(from, to, i, round))
            return false;
    return true;
}

typedef struct grid {
    bool shared; /* sources are in memory of tutti_group_alloc */
    tutti_dtype dtype;
} grid;

/* One rank's buffers: two for a piece of every rank, and a guard after them, which must not change. */
typedef struct stand {
    tutti_group *group;
    const grid *grid;
    int size, rank, round;
    size_t element, room;
    unsigned char *src, *dst;
} stand;

static tutti_buf buf(const stand *s, unsigned char *p, size_t count)
{
    return TUTTI_BUF(p, count, s->grid->dtype);
}

static void clear(stand *s)
{
    s->round++;
    memset(s->dst, GUARD, s->room);
}

static bool untouched(const stand *s, size_t from)
{
    for (size_t i = from; i < s->room; i++)
        if (s->dst[i] != GUARD)
            return false;
    return true;
}

/* ---- Equal pieces ---------------------------------------------------------------------------------------- */

static int check_gather(stand *s, size_t count, int root, bool in_place)
{
    size_t bytes = count * s->element;
    bool is_root = s->rank == root;
    unsigned char *src = in_place && is_root ? s->dst + (size_t)root * bytes : s->src;

    clear(s);
    put(src, bytes, s->rank, -1, s->round);
    CHECK(tutti_gather(s->group, tutti_buf_const(buf(s, src, count)),
                       is_root ? buf(s, s->dst, count * (size_t)s->size) : (tutti_buf){0}, root,
                       NULL) == TUTTI_OK);
    for (int r = 0; is_root && r < s->size; r++)
        CHECK(holds(s->dst + (size_t)r * bytes, bytes, r, -1, s->round));
    CHECK(untouched(s, is_root ? (size_t)s->size * bytes : 0));
    return 0;
}

static int check_scatter(stand *s, size_t count, int root, bool in_place)
{
    size_t bytes = count * s->element;
    bool is_root = s->rank == root;
    unsigned char *dst = in_place && is_root ? s->src + (size_t)root * bytes : s->dst;

    clear(s);
    for (int r = 0; r < s->size; r++)
        put(s->src + (size_t)r * bytes, bytes, is_root ? root : 99, r, s->round);
    CHECK(tutti_scatter(
              s->group,
              tutti_buf_const(is_root ? buf(s, s->src, count * (size_t)s->size) : (tutti_buf){0}),
              buf(s, dst, count), root, NULL) == TUTTI_OK);
    CHECK(holds(dst, bytes, root, s->rank, s->round));
    CHECK(untouched(s, dst == s->dst ? bytes : 0));
    return 0;
}

static int check_all_to_all(stand *s, size_t count)
{
    size_t bytes = count * s->element, n = (size_t)s->size;

    clear(s);
    for (int r = 0; r < s->size; r++)
        put(s->src + (size_t)r * bytes, bytes, s->rank, r, s->round);
    CHECK(tutti_all_to_all(s->group, tutti_buf_const(buf(s, s->src, n * count)),
                           buf(s, s->dst, n * count), NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++)
        CHECK(holds(s->dst + (size_t)r * bytes, bytes, r, s->rank, s->round));
    CHECK(untouched(s, n * bytes));
    return 0;
}

/* ---- Unequal pieces -------------------------------------------------------------------------------------- */

/* Elements from one rank to another: 0 and up to `most`, many different. */
static size_t uneven(int from, int to, size_t most)
{
    return (size_t)(from * 5 + to * 3 + from * to) % 4 * most / 3;
}

static int check_all_to_all_v(stand *s, size_t most)
{
    size_t out[MOST_RANKS], in[MOST_RANKS], n_out = 0, n_in = 0, at = 0;
    tutti_work *work;

    clear(s);
    for (int r = 0; r < s->size; r++) {
        out[r] = uneven(s->rank, r, most);
        in[r] = uneven(r, s->rank, most);
        put(s->src + n_out * s->element, out[r] * s->element, s->rank, r, s->round);
        n_out += out[r];
        n_in += in[r];
    }
    CHECK(tutti_all_to_all_v(s->group, tutti_buf_const(buf(s, s->src, n_out)), out,
                             buf(s, s->dst, n_in), in, &work) == TUTTI_OK);
    memset(out, 0xee, sizeof out); /* the counts were copied */
    memset(in, 0xee, sizeof in);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    for (int r = 0; r < s->size; r++) {
        size_t bytes = uneven(r, s->rank, most) * s->element;

        CHECK(holds(s->dst + at, bytes, r, s->rank, s->round));
        at += bytes;
    }
    CHECK(untouched(s, at));
    return 0;
}

static int check_all_gather_v(stand *s, size_t most, bool in_place)
{
    size_t counts[MOST_RANKS], all = 0, own = 0, at = 0;
    unsigned char *src = s->src;

    clear(s);
    for (int r = 0; r < s->size; r++) {
        counts[r] = uneven(r, 1, most);
        own = r == s->rank ? all : own;
        all += counts[r];
    }
    if (in_place)
        src = s->dst + own * s->element;
    put(src, counts[s->rank] * s->element, s->rank, -1, s->round);
    CHECK(tutti_all_gather_v(s->group, tutti_buf_const(buf(s, src, counts[s->rank])),
                             buf(s, s->dst, all), counts, NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++) {
        CHECK(holds(s->dst + at, counts[r] * s->element, r, -1, s->round));
        at += counts[r] * s->element;
    }
    CHECK(untouched(s, at));
    return 0;
}

/* ---- The grid -------------------------------------------------------------------------------------------- */

static int run_counts(stand *s)
{
    size_t n = (size_t)s->size, lot = CHUNK / s->element / n;
    const size_t counts[] = {0,
                             1,
                             n - 1,
                             n,
                             n + 1,
                             lot - 1,
                             lot,
                             lot + 1,
                             CHUNK / s->element - 1,
                             CHUNK / s->element + 1,
                             3 * CHUNK / s->element + 5};

    for (size_t c = 0; c < TUTTI__COUNT_OF(counts); c++) {
        for (int root = 0; root < s->size; root++) {
            CHECK(check_gather(s, counts[c], root, (int)c % 2 == root % 2) == 0);
            CHECK(check_scatter(s, counts[c], root, (int)c % 2 != root % 2) == 0);
        }
        CHECK(check_all_to_all(s, counts[c]) == 0);
        CHECK(check_all_to_all_v(s, counts[c]) == 0);
        CHECK(check_all_gather_v(s, counts[c], c % 2) == 0);
    }
    return 0;
}

static int run_grid(tutti_group *group, void *arg)
{
    stand s = {.group = group,
               .grid = arg,
               .size = tutti_group_size(group),
               .rank = tutti_group_rank(group)};
    void *src = NULL;
    int result;

    s.element = tutti_dtype_size(s.grid->dtype);
    s.room = (4 * CHUNK + 64) * (size_t)s.size;
    if (s.grid->shared)
        CHECK(tutti_group_alloc(group, s.room, &src) == TUTTI_OK);
    s.src = s.grid->shared ? src : malloc(s.room);
    s.dst = malloc(s.room);
    result = run_counts(&s);
    free(s.dst);
    if (!s.grid->shared)
        free(s.src);
    return result;
}

static void run_sizes(void **state)
{
    tutti_ranks_opts opts = *(const tutti_ranks_opts *)*state;
    static const int SIZES[] = {1, 2, 3, 4, 7};
    static const tutti_dtype DTYPES[] = {TUTTI_U8, TUTTI_F32, TUTTI_I64, TUTTI_BF16};

    opts.tuning.chunk_bytes = CHUNK;
    for (size_t i = 0; i < TUTTI__COUNT_OF(SIZES); i++)
        for (int shared = 0; shared < 2; shared++) {
            grid g = {.shared = shared, .dtype = DTYPES[(i + (size_t)shared) % 4]};

            assert_int_equal(tutti_run_ranks(SIZES[i], run_grid, &g, &opts), 0);
        }
}

/* ---- Some of them in memory that peers can read ---------------------------------------------------------- */

static int mixed_memory(tutti_group *group, void *arg)
{
    grid g = {.dtype = TUTTI_F32};
    stand s = {.group = group,
               .grid = &g,
               .size = tutti_group_size(group),
               .rank = tutti_group_rank(group),
               .element = 4};
    unsigned char *own;
    void *shared;

    (void)arg;
    s.room = (4 * CHUNK + 64) * (size_t)s.size;
    own = malloc(s.room);
    s.dst = malloc(s.room);
    CHECK(tutti_group_alloc(group, s.room, &shared) == TUTTI_OK);
    for (int round = 0; round < 4; round++) {
        s.src = (s.rank + round) % 2 ? own : shared;
        CHECK(run_counts(&s) == 0);
    }
    free(own);
    free(s.dst);
    return 0;
}

static void each_rank_its_own_kind_of_memory(void **state)
{
    const tutti_ranks_opts opts = {.processes = true, .tuning = {.chunk_bytes = CHUNK}};

    (void)state;
    assert_int_equal(tutti_run_ranks(3, mixed_memory, NULL, &opts), 0);
}

/* ---- Disagreement ------------------------------------------------------------------------------------------ */

static bool says(const char *text)
{
    bool found = strstr(tutti_last_error(), text) != NULL;

    if (!found)
        fprintf(stderr, "expected \"%s\" in: %s\n", text, tutti_last_error());
    return found;
}

/* In shared memory at once; over TCP a rank that agrees with both its neighbours may notice it only in its next call. */
static int all_hear(tutti_group *group, tutti_status status, const char *text)
{
    CHECK(status == TUTTI_ERR_MISMATCH ||
          (status == TUTTI_OK && strcmp(tutti_group_transport_name(group), "tcp") == 0));
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_MISMATCH && says(text));
    return 0;
}

static int counts_differ(tutti_group *group, void *arg)
{
    size_t out[3] = {5, 5, 5}, in[3] = {5, 5, 5};
    int rank = tutti_group_rank(group);
    float src[16] = {0}, dst[16];

    (void)arg;
    out[1] += rank == 2;
    return all_hear(group,
                    tutti_all_to_all_v(group, TUTTI_CONST_BUF(src, 15 + (rank == 2), TUTTI_F32),
                                       out, TUTTI_BUF(dst, 15, TUTTI_F32), in, NULL),
                    "in all_to_all_v #1 (F32), rank 2 sends rank 1 6 elements, but rank 1 "
                    "expects 5");
}

static int gathered_counts_differ(tutti_group *group, void *arg)
{
    size_t counts[3] = {4, 4, 4};
    int rank = tutti_group_rank(group);
    float src[16] = {0}, dst[16];

    (void)arg;
    counts[2] = rank == 2 ? 3 : 4; /* rank 2 has fewer than the others expect */
    return all_hear(group,
                    tutti_all_gather_v(group, TUTTI_CONST_BUF(src, counts[rank], TUTTI_F32),
                                       TUTTI_BUF(dst, 8 + counts[2], TUTTI_F32), counts, NULL),
                    " 3 elements, but rank ");
}

static void unequal_expectations_are_named_on_all_ranks(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        const tutti_ranks_opts opts = {.processes = way & 1,
                                       .transport =
                                           way & 2 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO};

        assert_int_equal(tutti_run_ranks(3, counts_differ, NULL, &opts), 0);
        assert_int_equal(tutti_run_ranks(3, gathered_counts_differ, NULL, &opts), 0);
    }
}

/* Rank 1 makes another call than the others, and all get both names. */
typedef struct pair {
    const char *ours, *theirs; /* the names of the two calls */
} pair;

static const pair PAIRS[] = {
    {"reduce #1 (F32 x 8, sum, root 0)", "all_reduce #1 (F32 x 8, sum)"},
    {"gather #1 (F32 x 4, root 0)", "gather #1 (F32 x 4, root 1)"},
    {"all_gather #1 (F32 x 4)", "all_gather_v #1 (F32)"},
    {"all_to_all_v #1 (F32)", "all_to_all #1 (F32 x 4)"},
    {"scatter #1 (F32 x 4, root 0)", "barrier #1"},
};

static tutti_status call_one(tutti_group *group, int way, bool other)
{
    int rank = tutti_group_rank(group), root = other ? 1 : 0;
    size_t counts[3] = {4, 4, 4};
    float a[12] = {0}, b[12];
    tutti_buf none = {0}, part = {a, 4, TUTTI_F32, NULL}, whole = {a, 12, TUTTI_F32, NULL},
              into = {b, 12, TUTTI_F32, NULL}, piece = {b, 4, TUTTI_F32, NULL},
              eight = {a, 8, TUTTI_F32, NULL};

    if (way == 0)
        return other ? tutti_all_reduce(group, eight, TUTTI_SUM, NULL)
                     : tutti_reduce(group, eight, TUTTI_SUM, 0, NULL);
    if (way == 1)
        return tutti_gather(group, tutti_buf_const(part), rank == root ? into : none, root, NULL);
    if (way == 2)
        return other ? tutti_all_gather_v(group, tutti_buf_const(part), into, counts, NULL)
                     : tutti_all_gather(group, tutti_buf_const(part), into, NULL);
    if (way == 3)
        return other
                   ? tutti_all_to_all(group, tutti_buf_const(whole), into, NULL)
                   : tutti_all_to_all_v(group, tutti_buf_const(whole), counts, into, counts, NULL);
    return other ? tutti_barrier(group, NULL)
                 : tutti_scatter(group, tutti_buf_const(rank == 0 ? whole : none), piece, 0, NULL);
}

static int kinds_differ(tutti_group *group, void *arg)
{
    int way = *(const int *)arg;

    CHECK(call_one(group, way, tutti_group_rank(group) == 1) == TUTTI_ERR_MISMATCH);
    CHECK(says(PAIRS[way].ours) && says(PAIRS[way].theirs) && says("rank 1 called "));
    return 0;
}

static void different_calls_name_both_on_all_ranks(void **state)
{
    (void)state;
    for (int way = 0; way < (int)TUTTI__COUNT_OF(PAIRS); way++)
        for (int i = 0; i < 4; i++) {
            const tutti_ranks_opts opts = {.processes = i & 1,
                                           .transport =
                                               i & 2 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO};

            assert_int_equal(tutti_run_ranks(3, kinds_differ, &way, &opts), 0);
        }
}

/* ---- Misuse ------------------------------------------------------------------------------------------------ */

static int misuse(tutti_group *group, void *arg)
{
    float x[16] = {0}, y[16] = {0};
    size_t counts[2] = {1, 2};
    int rank = tutti_group_rank(group);
    tutti_buf four = {x, 4, TUTTI_F32, NULL}, two = {y, 2, TUTTI_F32, NULL}, none = {0};
    tutti_work *work = (tutti_work *)x;

    (void)arg;
    CHECK(tutti_gather(group, tutti_buf_const(two), four, -1, &work) == TUTTI_ERR_ARG &&
          work == NULL);
    CHECK(says("gather: root is -1, expected a rank from 0 to 1"));
    CHECK(tutti_scatter(group, tutti_buf_const(four), two, 2, NULL) == TUTTI_ERR_ARG);
    CHECK(says("scatter: root is 2"));
    CHECK(tutti_reduce(group, two, TUTTI_SUM, 2, NULL) == TUTTI_ERR_ARG);
    CHECK(says("reduce: root is 2"));
    /* The larger buffer must be given at root, and only there. */
    CHECK(tutti_gather(group, tutti_buf_const(two), rank == 0 ? none : four, 0, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(says(rank == 0 ? "gather: dst has 0 elements, expected 4"
                         : "gather: dst is given, but only root, rank 0, uses it"));
    CHECK(tutti_scatter(group, tutti_buf_const(rank == 0 ? none : four), two, 0, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(says(rank == 0 ? "scatter: src has 0 elements, expected 4"
                         : "scatter: src is given, but only root, rank 0, uses it"));
    CHECK(tutti_all_to_all(group, TUTTI_CONST_BUF(x, 3, TUTTI_F32), TUTTI_BUF(y, 3, TUTTI_F32),
                           NULL) == TUTTI_ERR_ARG);
    CHECK(says("all_to_all: src has 3 elements and dst 3"));
    CHECK(tutti_all_to_all(group, tutti_buf_const(four), TUTTI_BUF(x + 3, 4, TUTTI_F32), NULL) ==
          TUTTI_ERR_ARG);
    CHECK(says("all_to_all: src overlaps dst"));
    CHECK(tutti_all_to_all(group, tutti_buf_const(four), TUTTI_BUF(y, 4, TUTTI_I32), NULL) ==
          TUTTI_ERR_ARG);
    CHECK(says("all_to_all: src is F32 but dst is I32"));
    CHECK(tutti_all_to_all_v(group, tutti_buf_const(four), counts, TUTTI_BUF(y, 3, TUTTI_F32),
                             counts, NULL) == TUTTI_ERR_ARG);
    CHECK(says("all_to_all_v: src has 4 elements, but its counts add up to 3"));
    CHECK(tutti_all_to_all_v(group, tutti_buf_const(four), NULL, four, counts, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(says("the counts of src are NULL"));
    CHECK(tutti_all_gather_v(group, tutti_buf_const(four), TUTTI_BUF(y, 3, TUTTI_F32), counts,
                             NULL) == TUTTI_ERR_ARG);
    CHECK(says("all_gather_v: src has 4 elements, but counts["));
    counts[1] = SIZE_MAX;
    CHECK(tutti_all_gather_v(group, tutti_buf_const(four), TUTTI_BUF(y, 3, TUTTI_F32), counts,
                             NULL) == TUTTI_ERR_ARG);
    CHECK(says("all_gather_v: dst has 3 elements, but its counts up to rank 1 need"));
    for (tutti_redop op = TUTTI_BAND; op <= TUTTI_BXOR; op++) {
        CHECK(tutti_all_reduce(group, two, op, NULL) == TUTTI_ERR_ARG);
        CHECK(says("bitwise reductions are for integers (I8 to I64, U8 to U64), not F32"));
    }
    return tutti_barrier(group, NULL) == TUTTI_OK ? 0 : 1; /* nothing was sent */
}

static void misuse_is_refused_with_its_reason(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, misuse, NULL), 0);
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
        TEST_ON(run_sizes, threads_over_tcp, .transport = TUTTI_TRANSPORT_TCP),
        TEST_ON(run_sizes, processes_on_two_hosts, .processes = true, .hosts = tutti_two_hosts),
        cmocka_unit_test(each_rank_its_own_kind_of_memory),
        cmocka_unit_test(unequal_expectations_are_named_on_all_ranks),
        cmocka_unit_test(different_calls_name_both_on_all_ranks),
        cmocka_unit_test(misuse_is_refused_with_its_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
