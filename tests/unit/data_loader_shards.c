/* data: a loader's batches by shard are those that the shard's rank would get, by any rank, in any order, and
 * for any earlier requests.   SPDX-License-Identifier: MIT */
#include "data_loaders.h"

#include <pthread.h>

/* ---- A data set that records reads, and can hang or fail ----------------------------------------- */

enum { COUNT = 53, SIDE = 6, PIXELS = 3 * SIDE * SIDE, MAX_READS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t fails_at, hangs_at; /* COUNT: none does */
static size_t reads[MAX_READS], n_reads, n_own_reads;
static int warnings;
static char warning[1024];
static pthread_t caller;

static void reset(void)
{
    pthread_mutex_lock(&lock);
    fails_at = hangs_at = COUNT;
    n_reads = n_own_reads = 0;
    warnings = 0;
    caller = pthread_self();
    pthread_mutex_unlock(&lock);
}

static tutti_status open_it(void **self_p, const tutti_dataset_source *source,
                            tutti_dataset_info *info)
{
    (void)source;
    *self_p = NULL;
    info->count = COUNT;
    info->channels = 3;
    info->height = info->width = SIDE;
    info->classes = COUNT;
    return TUTTI_OK;
}

static tutti_status read_it(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    bool fails;

    (void)self;
    pthread_mutex_lock(&lock);
    reads[n_reads++ % MAX_READS] = index;
    n_own_reads += pthread_equal(caller, pthread_self()) != 0;
    pthread_cond_broadcast(&changed);
    while (index == hangs_at)
        pthread_cond_wait(&changed, &lock);
    fails = index == fails_at;
    pthread_mutex_unlock(&lock);
    if (fails)
        return tutti_fail(TUTTI_ERR_FORMAT, "file 00%zu.bin is broken", index);
    for (size_t i = 0; i < PIXELS; i++)
        image[i] = (uint8_t)(1 + (index * 7 + i * 31) % 255);
    *label_p = (int64_t)index;
    return TUTTI_OK;
}

static void wait_for_reads(size_t n)
{
    pthread_mutex_lock(&lock);
    while (n_reads < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void hang_at(size_t index)
{
    pthread_mutex_lock(&lock);
    hangs_at = index;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static tutti_dataset *dataset_new(void)
{
    static const tutti_dataset_format FORMAT = {
        .name = "telling", .no_folder = true, .open = open_it, .read = read_it};
    tutti_dataset *dataset;

    reset();
    if (tutti_dataset_open_with(&dataset, "telling:train",
                                &(tutti_dataset_opts){.format = &FORMAT}) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return dataset;
}

/* ---- Equality with the loaders of ranks --------------------------------------------------------------------- */

/* All batches of an epoch, by shard, as the ranks' loaders give them. */
typedef struct expected {
    size_t n[8][COUNT + 1]; /* samples of batch [shard][index]; 0: there is none */
    size_t samples[8][COUNT + 1][COUNT];
    float x[8][COUNT][PIXELS]; /* of [shard], one after the other */
} expected;

static void expect(expected *e, const tutti_dataset *dataset, tutti_loader_opts opts,
                   uint64_t epoch, size_t start)
{
    tutti_batch batch;
    const int shards = opts.shards;

    memset(e->n, 0, sizeof e->n);
    opts.shards = opts.workers = 0;
    for (int v = 0; v < shards; v++) {
        tutti_group group = {v, shards};
        tutti_loader *loader = loader_new(dataset, &group, opts);
        size_t seen = 0;

        tutti__loader_seek(loader, epoch, start, 0);
        while (tutti_loader_next(loader, &batch)) {
            e->n[v][batch.index] = batch.n;
            for (size_t i = 0; i < batch.n; i++) /* labels are the samples' numbers */
                assert_int_equal(batch.samples[i], ((const int64_t *)batch.y.p)[i]);
            memcpy(e->samples[v][batch.index], batch.samples, batch.n * sizeof(size_t));
            memcpy(e->x[v][seen], batch.x.p, batch.n * sizeof e->x[0][0]);
            seen += batch.n;
        }
        assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
        tutti_loader_free(loader);
    }
}

static void take(tutti_loader *loader, const expected *e, size_t batch_size, size_t index, int v)
{
    const size_t n = e->n[v][index];
    tutti_batch batch;

    if (n == 0) {
        assert_false(tutti_loader_take(loader, index, v, &batch));
        assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
        return;
    }
    if (!tutti_loader_take(loader, index, v, &batch))
        fail_msg("batch %zu of shard %d: %s", index, v, tutti_last_error());
    assert_int_equal(batch.index, index);
    assert_int_equal(batch.n, n);
    assert_int_equal(batch.x.shape.d[0], n);
    assert_int_equal(batch.y.shape.d[0], n);
    assert_memory_equal(batch.samples, e->samples[v][index], n * sizeof(size_t));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(((const int64_t *)batch.y.p)[i], batch.samples[i]);
    assert_memory_equal(batch.x.p, e->x[v][index * batch_size], n * sizeof e->x[0][0]);
}

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Every batch of an epoch, in some order; before each some others are requested, of this epoch and the next, of which some
 * do not exist, and most are taken late or never. */
static void take_all(tutti_loader *loader, const expected *e, const tutti_loader_opts *opts,
                     uint32_t seed)
{
    const uint32_t batches = (uint32_t)tutti_loader_batches(loader) + 1; /* and one beyond */
    const uint32_t shards = (uint32_t)opts->shards, all = batches * shards;
    uint32_t order[8 * (COUNT + 1)];

    for (uint32_t i = 0; i < all; i++) {
        uint32_t j = draw(&seed, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < all; i++) {
        const size_t index = order[i] / shards;
        const int v = (int)(order[i] % shards);

        for (uint32_t asked = draw(&seed, 4); asked > 0; asked--)
            tutti_loader_ask(loader, draw(&seed, batches + 2), (int)draw(&seed, shards + 1),
                             draw(&seed, 8) == 0);
        if (draw(&seed, 2))
            tutti_loader_ask(loader, index, v, 0);
        take(loader, e, (size_t)opts->batch, index, v);
    }
}

static void check_equality(const tutti_dataset *dataset, tutti_loader_opts opts)
{
    static expected e;
    tutti_loader *loader = loader_new(dataset, NULL, opts);

    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        expect(&e, dataset, opts, epoch, 0);
        if (epoch > 0) /* without it: 0 */
            tutti_loader_set_epoch(loader, epoch);
        take_all(loader, &e, &opts, (uint32_t)epoch + 1);
    }
    for (size_t start = 9; start < COUNT; start += 22) { /* samples that others have had before */
        expect(&e, dataset, opts, 7, start);
        tutti__loader_seek(loader, 7, start, 0);
        take_all(loader, &e, &opts, (uint32_t)start);
    }
    expect(&e, dataset, opts, 8, 0);
    tutti_loader_set_epoch(loader, 8);
    take_all(loader, &e, &opts, 3);
    tutti_loader_free(loader);
}

static void batches_are_those_of_the_shards_rank(void **state)
{
    static const int SHARDS[] = {1, 2, 3, 5, 8}, BATCHES[] = {1, 3, 8, 64};
    tutti_dataset *dataset = dataset_new();

    (void)state;
    for (size_t v = 0; v < TUTTI__COUNT_OF(SHARDS); v++)
        for (size_t b = 0; b < TUTTI__COUNT_OF(BATCHES); b++)
            check_equality(dataset, (tutti_loader_opts){.batch = BATCHES[b],
                                                        .shards = SHARDS[v],
                                                        .workers = (int)(v + b) % 5,
                                                        .shuffle = true,
                                                        .seed = 5,
                                                        .augment = v % 2 == 0});
    tutti_dataset_free(dataset);
}

static void so_they_are_with_other_rests_and_any_workers(void **state)
{
    tutti_dataset *dataset = dataset_new();

    (void)state;
    for (int workers = 0; workers <= 4; workers++)
        for (int kind = 0; kind < 4; kind++)
            check_equality(dataset, (tutti_loader_opts){.batch = 3,
                                                        .shards = 4,
                                                        .workers = workers,
                                                        .prefetch = workers + kind,
                                                        .shuffle = kind % 2 == 0,
                                                        .drop_last = kind == 1 || kind == 2,
                                                        .no_padding = kind >= 2});
    tutti_dataset_free(dataset);
}

static void rows_from_memory_come_by_shard_too(void **state)
{
    float x[7 * 3], y[7];
    tutti_dataset *dataset;
    tutti_loader *loader;
    tutti_batch batch;

    (void)state;
    for (int i = 0; i < 7 * 3; i++)
        x[i] = (float)i;
    for (int i = 0; i < 7; i++)
        y[i] = (float)-i;
    assert_int_equal(tutti_dataset_from_memory(&dataset, x, 3, y, 1, 7), TUTTI_OK);
    loader = loader_new(dataset, NULL, (tutti_loader_opts){.batch = 2, .shards = 2, .workers = 1});
    assert_int_equal(tutti_loader_batches(loader), 2);
    tutti_loader_ask(loader, 1, 1, 0);
    assert_true(tutti_loader_take(loader, 1, 1, &batch)); /* 0 2 4 6, and 1 3 5 0 */
    assert_int_equal(batch.n, 2);
    assert_int_equal(batch.samples[0], 5);
    assert_int_equal(batch.samples[1], 0);
    assert_memory_equal(batch.x.p, x + 15, 3 * sizeof(float));
    assert_true(((const float *)batch.y.p)[0] == -5 && batch.y.dtype == TUTTI_F32);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

/* ---- Who makes what, and when ---------------------------------------------------------------------------------- */

/* 53 samples in order, over 4 shards, in twos: batch b of shard v is 8 b + v and 8 b + v + 4. */
static tutti_loader_opts fours(int workers, int prefetch)
{
    return (tutti_loader_opts){.batch = 2, .shards = 4, .workers = workers, .prefetch = prefetch};
}

static void take_in_order(tutti_loader *loader, size_t index, int shard)
{
    tutti_batch batch;

    assert_true(tutti_loader_take(loader, index, shard, &batch));
    assert_int_equal(batch.samples[0], 8 * index + (size_t)shard);
    assert_int_equal(batch.samples[1], 8 * index + (size_t)shard + 4);
    assert_int_equal(((const int64_t *)batch.y.p)[0], batch.samples[0]);
}

static void workers_make_what_is_asked_for_in_that_order_and_the_caller_the_rest(void **state)
{
    static const size_t ORDER[] = {3, 7, 0, 4, 41, 45};
    tutti_dataset *dataset = dataset_new();
    tutti_loader *loader = loader_new(dataset, NULL, fours(1, 3));

    (void)state;
    tutti_loader_ask(loader, 0, 3, 0);
    tutti_loader_ask(loader, 0, 0, 0);
    tutti_loader_ask(loader, 0, 3, 0); /* again: nothing */
    tutti_loader_ask(loader, 5, 1, 0);
    tutti_loader_ask(loader, 2, 2, 0); /* more than prefetch: it waits for its turn */
    wait_for_reads(6);
    assert_memory_equal(reads, ORDER, sizeof ORDER);
    take_in_order(loader, 0, 3);
    take_in_order(loader, 0, 0);
    take_in_order(loader, 5, 1);
    wait_for_reads(8);
    assert_int_equal(n_own_reads, 0);
    take_in_order(loader, 3, 3); /* another's: at once */
    assert_int_equal(n_own_reads, 2);
    take_in_order(loader, 2, 2);
    assert_int_equal(n_own_reads, 2);
    assert_int_equal(n_reads, 10); /* each once */
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void what_another_rank_took_over_blocks_nothing(void **state)
{
    tutti_dataset *dataset = dataset_new();
    tutti_loader *loader = loader_new(dataset, NULL, fours(2, 4));

    (void)state;
    for (int v = 0; v < 4; v++)
        tutti_loader_ask(loader, 0, v, 0);
    wait_for_reads(8);
    take_in_order(loader, 0, 0); /* the other three are not taken */
    tutti_loader_ask(loader, 1, 0, 0);
    for (int v = 0; v < 4; v++)
        tutti_loader_ask(loader, 2, v, 0); /* no room */
    wait_for_reads(10);
    take_in_order(loader, 1, 0); /* the three go */
    wait_for_reads(18);
    take_in_order(loader, 2, 3);
    assert_int_equal(n_own_reads, 0);
    assert_int_equal(n_reads, 18);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void what_is_forgotten_makes_room(void **state)
{
    tutti_dataset *dataset = dataset_new();
    tutti_loader *loader = loader_new(dataset, NULL, fours(1, 2));

    (void)state;
    tutti_loader_ask(loader, 1, 2, 0);
    tutti_loader_ask(loader, 1, 3, 0);
    tutti_loader_ask(loader, 1, 1, 0); /* waits behind them */
    wait_for_reads(4);
    tutti_loader_forget(loader);
    tutti_loader_ask(loader, 2, 0, 0);
    wait_for_reads(6);
    assert_int_equal(n_own_reads, 0);
    take_in_order(loader, 1, 2); /* forgotten: the caller's */
    assert_int_equal(n_own_reads, 2);
    take_in_order(loader, 2, 0);
    assert_int_equal(n_own_reads, 2);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void a_batch_is_had_while_a_worker_hangs_in_another(void **state)
{
    tutti_dataset *dataset = dataset_new();
    tutti_loader *loader = loader_new(dataset, NULL, fours(1, 2));

    (void)state;
    hang_at(0);
    tutti_loader_ask(loader, 0, 0, 0);
    tutti_loader_ask(loader, 0, 1, 0);
    tutti_loader_ask(loader, 0, 2, 0);
    wait_for_reads(1);
    take_in_order(loader, 0, 1); /* nobody has begun it; shard 0 is dropped */
    take_in_order(loader, 0, 2);
    tutti_loader_set_epoch(loader, 1);
    take_in_order(loader, 3, 0);
    assert_int_equal(n_own_reads, 6);
    hang_at(COUNT);
    tutti_loader_ask(loader, 0, 3, 0);
    wait_for_reads(9); /* the worker left shard 0 at its first sample */
    take_in_order(loader, 0, 3);
    assert_int_equal(n_own_reads, 6);
    assert_int_equal(n_reads, 9);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void the_next_epochs_first_batches_are_there_when_it_begins(void **state)
{
    static expected e;
    tutti_dataset *dataset = dataset_new();
    tutti_loader_opts opts = {.batch = 4, .shards = 3, .workers = 2, .shuffle = true, .seed = 1};
    tutti_loader *loader = loader_new(dataset, NULL, opts);

    (void)state;
    expect(&e, dataset, opts, 1, 0);
    reset();
    tutti_loader_ask(loader, 0, 0, 0); /* of an epoch that goes */
    tutti_loader_ask(loader, 0, 1, 1);
    tutti_loader_ask(loader, 1, 2, 1);
    wait_for_reads(12);
    tutti_loader_set_epoch(loader, 1);
    take(loader, &e, 4, 0, 1);
    take(loader, &e, 4, 1, 2);
    assert_int_equal(n_reads, 12);
    assert_int_equal(n_own_reads, 0);
    tutti_loader_ask(loader, 0, 0, 1); /* of an epoch that does not come */
    tutti_loader_set_epoch(loader, 5);
    expect(&e, dataset, opts, 5, 0);
    take(loader, &e, 4, 0, 0);
    tutti_loader_set_epoch(loader, 4); /* back */
    expect(&e, dataset, opts, 4, 0);
    take(loader, &e, 4, 2, 1);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void a_loader_can_be_freed_at_any_time(void **state)
{
    tutti_dataset *dataset = dataset_new();

    (void)state;
    for (int round = 0; round < 60; round++) {
        tutti_loader *loader = loader_new(dataset, NULL, fours(1 + round % 4, 1 + round % 5));

        for (int i = 0; i < round % 16; i++)
            tutti_loader_ask(loader, (size_t)i / 4, i % 4, round % 2);
        if (round % 3)
            take_in_order(loader, (size_t)round % 5, round % 4);
        tutti_loader_free(loader);
    }
    tutti_loader_free(loader_new(dataset, NULL, fours(0, 0)));
    tutti_dataset_free(dataset);
}

/* ---- Failures --------------------------------------------------------------------------------------------- */

static void a_failure_comes_with_file_and_index(void **state)
{
    tutti_dataset *dataset = dataset_new();
    tutti_batch batch;

    (void)state;
    for (int workers = 0; workers <= 3; workers++)
        for (int is_asked = 0; is_asked < 2; is_asked++) {
            tutti_loader *loader = loader_new(dataset, NULL, fours(workers, 0));

            reset();
            fails_at = 12; /* the second of batch 1 of shard 0 */
            if (is_asked) {
                tutti_loader_ask(loader, 1, 0, 0);
                tutti_loader_ask(loader, 1, 1, 0);
            } else {
                take_in_order(loader, 1, 1);
            }
            for (int i = 0; i < 2; i++) {
                assert_false(tutti_loader_take(loader, 1, 0, &batch));
                assert_int_equal(tutti_loader_status(loader), TUTTI_ERR_FORMAT);
                assert_non_null(strstr(tutti_last_error(), "0012.bin"));
                assert_non_null(strstr(tutti_last_error(), "sample 12"));
            }
            reset(); /* repaired */
            tutti_loader_set_epoch(loader, 0);
            take_in_order(loader, 1, 0);
            take_in_order(loader, 1, 1);
            tutti_loader_free(loader);
        }
    tutti_dataset_free(dataset);
}

static void hear(void *user, tutti_log_level level, const char *area, int rank, const char *text)
{
    (void)user;
    (void)area;
    (void)rank;
    if (level != TUTTI_LOG_WARN)
        return;
    pthread_mutex_lock(&lock);
    snprintf(warning, sizeof warning, "%s", text);
    warnings++;
    hangs_at = COUNT; /* the file system is back */
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void a_slow_read_is_named(void **state)
{
    tutti_dataset *dataset = dataset_new();
    tutti_loader *loader;

    (void)state;
    setenv("TUTTI_DATA_WARN_S", "0.3", 1); /* no other read takes as long */
    tutti_log_set_callback(hear, NULL);
    loader = loader_new(dataset, NULL, fours(1, 2));
    hang_at(19);
    tutti_loader_ask(loader, 2, 3, 0);
    wait_for_reads(1);
    take_in_order(loader, 2, 3);
    tutti_log_set_callback(NULL, NULL);
    unsetenv("TUTTI_DATA_WARN_S");
    assert_int_equal(warnings, 1);
    if (!strstr(warning, "waiting for batch 2 of shard 3 for ") ||
        !strstr(warning, "worker 0 of 1 is reading sample 19"))
        fail_msg("\"%s\"", warning);
    assert_true(tutti__loader_wait_ns(loader) >= 300000000);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void refused(const tutti_dataset *dataset, tutti_loader_opts opts, const char *word)
{
    tutti_loader *loader;

    assert_int_equal(tutti_loader_new(&loader, dataset, NULL, &opts), TUTTI_ERR_ARG);
    assert_null(loader);
    if (!strstr(tutti_last_error(), word))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), word);
}

static void wrong_use_is_refused(void **state)
{
    tutti_dataset *dataset = dataset_new();
    tutti_loader *by_shard = loader_new(dataset, NULL, fours(1, 0));
    tutti_loader *by_rank = loader_new(dataset, NULL, (tutti_loader_opts){.batch = 2});
    tutti_batch batch;

    (void)state;
    refused(dataset, (tutti_loader_opts){.batch = 1, .shards = -1}, "-1 shards");
    refused(dataset, (tutti_loader_opts){.batch = 1, .shards = 5000}, "5000 shards");
    refused(dataset, (tutti_loader_opts){.batch = 1, .shards = 54}, "53 samples for 54 shards");
    refused(dataset, (tutti_loader_opts){.batch = 64, .shards = 2, .drop_last = true}, "a shard");
    assert_false(tutti_loader_next(by_shard, &batch));
    assert_int_equal(tutti_loader_status(by_shard), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "tutti_loader_take"));
    tutti_loader_set_epoch(by_shard, 0);
    take_in_order(by_shard, 0, 0);
    assert_false(tutti_loader_take(by_shard, 0, 4, &batch));
    assert_int_equal(tutti_loader_status(by_shard), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "shard 4 of 4"));
    tutti_loader_ask(by_shard, 0, 0, 0); /* nothing after a failure */
    tutti__loader_seek(by_shard, 0, COUNT + 1, 0);
    assert_int_equal(tutti_loader_status(by_shard), TUTTI_ERR_ARG);
    tutti_loader_set_epoch(by_shard, 0);
    tutti_loader_ask(by_shard, SIZE_MAX, 0, 0);
    tutti_loader_ask(by_shard, 0, -1, 0);
    tutti_loader_ask(by_shard, 0, 0, 2);
    assert_false(tutti_loader_take(by_shard, SIZE_MAX, 0, &batch));
    assert_int_equal(tutti_loader_status(by_shard), TUTTI_OK);

    tutti_loader_ask(by_rank, 0, 0, 0);
    tutti_loader_forget(by_rank);
    assert_false(tutti_loader_take(by_rank, 0, 0, &batch));
    assert_int_equal(tutti_loader_status(by_rank), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "tutti_loader_next"));
    tutti_loader_set_epoch(by_rank, 0);
    assert_true(tutti_loader_next(by_rank, &batch));
    tutti_loader_free(by_shard);
    tutti_loader_free(by_rank);
    tutti_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_those_of_the_shards_rank),
        cmocka_unit_test(so_they_are_with_other_rests_and_any_workers),
        cmocka_unit_test(rows_from_memory_come_by_shard_too),
        cmocka_unit_test(workers_make_what_is_asked_for_in_that_order_and_the_caller_the_rest),
        cmocka_unit_test(what_another_rank_took_over_blocks_nothing),
        cmocka_unit_test(what_is_forgotten_makes_room),
        cmocka_unit_test(a_batch_is_had_while_a_worker_hangs_in_another),
        cmocka_unit_test(the_next_epochs_first_batches_are_there_when_it_begins),
        cmocka_unit_test(a_loader_can_be_freed_at_any_time),
        cmocka_unit_test(a_failure_comes_with_file_and_index),
        cmocka_unit_test(a_slow_read_is_named),
        cmocka_unit_test(wrong_use_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
