/* device: CUDA's memory, streams, events and copies, over the stand-in of its run-time.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "unit/device_gpu.h"

#include "device/flat.h"

#include <pthread.h>

/* ---- The allocator ------------------------------------------------------------------------------------------- */

static void reuse(void)
{
    tutti_stream *stream = begin();
    void *p = ops->alloc(gpu, 1000000, false), *q;

    CHECK(p && (uintptr_t)p % 64 == 0);
    ops->free(gpu, NULL);
    ops->free(gpu, p);
    CHECK_OK(tutti_stream_wait(stream));
    q = ops->alloc(gpu, 1000001, false); /* nearly equal sizes share a block */
    CHECK(q == p);
    ops->free(gpu, q);
    CHECK_OK(tutti_stream_wait(stream));
    CHECK(ops->alloc(gpu, 2000000, false) != p);
    CHECK(ops->alloc(gpu, 0, false) != NULL);
    CHECK(memory_usage().grown == 3);
    CHECK(memory_usage().peak >= 2000000 && memory_usage().used >= 2000000);
    CHECK(memory_usage().kept >= 1000000);
    tutti_stream_free(stream);
}

/* Of whichever stream. */
static void no_reuse_before_work_is_done(void)
{
    tutti_stream *first = begin(), *second;
    gate g;

    CHECK_OK(tutti_stream_new(&second, gpu));
    for (int i = 0; i < 4; i++) {
        void *p = ops->alloc(gpu, MB, false), *q, *r;

        close_gate(&g, i % 2 ? first : second);
        ops->free(gpu, p);
        q = ops->alloc(gpu, MB, false);
        CHECK(q && q != p);
        CHECK_OK(tutti_stream_wait(i % 2 ? second : first));
        r = ops->alloc(gpu, MB, false);
        CHECK(r && r != p);
        g.open = true;
        CHECK_OK(tutti_stream_wait(first));
        CHECK_OK(tutti_stream_wait(second));
        CHECK(ops->alloc(gpu, MB, false) == p);
        ops->free(gpu, p);
        ops->free(gpu, q);
        ops->free(gpu, r);
        CHECK_OK(tutti_stream_wait(first));
        CHECK_OK(tutti_stream_wait(second));
    }
    CHECK(memory_usage().grown == 3 && memory_usage().waited == 0);
    tutti_stream_free(first);
    tutti_stream_free(second);
}

static void no_reuse_of_pinned_memory_before_copies_are_done(void)
{
    tutti_stream *stream = begin();
    char *p = ops->host_alloc(gpu, 4096), *q;
    void *on_device = ops->alloc(gpu, 4096, false);
    gate g;

    CHECK(p && on_device);
    close_gate(&g, stream);
    CHECK_OK(tutti__copy_in(stream, on_device, p, 4096));
    ops->host_free(gpu, p);
    q = ops->host_alloc(gpu, 4096);
    CHECK(q && q != p);
    memset(q, 1, 4096);
    g.open = true;
    CHECK_OK(tutti_stream_wait(stream));
    CHECK(ops->host_alloc(gpu, 4096) == p);
    tutti_stream_free(stream);
}

/* Like a step: everything that the device offers, twice. */
static void step(tutti_stream *compute, tutti_stream *copy, tutti__event *event)
{
    void *input = ops->alloc(gpu, 100000, false), *sum = ops->alloc(gpu, 5000, true);
    float *host = ops->host_alloc(gpu, 5000);
    bool passed = false;

    CHECK(input && sum && host);
    memset(host, 0, 5000);
    CHECK_OK(tutti__copy_in(copy, input, host, 5000));
    CHECK_OK(ops->event_record(event, copy));
    CHECK_OK(ops->event_wait(event, compute));
    CHECK_OK(tutti__copy(compute, sum, input, 5000));
    CHECK_OK(ops->zero(compute, input, 100000));
    CHECK_OK(tutti__copy_out(compute, host, sum, 5000));
    CHECK_OK(ops->event_record(event, compute));
    while (!passed)
        CHECK_OK(ops->event_passed(event, &passed));
    ops->free(gpu, input);
    ops->free(gpu, sum);
    ops->host_free(gpu, host);
}

