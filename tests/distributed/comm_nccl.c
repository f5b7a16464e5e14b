/* comm: buffers on GPUs use NCCL: every collective, in the order of streams; and cases in which NCCL is not available. NCCL and
 * CUDA are the stand-ins of tests/standin.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/nccl.h"
#include "harness/ranks.h"
#include "harness/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "device/flat.h"

static const tutti_dtype DTYPES[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16,
                                     TUTTI_I8,  TUTTI_U8,  TUTTI_I16, TUTTI_U16,
                                     TUTTI_I32, TUTTI_U32, TUTTI_I64, TUTTI_U64};

static bool is_real(tutti_dtype dtype)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

static double reduced(tutti_dtype dtype, tutti_redop op, size_t i, int n)
{
    double x = test_value(dtype, 0, i);

    for (int r = 1; r < n; r++) {
        int v = test_value(dtype, r, i);

        switch (op) {
        case TUTTI_PRODUCT:
            x *= v;
            break;
        case TUTTI_MIN:
            x = v < x ? v : x;
            break;
        case TUTTI_MAX:
            x = v > x ? v : x;
            break;
        case TUTTI_BXOR:
            x = (double)((int64_t)x ^ v);
            break;
        default:
            x += v;
            break;
        }
    }
    return op == TUTTI_AVG ? x / n : x;
}

/* ---- Memory of the device --------------------------------------------------------------------------------- */

enum { MOST = 24000, BYTES = MOST * 8 };

typedef struct gpu {
    tutti_stream *stream, *other;
    char *src, *dst;         /* of the device */
    char *give, *got, *want; /* of the host */
    int rank, n;
} gpu;

static int gpu_open(gpu *g, tutti_group *group)
{
    tutti_device device = {TUTTI_CUDA, tutti_group_device(group).index};

    *g = (gpu){.rank = tutti_group_rank(group), .n = tutti_group_size(group)};
    CHECK(tutti_group_device(group).kind == TUTTI_CUDA);
    CHECK(tutti_stream_new(&g->stream, device) == TUTTI_OK);
    CHECK(tutti_stream_new(&g->other, device) == TUTTI_OK);
    g->src = g->stream->ops->alloc(device, BYTES, true);
    g->dst = g->stream->ops->alloc(device, BYTES, true);
    g->give = calloc(1, BYTES);
    g->got = calloc(1, BYTES);
    g->want = calloc(1, BYTES);
    CHECK(g->src && g->dst && g->give && g->got && g->want);
    return 0;
}

static void gpu_close(gpu *g)
{
    const tutti__device_ops *ops = g->stream->ops;
    tutti_device device = g->stream->device;

    ops->free(device, g->src);
    ops->free(device, g->dst);
    tutti_stream_free(g->stream);
    tutti_stream_free(g->other);
    free(g->give);
    free(g->got);
    free(g->want);
}

/* Submits the call's source to the stream, where it is not computed yet when the call is made. */
static int give(gpu *g, char *at, size_t bytes)
{
    CHECK(g->stream->ops->zero(g->stream, at, bytes) == TUTTI_OK);
    CHECK(tutti__copy_in(g->stream, at, g->give, bytes) == TUTTI_OK);
    return 0;
}

/* Reads in a stream unrelated to the call. */
static int check(gpu *g, const char *at, size_t bytes, const char *what)
{
    CHECK(tutti__read(g->other, g->got, at, bytes) == TUTTI_OK);
    if (memcmp(g->got, g->want, bytes) == 0)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        if (g->got[i] != g->want[i]) {
            fprintf(stderr, "rank %d: %s: byte %zu of %zu differs\n", g->rank, what, i, bytes);
            break;
        }
    return 1;
}

static void fill(gpu *g, tutti_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n; i++)
        test_put(dtype, g->give, i, test_value(dtype, g->rank, i));
}

/* ---- Reductions ------------------------------------------------------------------------------------------ */

