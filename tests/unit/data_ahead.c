/* data: batches copied to a device ahead of time are complete there when they are inputs, and unchanged until the work that
 * reads them is done.   SPDX-License-Identifier: MIT
 * devices: strict cuda
 *
 * Nothing waits for the device between batches: a late copy, or memory that is refilled too early, is detected. */
#include "base/base.h"
#include "data/ahead.h"
#include "data/loader.h"
#include "harness/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { COUNT = 53, X = 300, Y = 3, BATCH = 8, BATCHES = 7, EPOCHS = 4 };

typedef struct stand {
    tutti_ctx *cx;
    tutti_dataset *dataset;
    tutti_loader *loader;
    float x[COUNT * X], y[COUNT * Y]; /* the first array of a sample, and the third */
    int64_t labels[COUNT];
    /* Of each batch: what the loader gave on the host, and what the device had, in pinned memory. */
    float expected[EPOCHS * BATCHES][BATCH * (X + Y)];
    float *got[EPOCHS * BATCHES];
} stand;

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TUTTI_OK)                                                                    \
            fail_msg("%s", tutti_last_error());                                                    \
    } while (0)

static stand *stand_with(int workers, int prefetch, int shards)
{
    stand *s = calloc(1, sizeof *s);

    OK(tutti_ctx_new(&s->cx, test_device(), NULL));
    for (int i = 0; i < COUNT * X; i++)
        s->x[i] = (float)i;
    for (int i = 0; i < COUNT * Y; i++)
        s->y[i] = (float)-i - 1;
    OK(tutti_dataset_new(
        &s->dataset,
        &(tutti_samples){
            .count = COUNT,
            .classes = 1,
            .n_fields = 3,
            .fields = (tutti_field[]){{.name = "x", .shape = TUTTI_SHAPE(X), .data = s->x},
                                      {.name = "labels", .dtype = TUTTI_I64, .data = s->labels},
                                      {.name = "third", .shape = TUTTI_SHAPE(Y), .data = s->y}}}));
    OK(tutti_loader_new(&s->loader, s->dataset, NULL,
                        &(tutti_loader_opts){.batch = BATCH,
                                             .workers = workers,
                                             .prefetch = prefetch,
                                             .shuffle = true,
                                             .cx = s->cx,
                                             .shards = shards}));
    for (int i = 0; i < EPOCHS * BATCHES; i++) {
        s->got[i] = s->cx->device_ops->host_alloc(s->cx->device, BATCH * (X + Y) * sizeof(float));
        assert_non_null(s->got[i]);
    }
    return s;
}

static stand *stand_new(int workers, int prefetch)
{
    return stand_with(workers, prefetch, 0);
}

static void stand_free(stand *s)
{
    for (int i = 0; i < EPOCHS * BATCHES; i++)
        s->cx->device_ops->host_free(s->cx->device, s->got[i]);
    tutti_loader_free(s->loader);
    assert_null(s->cx->ahead[0].host); /* freed memory is not offered any more */
    assert_null(s->cx->ahead[1].host);
    tutti_dataset_free(s->dataset);
    tutti_ctx_free(s->cx);
    free(s);
}

/* A step that reads the batch, asynchronously. */
static void use(stand *s, const tutti_batch *batch, int number)
{
    const tutti_array third = tutti_batch_array(batch, "third");
    const size_t n_x = batch->n * X, n_y = batch->n * Y;
    float *got = s->got[number];
    tutti_tensor *x, *y;

    memcpy(s->expected[number], batch->x.p, n_x * sizeof(float));
    memcpy(s->expected[number] + n_x, third.p, n_y * sizeof(float));
    memset(got, 0, BATCH * (X + Y) * sizeof *got);
    tutti_step_begin(s->cx, &(tutti_step_opts){.eval = true});
    x = tutti_input(s->cx, batch->x);
    y = tutti_input(s->cx, third);
    OK(tutti_tensor_status(x));
    OK(tutti_tensor_status(y));
    if (!s->cx->device_ops->is_host) {
        assert_true(x->shared && y->shared); /* the loader's memory: no copy was made */
        assert_ptr_not_equal(x->data, batch->x.p);
    }
    OK(tutti__copy_out(s->cx->stream, got, x->data, n_x * sizeof(float)));
    OK(tutti__copy_out(s->cx->stream, got + n_x, y->data, n_y * sizeof(float)));
    tutti_step_end(s->cx);
}

