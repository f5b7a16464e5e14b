/* comm: every algorithm of the table over TCP and between hosts: the same bytes as `direct` where results are exact, for every type and
 * reduction; where they round, nearly the same, and the same on all ranks. Without a word from anyone, many ranks choose alike.
 * SPDX-License-Identifier: MIT
 * timeout: 240 */
#include "distributed/bodies.h"

#include "base/half.h"
#include "harness/algorithms.h"
#include "harness/values.h"

enum { CHUNK = 512, MOST = 700 }; /* bytes of a chunk; elements of a piece */

static const tutti_dtype DTYPES[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16,
                                     TUTTI_I8,  TUTTI_U8,  TUTTI_I16, TUTTI_U16,
                                     TUTTI_I32, TUTTI_U32, TUTTI_I64, TUTTI_U64};
static const tutti_redop REDOPS[] = {TUTTI_SUM, TUTTI_AVG,  TUTTI_PRODUCT, TUTTI_MIN,
                                     TUTTI_MAX, TUTTI_BAND, TUTTI_BOR,     TUTTI_BXOR};

static bool is_real(tutti_dtype dtype)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

static bool can(tutti_dtype dtype, tutti_redop redop)
{
    bool bits = redop == TUTTI_BAND || redop == TUTTI_BOR || redop == TUTTI_BXOR;

    return is_real(dtype) ? !bits : redop != TUTTI_AVG;
}

/* Fills what a rank gives. In place: it is in dst. */
static void fill(tutti_group *group, const test_call *c, bool exact)
{
    size_t n = (size_t)tutti_group_size(group), all = n * c->count;
    int rank = tutti_group_rank(group);
    char *in = c->in_place || c->op == TUTTI__OP_BROADCAST ? c->dst : c->src;

    memset(c->dst, 0x5a, all * tutti_dtype_size(c->dtype));
    for (size_t i = 0; i < all; i++) {
        double x = test_value(c->dtype, rank, i);

        test_put(c->dtype, c->src, i, exact ? x : x / 7 + 0.01);
        test_put(c->dtype, in, i, exact ? x : x / 7 + 0.01);
    }
    /* in place among pieces: this rank's has the values that src begins with */
    if (c->in_place && (c->op == TUTTI__OP_GATHER || c->op == TUTTI__OP_ALL_GATHER))
        memcpy(c->dst + (size_t)rank * c->count * tutti_dtype_size(c->dtype), c->src,
               c->count * tutti_dtype_size(c->dtype));
}

/* Bytes of this rank's result. */
static size_t result_bytes(tutti_group *group, const test_call *c)
{
    const tutti__op_traits *t = &tutti__op_table[c->op];
    size_t piece = c->count * tutti_dtype_size(c->dtype);

    if (c->op == TUTTI__OP_BARRIER || (t->to_root && tutti_group_rank(group) != c->root))
        return 0;
    return t->gathers ? piece * (size_t)tutti_group_size(group) : piece;
}

static double value_at(const test_call *c, const char *p, size_t i)
{
    return c->dtype == TUTTI_F64   ? ((const double *)(const void *)p)[i]
           : c->dtype == TUTTI_F32 ? (double)((const float *)(const void *)p)[i]
           : c->dtype == TUTTI_BF16
               ? (double)tutti__f32_of_bf16(((const uint16_t *)(const void *)p)[i])
               : (double)tutti__f32_of_f16(((const uint16_t *)(const void *)p)[i]);
}

static int compare(tutti_group *group, const test_call *c, const char *expected, bool exact)
{
    static const double ROUNDING[] = {
        [TUTTI_F32] = 1e-5, [TUTTI_F64] = 1e-13, [TUTTI_F16] = 2e-3, [TUTTI_BF16] = 1.6e-2};
    size_t bytes = result_bytes(group, c);

    if (exact) {
        CHECK(memcmp(c->dst, expected, bytes) == 0);
        return 0;
    }
    for (size_t i = 0; i < bytes / tutti_dtype_size(c->dtype); i++) {
        double a = value_at(c, c->dst, i), b = value_at(c, expected, i);

        CHECK(fabs(a - b) <= ROUNDING[c->dtype] * (fabs(b) + 1));
    }
    if (c->op == TUTTI__OP_ALL_REDUCE) {
        uint64_t hash = tutti__hash64(c->dst, bytes), least = hash;

        CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&least, 1, TUTTI_U64), TUTTI_MIN, NULL));
        CHECK(least == hash || !"other bits on another rank");
    }
    return 0;
}