static int reductions_of(tutti_group *group, gpu *g, tutti_dtype dtype, tutti_redop op, size_t n)
{
    const size_t bytes = n * tutti_dtype_size(dtype), part = n / (size_t)g->n;
    const int root = g->n - 1;
    tutti_buf in = {g->src, n, dtype, g->stream}, out = {g->dst, n, dtype, g->stream};

    fill(g, dtype, n);
    for (size_t i = 0; i < n; i++)
        test_put(dtype, g->want, i, reduced(dtype, op, i, g->n));
    CHECK(give(g, g->src, bytes) == 0);
    CHECK(tutti_all_reduce_from(group, tutti_buf_const(in), out, op, NULL) == TUTTI_OK);
    CHECK(check(g, g->dst, bytes, "all_reduce_from") == 0);
    CHECK(tutti_reduce(group, in, op, root, NULL) == TUTTI_OK);
    if (g->rank == root)
        CHECK(check(g, g->src, bytes, "reduce") == 0);
    CHECK(give(g, g->src, bytes) == 0);
    CHECK(tutti_all_reduce(group, in, op, NULL) == TUTTI_OK);
    CHECK(check(g, g->src, bytes, "all_reduce") == 0);
    in.count = part * (size_t)g->n;
    out.count = part;
    memmove(g->want, g->want + (size_t)g->rank * part * tutti_dtype_size(dtype),
            part * tutti_dtype_size(dtype));
    CHECK(give(g, g->src, bytes) == 0);
    CHECK(tutti_reduce_scatter(group, tutti_buf_const(in), out, op, NULL) == TUTTI_OK);
    return check(g, g->dst, part * tutti_dtype_size(dtype), "reduce_scatter");
}

static int reductions(tutti_group *group, void *arg)
{
    static const tutti_redop ops[] = {TUTTI_SUM, TUTTI_PRODUCT, TUTTI_MIN, TUTTI_MAX};
    static const size_t counts[] = {0, 1, 7, MOST};
    gpu g;

    (void)arg;
    CHECK(gpu_open(&g, group) == 0);
    for (size_t d = 0; d < TUTTI__COUNT_OF(DTYPES); d++)
        for (size_t c = 0; c < TUTTI__COUNT_OF(counts); c++) {
            CHECK(reductions_of(group, &g, DTYPES[d], ops[(c + d) % 4], counts[c]) == 0);
            if (counts[c] != 7)
                continue;
            for (size_t o = 0; o < 4; o++)
                CHECK(reductions_of(group, &g, DTYPES[d], ops[o], 7) == 0);
            /* NCCL lacks it: staged through the host, in the same order of calls */
            if (!is_real(DTYPES[d]))
                CHECK(reductions_of(group, &g, DTYPES[d], TUTTI_BXOR, 7) == 0);
        }
    gpu_close(&g);
    return nccl_is_clean(group);
}

/* Within one unit in the last place of the sum divided once: multiples of the size come out exactly. */
static int averages(tutti_group *group, void *arg)
{
    gpu g;

    (void)arg;
    CHECK(gpu_open(&g, group) == 0);
    for (size_t d = 0; d < 4; d++) {
        const tutti_dtype dtype = DTYPES[d];
        const size_t bytes = 1000 * tutti_dtype_size(dtype);

        for (size_t i = 0; i < 1000; i++) {
            test_put(dtype, g.give, i, g.n * test_value(dtype, g.rank, i));
            test_put(dtype, g.want, i, reduced(dtype, TUTTI_SUM, i, g.n));
        }
        CHECK(give(&g, g.src, bytes) == 0);
        CHECK(tutti_all_reduce(group, (tutti_buf){g.src, 1000, dtype, g.stream}, TUTTI_AVG, NULL) ==
              TUTTI_OK);
        CHECK(check(&g, g.src, bytes, "average") == 0);
    }
    gpu_close(&g);
    return nccl_is_clean(group);
}

/* ---- Moves ------------------------------------------------------------------------------------------------ */

enum { PIECE = 5001 };

static void want_piece(gpu *g, size_t place, int from, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        test_put(TUTTI_F32, g->want, place + i, test_value(TUTTI_F32, from, at + i));
}

static int rooted_moves(tutti_group *group, gpu *g)
{
    const size_t all = (size_t)g->n * PIECE;
    const int root = g->n / 2;
    const tutti_buf none = {NULL, 0, TUTTI_F32, g->stream};
    tutti_buf src = {g->src, all, TUTTI_F32, g->stream},
              dst = {g->dst, PIECE, TUTTI_F32, g->stream};

    CHECK(give(g, g->src, all * 4) == 0);
    CHECK(tutti_scatter(group, tutti_buf_const(g->rank == root ? src : none), dst, root, NULL) ==
          TUTTI_OK);
    want_piece(g, 0, root, (size_t)g->rank * PIECE, PIECE);
    CHECK(check(g, g->dst, PIECE * 4, "scatter") == 0);
    src.count = PIECE;
    dst.count = all;
    CHECK(tutti_gather(group, tutti_buf_const(src), g->rank == root ? dst : none, root, NULL) ==
          TUTTI_OK);
    for (int r = 0; r < g->n; r++)
        want_piece(g, (size_t)r * PIECE, r, 0, PIECE);
    if (g->rank == root)
        CHECK(check(g, g->dst, all * 4, "gather") == 0);
    CHECK(tutti_broadcast(group, src, root, NULL) == TUTTI_OK);
    want_piece(g, 0, root, 0, PIECE);
    return check(g, g->src, PIECE * 4, "broadcast");
}