static void check(stand *s, int n)
{
    OK(tutti_stream_wait(tutti_ctx_stream(s->cx)));
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < BATCH * (X + Y); k++)
            if (s->got[i][k] != s->expected[i][k])
                fail_msg("batch %d, element %zu: %g, expected %g", i, k, (double)s->got[i][k],
                         (double)s->expected[i][k]);
}

static void batches_reach_the_device_whole_and_stay(void **state)
{
    static const int WORKERS[] = {0, 1, 3}, PREFETCH[] = {1, 2, 5};

    (void)state;
    for (size_t w = 0; w < TUTTI__COUNT_OF(WORKERS); w++)
        for (size_t p = 0; p < TUTTI__COUNT_OF(PREFETCH); p++) {
            stand *s = stand_new(WORKERS[w], PREFETCH[p]);
            tutti_batch batch;
            int n = 0;

            for (int epoch = 0; epoch < EPOCHS; epoch++) {
                while (tutti_loader_next(s->loader, &batch))
                    use(s, &batch, n++);
                OK(tutti_loader_status(s->loader));
            }
            assert_int_equal(n, EPOCHS * BATCHES);
            check(s, n);
            stand_free(s);
        }
}

/* By shard: of three requested batches, one is made by workers and taken, one is made by the caller, and one is dropped. */
static void so_they_do_by_shard(void **state)
{
    static const int WORKERS[] = {0, 1, 3}, PREFETCH[] = {1, 2, 5};

    (void)state;
    for (size_t w = 0; w < TUTTI__COUNT_OF(WORKERS); w++)
        for (size_t p = 0; p < TUTTI__COUNT_OF(PREFETCH); p++) {
            stand *s = stand_with(WORKERS[w], PREFETCH[p], 3);
            tutti_batch batch;
            int n = 0;

            for (int epoch = 0; epoch < EPOCHS; epoch++) {
                tutti_loader_set_epoch(s->loader, (uint64_t)epoch);
                for (size_t index = 0; index < tutti_loader_batches(s->loader); index++) {
                    for (int v = 0; v < 2; v++)
                        tutti_loader_ask(s->loader, index, v, 0);
                    for (int v = 2; v > 0; v--) {
                        assert_true(tutti_loader_take(s->loader, index, v, &batch));
                        use(s, &batch, n++);
                    }
                }
                OK(tutti_loader_status(s->loader));
            }
            check(s, n);
            stand_free(s);
        }
}

static void an_epoch_that_is_left_leaves_nothing_behind(void **state)
{
    stand *s = stand_new(2, 3);
    tutti_batch batch;
    int n = 0;

    (void)state;
    for (int round = 0; round < EPOCHS * BATCHES; round++) {
        tutti_loader_set_epoch(s->loader, (uint64_t)round);
        for (int i = 0; i < round % 3 && n < EPOCHS * BATCHES; i++) {
            assert_true(tutti_loader_next(s->loader, &batch));
            use(s, &batch, n++);
        }
    }
    check(s, n);
    stand_free(s); /* in the middle of an epoch */
}

/* Another shape at the same place, and another place, are no batch of the loader's. */
static void only_the_batch_itself_is_found(void **state)
{
    stand *s = stand_new(1, 2);
    tutti_batch batch;
    tutti_array more;
    float row[X], read[X];
    tutti_tensor *t;

    (void)state;
    assert_true(tutti_loader_next(s->loader, &batch));
    memcpy(row, batch.x.p, sizeof row);
    tutti_step_begin(s->cx, &(tutti_step_opts){.eval = true});
    t = tutti_input(s->cx, (tutti_array){row, TUTTI_SHAPE(1, X), TUTTI_F32});
    assert_false(t->shared);
    OK(tutti_tensor_read(t, read));
    assert_memory_equal(read, row, sizeof row);
    more = batch.x;
    more.shape = TUTTI_SHAPE(1, X); /* its beginning */
    t = tutti_input(s->cx, more);
    OK(tutti_tensor_read(t, read));
    assert_memory_equal(read, row, sizeof row);
    tutti_step_end(s->cx);
    stand_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_reach_the_device_whole_and_stay),
        cmocka_unit_test(so_they_do_by_shard),
        cmocka_unit_test(an_epoch_that_is_left_leaves_nothing_behind),
        cmocka_unit_test(only_the_batch_itself_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
