/* comm: groups from the environment: rank 0 hosts the store, or the launcher does; repeatedly; under mpirun.
 * SPDX-License-Identifier: MIT */
#include "harness/emulator.h"
#include "harness/ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

/* A port that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&at, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return 0;
    close(fd);
    return ntohs(at.sin_port);
}

static void put_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static int use(tutti_group *group)
{
    float x = 1;

    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(x == (float)tutti_group_size(group));
    return 0;
}

static int init_again_and_again(void)
{
    tutti_group *group, *beside;

    for (int i = 0; i < 4; i++) {
        CHECK(tutti_group_init(&group, NULL) == TUTTI_OK);
        CHECK(use(group) == 0);
        CHECK(tutti_group_init(&beside, &(tutti_group_opts){.name = "beside"}) == TUTTI_OK);
        CHECK(use(beside) == 0 && use(group) == 0);
        tutti_group_free(beside);
        tutti_group_free(group);
    }
    return 0;
}

/* No rank hosts the store, and rank 0's address is not set. */
static int from_a_file(tutti_group *outer)
{
    char path[64];

    snprintf(path, sizeof path, "file:/tmp/tutti-launch-%ld", (long)getppid());
    setenv("TUTTI_STORE", path, 1);
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    CHECK(init_again_and_again() == 0);
    CHECK(tutti_barrier(outer, NULL) == TUTTI_OK);
    CHECK(access(path + strlen("file:"), F_OK) != 0);
    return 0;
}

static int from_environment(tutti_group *outer, void *arg)
{
    int rank = tutti_group_rank(outer), size = tutti_group_size(outer);
    int32_t port = rank == 0 ? free_port() : 0;
    char address[64];
    tutti_group *group;

    (void)arg;
    CHECK(tutti_broadcast(outer, TUTTI_BUF(&port, 1, TUTTI_I32), 0, NULL) == TUTTI_OK);
    put_number("RANK", rank);
    put_number("LOCAL_RANK", rank);
    put_number("WORLD_SIZE", size);
    put_number("LOCAL_WORLD_SIZE", size);
    put_number("MASTER_PORT", port);
    put_number("TUTTI_TIMEOUT_S", 30);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("TUTTI_SECRET", "00112233445566778899aabbccddeeff", 1);
    CHECK(init_again_and_again() == 0);
    setenv("TUTTI_TRANSPORT", "tcp", 1);
    CHECK(tutti_group_init(&group, NULL) == TUTTI_OK);
    CHECK(strcmp(tutti_group_transport_name(group), "tcp") == 0 && use(group) == 0);
    tutti_group_free(group);
    unsetenv("TUTTI_TRANSPORT");
    /* The outer store acts as the launcher's; it has no secret. */
    unsetenv("TUTTI_SECRET");
    snprintf(address, sizeof address, "127.0.0.1:%d", tutti_store_port(outer->boot.store));
    setenv("TUTTI_STORE", address, 1);
    CHECK(init_again_and_again() == 0);
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    CHECK(init_again_and_again() == 0);
    return from_a_file(outer);
}

static void the_environment_makes_groups(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(3, from_environment, NULL, TUTTI_TRANSPORT_AUTO),
                     0);
}

static int port_is_taken(tutti_group *outer, void *arg)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    tutti_group *group;
    double begin = tutti__now_ms();

    (void)arg;
    (void)outer;
    CHECK(bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 1) == 0 &&
          getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    put_number("RANK", 0);
    put_number("LOCAL_RANK", 0);
    put_number("WORLD_SIZE", 2);
    put_number("LOCAL_WORLD_SIZE", 2);
    put_number("MASTER_PORT", ntohs(at.sin_port));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    CHECK(tutti_group_init(&group, NULL) == TUTTI_ERR_IO);
    CHECK(strstr(tutti_last_error(), "another process listens there") &&
          strstr(tutti_last_error(), "tutti run"));
    CHECK(tutti__now_ms() - begin < 10000);
    close(fd);
    return 0;
}

static void a_taken_master_port_is_told(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(1, port_is_taken, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

static void mpirun_needs_nothing_else(void **state)
{
    char self[512], command[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    (void)state;
    if (test_emulated("mpirun is this machine's, and cannot start programs of another"))
        skip();
    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no mpirun here\n");
        skip();
    }
    assert_true(n > 0);
    self[n] = '\0';
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
             "OMPI_MCA_rmaps_base_oversubscribe=1 TUTTI_TIMEOUT_S=30 "
             "timeout 150 mpirun -n 3 %s rank",
             self);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_makes_groups),
        cmocka_unit_test(a_taken_master_port_is_told),
        cmocka_unit_test(mpirun_needs_nothing_else),
    };

    if (argc == 2 && strcmp(argv[1], "rank") == 0) {
        tutti_group *group;
        int failed;

        TUTTI_MUST(tutti_group_init(&group, NULL));
        failed = tutti_group_size(group) != 3 || use(group);
        tutti_group_free(group);
        return failed;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