static int even_moves(tutti_group *group, gpu *g)
{
    const size_t all = (size_t)g->n * PIECE;
    tutti_buf src = {g->src, PIECE, TUTTI_F32, g->stream},
              dst = {g->dst, all, TUTTI_F32, g->stream};

    CHECK(give(g, g->src, all * 4) == 0);
    CHECK(tutti_all_gather(group, tutti_buf_const(src), dst, NULL) == TUTTI_OK);
    for (int r = 0; r < g->n; r++)
        want_piece(g, (size_t)r * PIECE, r, 0, PIECE);
    CHECK(check(g, g->dst, all * 4, "all_gather") == 0);
    CHECK(give(g, g->dst + (size_t)g->rank * PIECE * 4, PIECE * 4) == 0);
    src.p = g->dst + (size_t)g->rank * PIECE * 4; /* at its place already */
    CHECK(tutti_all_gather(group, tutti_buf_const(src), dst, NULL) == TUTTI_OK);
    CHECK(check(g, g->dst, all * 4, "all_gather in place") == 0);
    src = (tutti_buf){g->src, all, TUTTI_F32, g->stream};
    CHECK(tutti_all_to_all(group, tutti_buf_const(src), dst, NULL) == TUTTI_OK);
    for (int r = 0; r < g->n; r++)
        want_piece(g, (size_t)r * PIECE, r, (size_t)g->rank * PIECE, PIECE);
    return check(g, g->dst, all * 4, "all_to_all");
}

/* What `from` gives to `to`: none of it among some. */
static size_t uneven(int from, int to)
{
    return (size_t)((from * 7 + to * 5) % 4) * 1000;
}

static int uneven_moves(tutti_group *group, gpu *g)
{
    size_t out[8], in[8], n_out = 0, n_in = 0;

    for (int r = 0; r < g->n; r++) {
        out[r] = uneven(g->rank, r);
        in[r] = uneven(r, g->rank);
        n_out += out[r];
        n_in += in[r];
    }
    CHECK(give(g, g->src, n_out * 4) == 0);
    CHECK(tutti_all_to_all_v(group, (tutti_const_buf){g->src, n_out, TUTTI_F32, g->stream}, out,
                             (tutti_buf){g->dst, n_in, TUTTI_F32, g->stream}, in,
                             NULL) == TUTTI_OK);
    for (size_t r = 0, place = 0; r < (size_t)g->n; place += in[r++]) {
        size_t at = 0;

        for (int q = 0; q < g->rank; q++)
            at += uneven((int)r, q);
        want_piece(g, place, (int)r, at, in[r]);
    }
    CHECK(check(g, g->dst, n_in * 4, "all_to_all_v") == 0);
    n_in = 0;
    for (int r = 0; r < g->n; r++) {
        in[r] = (size_t)r * 1500;
        want_piece(g, n_in, r, 0, in[r]);
        n_in += in[r];
    }
    CHECK(give(g, g->src, MOST * 4) == 0);
    CHECK(tutti_all_gather_v(group, (tutti_const_buf){g->src, in[g->rank], TUTTI_F32, g->stream},
                             (tutti_buf){g->dst, n_in, TUTTI_F32, g->stream}, in,
                             NULL) == TUTTI_OK);
    return check(g, g->dst, n_in * 4, "all_gather_v");
}

static int moves(tutti_group *group, void *arg)
{
    gpu g;

    (void)arg;
    CHECK(gpu_open(&g, group) == 0);
    fill(&g, TUTTI_F32, MOST);
    CHECK(rooted_moves(group, &g) == 0);
    CHECK(even_moves(group, &g) == 0);
    CHECK(uneven_moves(group, &g) == 0);
    gpu_close(&g);
    return nccl_is_clean(group);
}

/* ---- Order ------------------------------------------------------------------------------------------------ */