/* The host continues while the device works: no call may wait. */
static void no_waiting_after_warm_up(void)
{
    tutti_stream *compute = begin(), *copy;
    tutti__event *event;
    uint64_t waits;

    CHECK_OK(tutti_stream_new(&copy, gpu));
    CHECK_OK(ops->event_new(gpu, &event));
    for (int i = 0; i < 10; i++)
        step(compute, copy, event);
    CHECK_OK(tutti_stream_wait(compute));
    CHECK_OK(tutti_stream_wait(copy));
    waits = standin_waits(NULL);
    CHECK(waits > 0);
    for (int i = 0; i < 100; i++)
        step(compute, copy, event);
    CHECK(standin_waits(NULL) == waits);
    ops->event_free(gpu, event);
    tutti_stream_free(copy);
    tutti_stream_free(compute);
}

static void out_of_memory(void)
{
    tutti_stream *stream = begin();
    void *p = ops->alloc(gpu, 40 * MB, false), *q;

    CHECK(p && !ops->alloc(gpu, 40 * MB, false));
    CHECK_SAYS(
        "cuda:0 (stand-in GPU): out of memory: asked for 40.0 MiB, free are 24.0 MiB of 64.0 MiB");
    CHECK_SAYS("this process has 40.0 MiB in use and 0.0 MiB kept");
    CHECK_SAYS("--batch-size");
    CHECK_SAYS("--amp bf16");
    /* Cached memory is returned if another size is needed, or used if it is not much too large. */
    ops->free(gpu, p);
    q = ops->alloc(gpu, 60 * MB, false);
    CHECK(q && memory_usage().kept == 0);
    ops->free(gpu, q);
    CHECK(ops->alloc(gpu, 50 * MB, false) == q);
    tutti_stream_free(stream);
}

/* Instead of failing, the host waits for memory that is still in use. */
static void waits_for_memory(void)
{
    tutti_stream *stream = begin();
    char *host = ops->host_alloc(gpu, 40 * MB);

    CHECK(host);
    for (int i = 0; i < 8; i++) {
        void *p = ops->alloc(gpu, 40 * MB, false);

        CHECK(p);
        CHECK_OK(tutti__copy_in(stream, p, host, 40 * MB));
        ops->free(gpu, p);
    }
    CHECK(memory_usage().grown == 1 && memory_usage().waited > 0);
    tutti_stream_free(stream);
}

/* For existing and for later streams; without waiting. */
static void zeroed_for_all(void)
{
    tutti_stream *first = begin(), *second;
    unsigned char *host = ops->host_alloc(gpu, MB);

    CHECK(host);
    for (int i = 0; i < 20; i++) {
        uint64_t waits = standin_waits("cudaStreamSynchronize");
        void *p = ops->alloc(gpu, MB, true);

        CHECK(p && standin_waits("cudaStreamSynchronize") == waits);
        CHECK_OK(tutti_stream_new(&second, gpu));
        CHECK_OK(tutti__read(i % 2 ? first : second, host, p, MB));
        for (int k = 0; k < MB; k++)
            CHECK(host[k] == 0);
        memset(host, 7, MB);
        CHECK_OK(tutti__copy_in(second, p, host, MB));
        ops->free(gpu, p);
        tutti_stream_free(second);
    }
    CHECK(memory_usage().grown < 10); /* some of it was the sevens' */
    tutti_stream_free(first);
}

/* ---- Streams, events, copies ---------------------------------------------------------------------------------- */

/* How many of the rounds end in what was copied by one stream and copied on by another. The first is late: until the second has
 * been given its work, or has done it if no event holds that up. */
static int relay(bool with_event)
{
    enum { N = 1000, ROUNDS = 60 };
    tutti_stream *first = begin(), *second;
    tutti__event *event;
    int *host = ops->host_alloc(gpu, N * sizeof *host);
    int *back = ops->host_alloc(gpu, N * sizeof *back);
    void *p = ops->alloc(gpu, N * sizeof *host, true), *q = ops->alloc(gpu, N * sizeof *host, true);
    int right = 0;
    gate g;

    CHECK(host && back && p && q);
    CHECK_OK(tutti_stream_new(&second, gpu));
    CHECK_OK(ops->event_new(gpu, &event));
    for (int i = 1; i <= ROUNDS; i++) {
        for (int k = 0; k < N; k++)
            host[k] = i;
        close_gate(&g, first);
        CHECK_OK(tutti__copy_in(first, p, host, N * sizeof *host));
        CHECK_OK(ops->event_record(event, first));
        if (with_event)
            CHECK_OK(ops->event_wait(event, second));
        CHECK_OK(tutti__copy(second, q, p, N * sizeof *host));
        g.open = with_event;
        CHECK_OK(tutti__read(second, back, q, N * sizeof *host));
        g.open = true;
        right += back[0] == i && back[N - 1] == i;
        CHECK_OK(tutti_stream_wait(first));
    }
    ops->event_free(gpu, event);
    tutti_stream_free(first);
    tutti_stream_free(second);
    return right * 100 / ROUNDS;
}

