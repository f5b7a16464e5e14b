/* comm: a rank whose address for data does not work, because nobody listens there or nothing comes through, is the one that is named.
 * SPDX-License-Identifier: MIT
 * timeout: 60   run: waiting
 *
 * Ranks of three simulated hosts; data go between hosts, to those with the same number on each. The rank has its neighbours on its own host,
 * so only data need its address. */
#include "harness/ranks.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIZE = 24, HOSTS = 3, BAD = 3, TIMEOUT_MS = 6000 };

static bool silent; /* else nobody listens */

/* A listener that accepts nothing, and whose queue is full: the kernel ignores who connects. */
static int silent_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 0) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        abort();
    for (int i = 0; i < 4; i++)
        (void)connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&at,
                      sizeof at);
    return ntohs(at.sin_port);
}

static int closed_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, so that no other gets it */

    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        abort();
    return ntohs(at.sin_port);
}

static int advertise(int rank, int port)
{
    return rank != BAD ? port : silent ? silent_port() : closed_port();
}

static int names_it(tutti_group *world, void *arg)
{
    const int *hosts = arg;
    const int rank = tutti_group_rank(world);
    const tutti_group_opts opts = {.store = world->boot.store,
                                   .rank = rank,
                                   .world_size = SIZE,
                                   .name = "second",
                                   .timeout_ms = TIMEOUT_MS};
    const tutti__tuning tuning = {.advertise = advertise, .host = 1 + hosts[rank]};
    tutti_group *group;
    float x = 1;
    tutti_status status = tutti__group_init(&group, &opts, &tuning);

    if (status == TUTTI_OK)
        status = tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL);
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "cannot connect to rank 3 (") != NULL);
    CHECK(strstr(tutti_last_error(), " at 127.0.0.1:") != NULL);
    CHECK(strstr(tutti_last_error(), silent ? "timed out" : "refused") != NULL);
    CHECK(strstr(tutti_last_error(), "is a firewall or a link between them?") != NULL);
    CHECK(!strstr(tutti_last_error(), "was lost"));
    tutti_group_free(group);
    return 0;
}

static void run_without(bool is_silent)
{
    int hosts[SIZE];

    silent = is_silent;
    for (int r = 0; r < SIZE; r++)
        hosts[r] = r * HOSTS / SIZE;
    assert_int_equal(tutti_run_ranks(SIZE, names_it, hosts, &(tutti_ranks_opts){.processes = true}),
                     0);
}

static void nobody_listens(void **state)
{
    (void)state;
    run_without(false);
}

static void nothing_comes_through(void **state)
{
    (void)state;
    run_without(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_listens),
                                       cmocka_unit_test(nothing_comes_through)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
