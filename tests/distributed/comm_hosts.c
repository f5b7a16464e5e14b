/* comm: several hosts, which are network namespaces: shared memory inside, TCP between, IPv4 and IPv6; a rank killed on
 * another host, a cable pulled. Needs root and iproute2. SPDX-License-Identifier: MIT */
#include "harness/hosts.h"
#include "harness/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { N_HOSTS = 3, HEARTBEAT_MS = 1000 };

static const char *none; /* why there are no hosts */
static int layout[8];    /* of each rank */

typedef struct board {
    _Atomic uint64_t at_ns, latest_ns; /* when it happened; when the last rank noticed */
    const char *transport;
} board;

static board *b;

static void enter(int rank)
{
    tutti_host_enter(layout[rank]);
}

/* "2 x 2": {0, 0, 1, 1} */
static void lay_out(int n_hosts, int each)
{
    for (int r = 0; r < n_hosts * each; r++)
        layout[r] = r / each;
}

static void needs_hosts(void)
{
    if (!none)
        return;
    print_message("%s\n", none);
    skip();
}

/* ---- Results -------------------------------------------------------------------------------------------- */

static int one_of_each(tutti_group *group, float *p, size_t count)
{
    size_t size = (size_t)tutti_group_size(group), rank = (size_t)tutti_group_rank(group);
    float *all = malloc((size * count + 1) * sizeof *all), sum = (float)(size * (size + 1) / 2);

    for (size_t i = 0; i < count; i++)
        p[i] = (float)(i % 100) * (float)(rank + 1);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(p, count, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(p[i] == (float)(i % 100) * sum);
    for (int root = 0; root < (int)size; root++) {
        for (size_t i = 0; i < count; i++)
            p[i] = (float)(i + rank);
        CHECK(tutti_broadcast(group, TUTTI_BUF(p, count, TUTTI_F32), root, NULL) == TUTTI_OK);
        for (size_t i = 0; i < count; i++)
            CHECK(p[i] == (float)(i + (size_t)root));
    }
    for (size_t i = 0; i < count; i++)
        p[i] = (float)(i + rank);
    CHECK(tutti_all_gather(group, TUTTI_CONST_BUF(p, count, TUTTI_F32),
                           TUTTI_BUF(all, size * count, TUTTI_F32), NULL) == TUTTI_OK);
    for (size_t r = 0; r < size; r++)
        for (size_t i = 0; i < count; i++)
            CHECK(all[r * count + i] == (float)(i + r));
    CHECK(tutti_reduce_scatter(group, TUTTI_CONST_BUF(all, size * count, TUTTI_F32),
                               TUTTI_BUF(p, count, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(p[i] == (float)((i + rank) * size));
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    free(all);
    return 0;
}

static int exact(tutti_group *group, void *arg)
{
    static const size_t COUNTS[] = {0, 1, 7, 1000, 100003, 1500001};
    size_t most = COUNTS[TUTTI__COUNT_OF(COUNTS) - 1];
    float *own = malloc(most * sizeof *own);
    void *shared;

    (void)arg;
    CHECK(strcmp(tutti_group_transport_name(group), b->transport) == 0);
    CHECK(tutti_group_alloc(group, most * sizeof *own, &shared) == TUTTI_OK);
    for (size_t c = 0; c < TUTTI__COUNT_OF(COUNTS); c++) {
        CHECK(one_of_each(group, shared, COUNTS[c]) == 0);
        CHECK(one_of_each(group, own, COUNTS[c]) == 0);
    }
    free(own);
    return 0;
}

static void run_exact(int n_hosts, int each, const char *address)
{
    const tutti_ranks_opts opts = {.processes = true, .store_host = address, .before = enter};

    lay_out(n_hosts, each);
    b->transport = each > 1 ? "shared memory + tcp" : "tcp";
    assert_int_equal(tutti_run_ranks(n_hosts * each, exact, NULL, &opts), 0);
}

static void collectives_are_exact_over_ipv4(void **state)
{
    (void)state;
    needs_hosts();
    run_exact(2, 2, TUTTI_HUB_V4);
    run_exact(3, 1, TUTTI_HUB_V4);
}

static void collectives_are_exact_over_ipv6(void **state)
{
    (void)state;
    needs_hosts();
    run_exact(2, 2, TUTTI_HUB_V6);
    run_exact(3, 1, TUTTI_HUB_V6);
}

/* Link-local addresses are valid on one link only, with a different scope id on each host. */
static void collectives_are_exact_over_link_local_addresses(void **state)
{
    (void)state;
    needs_hosts();
    run_exact(2, 2, TUTTI_HUB_LINK_LOCAL);
}

static void the_interface_may_be_named(void **state)
{
    (void)state;
    needs_hosts();
    setenv("TUTTI_SOCKET_IFNAME", "nosuch,eth", 1);
    run_exact(2, 2, TUTTI_HUB_V4);
    setenv("TUTTI_SOCKET_IFNAME", "^lo", 1);
    run_exact(3, 1, TUTTI_HUB_V6);
    unsetenv("TUTTI_SOCKET_IFNAME");
}

/* The largest messages are split over all of them. */
static void pairs_may_have_several_sockets(void **state)
{
    (void)state;
    needs_hosts();
    setenv("TUTTI_SOCKETS_PER_PAIR", "3", 1);
    run_exact(2, 2, TUTTI_HUB_V4);
    run_exact(3, 1, TUTTI_HUB_V4);
    unsetenv("TUTTI_SOCKETS_PER_PAIR");
}

/* ---- Failures ------------------------------------------------------------------------------------------- */

static void note_time(void)
{
    uint64_t now = tutti__now_ns(), old = atomic_load(&b->latest_ns);

    while (old < now && !atomic_compare_exchange_weak(&b->latest_ns, &old, now))
        ;
}

/* Does steps until a failure, which rank `who` causes in step 20. */
static tutti_status work_until(tutti_group *group, int who, void (*happens)(void))
{
    enum { COUNT = 50000 };
    static float p[COUNT];
    tutti_status status = TUTTI_OK;

    for (int step = 0; step < 10000000 && status == TUTTI_OK; step++) {
        if (step == 20 && tutti_group_rank(group) == who) {
            atomic_store(&b->at_ns, tutti__now_ns());
            happens();
        }
        status = tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_AVG, NULL);
    }
    note_time();
    return status;
}

static double ms_until_known(void)
{
    return (double)(atomic_load(&b->latest_ns) - atomic_load(&b->at_ns)) * 1e-6;
}

static void die(void)
{
    raise(SIGKILL);
}

static void pull_cable(void)
{
    tutti_host_cut(1);
}

static int one_is_killed(tutti_group *group, void *arg)
{
    int victim = *(const int *)arg;
    char name[32];

    snprintf(name, sizeof name, "rank %d (", victim);
    CHECK(work_until(group, victim, die) == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), name) && strstr(tutti_last_error(), "was lost"));
    CHECK(strstr(tutti_last_error(), "all_reduce #"));
    return 0;
}

static void a_rank_killed_on_another_host_is_named_at_once(void **state)
{
    int victim = 3, results[4];

    (void)state;
    needs_hosts();
    for (int each = 2; each >= 1; each--) {
        const tutti_ranks_opts opts = {
            .processes = true, .store_host = TUTTI_HUB_V4, .before = enter, .results = results};
        int n = each == 2 ? 4 : 3;

        victim = n - 1;
        lay_out(each == 2 ? 2 : 3, each);
        atomic_store(&b->latest_ns, 0);
        tutti_run_ranks(n, one_is_killed, &victim, &opts);
        for (int r = 0; r < n; r++)
            assert_int_equal(results[r], r == victim ? -SIGKILL : 0);
        print_message("%d ranks a host: all know after %.1f ms\n", each, ms_until_known());
        assert_true(ms_until_known() < TUTTI_LATE_MS); /* 200 is the aim */
    }
}

/* Host 1 is cut off: those on host 0 name a rank of it, and those on host 1 one of host 0. */
static int cable_is_pulled(tutti_group *group, void *arg)
{
    bool off = layout[tutti_group_rank(group)] == 1;

    (void)arg;
    CHECK(work_until(group, 0, pull_cable) == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "not been heard from for"));
    /* The one whose last heartbeat was earlier may be found first. */
    CHECK(strstr(tutti_last_error(), off ? ": rank 0 (" : ": rank 2 (") ||
          strstr(tutti_last_error(), off ? ": rank 1 (" : ": rank 3 ("));
    return 0;
}