/* Also that it does not write what it is given. */
static int check_one(tutti_group *group, const tutti__coll_algorithm *algorithm, test_call *c,
                     bool exact)
{
    const tutti__coll_algorithm *direct = tutti__coll_find(algorithm->op, "direct");
    size_t all = (size_t)tutti_group_size(group) * c->count * tutti_dtype_size(c->dtype);
    char *expected = malloc(all + 1), *given = malloc(all + 1);
    int result = 0;

    fill(group, c, exact);
    CHECK_OK(test_force(group, direct));
    CHECK_OK(test_collective(group, c));
    memcpy(expected, c->dst, all);
    fill(group, c, exact);
    memcpy(given, c->src, all);
    CHECK_OK(test_force(group, algorithm));
    CHECK_OK(test_collective(group, c));
    CHECK_OK(test_force(group, direct));
    result = compare(group, c, expected, exact);
    if (memcmp(given, c->src, all) != 0)
        result = 1;
    if (result)
        fprintf(stderr, "rank %d of %d: %s:%s, %s x %zu, reduction %d, root %d%s%s\n",
                tutti_group_rank(group), tutti_group_size(group), tutti__op_name(algorithm->op),
                algorithm->name, tutti_dtype_name(c->dtype), c->count, (int)c->redop, c->root,
                c->in_place ? ", in place" : "", exact ? "" : ", rounding");
    free(expected);
    free(given);
    return result;
}

static int check_type(tutti_group *group, const tutti__coll_algorithm *algorithm, test_call *c,
                      size_t o)
{
    const bool reduces = tutti__op_table[algorithm->op].reduces;
    const int n = tutti_group_size(group);
    const size_t counts[] = {1, (size_t)n + 1, MOST};

    c->redop = REDOPS[o];
    if ((!reduces && o > 0) || (reduces && !can(c->dtype, c->redop)))
        return 0;
    for (size_t k = 0; k < TUTTI__COUNT_OF(counts); k++)
        for (int in_place = 0; in_place < 2; in_place++) {
            c->count = counts[k];
            c->in_place = in_place;
            c->root = (int)((k + o + (size_t)in_place) % (size_t)n);
            CHECK_0(check_one(group, algorithm, c, true));
            if (reduces && is_real(c->dtype) && c->redop <= TUTTI_AVG)
                CHECK_0(check_one(group, algorithm, c, false));
        }
    return 0;
}

static int every_algorithm(tutti_group *group, void *arg)
{
    size_t bytes = (size_t)tutti_group_size(group) * MOST * 8;
    test_call c = {.src = malloc(bytes), .dst = malloc(bytes)};
    const bool *few = arg; /* one type of each size and three reductions: ranks share cores */

    for (size_t a = 0; a < tutti__coll_n_algorithms; a++) {
        const tutti__coll_algorithm *algorithm = tutti__coll_algorithms[a];

        c.op = algorithm->op;
        for (size_t t = 0; t < TUTTI__COUNT_OF(DTYPES); t++)
            for (size_t o = 0; o < TUTTI__COUNT_OF(REDOPS); o++) {
                if (*few && (t % 4 == 1 || t % 4 == 2 || o > 2))
                    continue;
                c.dtype = DTYPES[t];
                CHECK_0(check_type(group, algorithm, &c, o));
            }
    }
    free(c.src);
    free(c.dst);
    return 0;
}

static void over_tcp(void **state)
{
    (void)state;
    for (int n = 2; n <= 6; n += 1 + (n == 3)) {
        bool few = n > 3;

        assert_int_equal(tutti_run_ranks(n, every_algorithm, &few,
                                         &(tutti_ranks_opts){.processes = true,
                                                             .transport = TUTTI_TRANSPORT_TCP,
                                                             .tuning.chunk_bytes = CHUNK}),
                         0);
    }
}

/* Five hosts, of two ranks and one: what goes between hosts by the table. */
static void between_hosts(void **state)
{
    static const int HOSTS[] = {0, 1, 2, 0, 1, 2, 3, 4};
    bool few = true;

    (void)state;
    assert_int_equal(
        tutti_run_ranks(
            8, every_algorithm, &few,
            &(tutti_ranks_opts){.processes = true, .hosts = HOSTS, .tuning.chunk_bytes = 4096}),
        0);
}

