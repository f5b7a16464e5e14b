/* comm: groups that meet in a store of the program's: its callbacks, the secret that rank 0 leaves there, its failures.
 * SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* The program's store: a file, and what has been seen of the calls. */
typedef struct own_store {
    tutti_store *file;
    int secrets, releases;
    const char *failure; /* of every call; NULL: none */
} own_store;

static tutti_status own_set(void *user, const char *key, const void *value, size_t bytes)
{
    own_store *own = user;
    const char *last = strrchr(key, '/');

    own->secrets += last && strcmp(last, "/secret") == 0 && bytes == 32;
    if (own->failure)
        return tutti_fail(TUTTI_ERR_IO, "%s", own->failure);
    return tutti_store_set(own->file, key, value, bytes);
}

static tutti_status own_get(void *user, const char *key, void *value, size_t *bytes, int ms)
{
    const size_t capacity = *bytes;
    tutti_status status = tutti_store_get(((own_store *)user)->file, key, value, bytes, ms);

    return status == TUTTI_ERR_ARG && *bytes > capacity ? TUTTI_OK : status;
}

static tutti_status own_wait(void *user, const char *key, int ms)
{
    return tutti_store_wait(((own_store *)user)->file, key, ms);
}

static tutti_status own_add(void *user, const char *key, int64_t amount, int64_t *sum_p)
{
    return tutti_store_add(((own_store *)user)->file, key, amount, sum_p);
}

static tutti_status own_remove(void *user, const char *key, bool *existed_p)
{
    return tutti_store_delete(((own_store *)user)->file, key, existed_p);
}

static void own_release(void *user)
{
    ((own_store *)user)->releases++;
}

static const tutti_store_callbacks CALLBACKS = {.set = own_set,
                                                .get = own_get,
                                                .wait = own_wait,
                                                .add = own_add,
                                                .remove = own_remove,
                                                .release = own_release,
                                                .name = "the test's store",
                                                .reaches = "127.0.0.1"};

static const char *file_path(void)
{
    static char path[64];

    if (!*path)
        snprintf(path, sizeof path, "/tmp/tutti-custom-%d", (int)getpid());
    return path;
}

/* ---- Groups --------------------------------------------------------------------------------------------------- */

enum { RANKS = 3 };

