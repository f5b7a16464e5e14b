/* data: the loader's batches are correct for any workers, rank and order of events.   SPDX-License-Identifier: MIT */
#include "data_counting.h"

#include <pthread.h>

/* Runs one epoch and checks labels against the sampler, and pixels against the data set. */
static void check_epoch(tutti_loader *loader, const tutti_dataset *dataset,
                        tutti_sampler_opts sampler, uint64_t epoch, size_t size)
{
    size_t indices[COUNT], n = tutti_sampler_length(&sampler), seen = 0;
    uint8_t image[PIXELS];
    int64_t label;
    tutti_batch batch;

    assert_int_equal(tutti_sampler_indices(&sampler, epoch, indices), TUTTI_OK);
    for (size_t b = 0; tutti_loader_next(loader, &batch); b++) {
        const float *x = batch.x.p;

        assert_int_equal(batch.index, b);
        assert_int_equal(batch.n, n - seen < size ? n - seen : size);
        assert_int_equal(batch.x.shape.n, 4);
        assert_int_equal(batch.x.shape.d[0], batch.n);
        assert_int_equal(batch.x.shape.d[1] * batch.x.shape.d[2] * batch.x.shape.d[3], PIXELS);
        assert_int_equal(batch.y.shape.n, 1);
        assert_int_equal(batch.y.dtype, TUTTI_I64);
        for (size_t i = 0; i < batch.n; i++) {
            assert_int_equal(((const int64_t *)batch.y.p)[i], indices[seen + i]);
            assert_int_equal(tutti_dataset_read(dataset, indices[seen + i], image, &label),
                             TUTTI_OK);
            for (size_t k = 0; k < PIXELS; k++) {
                size_t c = k / (SIDE * SIDE);
                float expected =
                    ((float)image[k] / 255.0f - dataset->info.mean[c]) / dataset->info.std[c];

                if (x[i * PIXELS + k] != expected)
                    fail_msg("sample %zu, element %zu: %g, expected %g", indices[seen + i], k,
                             (double)x[i * PIXELS + k], (double)expected);
            }
        }
        seen += batch.n;
    }
    assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
    assert_int_equal(seen, n);
}

static void batches_are_the_samplers_for_any_workers_ranks_and_sizes(void **state)
{
    static const int WORKERS[] = {0, 1, 3}, SIZES[] = {1, 2, 3, 7}, BATCHES[] = {1, 8, 64};
    tutti_dataset *dataset = counting_new();

    (void)state;
    for (size_t w = 0; w < 3; w++)
        for (size_t s = 0; s < 4; s++)
            for (size_t b = 0; b < 3; b++) {
                tutti_group group = {SIZES[s] - 1, SIZES[s]};
                tutti_sampler_opts sampler = {.count = COUNT,
                                              .rank = group.rank,
                                              .world_size = group.size,
                                              .shuffle = true,
                                              .seed = 5};
                tutti_loader *loader = loader_new(
                    dataset, &group,
                    (tutti_loader_opts){
                        .batch = BATCHES[b], .workers = WORKERS[w], .shuffle = true, .seed = 5});

                for (uint64_t epoch = 0; epoch < 3; epoch++) /* it advances by itself */
                    check_epoch(loader, dataset, sampler, epoch, (size_t)BATCHES[b]);
                tutti_loader_set_epoch(loader, 9);
                check_epoch(loader, dataset, sampler, 9, (size_t)BATCHES[b]);
                tutti_loader_free(loader);
            }
    tutti_dataset_free(dataset);
}

