/* comm: collectives on device buffers give the same bits as on host buffers.   SPDX-License-Identifier: MIT
 * devices: strict cuda
 * timeout: 120 */
#include "harness/device.h"
#include "harness/ranks.h"

#include "device/device.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* One buffer, on the device and on the host. */
typedef struct pair {
    tutti_stream *stream;
    tutti_buf device, host;
    size_t bytes;
} pair;

static int pair_new(pair *p, tutti_stream *stream, size_t count, tutti_dtype dtype, int rank)
{
    size_t bytes = count * tutti_dtype_size(dtype);
    unsigned char *host = malloc(bytes + 1);

    for (size_t i = 0; i < bytes; i++) /* as floats: neither NaN nor infinite */
        host[i] = (unsigned char)((i * 37 + (size_t)rank * 11 + i / 7) % 60);
    *p = (pair){stream,
                {stream->ops->alloc(stream->device, bytes + 1, false), count, dtype, stream},
                {host, count, dtype, NULL},
                bytes};
    CHECK(p->device.p);
    CHECK(tutti__copy_in(stream, p->device.p, host, bytes) == TUTTI_OK);
    return 0;
}

static void pair_free(pair *p)
{
    p->stream->ops->free(p->stream->device, p->device.p);
    free(p->host.p);
}

/* Both have the same bits now. */
static int pair_check(const pair *p, const char *call)
{
    unsigned char *got = malloc(p->bytes + 1);
    int same;

    CHECK(tutti__read(p->stream, got, p->device.p, p->bytes) == TUTTI_OK);
    same = memcmp(got, p->host.p, p->bytes) == 0;
    free(got);
    if (!same)
        fprintf(stderr, "%s of %zu %s differs\n", call, p->host.count,
                tutti_dtype_name(p->host.dtype));
    return !same;
}

/* Runs a call twice: on both sides of pairs a and b. */
#define BOTH(call_device, call_host)                                                               \
    do {                                                                                           \
        CHECK((call_device) == TUTTI_OK);                                                          \
        CHECK((call_host) == TUTTI_OK);                                                            \
    } while (0)

static const tutti_buf NOTHING;

/* Of as many elements as fit. */
static tutti_status scaled(tutti_group *group, tutti_call_kind kind, tutti_buf whole, tutti_buf dst)
{
    tutti_call call = {.kind = kind, .src = tutti_buf_const(whole), .dst = dst, .scale = 0.7};

    if (kind != TUTTI_CALL_REDUCE_SCATTER)
        call.src.count = dst.count;
    if (kind == TUTTI_CALL_REDUCE && tutti_group_rank(group) != 0)
        call.dst = NOTHING;
    return tutti_group_call(group, &call, NULL);
}

static int reduce_all(tutti_group *group, tutti_stream *stream, size_t count, tutti_dtype dtype)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group), root = size - 1, bad = 0;
    tutti_redop op = dtype == TUTTI_I64 ? TUTTI_BXOR : TUTTI_AVG;
    pair a, b, whole;

    if (pair_new(&a, stream, count, dtype, rank) || pair_new(&b, stream, count, dtype, rank + 5) ||
        pair_new(&whole, stream, count * (size_t)size, dtype, rank))
        return 1;
    BOTH(tutti_all_reduce(group, a.device, op, NULL), tutti_all_reduce(group, a.host, op, NULL));
    bad += pair_check(&a, "all_reduce");
    BOTH(tutti_all_reduce_from(group, tutti_buf_const(a.device), b.device, TUTTI_MAX, NULL),
         tutti_all_reduce_from(group, tutti_buf_const(a.host), b.host, TUTTI_MAX, NULL));
    bad += pair_check(&a, "source") + pair_check(&b, "all_reduce_from");
    BOTH(tutti_reduce(group, b.device, TUTTI_SUM, root, NULL),
         tutti_reduce(group, b.host, TUTTI_SUM, root, NULL));
    bad += pair_check(&b, "reduce");
    BOTH(tutti_reduce_from(group, tutti_buf_const(b.device), rank == 0 ? a.device : NOTHING,
                           TUTTI_SUM, 0, NULL),
         tutti_reduce_from(group, tutti_buf_const(b.host), rank == 0 ? a.host : NOTHING, TUTTI_SUM,
                           0, NULL));
    bad += pair_check(&a, "reduce_from");
    BOTH(tutti_reduce_scatter(group, tutti_buf_const(whole.device), b.device, TUTTI_SUM, NULL),
         tutti_reduce_scatter(group, tutti_buf_const(whole.host), b.host, TUTTI_SUM, NULL));
    bad += pair_check(&b, "reduce_scatter") + pair_check(&whole, "source");
    for (int kind = TUTTI_CALL_ALL_REDUCE; dtype != TUTTI_I64 && kind <= TUTTI_CALL_REDUCE_SCATTER;
         kind++) {
        BOTH(scaled(group, (tutti_call_kind)kind, whole.device, a.device),
             scaled(group, (tutti_call_kind)kind, whole.host, a.host));
        bad += pair_check(&a, "with a factor") + pair_check(&whole, "source");
    }
    pair_free(&a);
    pair_free(&b);
    pair_free(&whole);
    return bad;
}

