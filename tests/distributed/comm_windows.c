/* comm: memory that other ranks read while its rank computes, in versions, and what ends a read.   SPDX-License-Identifier: MIT
 * timeout: 60   breadth: 240 */
#include "comm/group.h"
#include "distributed/bodies.h"

enum { WINDOWS = 2, MUCH = 300000, VERSIONS = 3 };

static unsigned char value(int rank, int window, uint64_t version, size_t at)
{
    return (unsigned char)(at * 7 + (size_t)rank * 31 + (size_t)window * 5 + version * 101);
}

/* Reads a stretch of each other rank's windows, of all at once, and compares it. */
static int read_all(tutti_group *group, uint64_t version, size_t at, size_t n, unsigned char *to)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    tutti_work *works[WINDOWS * 8] = {NULL};

    for (int k = 0; k < WINDOWS * size; k++)
        if (k % size != rank)
            CHECK_OK(tutti__group_read(group, k / size, version, k % size, at, to + (size_t)k * n,
                                       n, &works[k]));
    for (int k = 0; k < WINDOWS * size; k++) {
        if (k % size == rank)
            continue;
        CHECK_OK(tutti_work_wait(works[k]));
        for (size_t i = 0; i < n; i++)
            CHECK(to[(size_t)k * n + i] == value(k % size, k / size, version, at + i));
    }
    return 0;
}

/* Ranks that are ahead ask for what slower ones do not have yet. */
static int versions_are_awaited(tutti_group *group, void *arg)
{
    static const size_t lengths[] = {1, 5000, MUCH};
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    unsigned char *mine = malloc((size_t)WINDOWS * MUCH);
    unsigned char *to = malloc((size_t)WINDOWS * (size_t)size * MUCH);

    (void)arg;
    CHECK(mine && to);
    for (uint64_t version = 0; version < VERSIONS; version++) {
        if ((int)version % size == rank)
            be_slow(20);
        for (int w = 0; w < WINDOWS; w++) {
            for (size_t i = 0; i < MUCH; i++)
                mine[(size_t)w * MUCH + i] = value(rank, w, version, i);
            CHECK_OK(tutti__group_expose(group, w, mine + (size_t)w * MUCH, MUCH, version));
        }
        for (size_t k = 0; k < TUTTI__COUNT_OF(lengths); k++)
            CHECK_0(read_all(group, version, MUCH - lengths[k], lengths[k], to));
        CHECK_OK(tutti_barrier(group, NULL)); /* now it may be written */
        for (int w = 0; w < WINDOWS; w++)
            CHECK_OK(tutti__group_expose(group, w, NULL, 0, version));
    }
    free(mine);
    free(to);
    return 0;
}

/* Rank 0 is in no call on the group until the others have read. */
static int owners_need_not_call(tutti_group *group, void *arg)
{
    unsigned char *bytes = malloc(MUCH);
    tutti_work *work;
    int64_t n;

    (void)arg;
    CHECK(bytes);
    if (tutti_group_size(group) == 1) {
        free(bytes);
        return 0;
    }
    if (tutti_group_rank(group) == 0) {
        memset(bytes, 5, MUCH);
        CHECK_OK(tutti__group_expose(group, 0, bytes, MUCH, 0));
        CHECK_OK(tutti_store_wait(group->boot.store, "all have read", 30000));
    } else {
        CHECK_OK(tutti__group_read(group, 0, 0, 0, 0, bytes, MUCH, &work));
        CHECK_OK(tutti_work_wait(work));
        for (size_t i = 0; i < MUCH; i++)
            CHECK(bytes[i] == 5);
        CHECK_OK(tutti_store_add(group->boot.store, "readers", 1, &n));
        if (n == tutti_group_size(group) - 1)
            CHECK_OK(tutti_store_set(group->boot.store, "all have read", "", 0));
    }
    CHECK_OK(tutti_barrier(group, NULL));
    CHECK_OK(tutti__group_expose(group, 0, NULL, 0, 0));
    free(bytes);
    return 0;
}

static int more_than_there_is(tutti_group *group, void *arg)
{
    unsigned char mine[64] = {0}, to[64];
    tutti_work *work;

    (void)arg;
    CHECK_OK(tutti__group_expose(group, 0, mine, sizeof mine, 0));
    if (tutti_group_rank(group) == 1) {
        CHECK_OK(tutti__group_read(group, 0, 0, 0, 32, to, 33, &work));
        CHECK(tutti_work_wait(work) == TUTTI_ERR_MISMATCH);
        CHECK_TEXT(tutti_last_error(), "has less memory to read than is asked by rank 1");
    } else {
        CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_MISMATCH);
    }
    return 0;
}

/* Nobody exposes what rank 1 asks for. */
static int deaths_end_reads(tutti_group *group, void *arg)
{
    unsigned char to[16];
    tutti_work *work;

    (void)arg;
    if (tutti_group_rank(group) == 0) {
        CHECK_OK(tutti_store_wait(group->boot.store, "asked", 30000));
        tutti_group_abort(group, "for a test");
        return 0;
    }
    CHECK_OK(tutti__group_read(group, 0, 9, 0, 0, to, sizeof to, &work));
    CHECK_OK(tutti_store_set(group->boot.store, "asked", "", 0));
    CHECK(tutti_work_wait(work) == TUTTI_ERR_ABORTED);
    CHECK_TEXT(tutti_last_error(), "a read of another rank's memory");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, versions_are_awaited), TEST(run_over_tcp, versions_are_awaited),
        TEST(run_all, owners_need_not_call), TEST(run_over_tcp, owners_need_not_call),
        TEST(run_two, more_than_there_is),   TEST(run_two, deaths_end_reads),
        TEST(run_over_tcp, deaths_end_reads)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