/* More ranks than `direct` is for: links are measured, and a call's algorithm is chosen by them. */
static int chosen_by_cost(tutti_group *group, void *arg)
{
    tutti__tuner *tuner = group->engine->ops->tuner(group->engine);
    float *p = malloc(sizeof *p << 18);
    const int n = tutti_group_size(group);

    (void)arg;
    CHECK(tuner->has_links);
    CHECK(tuner->links.level[0].latency_ns + tuner->links.level[0].message_ns > 0);
    for (size_t count = 1; count <= (size_t)1 << 18; count <<= 6) {
        tutti__coll call = {
            .op = TUTTI__OP_ALL_REDUCE, .dtype = TUTTI_F32, .size = n, .count = count};
        const tutti__coll_algorithm *chosen = tutti__tuner_choose(tuner, &call);
        uint64_t name = tutti__hash64(chosen->name, strlen(chosen->name)), least = name;

        CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&least, 1, TUTTI_U64), TUTTI_MIN, NULL));
        CHECK(least == name);
        for (size_t i = 0; i < count; i++)
            p[i] = (float)(i % 100);
        CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(p, count, TUTTI_F32), TUTTI_SUM, NULL));
        for (size_t i = 0; i < count; i++)
            CHECK(p[i] == (float)(i % 100) * (float)n);
    }
    free(p);
    return 0;
}

/* The sum of an element does not depend on how much is summed with it, nor on which operation sums it. */
static int sums_are_the_same(tutti_group *group, void *arg)
{
    enum { EACH = 9000 };
    const size_t n = (size_t)tutti_group_size(group), all = n * EACH,
                 rank = (size_t)tutti_group_rank(group);
    const bool *reduces = arg;
    float *x = malloc(all * sizeof *x), *sum = malloc(all * sizeof *x),
          *part = malloc(all * sizeof *x);

    for (size_t i = 0; i < all; i++)
        x[i] = (float)((i * 31 + rank * 17) % 101) / 7.0f - 5.3f;
    CHECK_OK(tutti_all_reduce_from(group, TUTTI_CONST_BUF(x, all, TUTTI_F32),
                                   TUTTI_BUF(sum, all, TUTTI_F32), TUTTI_AVG, NULL));
    for (size_t count = 1; count <= 4096; count *= 16) {
        size_t at = 3 * count;

        CHECK_OK(tutti_all_reduce_from(group, TUTTI_CONST_BUF(x + at, count, TUTTI_F32),
                                       TUTTI_BUF(part, count, TUTTI_F32), TUTTI_AVG, NULL));
        CHECK(memcmp(part, sum + at, count * sizeof *part) == 0);
    }
    CHECK_OK(tutti_reduce_scatter(group, TUTTI_CONST_BUF(x, all, TUTTI_F32),
                                  TUTTI_BUF(part, EACH, TUTTI_F32), TUTTI_AVG, NULL));
    CHECK(memcmp(part, sum + rank * EACH, EACH * sizeof *part) == 0);
    for (int root = 0; *reduces && root < (int)n; root += 3) {
        memcpy(part, x, all * sizeof *x);
        CHECK_OK(tutti_reduce(group, TUTTI_BUF(part, all, TUTTI_F32), TUTTI_SUM, root, NULL));
        for (size_t i = 0; (int)rank == root && i < all; i++)
            CHECK(part[i] / (float)n == sum[i]);
    }
    free(x);
    free(sum);
    free(part);
    return 0;
}

static void sums_of_many_ranks(void **state)
{
    static const int HOSTS[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3};

    (void)state;
    for (int hosts = 0; hosts < 2; hosts++) {
        bool reduces = !hosts; /* between hosts a reduce has an order of its own */

        assert_int_equal(
            tutti_run_ranks(11, sums_are_the_same, &reduces,
                            &(tutti_ranks_opts){.processes = true,
                                                .hosts = hosts ? HOSTS : NULL,
                                                .transport = hosts ? TUTTI_TRANSPORT_AUTO
                                                                   : TUTTI_TRANSPORT_TCP}),
            0);
    }
}

static void many_ranks_choose(void **state)
{
    (void)state;
    assert_int_equal(
        tutti_run_ranks(11, chosen_by_cost, NULL,
                        &(tutti_ranks_opts){.processes = true, .transport = TUTTI_TRANSPORT_TCP}),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(over_tcp), cmocka_unit_test(between_hosts),
                                       cmocka_unit_test(sums_of_many_ranks),
                                       cmocka_unit_test(many_ranks_choose)};

    return cmocka_run_group_tests_name("comm/algorithms", tests, NULL, NULL);
}