static tutti_buf piece(tutti_buf whole, int rank, size_t count)
{
    whole.p = (char *)whole.p + (size_t)rank * count * tutti_dtype_size(whole.dtype);
    whole.count = count;
    return whole;
}

static int move_all(tutti_group *group, tutti_stream *stream, size_t count, tutti_dtype dtype)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group), root = size / 2, bad = 0;
    bool is_root = rank == root;
    pair a, all, other;

    if (pair_new(&a, stream, count, dtype, rank) ||
        pair_new(&all, stream, count * (size_t)size, dtype, rank) ||
        pair_new(&other, stream, count * (size_t)size, dtype, rank + 7))
        return 1;
    BOTH(tutti_broadcast(group, a.device, root, NULL), tutti_broadcast(group, a.host, root, NULL));
    bad += pair_check(&a, "broadcast");
    BOTH(tutti_scatter(group, is_root ? tutti_buf_const(other.device) : tutti_buf_const(NOTHING),
                       a.device, root, NULL),
         tutti_scatter(group, is_root ? tutti_buf_const(other.host) : tutti_buf_const(NOTHING),
                       a.host, root, NULL));
    bad += pair_check(&a, "scatter");
    BOTH(tutti_gather(group, tutti_buf_const(a.device), is_root ? all.device : NOTHING, root, NULL),
         tutti_gather(group, tutti_buf_const(a.host), is_root ? all.host : NOTHING, root, NULL));
    bad += pair_check(&all, "gather");
    BOTH(tutti_all_to_all(group, tutti_buf_const(other.device), all.device, NULL),
         tutti_all_to_all(group, tutti_buf_const(other.host), all.host, NULL));
    bad += pair_check(&all, "all_to_all");
    BOTH(tutti_all_gather(group, tutti_buf_const(a.device), other.device, NULL),
         tutti_all_gather(group, tutti_buf_const(a.host), other.host, NULL));
    bad += pair_check(&other, "all_gather");
    /* In place, as the optimizer's shares are. */
    BOTH(tutti_all_gather(group, tutti_buf_const(piece(all.device, rank, count)), all.device, NULL),
         tutti_all_gather(group, tutti_buf_const(piece(all.host, rank, count)), all.host, NULL));
    bad += pair_check(&all, "all_gather in place");
    pair_free(&a);
    pair_free(&all);
    pair_free(&other);
    return bad;
}

/* Rank r sends r + s + 1 elements to rank s. */
static int move_uneven(tutti_group *group, tutti_stream *stream)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group), bad = 0;
    size_t out[8], in[8], given = 0, all = 0;
    pair a, b, c;

    for (int r = 0; r < size; r++) {
        out[r] = (size_t)(rank + r + 1);
        in[r] = (size_t)(2 * r + 1);
        given += out[r];
        all += in[r];
    }
    if (pair_new(&a, stream, given, TUTTI_I32, rank) || pair_new(&b, stream, given, TUTTI_I32, 3) ||
        pair_new(&c, stream, all, TUTTI_I32, 4))
        return 1;
    BOTH(tutti_all_to_all_v(group, tutti_buf_const(a.device), out, b.device, out, NULL),
         tutti_all_to_all_v(group, tutti_buf_const(a.host), out, b.host, out, NULL));
    bad += pair_check(&b, "all_to_all_v");
    BOTH(tutti_all_gather_v(group, tutti_buf_const(piece(a.device, 0, in[rank])), c.device, in,
                            NULL),
         tutti_all_gather_v(group, tutti_buf_const(piece(a.host, 0, in[rank])), c.host, in, NULL));
    bad += pair_check(&c, "all_gather_v");
    pair_free(&a);
    pair_free(&b);
    pair_free(&c);
    return bad;
}

