/* launch_port_owner.c -- finds the process that listens on a port.   SPDX-License-Identifier: MIT */
#include "launch/process/port_owner.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Binds to a port of the kernel's choice; -1: this machine lacks the family. */
static int bound_socket(int family, int *port_p)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr *at = family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t bytes = family == AF_INET6 ? sizeof six : sizeof four;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, at, bytes) != 0) {
        close(fd);
        return -1;
    }
    assert_int_equal(getsockname(fd, at, &bytes), 0);
    *port_p = ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
    return fd;
}

static void check_family(int family)
{
    char text[128] = "left over", expected[128];
    int port, fd = bound_socket(family, &port);

    if (fd < 0)
        skip();
    assert_false(tutti__port_owner(port, text, sizeof text)); /* bound, but nobody listens */
    assert_string_equal(text, "");
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(prctl(PR_SET_NAME, "a b) c"), 0);
    assert_true(tutti__port_owner(port, text, sizeof text));
    snprintf(expected, sizeof expected, "process %ld (a b) c) of user %u", (long)getpid(),
             (unsigned)geteuid());
    assert_string_equal(text, expected);
    close(fd);
    assert_false(tutti__port_owner(port, text, sizeof text));
}

static void a_port_of_ipv4_has_its_owner(void **state)
{
    (void)state;
    check_family(AF_INET);
}

static void a_port_of_ipv6_has_its_owner(void **state)
{
    (void)state;
    check_family(AF_INET6);
}

/* As a user that may not read our descriptors. */
static void of_another_users_process_the_user_is_named(void **state)
{
    char text[128], expected[64];
    int port, status, fd = bound_socket(AF_INET, &port);
    pid_t child;

    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(listen(fd, 1), 0);
    snprintf(expected, sizeof expected, "a process of user %u", (unsigned)geteuid());
    child = fork();
    if (child == 0) {
        close(fd);
        _exit(setgid(65534) != 0 || setuid(65534) != 0
                  ? 2
                  : !tutti__port_owner(port, text, sizeof text) || strcmp(text, expected) != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    close(fd);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        skip();
    assert_int_equal(status, 0);
}

static void the_text_is_cut_to_the_buffer(void **state)
{
    char text[8];
    int port, fd = bound_socket(AF_INET, &port);

    (void)state;
    assert_int_equal(listen(fd, 1), 0);
    assert_true(tutti__port_owner(port, text, sizeof text));
    assert_string_equal(text, "process");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_port_of_ipv4_has_its_owner),
        cmocka_unit_test(a_port_of_ipv6_has_its_owner),
        cmocka_unit_test(of_another_users_process_the_user_is_named),
        cmocka_unit_test(the_text_is_cut_to_the_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