static int use_group(tutti_group *group)
{
    int32_t one = 1, n = tutti_group_size(group);
    tutti_group *pair;

    CHECK(tutti_all_reduce(group, TUTTI_BUF(&one, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(one == n);
    CHECK(tutti_group_split(group, (const int[]){2, 0}, 2, "pair", &pair) == TUTTI_OK);
    CHECK((pair != NULL) == (tutti_group_rank(group) != 1));
    one = 1;
    if (pair)
        CHECK(tutti_all_reduce(pair, TUTTI_BUF(&one, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK &&
              one == 2);
    tutti_group_free(pair);
    return 0;
}

static int be_rank(int rank, tutti_transport transport)
{
    own_store own = {0};
    tutti_store *store;
    tutti_group *group;

    CHECK(tutti_store_file_open(&own.file, file_path()) == TUTTI_OK);
    CHECK(tutti_store_custom_new(&store, &CALLBACKS, &own) == TUTTI_OK);
    CHECK(tutti_group_init(&group, &(tutti_group_opts){.store = store,
                                                       .rank = rank,
                                                       .world_size = RANKS,
                                                       .transport = transport,
                                                       .timeout_ms = 30000}) == TUTTI_OK);
    CHECK(own.secrets == (rank == 0));
    tutti_store_free(store);
    CHECK(own.releases == 0); /* the group has a handle */
    CHECK(use_group(group) == 0);
    tutti_group_free(group);
    CHECK(own.releases == 1);
    tutti_store_free(own.file);
    return 0;
}

static void run_ranks(tutti_transport transport)
{
    tutti_store *keep;
    int failed = 0, status;

    assert_int_equal(tutti_store_file_open(&keep, file_path()), TUTTI_OK);
    for (int rank = 0; rank < RANKS; rank++)
        if (fork() == 0)
            _exit(be_rank(rank, transport));
    for (int rank = 0; rank < RANKS; rank++)
        failed += wait(&status) < 0 || status != 0;
    tutti_store_free(keep);
    assert_int_equal(failed, 0);
}

static void groups_meet_in_the_programs_store(void **state)
{
    (void)state;
    run_ranks(TUTTI_TRANSPORT_AUTO);
    run_ranks(TUTTI_TRANSPORT_TCP);
}

/* ---- Calls ---------------------------------------------------------------------------------------------------- */

static void calls_reach_the_callbacks(void **state)
{
    own_store own = {0};
    tutti_store *store, *other;
    char value[8];
    size_t bytes = sizeof value;
    int64_t sum;
    bool existed;

    (void)state;
    assert_int_equal(tutti_store_file_open(&own.file, file_path()), TUTTI_OK);
    assert_int_equal(tutti_store_custom_new(&store, &CALLBACKS, &own), TUTTI_OK);
    assert_int_equal(tutti_store_port(store), 0);
    assert_int_equal(tutti_store_clone(&other, store), TUTTI_OK);
    assert_int_equal(tutti_store_set(store, "a", "xyz", 3), TUTTI_OK);
    assert_int_equal(tutti_store_get(other, "a", value, &bytes, 0), TUTTI_OK);
    assert_true(bytes == 3 && memcmp(value, "xyz", 3) == 0);
    bytes = 2;
    assert_int_equal(tutti_store_get(other, "a", value, &bytes, 0), TUTTI_ERR_ARG);
    assert_int_equal(bytes, 3);
    assert_int_equal(tutti_store_add(store, "n", 4, NULL), TUTTI_OK);
    assert_int_equal(tutti_store_add(other, "n", 3, &sum), TUTTI_OK);
    assert_int_equal(sum, 7);
    assert_int_equal(tutti_store_wait(other, "a", 0), TUTTI_OK);
    assert_int_equal(tutti_store_delete(other, "a", &existed), TUTTI_OK);
    assert_true(existed);
    assert_int_equal(tutti_store_wait(store, "a", 1), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error(), "the test's store has no key \"a\" after waiting"));
    assert_int_equal(tutti_store_add(store, "", 1, NULL), TUTTI_ERR_ARG);
    tutti_store_free(store);
    assert_int_equal(own.releases, 0);
    tutti_store_free(other);
    assert_int_equal(own.releases, 1);
    tutti_store_free(own.file);
}

static void what_fails_is_said(void **state)
{
    own_store own = {.failure = "the disk of the store is full"};
    tutti_store_callbacks some = CALLBACKS;
    tutti_store *store;
    tutti_group *group;
    char value[8];
    size_t bytes = sizeof value;

    (void)state;
    assert_int_equal(tutti_store_file_open(&own.file, file_path()), TUTTI_OK);
    assert_int_equal(tutti_store_custom_new(&store, &CALLBACKS, &own), TUTTI_OK);
    assert_int_equal(tutti_store_compare_set(store, "a", "", 0, "x", 1, value, &bytes),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "the test's store has no callback \"compare_set\""));
    assert_int_equal(tutti_store_num_keys(store, &(int64_t){0}), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(
        tutti_group_init(&group,
                         &(tutti_group_opts){.store = store, .world_size = 2, .timeout_ms = 5000}),
        TUTTI_ERR_IO);
    assert_non_null(strstr(tutti_last_error(), "the disk of the store is full"));
    tutti_store_free(store);
    some.add = NULL;
    assert_int_equal(tutti_store_custom_new(&store, &some, &own), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "\"add\" is NULL"));
    assert_int_equal(tutti_store_custom_new(&store, NULL, &own), TUTTI_ERR_ARG);
    some = CALLBACKS;
    some.reaches = "no-such-host.invalid";
    assert_int_equal(tutti_store_custom_new(&store, &some, &own), TUTTI_ERR_NOT_FOUND);
    some.reaches = "localhost";
    assert_int_equal(tutti_store_custom_new(&store, &some, &own), TUTTI_OK);
    tutti_store_free(store);
    some.reserved[0] = 1;
    assert_int_equal(tutti_store_custom_new(&store, &some, &own), TUTTI_ERR_ARG);
    tutti_store_free(own.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_meet_in_the_programs_store),
        cmocka_unit_test(calls_reach_the_callbacks),
        cmocka_unit_test(what_fails_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
