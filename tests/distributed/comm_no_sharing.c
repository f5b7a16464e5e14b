/* comm: if one rank cannot share memory (seccomp, limits), all use TCP, and rank 0 logs why.
 * SPDX-License-Identifier: MIT */
#include "harness/emulator.h"
#include "harness/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 3, ODD = 1 };

/* ---- Refusals, in the one rank ------------------------------------------------------------------------ */

/* The system call fails with `error`, if its first argument is `argument` (-1: whatever that is). */
static void refuse(long number, long argument, int error)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | (argument < 0 ? BPF_JGE : BPF_JEQ) | BPF_K,
                 argument < 0 ? 0 : (uint32_t)argument, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        fprintf(stderr, "seccomp: %s\n", strerror(errno));
        _exit(77);
    }
}

static void no_memfd(int rank)
{
    if (rank == ODD)
        refuse(SYS_memfd_create, -1, EPERM);
}

static void unknown_memfd(int rank)
{
    if (rank == ODD)
        refuse(SYS_memfd_create, -1, ENOSYS);
}

static void no_unix_sockets(int rank)
{
    if (rank == ODD)
        refuse(SYS_socket, AF_UNIX, EAFNOSUPPORT);
}

static void no_socket_pairs(int rank)
{
    if (rank == ODD)
        refuse(SYS_socketpair, AF_UNIX, EACCES);
}

static void short_files(int rank)
{
    if (rank == ODD && setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096}) != 0)
        _exit(77);
}

/* ---- The ranks' behaviour then --------------------------------------------------------------------------- */

static int works_over(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    float x[1000], *shared;
    tutti_group *sub;
    void *p;

    CHECK(strcmp(tutti_group_transport_name(group), arg) == 0);
    CHECK(tutti_group_alloc(group, 4000, &p) == TUTTI_OK);
    shared = p;
    for (int i = 0; i < 1000; i++)
        shared[i] = x[i] = (float)(i + rank);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 1000, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(p, 1000, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    for (int i = 0; i < 1000; i++)
        CHECK(x[i] == (float)(i * size + size * (size - 1) / 2) && shared[i] == x[i]);
    CHECK(tutti_group_split(group, (int[]){0, 1}, 2, "two", &sub) == TUTTI_OK);
    CHECK(!sub || strcmp(tutti_group_transport_name(sub), arg) == 0);
    tutti_group_free(sub);
    return 0;
}

/* Runs it and returns what was written to standard error. */
static char *run(void (*before)(int rank), const char *transport)
{
    static char text[8192];
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO), results[RANKS], failed;
    size_t n;

    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    failed = tutti_run_ranks(
        RANKS, works_over, (void *)(uintptr_t)transport,
        &(tutti_ranks_opts){.processes = true, .before = before, .results = results});
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    if (results[ODD] == 77) {
        print_message("no seccomp filters here, or limits are fixed\n");
        skip();
    }
    if (failed)
        print_message("%s", text);
    assert_int_equal(failed, 0);
    return text;
}

static void assert_tcp_because(void (*before)(int rank), const char *why)
{
    const char *said = run(before, "tcp"), *line = strstr(said, "cannot share memory");

    if (!line || !strstr(line, why))
        print_message("said: %s\n", said);
    assert_non_null(line);
    assert_non_null(strstr(said, "group \"world\" uses TCP"));
    assert_non_null(strstr(said, "rank 1 on "));
    assert_non_null(strstr(line, why));
    line = strstr(line + 1, "cannot share memory");
    assert_true(!line || strstr(said, "group \"two\" uses TCP")); /* a line per group */
}

static void nothing_is_said_where_memory_can_be_shared(void **state)
{
    (void)state;
    assert_string_equal(run(NULL, "shared memory"), "");
}

static void a_refused_memfd(void **state)
{
    (void)state;
    if (test_emulated("it takes no seccomp filter"))
        skip();
    assert_tcp_because(no_memfd, "memfd_create: Operation not permitted");
    assert_tcp_because(unknown_memfd, "memfd_create: Function not implemented");
}

static void refused_unix_sockets(void **state)
{
    (void)state;
    if (test_emulated("it takes no seccomp filter"))
        skip();
    assert_tcp_because(no_unix_sockets, "cannot make a socket for @unix");
    assert_tcp_because(no_socket_pairs,
                       "passing a descriptor over a unix socket: Permission denied");
}

static void files_that_may_not_grow(void **state)
{
    (void)state;
    assert_tcp_because(short_files, "ulimit -f");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_where_memory_can_be_shared),
        cmocka_unit_test(a_refused_memfd),
        cmocka_unit_test(refused_unix_sockets),
        cmocka_unit_test(files_that_may_not_grow),
    };

    return cmocka_run_group_tests_name("comm_no_sharing", tests, NULL, NULL);
}
