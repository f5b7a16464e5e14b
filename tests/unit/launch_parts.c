/* launch: how output is cut into lines, and how command lines are read.   SPDX-License-Identifier: MIT */
#include "launch/console/log_pipe.h"
#include "launch/front/flags.h"
#include "launch/process/descendants.h"
#include "launch/process/node_workers.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Checks what the console shows of a stream that arrives in these pieces (NULL: the end), all on descriptor 1. */
static void shows(const char *const *pieces, const char *expected)
{
    int ends[2];
    tutti__console console = {0};
    tutti__log_pipe log = {.file = -1, .console_fd = 1, .prefix = "> "};

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    log.fd = ends[0];
    for (; *pieces; pieces++) {
        assert_int_equal(write(ends[1], *pieces, strlen(*pieces)), strlen(*pieces));
        assert_true(tutti__log_pipe_read(&log, &console));
        assert_false(tutti__log_pipe_read(&log, &console)); /* nothing more for now */
        assert_int_equal(log.fd, ends[0]);
    }
    close(ends[1]);
    assert_false(tutti__log_pipe_read(&log, &console));
    assert_int_equal(log.fd, -1);
    assert_int_equal(console.end - console.begin, strlen(expected));
    assert_memory_equal(console.bytes + console.begin, expected, strlen(expected));
    tutti__console_free(&console);
}

static void lines_are_whole_however_they_come(void **state)
{
    (void)state;
    shows((const char *[]){"a\nb\n", NULL}, "> a\n> b\n");
    shows((const char *[]){"a", "b", "\n", "c", NULL}, "> ab\n> c\n");
    shows((const char *[]){"\n\n", NULL}, "> \n> \n");
    shows((const char *[]){"a\r\nb", NULL}, "> a\r\n> b\n");
    shows((const char *[]){"a\r", "\nb\n", NULL}, "> a\r\n> b\n");
    shows((const char *[]){"1%\r2%\r", "3%", "\n", NULL}, "> 1%\r> 2%\r> 3%\n");
    shows((const char *[]){"a\r", NULL}, "> a\r\n");
    shows((const char *[]){NULL}, "");
}

static void the_tail_keeps_the_last_bytes(void **state)
{
    int ends[2];
    char text[5000];
    tutti__console console = {0};
    tutti__log_pipe log = {.file = -1, .console_fd = -1};

    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 26);
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    log.fd = ends[0];
    for (size_t i = 0; i < sizeof text; i += 1000) {
        assert_int_equal(write(ends[1], text + i, 1000), 1000);
        assert_true(tutti__log_pipe_read(&log, &console));
    }
    assert_int_equal(log.tail_bytes, sizeof log.tail);
    assert_memory_equal(log.tail, text + sizeof text - sizeof log.tail, sizeof log.tail);
    assert_true(tutti__console_empty(&console));
    close(ends[1]);
    tutti__log_pipe_close(&log, &console);
}

static void the_console_keeps_order_between_descriptors(void **state)
{
    char text[64];
    int out[2], err[2];
    tutti__console console = {0};

    (void)state;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    tutti__console_add(&console, out[1], "one ", 4);
    tutti__console_add(&console, out[1], "two", 3);
    tutti__console_add(&console, err[1], "three", 5);
    tutti__console_add(&console, out[1], "four", 4);
    for (int i = 0; i < 3; i++) {
        const int expected[] = {out[1], err[1], out[1]};

        assert_int_equal(tutti__console_fd(&console), expected[i]);
        tutti__console_write(&console);
    }
    assert_int_equal(tutti__console_fd(&console), -1);
    assert_int_equal(read(out[0], text, sizeof text), 11);
    assert_memory_equal(text, "one twofour", 11);
    assert_int_equal(read(err[0], text, sizeof text), 5);
    close(out[1]);
    close(err[1]);
    close(out[0]);
    close(err[0]);
    tutti__console_free(&console);
}

