/* train: MASTER_PORT is used by another program. Rank 0 cannot listen there, the others find a server that never replies as
 * Tutti would; both report it and exit, long before the group's own deadline.   SPDX-License-Identifier: MIT
 * timeout: 60   run: waiting */
#include "base/base.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* A listener that never replies; the kernel accepts connections. Its port in *port_p. */
static int silent_listener(int *port_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port_p = ntohs(address.sin_port);
    return fd;
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* `tutti train` as one of two ranks; its standard error in *error_p. */
static pid_t start_rank(int rank, int port, FILE **error_p)
{
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        set_number("RANK", rank);
        set_number("LOCAL_RANK", rank);
        set_number("WORLD_SIZE", 2);
        set_number("LOCAL_WORLD_SIZE", 2);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        set_number("MASTER_PORT", port);
        unsetenv("TUTTI_STORE");
        execl(getenv("TUTTI"), "tutti", "train", "--model", "linear", "--max-steps", "1", NULL);
        _exit(127);
    }
    close(ends[1]);
    *error_p = fdopen(ends[0], "r");
    assert_non_null(*error_p);
    return pid;
}

/* It must exit with code 1 and one line that contains all of `parts`, within `seconds`. */
static void expect_end(pid_t pid, FILE *error, const char *const *parts, double seconds)
{
    double begin = tutti__now_ms();
    char text[4096];
    size_t n = fread(text, 1, sizeof text - 1, error); /* until it exits */
    int status;

    text[n] = '\0';
    fclose(error);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (; *parts; parts++)
        if (!strstr(text, *parts))
            fail_msg("no \"%s\" in: %s", *parts, text);
    assert_int_equal(status, 1 << 8);
    assert_ptr_equal(strchr(text, '\n'), text + n - 1);
    assert_true(tutti__now_ms() - begin < seconds * 1000);
}

static void both_ranks_say_who_listens_there(void **state)
{
    char where[32];
    FILE *errors[2];
    pid_t pids[2];
    int port, listener = silent_listener(&port);

    (void)state;
    if (!getenv("TUTTI"))
        skip();
    snprintf(where, sizeof where, "127.0.0.1:%d", port);
    for (int rank = 0; rank < 2; rank++)
        pids[rank] = start_rank(rank, port, &errors[rank]);
    expect_end(
        pids[0], errors[0],
        (const char *const[]){"cannot listen on", where, "another process", "MASTER_PORT", NULL},
        10);
    expect_end(pids[1], errors[1], (const char *const[]){where, "does not answer like Tutti", NULL},
               20);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_ranks_say_who_listens_there)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
