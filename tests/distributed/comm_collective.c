/* comm: every collective equals a plain loop in rank order, bit for bit, for any transport, size, count, type and
 * reduction. SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "distributed/bodies.h"

#include "base/half.h"

enum { CHUNK = 1024 }; /* bytes of a staging buffer: chunks of many elements, many chunks */

static const tutti_dtype DTYPES[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16,
                                     TUTTI_I8,  TUTTI_U8,  TUTTI_I16, TUTTI_U16,
                                     TUTTI_I32, TUTTI_U32, TUTTI_I64, TUTTI_U64};
static const tutti_redop REDOPS[] = {TUTTI_SUM, TUTTI_AVG,  TUTTI_PRODUCT, TUTTI_MIN,
                                     TUTTI_MAX, TUTTI_BAND, TUTTI_BOR,     TUTTI_BXOR};

static bool is_bitwise(tutti_redop op)
{
    return op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR;
}

static bool is_float(tutti_dtype dtype)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

/* Stores at p element i of `rank`'s contribution: of both signs, with sums that round. Integers are small if
 * products of seven must fit the oracle, else large enough to wrap in their own type. */
static void put_one(tutti_dtype dtype, void *p, size_t i, int rank)
{
    double x = (double)((i * 7 + (size_t)rank * 13) % 23) / 7.0 - 1.3;
    int n = (int)((i * 5 + (size_t)rank * 3) % 17) - 8;
    uint16_t half = dtype == TUTTI_F16 ? tutti__f16_of_f32((float)x) : tutti__bf16_of_f32((float)x);
    int32_t medium = n * 30001;
    int64_t wide = n * (int64_t)60007;

    switch (dtype) {
    case TUTTI_F32:
        *(float *)p = (float)x;
        break;
    case TUTTI_F64:
        *(double *)p = x;
        break;
    case TUTTI_F16:
    case TUTTI_BF16:
        *(uint16_t *)p = half;
        break;
    case TUTTI_I8:
        *(int8_t *)p = (int8_t)(n * 9);
        break;
    case TUTTI_U8:
        *(uint8_t *)p = (uint8_t)(n * 11);
        break;
    case TUTTI_I16:
        *(int16_t *)p = (int16_t)(n * 3001);
        break;
    case TUTTI_U16:
        *(uint16_t *)p = (uint16_t)(n * 5003);
        break;
    case TUTTI_U32:
        *(uint32_t *)p = (uint32_t)(n + 8) * 30001;
        break;
    case TUTTI_U64:
        *(uint64_t *)p = (uint64_t)(n + 8) * 50021;
        break;
    case TUTTI_I32:
        *(int32_t *)p = medium;
        break;
    case TUTTI_I64:
        *(int64_t *)p = wide;
        break;
    }
}

static void put_all(tutti_dtype dtype, void *p, size_t first, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        put_one(dtype, (char *)p + i * tutti_dtype_size(dtype), first + i, rank);
}

#define FOLD(a, x)                                                                                 \
    (op == TUTTI_PRODUCT ? (a) * (x)                                                               \
     : op == TUTTI_MIN   ? ((x) < (a) ? (x) : (a))                                                 \
     : op == TUTTI_MAX   ? ((x) > (a) ? (x) : (a))                                                 \
                         : (a) + (x))

#define FOLD_INT(a, x)                                                                             \
    (op == TUTTI_BAND   ? ((a) & (x))                                                              \
     : op == TUTTI_BOR  ? ((a) | (x))                                                              \
     : op == TUTTI_BXOR ? ((a) ^ (x))                                                              \
                        : FOLD(a, x))

/* The plain loop over rows. Integers are computed in 128 bits, enough for every sum and product here, and then truncated. */
#define ORACLE(T, ACC, LOAD, STORE, COMBINE)                                                       \
    for (size_t i = 0; i < count; i++) {                                                           \
        ACC a = 0;                                                                                 \
        for (int r = 0; r < n_rows; r++) {                                                         \
            ACC x = (ACC)LOAD(((const T *)rows[r])[i]);                                            \
                                                                                                   \
            a = r == 0 ? x : (ACC)COMBINE(a, x);                                                   \
        }                                                                                          \
        if (op == TUTTI_AVG)                                                                       \
            a = a / (ACC)divisor;                                                                  \
        ((T *)out)[i] = (T)STORE(a);                                                               \
    }
#define SAME(x) (x)