static uint64_t fnv(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

/* The expected hashes are of torch's DataLoader(batch_size=32, sampler=DistributedSampler(.., 3, 1, seed=5)) over the
 * same pixels, as ToTensor and Normalize make floats of them: every bit of every batch (tools/make_golden_data.py). */
static void batches_are_bit_for_bit_torchs(void **state)
{
    static const uint64_t EPOCHS[] = {0, 2}, HASHES[] = {0x0a3c472af43e2867, 0x27d20ad393ce4475};
    tutti_group group = {1, 3};
    tutti_dataset *dataset;
    tutti_loader *loader;
    tutti_batch batch;

    (void)state;
    assert_int_equal(tutti_dataset_open(&dataset, "digits:train"), TUTTI_OK);
    loader = loader_new(dataset, &group,
                        (tutti_loader_opts){.batch = 32, .workers = 2, .shuffle = true, .seed = 5});
    assert_int_equal(tutti_loader_batches(loader), 15);
    for (int e = 0; e < 2; e++) {
        uint64_t hash = 0xcbf29ce484222325;

        tutti_loader_set_epoch(loader, EPOCHS[e]);
        while (tutti_loader_next(loader, &batch)) {
            for (size_t i = 0; i < batch.n * 64; i++)
                hash = fnv(hash, ((const uint32_t *)batch.x.p)[i]);
            for (size_t i = 0; i < batch.n; i++)
                hash = fnv(hash, ((const uint64_t *)batch.y.p)[i]);
        }
        assert_true(hash == HASHES[e]);
    }
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void an_epoch_can_be_left_in_the_middle(void **state)
{
    tutti_dataset *dataset = counting_new();
    tutti_sampler_opts sampler = {.count = COUNT, .world_size = 1, .shuffle = true};

    (void)state;
    for (int workers = 0; workers <= 4; workers++) {
        tutti_loader *loader = loader_new(
            dataset, NULL, (tutti_loader_opts){.batch = 4, .workers = workers, .shuffle = true});
        tutti_batch batch;

        for (int stop = 0; stop < 12; stop++) {
            tutti_loader_set_epoch(loader, (uint64_t)stop);
            for (int i = 0; i < stop; i++)
                assert_true(tutti_loader_next(loader, &batch));
        }
        tutti_loader_set_epoch(loader, 11); /* the same epoch from its start */
        check_epoch(loader, dataset, sampler, 11, 4);
        tutti_loader_free(loader);
    }
    tutti_dataset_free(dataset);
}

/* From any batch on, an epoch continues as if those before had been delivered; so does the next one. */
static void an_epoch_can_begin_in_the_middle(void **state)
{
    tutti_sampler_opts sampler = {.count = COUNT, .world_size = 1, .shuffle = true};
    tutti_dataset *dataset = counting_new();
    size_t indices[COUNT];
    tutti_batch batch;

    (void)state;
    assert_int_equal(tutti_sampler_indices(&sampler, 4, indices), TUTTI_OK);
    for (int workers = 0; workers <= 4; workers += 2) {
        tutti_loader *loader = loader_new(
            dataset, NULL, (tutti_loader_opts){.batch = 8, .workers = workers, .shuffle = true});

        for (size_t first = 0; first <= 7; first++) {
            size_t b = first;

            tutti__loader_seek(loader, 4, 0, first);
            for (; tutti_loader_next(loader, &batch); b++) {
                assert_int_equal(batch.index, b);
                for (size_t i = 0; i < batch.n; i++)
                    assert_int_equal(((const int64_t *)batch.y.p)[i], indices[b * 8 + i]);
            }
            assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
            assert_int_equal(b, 7);
            check_epoch(loader, dataset, sampler, 5, 8);
        }
        tutti_loader_free(loader);
    }
    tutti_dataset_free(dataset);
}

/* The same from the 22nd sample on, as after 11 of each of two ranks: fewer batches, and the next epoch is whole again. */
static void an_epoch_can_begin_behind_samples_that_others_took(void **state)
{
    tutti_dataset *dataset = counting_new();
    tutti_sampler_opts sampler = {.count = COUNT, .world_size = 1, .shuffle = true};
    size_t indices[COUNT];

    (void)state;
    assert_int_equal(tutti_sampler_indices(&sampler, 4, indices), TUTTI_OK);
    for (int workers = 0; workers < 3; workers += 2) {
        tutti_batch batch;
        tutti_loader *loader = loader_new(
            dataset, NULL, (tutti_loader_opts){.batch = 8, .workers = workers, .shuffle = true});
        size_t at = 22 + 8;

        tutti__loader_seek(loader, 4, 22, 1);
        assert_int_equal(tutti_loader_batches(loader), (COUNT - 22 + 7) / 8);
        for (; tutti_loader_next(loader, &batch); at += batch.n)
            for (size_t i = 0; i < batch.n; i++)
                assert_int_equal(((const int64_t *)batch.y.p)[i], indices[at + i]);
        assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
        assert_int_equal(at, COUNT);
        check_epoch(loader, dataset, sampler, 5, 8);
        tutti_loader_free(loader);
    }
    tutti_dataset_free(dataset);
}

static void a_loader_can_be_freed_at_any_time(void **state)
{
    tutti_dataset *dataset = counting_new();

    (void)state;
    for (int round = 0; round < 40; round++) {
        tutti_loader *loader =
            loader_new(dataset, NULL,
                       (tutti_loader_opts){.batch = 2, .workers = 1 + round % 4, .prefetch = 3});
        tutti_batch batch;

        for (int i = 0; i < round; i++)
            if (!tutti_loader_next(loader, &batch))
                break;
        tutti_loader_free(loader);
    }
    tutti_loader_free(NULL);
    tutti_dataset_free(dataset);
}

static void drop_last_and_no_padding_decide_about_the_rest(void **state)
{
    tutti_dataset *dataset = counting_new();
    tutti_group group = {3, 4};
    tutti_loader *loader;
    tutti_batch batch;
    size_t n = 0;

    (void)state;
    loader = loader_new(dataset, &group,
                        (tutti_loader_opts){.batch = 5, .workers = 2, .drop_last = true});
    assert_int_equal(tutti_loader_batches(loader), 2); /* 13 of 53, in fives */
    while (tutti_loader_next(loader, &batch))
        n += batch.n;
    assert_int_equal(n, 10);
    tutti_loader_free(loader);

    n = 0;
    for (int rank = 0; rank < 60; rank++) { /* more ranks than samples */
        tutti_group many = {rank, 60};

        loader = loader_new(dataset, &many,
                            (tutti_loader_opts){.batch = 5, .workers = 1, .no_padding = true});
        while (tutti_loader_next(loader, &batch))
            n += batch.n;
        assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
        tutti_loader_free(loader);
    }
    assert_int_equal(n, COUNT);
    tutti_dataset_free(dataset);
}

static void a_failure_comes_in_its_place_with_file_and_index(void **state)
{
    tutti_dataset *dataset = counting_new();

    (void)state;
    fails_at = 17;
    for (int workers = 0; workers <= 3; workers++) {
        tutti_loader *loader =
            loader_new(dataset, NULL, (tutti_loader_opts){.batch = 5, .workers = workers});
        tutti_batch batch;

        for (int i = 0; i < 3; i++) /* those before it are good */
            assert_true(tutti_loader_next(loader, &batch));
        for (int i = 0; i < 2; i++) {
            assert_false(tutti_loader_next(loader, &batch));
            assert_int_equal(tutti_loader_status(loader), TUTTI_ERR_FORMAT);
            assert_non_null(strstr(tutti_last_error(), "0017.bin"));
            assert_non_null(strstr(tutti_last_error(), "sample 17"));
        }
        fails_at = SIZE_MAX; /* repaired: the next epoch is complete */
        tutti_loader_set_epoch(loader, 1);
        check_epoch(loader, dataset, (tutti_sampler_opts){.count = COUNT, .world_size = 1}, 1, 5);
        tutti_loader_free(loader);
        fails_at = 17;
    }
    tutti_dataset_free(dataset);
}

static void refused(const tutti_dataset *dataset, const tutti_group *group, tutti_loader_opts opts,
                    const char *word)
{
    tutti_loader *loader;

    assert_int_equal(tutti_loader_new(&loader, dataset, group, &opts), TUTTI_ERR_ARG);
    assert_null(loader);
    if (!strstr(tutti_last_error(), word))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), word);
}

