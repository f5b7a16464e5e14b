/* check_ranks.c -- two ranks do an all_reduce: an end-to-end test.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tutti/group.h>
#include <unistd.h>

enum {
    LEAST_FILES = 20,
    TIMEOUT_MS = 2500,
    SMALL = 1024,
    LARGE = 262144,
    SMALL_CALLS = 200,
    LARGE_CALLS = 10,
    ENOUGH_MS = 500 /* fewer calls on a busy machine, where each waits for a time slice */
};

typedef struct result {
    char transport[64];
    double setup_ms, small_us, large_us;
    bool right;
} result;

/* One rank: at most `calls` all_reduces of `count` floats, each the rank's number + 1; the mean time of a call. The first float of
 * those measured tells all when a rank has had enough. */
static tutti_status add_up(tutti_group *group, float *values, size_t count, int calls, result *r,
                           double *us_p)
{
    double begin, ms = 0;
    int n = 0;

    for (size_t i = 0; i < count; i++)
        values[i] = (float)(tutti_group_rank(group) + 1);
    TUTTI_TRY(tutti_all_reduce(group, TUTTI_BUF(values, count, TUTTI_F32), TUTTI_SUM, NULL));
    for (size_t i = 0; i < count; i++)
        r->right = r->right && values[i] == 3.0f;
    TUTTI_TRY(tutti_barrier(group, NULL));
    begin = tutti__now_ms();
    do {
        values[0] = ms > ENOUGH_MS ? 1.0f : 0.0f;
        TUTTI_TRY(tutti_all_reduce(group, TUTTI_BUF(values, count, TUTTI_F32), TUTTI_MAX, NULL));
        ms = tutti__now_ms() - begin;
    } while (++n < calls && values[0] == 0.0f);
    *us_p = ms * 1e3 / n;
    return TUTTI_OK;
}

static tutti_status be_rank(tutti_store *store, int rank, tutti_transport transport, result *r)
{
    tutti_group_opts opts = {.store = store,
                             .rank = rank,
                             .world_size = 2,
                             .name = "doctor",
                             .timeout_ms = TIMEOUT_MS,
                             .transport = transport,
                             .backend = TUTTI_BACKEND_NATIVE};
    tutti_group *group = NULL;
    double begin = tutti__now_ms();
    tutti_status status;
    void *values = NULL;

    r->right = true;
    TUTTI_TRY(tutti_group_init(&group, &opts));
    r->setup_ms = tutti__now_ms() - begin;
    snprintf(r->transport, sizeof r->transport, "%s", tutti_group_transport_name(group));
    status = tutti_group_alloc(group, LARGE * sizeof(float), &values);
    if (status == TUTTI_OK)
        status = add_up(group, values, SMALL, SMALL_CALLS, r, &r->small_us);
    if (status == TUTTI_OK)
        status = add_up(group, values, LARGE, LARGE_CALLS, r, &r->large_us);
    tutti_group_free(group);
    return status;
}

/* Rank 1, a child that receives the store's port through the socket, and sends back why it failed. */
static int be_rank_1(int to_rank_0, tutti_transport transport)
{
    tutti_store *store = NULL;
    tutti_status status;
    result r = {0};
    int port;

    if (read(to_rank_0, &port, sizeof port) != (ssize_t)sizeof port)
        return 1;
    status = tutti_store_tcp_connect(&store, "127.0.0.1", port, TIMEOUT_MS);
    if (status == TUTTI_OK)
        status = be_rank(store, 1, transport, &r);
    tutti_store_free(store);
    if (status != TUTTI_OK)
        (void)send(to_rank_0, tutti_last_error(), strlen(tutti_last_error()), MSG_NOSIGNAL);
    return status == TUTTI_OK && r.right ? 0 : 1;
}

/* Forked before this process has threads, which hosting the store starts. */
static tutti_status start_rank_1(tutti_transport transport, pid_t *child_p, int *socket_p)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return tutti__fail_errno(errno, "no socket (ulimit -n)");
    *child_p = fork();
    if (*child_p == 0) {
        close(ends[1]);
        _exit(be_rank_1(ends[0], transport));
    }
    close(ends[0]);
    *socket_p = ends[1];
    if (*child_p < 0) {
        close(ends[1]);
        return tutti__fail_errno(errno, "no second process (ulimit -u)");
    }
    return TUTTI_OK;
}