static void *fold(tutti_dtype dtype, tutti_redop op, void *const *rows, int n_rows, int divisor,
                  size_t count)
{
    void *out = malloc(count * 8 + 8);

    switch (dtype) {
    case TUTTI_F32:
        ORACLE(float, float, SAME, SAME, FOLD)
        break;
    case TUTTI_F64:
        ORACLE(double, double, SAME, SAME, FOLD)
        break;
    case TUTTI_F16:
        ORACLE(uint16_t, float, tutti__f32_of_f16, tutti__f16_of_f32, FOLD)
        break;
    case TUTTI_BF16:
        ORACLE(uint16_t, float, tutti__f32_of_bf16, tutti__bf16_of_f32, FOLD)
        break;
    case TUTTI_I8:
        ORACLE(int8_t, __int128, SAME, SAME, FOLD_INT)
        break;
    case TUTTI_U8:
        ORACLE(uint8_t, __int128, SAME, SAME, FOLD_INT)
        break;
    case TUTTI_I16:
        ORACLE(int16_t, __int128, SAME, SAME, FOLD_INT)
        break;
    case TUTTI_U16:
        ORACLE(uint16_t, __int128, SAME, SAME, FOLD_INT)
        break;
    case TUTTI_U32:
        ORACLE(uint32_t, __int128, SAME, SAME, FOLD_INT)
        break;
    case TUTTI_U64:
        ORACLE(uint64_t, unsigned __int128, SAME, SAME, FOLD_INT)
        break;
    case TUTTI_I32:
        ORACLE(int32_t, __int128, SAME, SAME, FOLD_INT)
        break;
    case TUTTI_I64:
        ORACLE(int64_t, __int128, SAME, SAME, FOLD_INT)
        break;
    }
    return out;
}

/* What all ranks contribute, reduced in rank order. */
static void *oracle(tutti_dtype dtype, tutti_redop op, int size, size_t count)
{
    void *rows[16] = {0}, *out;

    for (int r = 0; r < size; r++)
        put_all(dtype, rows[r] = malloc(count * 8 + 8), 0, count, r);
    out = fold(dtype, op, rows, size, size, count);
    for (int r = 0; r < size; r++)
        free(rows[r]);
    return out;
}

/* The same in two levels: over the ranks of each host, then over the hosts in the order of their first ranks. 16-bit
 * averages are divided on the hosts. */
static void *oracle_of_hosts(tutti_dtype dtype, tutti_redop op, int size, const int *hosts,
                             size_t count)
{
    bool early = op == TUTTI_AVG && tutti_dtype_size(dtype) == 2;
    tutti_redop inner = op == TUTTI_AVG && !early ? TUTTI_SUM : op, outer = early ? TUTTI_SUM : op;
    void *sums[16] = {0}, *rows[16] = {0}, *out;
    int n_hosts = 0;

    for (int first = 0; first < size; first++) {
        int n = 0, seen = 0;

        for (int r = 0; r < first; r++)
            seen += hosts[r] == hosts[first];
        for (int r = 0; r < size && !seen; r++)
            if (hosts[r] == hosts[first])
                put_all(dtype, rows[n++] = malloc(count * 8 + 8), 0, count, r);
        if (seen)
            continue;
        sums[n_hosts++] = fold(dtype, inner, rows, n, size, count);
        while (n > 0)
            free(rows[--n]);
    }
    out = fold(dtype, outer, sums, n_hosts, size, count);
    while (n_hosts > 0)
        free(sums[--n_hosts]);
    return out;
}

/* ---- Bodies ---------------------------------------------------------------------------------------------- */

typedef struct grid {
    bool shared;      /* buffers from tutti_group_alloc */
    bool all_types;   /* or only F32 and SUM */
    const int *hosts; /* of each rank; NULL: one for all */
    size_t counts[12];
    size_t n_counts;
} grid;

static int check_all_reduce(tutti_group *group, void *p, tutti_dtype dtype, tutti_redop op,
                            size_t count, const int *hosts)
{
    int differs, size = tutti_group_size(group);
    void *want =
        hosts ? oracle_of_hosts(dtype, op, size, hosts, count) : oracle(dtype, op, size, count);

    put_all(dtype, p, 0, count, tutti_group_rank(group));
    CHECK(tutti_all_reduce(group, TUTTI_BUF(p, count, dtype), op, NULL) == TUTTI_OK);
    differs = memcmp(p, want, count * tutti_dtype_size(dtype));
    if (differs)
        fprintf(stderr, "all_reduce %s op %d count %zu size %d\n", tutti_dtype_name(dtype), (int)op,
                count, tutti_group_size(group));
    free(want);
    CHECK(!differs);
    return 0;
}