static void bad_options_are_refused_with_their_numbers(void **state)
{
    tutti_dataset *dataset = counting_new();
    tutti_group many = {0, 54};

    (void)state;
    refused(dataset, NULL, (tutti_loader_opts){.batch = 0}, "batch size is 0");
    refused(dataset, NULL, (tutti_loader_opts){.batch = -4}, "-4");
    refused(dataset, NULL, (tutti_loader_opts){.batch = 1, .workers = -1}, "-1 workers");
    refused(dataset, NULL, (tutti_loader_opts){.batch = 1, .workers = 1 << 20}, "workers");
    refused(dataset, NULL, (tutti_loader_opts){.batch = 1, .prefetch = -1}, "prefetch");
    refused(dataset, NULL, (tutti_loader_opts){.batch = 1, .channels = 1}, "channels");
    refused(dataset, NULL, (tutti_loader_opts){.batch = 64, .drop_last = true}, "drop_last");
    refused(dataset, &many, (tutti_loader_opts){.batch = 1}, "53 samples for 54 ranks");
    tutti_dataset_free(dataset);
}

static void rows_from_memory_arrive_as_they_are(void **state)
{
    float x[7 * 3], y[7 * 2];
    tutti_dataset *dataset;
    tutti_batch batch;
    uint8_t image[3];
    int64_t label;
    size_t seen = 0;
    tutti_loader *loader;

    (void)state;
    for (int i = 0; i < 7 * 3; i++)
        x[i] = (float)i;
    for (int i = 0; i < 7 * 2; i++)
        y[i] = (float)-i;
    assert_int_equal(tutti_dataset_from_memory(&dataset, x, 3, y, 2, 7), TUTTI_OK);
    assert_int_equal(tutti_dataset_describe(dataset).count, 7);
    assert_int_equal(tutti_dataset_read(dataset, 0, image, &label), TUTTI_ERR_UNSUPPORTED);
    refused(dataset, NULL, (tutti_loader_opts){.batch = 1, .augment = true}, "augment");
    loader = loader_new(dataset, NULL, (tutti_loader_opts){.batch = 3, .workers = 2});
    while (tutti_loader_next(loader, &batch)) {
        assert_int_equal(batch.y.dtype, TUTTI_F32);
        assert_int_equal(batch.x.shape.n, 2);
        assert_int_equal(batch.x.shape.d[1], 3);
        assert_int_equal(batch.y.shape.d[1], 2);
        assert_memory_equal(batch.x.p, x + seen * 3, batch.n * 3 * sizeof(float));
        assert_memory_equal(batch.y.p, y + seen * 2, batch.n * 2 * sizeof(float));
        seen += batch.n;
    }
    assert_int_equal(seen, 7);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
    assert_int_equal(tutti_dataset_from_memory(&dataset, NULL, 3, y, 2, 7), TUTTI_ERR_ARG);
    assert_int_equal(tutti_dataset_from_memory(&dataset, x, 0, y, 2, 7), TUTTI_ERR_ARG);
}