static void command_lines_are_read(void **state)
{
    char *argv[] = {"run",
                    "-n3",
                    "--tee=0:1,2:3",
                    "--local_ranks_filter",
                    "1",
                    "--signals-to-handle",
                    "TERM,SIGUSR1",
                    "--shutdown-timeout",
                    "0",
                    "prog.py",
                    "-n",
                    "7",
                    NULL};
    tutti__run_line line = {0};

    (void)state;
    assert_int_equal(tutti__run_line_read(&line, 12, argv), TUTTI_OK);
    assert_int_equal(line.opts.n, 3);
    assert_int_equal(line.opts.tee[0], TUTTI__STREAM_OUT);
    assert_int_equal(line.opts.tee[1], TUTTI__STREAM_NONE);
    assert_int_equal(line.opts.tee[2], TUTTI__STREAM_BOTH);
    assert_true(!line.opts.shown[0] && line.opts.shown[1] && !line.opts.shown[2]);
    assert_int_equal(line.opts.signals[0], SIGTERM);
    assert_int_equal(line.opts.signals[1], SIGUSR1);
    assert_int_equal(line.opts.signals[2], 0);
    assert_true(line.opts.shutdown_timeout_s < 0);
    assert_string_equal(line.opts.program, "python3");
    assert_string_equal(line.opts.argv[2], "prog.py");
    assert_string_equal(line.opts.argv[3], "-n");
    assert_string_equal(line.opts.argv[4], "7");
    assert_null(line.opts.argv[5]);
    tutti__run_line_free(&line);
}

static void odd_command_lines_are_refused(void **state)
{
    static const char *const odd[] = {"-n=0",
                                      "-n0x2",
                                      "--nnodes=",
                                      "--nnodes=|1|",
                                      "--nnodes=1|1:1",
                                      "-t0:1,,",
                                      "-t0:",
                                      "-t:1",
                                      "-t-1:1",
                                      "-t1:1",
                                      "--tee=",
                                      "-t0:12",
                                      "--tee=1,2",
                                      "--local-ranks-filter=1",
                                      "--master-port=-1",
                                      "--rdzv-id=.",
                                      "--rdzv-id=",
                                      "--rdzv-id=../x",
                                      "--signals-to-handle=,",
                                      "--shutdown-timeout=nan",
                                      "---"};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(odd); i++) {
        char name[] = "run", program[] = "true", flag[64], *argv[] = {name, flag, program, NULL};
        tutti__run_line line = {0};

        snprintf(flag, sizeof flag, "%s", odd[i]);
        if (tutti__run_line_read(&line, 3, argv) != TUTTI_ERR_ARG)
            fail_msg("%s was read", odd[i]);
        tutti__run_line_free(&line);
    }
}

static void descendants_are_found(void **state)
{
    int ends[2], status;
    pid_t child, children[8];
    char byte;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pid_t grandchild = fork();

        if (grandchild == 0) {
            setsid();
            if (write(ends[1], "", 1) == 1)
                pause();
            _exit(0);
        }
        pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(tutti__list_children(children, 8), 1);
    assert_int_equal(children[0], child);
    assert_int_equal(tutti__signal_descendants(0, NULL, 0), 2);
    assert_int_equal(tutti__signal_descendants(0, &child, 1), 0);
    assert_int_equal(tutti__signal_descendants(SIGKILL, NULL, 0), 2);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* both have gone */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(tutti__list_children(children, 8), 0);
    close(ends[0]);
}

/* A process group of another parent, like one that has got the number of a worker that ended long ago. It answers each byte on
 * *socket_p, until its end is closed. Returns its number. */
static pid_t begin_stranger(int *socket_p)
{
    int ends[2];
    pid_t child, stranger;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        if (fork() == 0) {
            char byte;

            setsid();
            stranger = getpid();
            (void)!write(ends[1], &stranger, sizeof stranger);
            while (read(ends[1], &byte, 1) == 1)
                (void)!write(ends[1], &byte, 1);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[1]);
    assert_int_equal(read(ends[0], &stranger, sizeof stranger), sizeof stranger);
    *socket_p = ends[0];
    return stranger;
}

static void only_a_process_group_of_a_worker_is_killed(void **state)
{
    tutti__job job = {.opts = {.n = 1}};
    tutti__console console = {0};
    tutti__workers workers;
    int fd;
    char byte = 'a';

    (void)state;
    assert_int_equal(tutti__workers_new(&workers, &job, &console, NULL), TUTTI_OK);
    workers.list[0].pid = begin_stranger(&fd);
    workers.phase = TUTTI__RUNNING;
    tutti__workers_sweep_after(&workers, &workers.list[0]);
    tutti__workers_advance(&workers);
    assert_int_equal(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
    assert_int_equal(read(fd, &byte, 1), 1); /* 0: it was killed */
    close(fd);
    tutti__workers_free(&workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_whole_however_they_come),
        cmocka_unit_test(the_tail_keeps_the_last_bytes),
        cmocka_unit_test(the_console_keeps_order_between_descriptors),
        cmocka_unit_test(command_lines_are_read),
        cmocka_unit_test(odd_command_lines_are_refused),
        cmocka_unit_test(descendants_are_found),
        cmocka_unit_test(only_a_process_group_of_a_worker_is_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