/* Several in flight, each between the kernel that computes its source and the one that uses its result; host memory in between. */
static int in_flight(tutti_group *group, void *arg)
{
    enum { CALLS = 6, COUNT = 3000 };
    tutti_work *work[CALLS];
    float *p, host;
    gpu g;

    (void)arg;
    CHECK(gpu_open(&g, group) == 0);
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < CALLS * COUNT; i++)
            ((float *)g.give)[i] = (float)(i % 100 + (size_t)g.rank);
        for (size_t k = 0; k < CALLS; k++) {
            p = (float *)(void *)g.src + k * COUNT;
            CHECK(tutti__copy_in(g.stream, p, (float *)(void *)g.give + k * COUNT, COUNT * 4) ==
                  TUTTI_OK);
            CHECK(g.stream->ops->flat->scale(g.stream, p, COUNT, 2) == TUTTI_OK);
            CHECK(tutti_all_reduce(group, (tutti_buf){p, COUNT, TUTTI_F32, g.stream}, TUTTI_SUM,
                                   &work[k]) == TUTTI_OK);
        }
        host = 1;
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&host, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        CHECK(host == (float)g.n);
        for (size_t k = 0; k < CALLS; k++) {
            CHECK(tutti_work_wait(work[k]) == TUTTI_OK);
            for (size_t i = 0; i < COUNT; i++)
                ((float *)g.want)[i] =
                    (float)g.n * 2 * (float)((k * COUNT + i) % 100) + (float)(g.n * (g.n - 1));
            CHECK(check(&g, g.src + k * COUNT * 4, COUNT * 4, "in flight") == 0);
        }
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    gpu_close(&g);
    return nccl_is_clean(group);
}

/* Group memory on the device is registered with NCCL if that supports it, and deregistered. */
static int group_memory(tutti_group *group, void *arg)
{
    enum { COUNT = 5000 };
    const char *registered = arg; /* the stand-in's report while it is registered */
    float *p[2], *host;
    char text[200];
    gpu g;

    CHECK(gpu_open(&g, group) == 0);
    host = (float *)(void *)g.want;
    for (int i = 0; i < 2; i++) {
        void *memory;

        CHECK(tutti_group_alloc_on(group, g.stream, COUNT * 4, &memory) == TUTTI_OK);
        p[i] = memory;
        for (size_t k = 0; k < COUNT; k++)
            host[k] = 0;
        CHECK(check(&g, memory, COUNT * 4, "zeroed memory") == 0);
    }
    (void)nccl_leaks(text, sizeof text);
    CHECK(strstr(text, registered));
    for (size_t k = 0; k < COUNT; k++) {
        host[k] = (float)((size_t)g.n * (k % 50) * 2);
        ((float *)(void *)g.give)[k] = (float)(k % 50);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(tutti__copy_in(g.stream, p[i], g.give, COUNT * 4) == TUTTI_OK);
        CHECK(g.stream->ops->flat->scale(g.stream, p[i], COUNT, 2) == TUTTI_OK);
        CHECK(tutti_all_reduce(group, (tutti_buf){p[i], COUNT, TUTTI_F32, g.stream}, TUTTI_SUM,
                               NULL) == TUTTI_OK);
        CHECK(check(&g, (char *)p[i], COUNT * 4, "group memory") == 0);
        tutti_group_release(group, p[i]);
    }
    CHECK(tutti_all_reduce(group, (tutti_buf){g.dst, 1, TUTTI_F32, g.stream}, TUTTI_SUM, NULL) ==
          TUTTI_OK); /* at the latest now it is deregistered */
    (void)nccl_leaks(text, sizeof text);
    CHECK(strstr(text, "1 communicators, 0 pieces of memory, 0 registrations, 0 windows; 0 mis"));
    CHECK(tutti_group_alloc_on(group, g.stream, COUNT * 4, (void **)&p[0]) == TUTTI_OK);
    gpu_close(&g);
    return nccl_is_clean(group);
}

/* Sub-groups have their own communicators. */
static int splits(tutti_group *group, void *arg)
{
    int colour = tutti_group_rank(group) % 2;
    tutti_group *sub;

    CHECK(averages(group, arg) == 0);
    CHECK(tutti_group_split_by(group, colour, 0, "half", &sub) == TUTTI_OK);
    if (averages(sub, arg) != 0 || moves(sub, arg) != 0)
        return 1;
    tutti_group_free(sub);
    return averages(group, arg);
}

/* ---- Without NCCL ------------------------------------------------------------------------------- */