static void a_cut_host_is_named_within_the_heartbeat(void **state)
{
    const tutti_ranks_opts opts = {.processes = true,
                                   .store_host = TUTTI_HUB_V4,
                                   .heartbeat_ms = HEARTBEAT_MS,
                                   .before = enter};

    (void)state;
    needs_hosts();
    lay_out(2, 2);
    atomic_store(&b->latest_ns, 0);
    assert_int_equal(tutti_run_ranks(4, cable_is_pulled, NULL, &opts), 0);
    print_message("all know after %.0f ms\n", ms_until_known());
    assert_true(ms_until_known() < HEARTBEAT_MS + TUTTI_LATE_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_exact_over_ipv4),
        cmocka_unit_test(collectives_are_exact_over_ipv6),
        cmocka_unit_test(collectives_are_exact_over_link_local_addresses),
        cmocka_unit_test(the_interface_may_be_named),
        cmocka_unit_test(pairs_may_have_several_sockets),
        cmocka_unit_test(a_rank_killed_on_another_host_is_named_at_once),
        cmocka_unit_test(a_cut_host_is_named_within_the_heartbeat), /* last, because it stays cut */
    };

    setenv("TUTTI_SECRET", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 1);
    none = tutti_hosts_make(N_HOSTS);
    b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests_name("comm_hosts", tests, NULL, NULL);
}