static int new_stream(tutti_stream **stream_p)
{
    CHECK(tutti_stream_new(stream_p, test_device()) == TUTTI_OK);
    return 0;
}

static int all_calls(tutti_group *group, void *arg)
{
    static const size_t COUNTS[] = {0, 1, 1023, 9001};
    static const tutti_dtype DTYPES[] = {TUTTI_F32, TUTTI_I64, TUTTI_BF16};
    tutti_stream *stream;
    int bad = new_stream(&stream);

    (void)arg;
    for (size_t i = 0; i < TUTTI__COUNT_OF(COUNTS) && !bad; i++)
        for (size_t t = 0; t < TUTTI__COUNT_OF(DTYPES) && !bad; t++)
            bad = reduce_all(group, stream, COUNTS[i], DTYPES[t]) +
                  move_all(group, stream, COUNTS[i], DTYPES[t]);
    bad += move_uneven(group, stream);
    tutti_stream_free(stream);
    return bad;
}

static void every_collective_gives_the_host_s_bits(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        assert_int_equal(tutti_run_ranks_everywhere(n, all_calls, NULL), 0);
}

/* Each step reads what the previous one wrote, with no other synchronisation than the group's. */
static int in_order(tutti_group *group, void *arg)
{
    enum { N = 1000, STEPS = 20 };
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_stream *stream;
    float *p, got[N], expected = 1;
    tutti_work *works[STEPS];

    (void)arg;
    if (new_stream(&stream))
        return 1;
    CHECK(tutti_group_alloc_on(group, stream, sizeof got * STEPS, (void **)&p) == TUTTI_OK);
    for (int i = 0; i < STEPS; i++) { /* one buffer each, all in flight */
        for (int k = 0; k < N; k++)
            got[k] = (float)(rank + i + k);
        CHECK(tutti__copy_in(stream, p + i * N, got, sizeof got) == TUTTI_OK);
        CHECK(tutti_all_reduce(group, (tutti_buf){p + i * N, N, TUTTI_F32, stream}, TUTTI_SUM,
                               &works[i]) == TUTTI_OK);
    }
    for (int i = 0; i < STEPS; i++) {
        CHECK(tutti_work_wait(works[i]) == TUTTI_OK);
        CHECK(tutti__read(stream, got, p + i * N, sizeof got) == TUTTI_OK);
        for (int k = 0; k < N; k++)
            CHECK(got[k] == (float)(size * (size - 1) / 2 + size * (i + k)));
    }
    CHECK(tutti__copy_in(stream, p, &expected, sizeof expected) == TUTTI_OK);
    for (int i = 0; i < STEPS; i++) { /* one buffer, step upon step */
        CHECK(tutti_all_reduce(group, (tutti_buf){p, 1, TUTTI_F32, stream}, TUTTI_AVG, NULL) ==
              TUTTI_OK);
        CHECK(tutti__copy(stream, p + 1, p, sizeof *p) == TUTTI_OK);
        CHECK(tutti__copy(stream, p, p + 1, sizeof *p) == TUTTI_OK);
    }
    CHECK(tutti__read(stream, got, p, sizeof *p) == TUTTI_OK && got[0] == expected);
    tutti_group_release(group, p);
    tutti_stream_free(stream);
    return 0;
}

static void calls_come_behind_their_stream(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        assert_int_equal(tutti_run_ranks_everywhere(n, in_order, NULL), 0);
}