static void events_order_streams(void)
{
    CHECK(relay(true) == 100);
}

static void without_an_event_streams_have_no_order(void)
{
    CHECK(relay(false) == 0);
}

static void copies_of_pageable_memory(void)
{
    enum { N = 300 };
    tutti_stream *stream = begin();
    void *p = ops->alloc(gpu, N, false);

    CHECK(p);
    for (int i = 0; i < 40; i++) {
        char in[N], out[N];

        memset(in, i, N);
        CHECK_OK(tutti__copy_in(stream, p, in, N));
        memset(in, 99, N); /* is ours again */
        CHECK_OK(tutti__copy_out(stream, out, p, N));
        CHECK_OK(tutti_stream_wait(stream));
        CHECK(out[0] == i && out[N - 1] == i);
    }
    CHECK_OK(tutti__copy_in(stream, p, NULL, 0));
    CHECK_OK(tutti__copy_out(stream, NULL, p, 0));
    CHECK_OK(ops->zero(stream, NULL, 0));
    tutti_stream_free(stream);
}

/* It is read asynchronously: an event tells when. */
static void copies_of_pinned_memory_are_late(void)
{
    tutti_stream *stream = begin();
    char *host = ops->host_alloc(gpu, 8), *back = ops->host_alloc(gpu, 8);
    void *p = ops->alloc(gpu, 8, false);
    tutti__event *event;
    bool passed;
    gate g;

    CHECK(host && back && p);
    CHECK_OK(ops->event_new(gpu, &event));
    CHECK_OK(ops->event_passed(event, &passed));
    CHECK(passed); /* of no stream yet */
    strcpy(host, "before");
    strcpy(back, "nothing");
    close_gate(&g, stream);
    CHECK_OK(tutti__copy_in(stream, p, host, 8));
    CHECK_OK(tutti__copy_out(stream, back, p, 8));
    CHECK_OK(ops->event_record(event, stream));
    CHECK_OK(ops->event_passed(event, &passed));
    CHECK(!passed && strcmp(back, "nothing") == 0);
    strcpy(host, "after");
    g.open = true;
    while (!passed)
        CHECK_OK(ops->event_passed(event, &passed));
    CHECK(strcmp(back, "after") == 0);
    ops->event_free(gpu, event);
    tutti_stream_free(stream);
}

static void a_stream_of_the_programs_own(void)
{
    tutti_stream *first = begin(), *wrapped;
    const tutti__cuda *cuda = tutti__cuda_module();
    void *native, *p = ops->alloc(gpu, 4, true);
    int value = 1;

    CHECK(tutti_stream_wrap(&wrapped, gpu, NULL) == TUTTI_ERR_ARG && !wrapped);
    CHECK_SAYS("pass cudaStreamLegacy");
    CHECK_OK(cuda->runtime->stream_new(0, &native));
    CHECK_OK(tutti_stream_wrap(&wrapped, gpu, native));
    CHECK(tutti__cuda_native(wrapped) == native);
    CHECK(tutti_stream_device(wrapped).kind == TUTTI_CUDA);
    CHECK_OK(tutti__read(wrapped, &value, p, sizeof value));
    CHECK(value == 0);
    tutti_stream_free(wrapped);
    CHECK_OK(cuda->runtime->zero(0, native, p, 4)); /* it is still there */
    CHECK_OK(cuda->runtime->stream_wait(0, native));
    CHECK_OK(cuda->runtime->stream_free(native));
    tutti_stream_free(first);
}

/* ---- Several devices, several ranks ----------------------------------------------------------------------------- */