/* Ranks share a GPU: with backend auto NCCL is not used; with backend nccl it is an error, and the group stays usable. */
static int shared_gpu(tutti_group *group, void *arg)
{
    const bool required = *(bool *)arg;
    float host = 1;
    gpu g;

    if (!required)
        return reductions(group, NULL) || moves(group, NULL);
    CHECK(gpu_open(&g, group) == 0);
    CHECK(tutti_all_reduce(group, (tutti_buf){g.src, 10, TUTTI_F32, g.stream}, TUTTI_SUM, NULL) ==
          TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error(), "rank 0 and rank 1 on ") &&
          strstr(tutti_last_error(), "both on GPU ") &&
          strstr(tutti_last_error(), "backend native"));
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&host, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(host == (float)g.n);
    gpu_close(&g);
    return nccl_is_clean(group);
}

/* ---- All --------------------------------------------------------------------------------------------------- */

/* Each host has its own GPUs. */
static void name_host(int rank)
{
    setenv("STANDIN_NCCL_HOST", tutti_two_hosts[rank] ? "1" : "0", 1);
}

static int run_everywhere(tutti_rank_body *body, void *arg)
{
    return tutti_run_ranks_as_processes(2, body, arg, TUTTI_TRANSPORT_AUTO) +
           tutti_run_ranks_as_processes(3, body, arg, TUTTI_TRANSPORT_TCP) +
           tutti_run_ranks(3, body, arg,
                           &(tutti_ranks_opts){
                               .processes = true, .hosts = tutti_two_hosts, .before = name_host}) +
           tutti_run_ranks_as_processes(1, body, arg, TUTTI_TRANSPORT_AUTO);
}

static void test_reductions(void **state)
{
    (void)state;
    assert_int_equal(run_everywhere(reductions, NULL), 0);
    assert_int_equal(run_everywhere(averages, NULL), 0);
}

static void test_moves(void **state)
{
    (void)state;
    assert_int_equal(run_everywhere(moves, NULL), 0);
}

static void test_order(void **state)
{
    (void)state;
    assert_int_equal(run_everywhere(in_flight, NULL), 0);
}

static void test_splits(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(4, splits, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

/* Registration depends on the library's version. */
static void test_versions(void **state)
{
    static const char *const versions[][2] = {
        {"22703", " 2 pieces of memory, 0 registrations, 2 windows;"},
        {"22304", " 2 pieces of memory, 2 registrations, 0 windows;"},
        {"21805", " 0 pieces of memory, 0 registrations, 0 windows;"}};
    char text[64];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(versions); i++) {
        setenv("STANDIN_NCCL_VERSION", versions[i][0], 1);
        snprintf(text, sizeof text, "%s", versions[i][1]);
        assert_int_equal(tutti_run_ranks_as_processes(2, group_memory, text, TUTTI_TRANSPORT_AUTO),
                         0);
        assert_int_equal(tutti_run_ranks_as_processes(3, averages, NULL, TUTTI_TRANSPORT_AUTO), 0);
    }
    unsetenv("STANDIN_NCCL_VERSION");
}

static void test_shared_gpu(void **state)
{
    bool required = true;

    (void)state;
    setenv("STANDIN_CUDA_DEVICES", "1", 1);
    assert_int_equal(tutti_run_ranks_as_processes(2, shared_gpu, &required, TUTTI_TRANSPORT_AUTO),
                     0);
    setenv("TUTTI_BACKEND", "auto", 1);
    required = false;
    assert_int_equal(tutti_run_ranks_as_processes(2, shared_gpu, &required, TUTTI_TRANSPORT_AUTO),
                     0);
    setenv("TUTTI_BACKEND", "nccl", 1);
    setenv("STANDIN_CUDA_DEVICES", "4", 1);
}

/* ---- Refused when the group is made -------------------------------------------------------------------------- */

static int never(tutti_group *group, void *arg)
{
    (void)group;
    (void)arg;
    return 1;
}

static int refused(void)
{
    int results[2];

    tutti_run_ranks(2, never, NULL,
                    &(tutti_ranks_opts){.processes = true, .results = results, .timeout_ms = 5000});
    return results[0] == 99 && results[1] == 99;
}

static void test_refusals(void **state)
{
    (void)state;
    setenv("STANDIN_NCCL_VERSION", "21303", 1);
    assert_true(refused());
    setenv("STANDIN_NCCL_VERSION", "30001", 1);
    assert_true(refused());
    unsetenv("STANDIN_NCCL_VERSION");
}

/* Last, because forked processes do not have its threads. */
static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(3, reductions, NULL), 0);
    assert_int_equal(tutti_run_ranks_as_threads(3, in_flight, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reductions), cmocka_unit_test(test_moves),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_splits),
        cmocka_unit_test(test_versions),   cmocka_unit_test(test_shared_gpu),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_threads),
    };

    nccl_stand_in(4);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
