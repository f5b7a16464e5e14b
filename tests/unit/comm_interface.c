/* comm: which interface TUTTI_SOCKET_IFNAME means, and addresses as text.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/socket.h"

#include "tutti/store.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void assert_loopback(const char *list)
{
    tutti__address address;

    if (tutti__interface_address(&address, list, AF_INET) != TUTTI_OK)
        fail_msg("%s: %s", list, tutti_last_error());
    assert_true(tutti__address_is_loopback(&address));
    assert_int_equal(tutti__address_port(&address), 0);
}

static void assert_none(const char *list)
{
    tutti__address address;

    assert_int_equal(tutti__interface_address(&address, list, 0), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "lo"));
    assert_non_null(strstr(tutti_last_error(), "TUTTI_SOCKET_IFNAME"));
}

/* "^" is any interface, but loopback only where there is no other; then "^lo" is none. */
static bool takes_loopback_last(void)
{
    tutti__address any, other;
    const tutti_status status = tutti__interface_address(&other, "^lo", AF_INET);

    if (tutti__interface_address(&any, "^", AF_INET) != TUTTI_OK)
        return false;
    if (tutti__address_is_loopback(&any))
        return status == TUTTI_ERR_ARG &&
               strstr(tutti_last_error(), "TUTTI_SOCKET_IFNAME is \"^lo\"");
    return status == TUTTI_OK && !tutti__address_is_loopback(&other);
}

static void names_beginnings_and_exceptions(void **state)
{
    struct if_nameindex *all = if_nameindex();
    char except[1024] = "^";

    (void)state;
    assert_non_null(all);
    assert_loopback("lo");
    assert_loopback("l");
    assert_loopback("=lo");
    assert_loopback("nosuch0,lo");
    assert_loopback("nosuch0,=nosuch1,lo"); /* "=" counts in front of the list only */
    assert_none("=l");
    assert_none("nosuch0");
    assert_none("=nosuch0,l");
    assert_none(",");
    /* The exceptions: everything but the loopback gone, it is what remains. */
    for (const struct if_nameindex *i = all; i->if_name; i++)
        if (strcmp(i->if_name, "lo") != 0)
            snprintf(except + strlen(except), sizeof except - strlen(except), "%s,", i->if_name);
    if (except[1])
        assert_loopback(except);
    assert_true(takes_loopback_last());
    strcat(except, "lo");
    assert_none(except);
    if_freenameindex(all);
}

/* In a namespace of its own, where lo is down at first. 0: as expected; 77: not allowed here. */
static int look_alone(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    tutti__address address;
    int fd;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return 77;
    if (tutti__interface_address(&address, "^", 0) != TUTTI_ERR_ARG ||
        !strstr(tutti_last_error(), "no network interface of this host has an address") ||
        strstr(tutti_last_error(), "TUTTI_SOCKET_IFNAME"))
        return 1;
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) != 0)
        return 77;
    close(fd);
    if (tutti__interface_address(&address, "^", 0) != TUTTI_OK ||
        !tutti__address_is_loopback(&address))
        return 2;
    return takes_loopback_last() ? 0 : 3;
}

/* Ranks of one machine can always reach each other: without another interface, they use loopback. */
static void loopback_if_there_is_no_other(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0)
        _exit(look_alone());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no network namespace of its own can be made here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void text_of(const char *host, const char *want)
{
    tutti__address address;
    char text[80];

    if (tutti__resolve(&address, host, 29500) != TUTTI_OK)
        fail_msg("%s: %s", host, tutti_last_error());
    tutti__address_text(&address, text, sizeof text);
    assert_string_equal(text, want);
}

static void addresses_of_both_families(void **state)
{
    tutti__address address;

    (void)state;
    text_of("10.0.0.1", "10.0.0.1:29500");
    text_of("::1", "[::1]:29500");
    text_of("[::1]", "[::1]:29500");
    text_of("fe80::1%lo", "[fe80::1%lo]:29500");
    assert_int_equal(tutti__resolve(&address, "fe80::1%lo", 1), TUTTI_OK);
    assert_int_equal(tutti__address_scope(&address), if_nametoindex("lo"));
    tutti__address_set_scope(&address, 77);
    assert_int_equal(tutti__address_scope(&address), 77);
    tutti__address_set_scope(&address, 0); /* this end knows no link: the other's number stays */
    assert_int_equal(tutti__address_scope(&address), 77);
    assert_int_equal(tutti__resolve(&address, "::1", 1), TUTTI_OK);
    tutti__address_set_scope(&address, 77);
    assert_int_equal(tutti__address_scope(&address), 0);
}

static void a_program_finds_its_own_address(void **state)
{
    char text[64], host[64], few[4];
    tutti__address other;

    (void)state;
    assert_int_equal(tutti_host_address("127.0.0.1", text, sizeof text), TUTTI_OK);
    assert_string_equal(text, "127.0.0.1");
    assert_int_equal(tutti_host_address("127.0.0.1", few, sizeof few), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "needs 10 bytes, but only 4"));
    assert_int_equal(tutti_host_address("", text, sizeof text), TUTTI_ERR_ARG);
    assert_int_equal(tutti_host_address("name.invalid", text, sizeof text), TUTTI_ERR_NOT_FOUND);
    /* Its own name is the loopback's on many machines, which is no address for others. */
    assert_int_equal(gethostname(host, sizeof host), 0);
    if (tutti__interface_address(&other, "^lo", AF_INET) == TUTTI_OK &&
        tutti_host_address(host, text, sizeof text) == TUTTI_OK)
        assert_true(strncmp(text, "127.", 4) != 0);
    setenv("TUTTI_SOCKET_IFNAME", "lo", 1);
    assert_int_equal(tutti_host_address("192.0.2.1", text, sizeof text), TUTTI_OK);
    unsetenv("TUTTI_SOCKET_IFNAME");
    assert_string_equal(text, "127.0.0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_beginnings_and_exceptions),
        cmocka_unit_test(loopback_if_there_is_no_other),
        cmocka_unit_test(addresses_of_both_families),
        cmocka_unit_test(a_program_finds_its_own_address),
    };

    return cmocka_run_group_tests_name("comm_interface", tests, NULL, NULL);
}
