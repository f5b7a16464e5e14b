/* ddp: every collective constructor has the same result on all ranks: an error on one of them is returned by all, at once,
 * and the group stays usable.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/emulator.h"
#include "harness/memory.h"
#include <tutti/tutti.h>

#include <sys/resource.h>
#include <unistd.h>

enum { SIZE = 3, BAD = 2, SOON_MS = TUTTI_LATE_MS };

typedef struct model {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear fc;
    tutti_ddp *ddp;
} model;

static int model_new(model *m)
{
    *m = (model){0};
    CHECK_OK(tutti_ctx_new(&m->cx, test_device(),
                           &(tutti_ctx_opts){.threads = 1, .kernels = test_kernels()}));
    tutti_module_init(&m->base, m->cx);
    tutti_linear_init(&m->fc, &m->base, "fc", 4, 3);
    return 0;
}

static void model_free(model *m)
{
    tutti_ddp_free(m->ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

/* For bodies: expects this status and this message on every rank, soon; and that the group works. */
static int check_end(tutti_group *group, tutti_status status, tutti_status expected,
                     const char *text, double begin)
{
    float one = 1;

    CHECK(status == expected);
    CHECK(strncmp(tutti_last_error(), "rank 2: ", 8) == 0 && strstr(tutti_last_error(), text));
    CHECK(tutti__now_ms() - begin < SOON_MS);
    CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&one, 1, TUTTI_F32), TUTTI_SUM, NULL));
    CHECK(one == SIZE);
    return 0;
}

static int reducers(tutti_group *group, void *arg)
{
    const bool bad = tutti_group_rank(group) == BAD;
    tutti_reducer_parameter p = {.name = bad ? NULL : "w", .count = 5, .dtype = TUTTI_F32};
    double begin = tutti__now_ms();
    tutti_reducer *r;

    (void)arg;
    if (check_end(group, tutti_reducer_new(&r, group, &p, 1, NULL), TUTTI_ERR_ARG,
                  "tutti_reducer_new: parameter 0 has no name", begin) != 0)
        return 1;
    CHECK(r == NULL);
    p.name = "w";
    if (check_end(group, tutti_reducer_new(&r, group, bad ? NULL : &p, 1, NULL), TUTTI_ERR_ARG,
                  "parameters is NULL", begin) != 0)
        return 1;
    if (check_end(
            group,
            tutti_reducer_new(&r, group, &p, 1, &(tutti_reducer_opts){.bucket_mb = bad ? -1 : 0}),
            TUTTI_ERR_ARG, "bucket_mb -1", begin) != 0)
        return 1;
    if (check_end(group,
                  tutti_reducer_new(&r, group, &p, 1,
                                    &(tutti_reducer_opts){.order = &(size_t){bad ? 1 : 0}}),
                  TUTTI_ERR_ARG, "place 0 of the order is parameter 1", begin) != 0)
        return 1;
    CHECK_OK(tutti_reducer_new(&r, group, &p, 1, NULL));
    tutti_reducer_free(r);
    return 0;
}

static int ddps(tutti_group *group, void *arg)
{
    const bool bad = tutti_group_rank(group) == BAD;
    double begin = tutti__now_ms();
    const char *nobody = "fc.weigth";
    model m;

    (void)arg;
    CHECK(model_new(&m) == 0);
    if (check_end(group, tutti_ddp_new(&m.ddp, bad ? NULL : &m.base, group, NULL), TUTTI_ERR_ARG,
                  "tutti_ddp_new: the module is NULL", begin) != 0)
        return 1;
    CHECK(m.ddp == NULL);
    if (check_end(group,
                  tutti_ddp_new(&m.ddp, &m.base, group,
                                &(tutti_ddp_opts){.nonfinite = bad ? (tutti_nonfinite)99 : 0}),
                  TUTTI_ERR_ARG, "nonfinite 99 is unknown", begin) != 0)
        return 1;
    if (check_end(group,
                  tutti_ddp_new(&m.ddp, &m.base, group,
                                &(tutti_ddp_opts){.ignored = &nobody, .n_ignored = bad}),
                  TUTTI_ERR_ARG, "did you mean \"fc.weight\"?", begin) != 0)
        return 1;
    CHECK_OK(tutti_ddp_new(&m.ddp, &m.base, group, NULL));
    model_free(&m);
    return 0;
}

