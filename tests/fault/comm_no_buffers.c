/* comm: a rank whose kernel has no memory for a message on its control channel is the cause, named on all ranks, and not the peer.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { HEARTBEAT_MS = 500 };

/* How many of this process's next calls fail, and with what. */
static _Atomic int receives_fail, sends_fail, fail_with;

static bool takes_one(_Atomic int *count)
{
    int n = atomic_load(count);

    while (n > 0 && !atomic_compare_exchange_weak(count, &n, n - 1))
        ;
    return n > 0;
}

/* Interpose libc's, or the sanitizer's. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    typedef ssize_t receive(int, struct msghdr *, int);
    void *symbol = dlsym(RTLD_NEXT, "recvmsg");
    receive *next;

    memcpy(&next, &symbol, sizeof next);
    if (!takes_one(&receives_fail))
        return next(fd, message, flags);
    errno = atomic_load(&fail_with);
    return -1;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    typedef ssize_t send(int, const struct msghdr *, int);
    void *symbol = dlsym(RTLD_NEXT, "sendmsg");
    send *next;

    memcpy(&next, &symbol, sizeof next);
    if (!takes_one(&sends_fail))
        return next(fd, message, flags);
    errno = atomic_load(&fail_with);
    return -1;
}

typedef struct fault {
    int size, victim, error;
    bool sends;
} fault;

/* The victim's beats, or those that it receives, fail. */
static int one_fails(tutti_group *group, void *arg)
{
    const fault *f = arg;
    const int rank = tutti_group_rank(group);
    char who[16];
    double deadline;

    snprintf(who, sizeof who, ": rank %d (", f->victim);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    CHECK(tutti_meet(group, "all are there") == TUTTI_OK);
    if (rank == f->victim) {
        atomic_store(&fail_with, f->error);
        atomic_store(f->sends ? &sends_fail : &receives_fail, 1);
    }
    deadline = tutti__now_ms() + 20000;
    while (!tutti__comm_failed(&group->comm) && tutti__now_ms() < deadline)
        usleep(500);
    /* who reads the end of the victim's process before its cause comes round misses it instead */
    CHECK(tutti_meet(group, "all have heard") == TUTTI_OK);
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_MEMORY);
    CHECK(strstr(tutti_last_error(), who) && strstr(tutti_last_error(), strerror(f->error)));
    CHECK(strstr(tutti_last_error(),
                 f->sends ? "cannot send to rank " : "cannot receive from rank "));
    CHECK(strstr(tutti_last_error(), "memory left") != NULL);
    return 0;
}

static void run(fault f)
{
    assert_int_equal(tutti_run_ranks(f.size, one_fails, &f,
                                     &(tutti_ranks_opts){.processes = true,
                                                         .heartbeat_ms = HEARTBEAT_MS,
                                                         .transport = TUTTI_TRANSPORT_TCP}),
                     0);
}

static void receiving(void **state)
{
    (void)state;
    run((fault){.size = 4, .victim = 2, .error = ENOMEM});
    run((fault){.size = 4, .victim = 2, .error = ENOBUFS});
}

/* No third rank could pass the cause on: it is told on the connection from which nothing could be received. */
static void receiving_of_two(void **state)
{
    (void)state;
    run((fault){.size = 2, .victim = 0, .error = ENOMEM});
    run((fault){.size = 2, .victim = 1, .error = ENOBUFS});
}

static void sending(void **state)
{
    (void)state;
    run((fault){.size = 4, .victim = 2, .error = ENOMEM, .sends = true});
    run((fault){.size = 4, .victim = 2, .error = ENOBUFS, .sends = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receiving), cmocka_unit_test(receiving_of_two), cmocka_unit_test(sending)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