/* Waits for its end. Its failure is closer to the cause: this rank has only lost its peer. */
static tutti_status end_rank_1(pid_t child, int socket_fd, tutti_status status)
{
    char text[512] = "";
    int ended = 0;
    ssize_t n;

    shutdown(socket_fd, SHUT_WR);
    n = read(socket_fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    close(socket_fd);
    waitpid(child, &ended, 0);
    if (*text)
        return tutti__fail(TUTTI_ERR_PEER, "the second rank: %s", text);
    if (status == TUTTI_OK && !(WIFEXITED(ended) && WEXITSTATUS(ended) == 0))
        return tutti__fail(TUTTI_ERR_PEER, "the second rank failed");
    return status;
}

/* A separate job: with its own secret, and without the environment of the user's job, if there is one. */
static void set_environment(void)
{
    static const char *const others[] = {"RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "TUTTI_STORE",
                                         "TUTTI_SECRET_FILE",
                                         "TUTTI_TRANSPORT",
                                         "TUTTI_BACKEND",
                                         "TORCHELASTIC_RUN_ID",
                                         "TORCHELASTIC_RESTART_COUNT",
                                         "TUTTI_FLIGHT_DIR"};
    unsigned char bytes[32];
    char text[65];

    for (size_t i = 0; i < TUTTI__COUNT_OF(others); i++)
        unsetenv(others[i]);
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    setenv("TUTTI_SECRET", text, 1);
}

static tutti_status meet(tutti_transport transport, result *r)
{
    tutti_store *store = NULL;
    int socket_fd = -1, port;
    tutti_status status;
    pid_t child = -1;

    set_environment();
    TUTTI_TRY(start_rank_1(transport, &child, &socket_fd));
    status = tutti_store_tcp_serve(&store, "127.0.0.1", 0);
    port = tutti_store_port(store);
    if (status == TUTTI_OK &&
        send(socket_fd, &port, sizeof port, MSG_NOSIGNAL) != (ssize_t)sizeof port)
        status = tutti__fail_errno(errno, "the second rank has ended early");
    if (status == TUTTI_OK)
        status = be_rank(store, 0, transport, r);
    status = end_rank_1(child, socket_fd, status);
    tutti_store_free(store);
    return status;
}

/* Two ranks that run out of descriptors report it late and unclearly. */
static bool can_try(tutti__doctor *d, const char *subject)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= LEAST_FILES)
        return true;
    tutti__find(d, TUTTI__NOTE, subject, "not tried: only %llu open files are allowed (ulimit -n)",
                (unsigned long long)limit.rlim_cur);
    return false;
}

static void report(tutti__doctor *d, const char *subject, const result *r)
{
    tutti__find(d, r->right ? TUTTI__FINE : TUTTI__PROBLEM, subject,
                r->right ? "met in %.1f ms; all_reduce of 4 KiB in %.1f us, of 1 MiB in %.0f us"
                         : "the sums are wrong (met in %.1f ms, %.1f us, %.0f us)",
                r->setup_ms, r->small_us, r->large_us);
    if (!r->right)
        tutti__remedy(
            d, "memory or processor of this machine may be broken: run memtester, and report this");
}

void tutti__check_shared_memory_ranks(tutti__doctor *d)
{
    result r = {0};

    if (!can_try(d, "over shared memory"))
        return;
    if (meet(TUTTI_TRANSPORT_AUTO, &r) != TUTTI_OK) {
        tutti__find(d, TUTTI__PROBLEM, "over shared memory", "%s", tutti_last_error());
        tutti__remedy(d, "fix what is marked above; TUTTI_LOG=debug tutti run -n 2 tutti bench "
                         "barrier says more");
    } else if (strcmp(r.transport, "shared memory") != 0) {
        tutti__find(d, TUTTI__WARNING, "over shared memory", "the ranks used %s instead",
                    r.transport);
        tutti__remedy(d, "see \"/proc\" and \"shared memory\" above: a container without /proc, "
                         "its seccomp profile, or ulimits");
    } else {
        report(d, "over shared memory", &r);
    }
}

void tutti__check_tcp_ranks(tutti__doctor *d)
{
    result r = {0};

    if (!can_try(d, "over TCP (loopback)"))
        return;
    if (meet(TUTTI_TRANSPORT_TCP, &r) != TUTTI_OK) {
        tutti__find(d, TUTTI__PROBLEM, "over TCP (loopback)", "%s", tutti_last_error());
        tutti__remedy(d, "fix what is marked above; TUTTI_TRANSPORT=tcp TUTTI_LOG=debug tutti run "
                         "-n 2 tutti bench barrier says more");
    } else {
        report(d, "over TCP (loopback)", &r);
    }
}