/* Small ones that are sent together, a large one, and one that moves data. */
static int coalesced(tutti_group *group, void *arg)
{
    enum { SMALL = 7 };
    int rank = tutti_group_rank(group), bad = 0;
    tutti_stream *stream;
    pair pairs[SMALL + 2];
    tutti_buf bufs[SMALL + 1];

    (void)arg;
    if (new_stream(&stream))
        return 1;
    for (size_t i = 0; i < SMALL + 2; i++)
        if (pair_new(&pairs[i], stream, i < SMALL ? 3 * i : 9001, i % 2 ? TUTTI_F32 : TUTTI_I64,
                     rank + (int)i))
            return 1;
    for (int side = 0; side < 2; side++) {
        tutti_work *work;

        for (size_t i = 0; i < SMALL + 1; i++)
            bufs[i] = side ? pairs[i].host : pairs[i].device;
        CHECK(tutti_all_reduce_list(group, bufs, SMALL + 1, TUTTI_SUM, NULL) == TUTTI_OK);
        CHECK(tutti_coalesce_begin(group) == TUTTI_OK);
        for (size_t i = 0; i < SMALL + 1; i++)
            CHECK(tutti_all_reduce(group, bufs[i], TUTTI_MAX, NULL) == TUTTI_OK);
        CHECK(tutti_broadcast(group, side ? pairs[SMALL + 1].host : pairs[SMALL + 1].device, 0,
                              NULL) == TUTTI_OK);
        CHECK(tutti_coalesce_end(group, &work) == TUTTI_OK);
        CHECK(tutti_work_wait(work) == TUTTI_OK);
    }
    for (size_t i = 0; i < SMALL + 2; i++) {
        bad += pair_check(&pairs[i], "coalesced");
        pair_free(&pairs[i]);
    }
    tutti_stream_free(stream);
    return bad;
}

static void calls_are_coalesced_on_a_device(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        assert_int_equal(tutti_run_ranks_everywhere(n, coalesced, NULL), 0);
}

/* Rank 0's buffers are the host's, others' a device's. */
static int mixed(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_stream *stream = NULL;
    float *p, value = (float)(rank + 1);
    tutti_buf buf;

    (void)arg;
    if (rank > 0 && new_stream(&stream))
        return 1;
    CHECK(tutti_group_alloc_on(group, stream, sizeof *p, (void **)&p) == TUTTI_OK);
    buf = (tutti_buf){p, 1, TUTTI_F32, stream};
    CHECK(tutti__copy_in(tutti__stream_or_cpu(stream), p, &value, sizeof value) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, buf, TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce_list(group, &buf, 1, TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti__read(tutti__stream_or_cpu(stream), &value, p, sizeof value) == TUTTI_OK);
    CHECK(value == (float)(size * (size * (size + 1) / 2)));
    tutti_group_release(group, p);
    tutti_stream_free(stream);
    return 0;
}

static void ranks_may_have_different_devices(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, mixed, NULL), 0);
}

static int refused(tutti_group *group, void *arg)
{
    tutti_stream *stream, *other;
    float *p, x[4] = {0};

    (void)arg;
    if (new_stream(&stream) || new_stream(&other))
        return 1;
    CHECK(tutti_group_alloc_on(group, stream, 4 * sizeof *p, (void **)&p) == TUTTI_OK);
    if (!stream->ops->is_host) {
        CHECK(tutti_all_reduce_from(group, TUTTI_CONST_BUF(x, 2, TUTTI_F32),
                                    (tutti_buf){p, 2, TUTTI_F32, stream}, TUTTI_SUM,
                                    NULL) == TUTTI_ERR_ARG);
        CHECK(
            strstr(tutti_last_error(), "all_reduce_from: src is memory of the host, but dst on "));
        CHECK(tutti_all_to_all(group, (tutti_const_buf){p, 2, TUTTI_F32, stream},
                               (tutti_buf){p + 2, 2, TUTTI_F32, other}, NULL) == TUTTI_ERR_ARG);
        CHECK(strstr(tutti_last_error(), "in another stream"));
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    tutti_group_release(group, p);
    tutti_stream_free(stream);
    tutti_stream_free(other);
    return 0;
}

static void buffers_in_two_places_are_refused(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, refused, NULL), 0);
}

/* ---- Messages -------------------------------------------------------------------------------------------- */