/* Root has the result, the others' buffers are unchanged; also the second time. */
static int check_reduce(tutti_group *group, void *p, tutti_dtype dtype, tutti_redop op,
                        size_t count, int root)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group), differs;
    size_t bytes = count * tutti_dtype_size(dtype);
    void *want = oracle(dtype, op, size, count);

    put_all(dtype, p, 0, count, rank);
    CHECK(tutti_reduce(group, TUTTI_BUF(p, count, dtype), op, root, NULL) == TUTTI_OK);
    if (rank != root)
        put_all(dtype, want, 0, count, rank);
    differs = memcmp(p, want, bytes);
    if (differs)
        fprintf(stderr, "reduce %s op %d count %zu size %d root %d\n", tutti_dtype_name(dtype),
                (int)op, count, size, root);
    put_all(dtype, p, 0, count, rank);
    CHECK(tutti_reduce(group, TUTTI_BUF(p, count, dtype), op, root, NULL) == TUTTI_OK);
    differs = differs || memcmp(p, want, bytes);
    free(want);
    CHECK(!differs);
    return 0;
}

static int check_reduce_scatter(tutti_group *group, char *p, tutti_dtype dtype, tutti_redop op,
                                size_t count, bool in_place, const int *hosts)
{
    size_t size = (size_t)tutti_group_size(group), rank = (size_t)tutti_group_rank(group),
           element = tutti_dtype_size(dtype);
    char *want = hosts ? oracle_of_hosts(dtype, op, (int)size, hosts, count * size)
                       : oracle(dtype, op, (int)size, count * size);
    char *dst = in_place ? p + rank * count * element : malloc(count * element + 1);
    int differs;

    put_all(dtype, p, 0, count * size, (int)rank);
    CHECK(tutti_reduce_scatter(group, TUTTI_CONST_BUF(p, count * size, dtype),
                               TUTTI_BUF(dst, count, dtype), op, NULL) == TUTTI_OK);
    differs = memcmp(dst, want + rank * count * element, count * element);
    free(want);
    if (!in_place)
        free(dst);
    CHECK(!differs);
    return 0;
}

static int check_all_gather(tutti_group *group, char *p, tutti_dtype dtype, size_t count,
                            bool in_place)
{
    size_t size = (size_t)tutti_group_size(group), rank = (size_t)tutti_group_rank(group),
           bytes = count * tutti_dtype_size(dtype);
    char *dst = in_place ? p : malloc(size * bytes + 1), *src = in_place ? p + rank * bytes : p,
         *want = malloc(bytes + 8);

    memset(dst, 0x5a, size * bytes);
    put_all(dtype, src, 3, count, (int)rank);
    CHECK(tutti_all_gather(group, TUTTI_CONST_BUF(src, count, dtype),
                           TUTTI_BUF(dst, count * size, dtype), NULL) == TUTTI_OK);
    for (size_t r = 0; r < size; r++) {
        put_all(dtype, want, 3, count, (int)r);
        CHECK(memcmp(dst + r * bytes, want, bytes) == 0);
    }
    free(want);
    if (!in_place)
        free(dst);
    return 0;
}

static int check_broadcast(tutti_group *group, char *p, tutti_dtype dtype, size_t count)
{
    size_t bytes = count * tutti_dtype_size(dtype);
    char *want = malloc(bytes + 8);

    for (int root = 0; root < tutti_group_size(group); root++) {
        put_all(dtype, p, 0, count, tutti_group_rank(group));
        put_all(dtype, want, 0, count, root);
        CHECK(tutti_broadcast(group, TUTTI_BUF(p, count, dtype), root, NULL) == TUTTI_OK);
        CHECK(memcmp(p, want, bytes) == 0);
    }
    free(want);
    return 0;
}