static void *rank_main(void *arg)
{
    enum { N = 5000 };
    const int rank = (int)(intptr_t)arg;
    tutti_device device;
    tutti_stream *stream;
    int *back;

    CHECK_OK(tutti_device_parse(&device, "cuda", rank));
    CHECK(device.index == rank % 2);
    CHECK_OK(tutti_stream_new(&stream, device));
    back = ops->host_alloc(device, N * sizeof *back);
    CHECK(back);
    for (int i = 0; i < 150; i++) {
        int *p = ops->alloc(device, N * sizeof *p, i % 3 == 0);
        int *q = ops->alloc(device, N * sizeof *p, false);
        int mine[N];

        CHECK(p && q);
        for (int k = 0; k < N; k++)
            mine[k] = rank * 1000 + i;
        CHECK_OK(tutti__copy_in(stream, p, mine, sizeof mine));
        CHECK_OK(tutti__copy(stream, q, p, sizeof mine));
        CHECK_OK(ops->zero(stream, p, sizeof mine));
        ops->free(device, p);
        CHECK_OK(tutti__read(stream, back, q, sizeof mine));
        for (int k = 0; k < N; k++)
            CHECK(back[k] == rank * 1000 + i);
        ops->free(device, q);
    }
    ops->host_free(device, back);
    tutti_stream_free(stream);
    return NULL;
}

static void ranks_as_threads(void)
{
    pthread_t threads[3]; /* two of them on one device */
    tutti__device_info info;

    tutti_stream_free(begin());
    CHECK_OK(tutti__device_describe((tutti_device){TUTTI_CUDA, 1}, &info));
    CHECK(strcmp(info.name, "stand-in GPU") == 0 && strcmp(info.bus, "0000:11:00.0") == 0);
    CHECK(info.memory_bytes == (size_t)8192 << 20);
    for (intptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, rank_main, (void *)i) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- Failures --------------------------------------------------------------------------------------------- */

static void a_failure_of_the_device(void)
{
    tutti_stream *stream = begin();
    void *p = ops->alloc(gpu, 64, false);
    tutti__event *event;
    tutti_status status = TUTTI_OK;
    bool passed;

    CHECK_OK(ops->event_new(gpu, &event));
    for (int i = 0; i < 5 && status == TUTTI_OK; i++)
        status = ops->zero(stream, p, 64);
    if (status == TUTTI_OK)
        status = tutti_stream_wait(stream);
    CHECK(status == TUTTI_ERR_DEVICE && tutti_status_exit_code(status) == 4);
    CHECK(tutti_status_scope(status) == TUTTI_SCOPE_PROCESS);
    CHECK_SAYS("cuda:0 (stand-in GPU): ");
    CHECK_SAYS("an illegal memory access was encountered (cudaErrorIllegalAddress)");
    CHECK_SAYS("from its last checkpoint");
    CHECK_SAYS("Xid");
    CHECK(tutti__copy(stream, p, p, 64) == TUTTI_ERR_DEVICE);
    CHECK(ops->event_record(event, stream) == TUTTI_ERR_DEVICE);
    CHECK(ops->event_passed(event, &passed) == TUTTI_ERR_DEVICE);
    CHECK(!ops->alloc(gpu, 64, false));
    CHECK_SAYS("asking for memory");
    CHECK(!ops->host_alloc(gpu, 64));
    ops->free(gpu, p);
    ops->event_free(gpu, event);
    tutti_stream_free(stream);
}

static void says(const char *text, tutti_status expected, const char *expected_text)
{
    tutti_device device;

    CHECK(tutti_device_parse(&device, text, 0) == expected);
    CHECK_SAYS(expected_text);
    CHECK_OK(tutti_device_parse(&device, "auto", 0));
    CHECK(device.kind == TUTTI_CPU);
}

static void no_driver(void)
{
    says("cuda", TUTTI_ERR_DEVICE, "device cuda: no NVIDIA driver (libcuda.so.1): install it");
    says("cuda:0", TUTTI_ERR_DEVICE, "or use --device cpu (auto chooses it by itself)");
}

static void old_driver(void)
{
    char expected[96];

    snprintf(expected, sizeof expected, "the NVIDIA driver knows CUDA up to 11.4, but Tutti was");
    says("cuda", TUTTI_ERR_DEVICE, expected);
}

static void no_device(void)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    says("cuda", TUTTI_ERR_DEVICE, "it sees no device");
}

static void no_visible_device(void)
{
    says("cuda", TUTTI_ERR_DEVICE, "CUDA_VISIBLE_DEVICES is \"-1\"");
}