/* Round and round, from device to device; the last leg into the host's memory. */
static int pass_on(tutti_group *group, void *arg)
{
    enum { N = 30000 }; /* beyond the eager limit */
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    int from = (rank + size - 1) % size, to = (rank + 1) % size;
    tutti_stream *stream;
    static float zeros[N];
    float *got = calloc(N, sizeof *got);
    tutti_work *work;
    pair a, b;

    (void)arg;
    if (new_stream(&stream) || pair_new(&a, stream, N, TUTTI_F32, rank) ||
        pair_new(&b, stream, N, TUTTI_F32, from))
        return 1;
    CHECK(tutti__copy_in(stream, b.device.p, zeros, sizeof zeros) == TUTTI_OK);
    CHECK(tutti_recv(group, b.device, from, 7, &work) == TUTTI_OK);
    CHECK(tutti_send(group, tutti_buf_const(a.device), to, 7, NULL) == TUTTI_OK);
    CHECK(tutti_work_source(work) == from);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    CHECK(pair_check(&b, "recv") == 0);
    CHECK(tutti_send(group, tutti_buf_const(b.device), to, 8, &work) == TUTTI_OK);
    CHECK(tutti_recv(group, TUTTI_BUF(got, N, TUTTI_F32), TUTTI_ANY_RANK, 8, NULL) == TUTTI_OK);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    pair_free(&a);
    if (pair_new(&a, stream, N, TUTTI_F32, (rank + 2 * size - 2) % size))
        return 1;
    CHECK(memcmp(got, a.host.p, a.bytes) == 0);
    pair_free(&a);
    pair_free(&b);
    free(got);
    tutti_stream_free(stream);
    return 0;
}

static void messages_go_from_device_to_device(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        assert_int_equal(tutti_run_ranks_everywhere(n, pass_on, NULL), 0);
}

/* ---- Failures --------------------------------------------------------------------------------------------- */

enum { RANKS = 3, VICTIM = 1 };

static int differ(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    tutti_stream *stream;
    pair a, b;

    (void)arg;
    if (new_stream(&stream) || pair_new(&a, stream, 100, TUTTI_F32, rank) ||
        pair_new(&b, stream, 300, TUTTI_F32, rank))
        return 1;
    if (rank == VICTIM)
        CHECK(tutti_all_gather(group, tutti_buf_const(a.device), b.device, NULL) ==
              TUTTI_ERR_MISMATCH);
    else
        CHECK(tutti_all_reduce(group, a.device, TUTTI_SUM, NULL) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "called all_reduce #"));
    CHECK(strstr(tutti_last_error(), "called all_gather #"));
    pair_free(&a);
    pair_free(&b);
    tutti_stream_free(stream);
    return 0;
}

static void calls_that_differ_are_named(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(RANKS, differ, NULL), 0);
}

static int one_dies(tutti_group *group, void *arg)
{
    tutti_stream *stream;
    tutti_status status = TUTTI_OK;
    pair a;

    (void)arg;
    if (new_stream(&stream) || pair_new(&a, stream, 5000, TUTTI_F32, 1))
        return 1;
    for (int step = 0; step < 1000 && status == TUTTI_OK; step++) {
        tutti_work *work;

        if (step == 20 && tutti_group_rank(group) == VICTIM)
            raise(SIGKILL);
        status = tutti_all_reduce(group, a.device, TUTTI_AVG, &work);
        if (status == TUTTI_OK)
            status = tutti_work_wait(work);
    }
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "rank 1 "));
    pair_free(&a);
    tutti_stream_free(stream);
    return 0;
}

static void a_killed_rank_is_named(void **state)
{
    int results[RANKS];

    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        tutti_run_ranks(
            RANKS, one_dies, NULL,
            &(tutti_ranks_opts){.processes = true,
                                .transport = tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                                .results = results});
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(results[r], r == VICTIM ? -SIGKILL : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_gives_the_host_s_bits),
        cmocka_unit_test(calls_come_behind_their_stream),
        cmocka_unit_test(calls_are_coalesced_on_a_device),
        cmocka_unit_test(ranks_may_have_different_devices),
        cmocka_unit_test(buffers_in_two_places_are_refused),
        cmocka_unit_test(messages_go_from_device_to_device),
        cmocka_unit_test(calls_that_differ_are_named),
        cmocka_unit_test(a_killed_rank_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