static int zeros(tutti_group *group, void *arg)
{
    double begin = tutti__now_ms();
    const tutti_ddp_opts opts = {.zero = tutti_group_rank(group) == BAD ? 5 : 3};
    model m;

    (void)arg;
    CHECK(model_new(&m) == 0);
    if (check_end(group, tutti_ddp_new(&m.ddp, &m.base, group, &opts), TUTTI_ERR_ARG,
                  "zero is 5, expected 0", begin) != 0)
        return 1;
    CHECK_OK(tutti_ddp_new(&m.ddp, &m.base, group, NULL));
    model_free(&m);
    return 0;
}

static int joins(tutti_group *group, void *arg)
{
    const bool bad = tutti_group_rank(group) == BAD;
    double begin = tutti__now_ms();
    tutti_join *first, *second;
    model a, b;

    (void)arg;
    CHECK(model_new(&a) == 0 && model_new(&b) == 0);
    CHECK_OK(tutti_ddp_new(&a.ddp, &a.base, group, NULL));
    CHECK_OK(tutti_ddp_new(&b.ddp, &b.base, group, NULL));
    CHECK_OK(tutti_join_begin(&first, &a.ddp, 1, NULL));
    if (check_end(group, tutti_join_begin(&second, bad ? &a.ddp : &b.ddp, 1, NULL), TUTTI_ERR_STATE,
                  "this DDP is in a join already", begin) != 0)
        return 1;
    CHECK(second == NULL);
    CHECK_OK(tutti_join_end(first));
    tutti_join_free(first);
    model_free(&a);
    model_free(&b);
    return 0;
}

static int allocs(tutti_group *group, void *arg)
{
    const bool bad = tutti_group_rank(group) == BAD;
    double begin = tutti__now_ms();
    void *p = &p;

    (void)arg;
    if (check_end(group, tutti_group_alloc(group, bad ? SIZE_MAX / 2 : 4096, &p), TUTTI_ERR_ARG,
                  "alloc: ", begin) != 0)
        return 1;
    CHECK(p == NULL);
    CHECK_OK(tutti_group_alloc(group, 4096, &p));
    tutti_group_release(group, p);
    return 0;
}

/* A process whose limit lets it map less than the others. */
static int narrow(tutti_group *group, void *arg)
{
    struct rlimit limit;
    rlim_t kept;
    double begin;
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    tutti_status status;
    void *p;

    (void)arg;
    CHECK(f && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    kept = limit.rlim_cur;
    limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64 << 20);
    if (tutti_group_rank(group) == BAD)
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    begin = tutti__now_ms();
    status = tutti_group_alloc(group, (size_t)256 << 20, &p);
    limit.rlim_cur = kept;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    if (check_end(group, status, TUTTI_ERR_MEMORY, "cannot map", begin) != 0)
        return 1;
    CHECK(p == NULL);
    CHECK_OK(tutti_group_alloc(group, 4096, &p));
    return 0;
}

static void no_memory_on_one(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* which needs room for itself */
#endif
    if (test_emulated("it takes no limit of address space"))
        skip();
    assert_int_equal(tutti_run_ranks_as_processes(SIZE, narrow, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

static void one_bad_reducer(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(SIZE, reducers, NULL), 0);
}

static void one_bad_ddp(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(SIZE, ddps, NULL), 0);
}

static void one_bad_zero(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(SIZE, zeros, NULL), 0);
}

static void one_bad_join(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(SIZE, joins, NULL), 0);
}

static void one_bad_alloc(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(SIZE, allocs, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_bad_reducer), cmocka_unit_test(one_bad_ddp),
        cmocka_unit_test(one_bad_zero),    cmocka_unit_test(one_bad_join),
        cmocka_unit_test(one_bad_alloc),   cmocka_unit_test(no_memory_on_one),
    };

    return cmocka_run_group_tests_name("ddp_constructors", tests, NULL, NULL);
}