static int run_grid(tutti_group *group, void *arg)
{
    const grid *g = arg;
    size_t size = (size_t)tutti_group_size(group),
           bytes = 8 * (g->counts[g->n_counts - 1] + 1) * size;
    size_t n_types = g->all_types ? TUTTI__COUNT_OF(DTYPES) : 1,
           n_ops = g->all_types ? TUTTI__COUNT_OF(REDOPS) : 1;
    void *p = NULL;

    CHECK(!g->hosts || strcmp(tutti_group_transport_name(group), "shared memory + tcp") == 0);
    if (g->shared)
        CHECK(tutti_group_alloc(group, bytes, &p) == TUTTI_OK);
    else
        p = calloc(1, bytes);
    for (size_t c = 0; c < g->n_counts; c++)
        for (size_t t = 0; t < n_types; t++) {
            size_t count = g->counts[c];

            for (size_t o = 0; o < n_ops; o++) {
                if (REDOPS[o] == TUTTI_AVG && !is_float(DTYPES[t]))
                    continue;
                if (is_bitwise(REDOPS[o]) && is_float(DTYPES[t]))
                    continue;
                CHECK(check_all_reduce(group, p, DTYPES[t], REDOPS[o], count, g->hosts) == 0);
                CHECK(check_reduce(group, p, DTYPES[t], REDOPS[o], count, (int)((c + o) % size)) ==
                      0);
                CHECK(check_reduce_scatter(group, p, DTYPES[t], REDOPS[o], count, (c + o) % 2,
                                           g->hosts) == 0);
            }
            CHECK(check_all_gather(group, p, DTYPES[t], count, c % 2) == 0);
            CHECK(check_broadcast(group, p, DTYPES[t], count) == 0);
            CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        }
    if (g->shared)
        tutti_group_release(group, p);
    else
        free(p);
    return 0;
}

/* ---- Tests ------------------------------------------------------------------------------------------------- */

static grid grid_for(int size, bool shared, bool all_types)
{
    size_t n = (size_t)size, chunk = CHUNK / 4;
    grid g = {.shared = shared,
              .all_types = all_types,
              .counts = {0, 1, n - 1, n, n + 1, 37, chunk - 1, chunk, chunk + 1, 3 * chunk + 5},
              .n_counts = 10};

    return g;
}

static void run_sizes(void **state)
{
    tutti_ranks_opts opts = *(const tutti_ranks_opts *)*state;
    static const int SIZES[] = {1, 2, 3, 4, 7};

    opts.tuning.chunk_bytes = CHUNK;
    for (size_t s = 0; s < TUTTI__COUNT_OF(SIZES); s++)
        /* Threads can read any memory of each other. */
        for (int shared = 0; shared < (opts.processes ? 2 : 1); shared++) {
            /* Over TCP all types at one size only, because latency makes that slow. */
            grid g = grid_for(SIZES[s], shared, opts.transport != TUTTI_TRANSPORT_TCP || s == 2);

            assert_int_equal(tutti_run_ranks(SIZES[s], run_grid, &g, &opts), 0);
        }
}

typedef struct layout {
    int size, hosts[7];
} layout;

static void run_hosts(const layout *layouts, size_t n, bool processes, bool stage_all)
{
    for (size_t i = 0; i < n; i++)
        for (int shared = 0; shared < 2; shared++) {
            grid g = grid_for(layouts[i].size, shared, i == 0);
            const tutti_ranks_opts opts = {
                .processes = processes,
                .hosts = layouts[i].hosts,
                .tuning = {.chunk_bytes = CHUNK, .stage_all = stage_all, .fan = i % 2 ? 2 : 0}};

            g.hosts = layouts[i].hosts;
            assert_int_equal(tutti_run_ranks(layouts[i].size, run_grid, &g, &opts), 0);
        }
}

static void processes_on_several_hosts(void **state)
{
    static const layout LAYOUTS[] = {
        {4, {0, 0, 1, 1}}, {4, {0, 1, 0, 1}}, {4, {0, 0, 0, 1}}, {7, {2, 0, 0, 1, 1, 2, 1}}};

    (void)state;
    run_hosts(LAYOUTS, TUTTI__COUNT_OF(LAYOUTS), true, false);
}

static void threads_on_several_hosts(void **state)
{
    static const layout LAYOUTS[] = {{3, {0, 1, 0}}, {5, {0, 0, 1, 2, 1}}};

    (void)state;
    run_hosts(LAYOUTS, 1, false, false);
    run_hosts(LAYOUTS, TUTTI__COUNT_OF(LAYOUTS), false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON(run_sizes, threads_direct, .processes = false),
        TEST_ON(run_sizes, threads_staged, .tuning.stage_all = true),
        TEST_ON(run_sizes, processes_over_shared_memory, .processes = true),
        TEST_ON(run_sizes, threads_by_a_tree, .tuning.fan = 2),
        TEST_ON(run_sizes, threads_by_a_tree_staged, .tuning = {.fan = 3, .stage_all = true}),
        TEST_ON(run_sizes, processes_by_a_tree, .processes = true, .tuning.fan = 2),
        TEST_ON(run_sizes, processes_over_tcp, .processes = true, .transport = TUTTI_TRANSPORT_TCP),
        TEST_ON(run_sizes, threads_over_tcp, .transport = TUTTI_TRANSPORT_TCP),
        cmocka_unit_test(processes_on_several_hosts),
        cmocka_unit_test(threads_on_several_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