static void beyond_the_last_device(void)
{
    tutti_device device;

    CHECK(tutti_device_parse(&device, "cuda:2", 0) == TUTTI_ERR_ARG);
    CHECK_SAYS("the last is cuda:1");
    CHECK_OK(tutti_device_parse(&device, "cuda:1", 0));
    CHECK(device.index == 1);
    CHECK_OK(tutti_device_parse(&device, "auto", 3));
    CHECK(device.kind == TUTTI_CUDA && device.index == 1);
}

static void too_old_a_device(void)
{
    says("cuda", TUTTI_ERR_DEVICE, "compute capability 7.0, Tutti's module needs 8.0");
}

static void too_old_a_second_device(void)
{
    tutti_device device;

    CHECK_OK(tutti_device_parse(&device, "cuda", 1));
    CHECK(device.index == 0);
    CHECK(tutti_device_parse(&device, "cuda:1", 0) == TUTTI_ERR_ARG);
}

static void a_module_that_is_not_there(void)
{
    says("cuda", TUTTI_ERR_DEVICE, "/nowhere/libtutti_cuda.so: cannot open shared object file");
    CHECK(tutti_device_parse(&(tutti_device){0}, "cuda", 0) == TUTTI_ERR_DEVICE);
    CHECK_SAYS("LD_LIBRARY_PATH");
}

static void what_is_no_module(void)
{
    says("cuda", TUTTI_ERR_UNSUPPORTED, "is not a module of Tutti " TUTTI_VERSION);
}

/* ---- Cases ---------------------------------------------------------------------------------------------------- */

CASE(reuse, )
CASE(no_reuse_before_work_is_done, )
CASE(no_reuse_of_pinned_memory_before_copies_are_done, )
CASE(no_waiting_after_warm_up, )
CASE(out_of_memory, "STANDIN_CUDA_MEMORY=64", )
CASE(waits_for_memory, "STANDIN_CUDA_MEMORY=64", )
CASE(zeroed_for_all, )
CASE(without_an_event_streams_have_no_order, )
CASE(copies_of_pageable_memory, )
CASE(copies_of_pinned_memory_are_late, )
CASE(a_stream_of_the_programs_own, )
CASE(ranks_as_threads, "STANDIN_CUDA_DEVICES=2", )
CASE(a_failure_of_the_device, "STANDIN_CUDA_FAULT=0:3", )
CASE(no_driver, "STANDIN_CUDA_DRIVER=0", )
CASE(old_driver, "STANDIN_CUDA_DRIVER=11040", )
CASE(no_device, "STANDIN_CUDA_DEVICES=0", )
CASE(no_visible_device, "STANDIN_CUDA_DEVICES=0", "CUDA_VISIBLE_DEVICES=-1", )
CASE(beyond_the_last_device, "STANDIN_CUDA_DEVICES=2", )
CASE(too_old_a_device, "STANDIN_CUDA_OLD=0", )
CASE(too_old_a_second_device, "STANDIN_CUDA_DEVICES=2", "STANDIN_CUDA_OLD=1", )
CASE(a_module_that_is_not_there, "TUTTI_CUDA_MODULE=/nowhere/libtutti_cuda.so", )
CASE(what_is_no_module, "TUTTI_CUDA_MODULE=libm.so.6", )

static void test_events_order_streams(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 5; seed++) {
        char text[32];

        snprintf(text, sizeof text, "STANDIN_CUDA_SEED=%d", seed);
        assert_true(in_process(events_order_streams, (const char *const[]){text, NULL}));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_no_reuse_before_work_is_done),
        cmocka_unit_test(test_no_reuse_of_pinned_memory_before_copies_are_done),
        cmocka_unit_test(test_no_waiting_after_warm_up),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_waits_for_memory),
        cmocka_unit_test(test_zeroed_for_all),
        cmocka_unit_test(test_events_order_streams),
        cmocka_unit_test(test_without_an_event_streams_have_no_order),
        cmocka_unit_test(test_copies_of_pageable_memory),
        cmocka_unit_test(test_copies_of_pinned_memory_are_late),
        cmocka_unit_test(test_a_stream_of_the_programs_own),
        cmocka_unit_test(test_ranks_as_threads),
        cmocka_unit_test(test_a_failure_of_the_device),
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_old_driver),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_no_visible_device),
        cmocka_unit_test(test_beyond_the_last_device),
        cmocka_unit_test(test_too_old_a_device),
        cmocka_unit_test(test_too_old_a_second_device),
        cmocka_unit_test(test_a_module_that_is_not_there),
        cmocka_unit_test(test_what_is_no_module),
    };

    use_standin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