static void workers_leave_spans(void **state)
{
    tutti_dataset *dataset = counting_new();
    tutti__recorder *recorder = tutti__recorder_new(64);
    tutti_loader *loader =
        loader_new(dataset, NULL, (tutti_loader_opts){.batch = 10, .workers = 2});
    tutti__time_span events[64];
    tutti_batch batch;
    bool seen[6] = {false};
    size_t n;

    (void)state;
    tutti__loader_set_recorder(loader, recorder);
    for (int i = 0; i < 6; i++)
        assert_true(tutti_loader_next(loader, &batch));
    tutti_loader_free(loader);
    n = tutti__recorder_read(recorder, events, 64);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(events[i].category, "data");
        assert_in_range(events[i].thread, 2, 3);
        assert_in_range(events[i].arg, 0, 5);
        seen[events[i].arg] = true;
    }
    for (int i = 0; i < 6; i++)
        assert_true(seen[i]);
    tutti__recorder_free(recorder);
    tutti_dataset_free(dataset);
}

/* ---- A read that hangs ------------------------------------------------------------------------------------------ */

static pthread_mutex_t hang = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t heard_it = PTHREAD_COND_INITIALIZER;
static char warning[1024];
static int warnings;

static void hear(void *user, tutti_log_level level, const char *area, int rank, const char *text)
{
    (void)user;
    (void)area;
    (void)rank;
    if (level != TUTTI_LOG_WARN)
        return;
    pthread_mutex_lock(&hang);
    snprintf(warning, sizeof warning, "%s", text);
    warnings++;
    pthread_cond_broadcast(&heard_it);
    pthread_mutex_unlock(&hang);
}

/* Reading sample 17 returns only after a warning about it. */
static tutti_status hanging_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    pthread_mutex_lock(&hang);
    while (index == 17 && warnings == 0)
        pthread_cond_wait(&heard_it, &hang);
    pthread_mutex_unlock(&hang);
    return counting_read(self, index, image, label_p);
}

static void hanging_locate(const void *self, size_t index, char *text, size_t size)
{
    (void)self;
    snprintf(text, size, "mount/%zu\n.jpg", index);
}

static void a_slow_read_is_named_once(void **state)
{
    static const tutti_dataset_format HANGING = {.name = "hanging",
                                                 .no_folder = true,
                                                 .open = counting_open,
                                                 .read = hanging_read,
                                                 .locate = hanging_locate};
    tutti_dataset *dataset = own_new(&HANGING);
    tutti_loader *loader;
    tutti_batch batch;
    size_t n = 0;

    (void)state;
    setenv("TUTTI_DATA_WARN_S", "0.3", 1); /* no other read takes as long */
    tutti_log_set_callback(hear, NULL);
    loader = loader_new(dataset, NULL, (tutti_loader_opts){.batch = 5, .workers = 2});
    while (tutti_loader_next(loader, &batch))
        n += batch.n;
    tutti_log_set_callback(NULL, NULL);
    assert_int_equal(n, COUNT);
    assert_int_equal(warnings, 1);
    if (!strstr(warning, "waiting for batch 3 for ") || !strstr(warning, "of 2 is reading ") ||
        !strstr(warning, "reading mount/17\\n.jpg (sample 17 of data set hanging, train)"))
        fail_msg("\"%s\"", warning);
    assert_true(tutti__loader_wait_ns(loader) >= 300000000);
    tutti_loader_free(loader);
    setenv("TUTTI_DATA_WARN_S", "soon", 1);
    assert_int_equal(tutti_loader_new(&loader, dataset, NULL, &(tutti_loader_opts){.batch = 5}),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_DATA_WARN_S is \"soon\""));
    unsetenv("TUTTI_DATA_WARN_S");
    tutti_dataset_free(dataset);
}

/* ---- N ranks as threads of one process ------------------------------------------------------------------------ */

static void *run_rank(void *user)
{
    const tutti_group *group = user;
    tutti_dataset *dataset = NULL;
    tutti_loader *loader = NULL;
    tutti_loader_opts opts = {.batch = 16, .workers = 2, .shuffle = true, .augment = true};
    tutti_batch batch;
    size_t n = 0;

    if (tutti_dataset_open(&dataset, "digits:train") != TUTTI_OK ||
        tutti_loader_new(&loader, dataset, group, &opts) != TUTTI_OK)
        return NULL;
    for (int epoch = 0; epoch < 3; epoch++)
        while (tutti_loader_next(loader, &batch))
            n += batch.n;
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
    return n == 3 * 480 ? user : NULL; /* 1438 samples over 3 ranks, padded */
}

static void ranks_may_be_threads(void **state)
{
    tutti_group groups[3] = {{0, 3}, {1, 3}, {2, 3}};
    pthread_t threads[3];
    void *result;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &groups[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, &groups[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_the_samplers_for_any_workers_ranks_and_sizes),
        cmocka_unit_test(batches_are_bit_for_bit_torchs),
        cmocka_unit_test(an_epoch_can_be_left_in_the_middle),
        cmocka_unit_test(an_epoch_can_begin_in_the_middle),
        cmocka_unit_test(an_epoch_can_begin_behind_samples_that_others_took),
        cmocka_unit_test(a_loader_can_be_freed_at_any_time),
        cmocka_unit_test(drop_last_and_no_padding_decide_about_the_rest),
        cmocka_unit_test(a_failure_comes_in_its_place_with_file_and_index),
        cmocka_unit_test(bad_options_are_refused_with_their_numbers),
        cmocka_unit_test(rows_from_memory_arrive_as_they_are),
        cmocka_unit_test(a_slow_read_is_named_once),
        cmocka_unit_test(workers_leave_spans),
        cmocka_unit_test(ranks_may_be_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
