/* ranks.c -- n ranks as threads over a memory store, or as forked processes over a TCP store.
 * SPDX-License-Identifier: MIT
 *
 * Processes are forked before any thread exists (the store's server among them) and learn the store's port over a pipe;
 * they die with their parent. A call that hangs fails by the group's own time limit; a rank that hangs elsewhere is killed early enough
 * for its test to report it, and counts as failed. */
#include "ranks.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    GRACE_MS = 15000,
    TIMEOUT_MS = 30000,
    HEARTBEAT_MS = 20000,
    EMULATED_TIMEOUT_MS = 120000,
    TEST_LIMIT_S = 60
};

typedef struct rank_run {
    int rank, size, result;
    tutti_rank_body *body;
    void *arg;
    const tutti_ranks_opts *opts;
    tutti_store *store;
    int timeout_ms, body_ms; /* of a call; of a rank's whole body */
} rank_run;

_Thread_local int tutti_test_rank;

static int run_body(rank_run *run)
{
    const tutti_group_opts opts = {.store = run->store,
                                   .rank = run->rank,
                                   .world_size = run->size,
                                   .timeout_ms = run->timeout_ms,
                                   .heartbeat_ms = run->opts->heartbeat_ms ? run->opts->heartbeat_ms
                                                                           : HEARTBEAT_MS,
                                   .transport = run->opts->transport};
    tutti__tuning tuning = run->opts->tuning;
    tutti_group *group;
    int result;

    tutti_test_rank = run->rank;
    tutti__log_set_rank(run->rank);
    if (run->opts->hosts)
        tuning.host = 1 + run->opts->hosts[run->rank];
    if (tutti__group_init(&group, &opts, &tuning) != TUTTI_OK) {
        fprintf(stderr, "rank %d: %s\n", run->rank, tutti_last_error());
        return 99;
    }
    result = run->body(group, run->arg);
    tutti_group_free(group);
    return result;
}

/* ---- Threads ---------------------------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
    rank_run *run = arg;

    run->result = run_body(run);
    return NULL;
}

static void run_threads(rank_run *runs, int n)
{
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    struct timespec until;
    tutti_store *store;

    if (!threads || tutti_store_memory_new(&store) != TUTTI_OK)
        abort();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += runs[0].body_ms / 1000;
    for (int r = 0; r < n; r++) {
        runs[r].store = store;
        if (pthread_create(&threads[r], NULL, thread_main, &runs[r]) != 0)
            abort();
    }
    for (int r = 0; r < n; r++)
        if (pthread_timedjoin_np(threads[r], NULL, &until) != 0) {
            fprintf(stderr, "rank %d hangs\n", r); /* threads cannot be killed: end the test */
            abort();
        }
    tutti_store_free(store);
    free(threads);
}

/* ---- Processes ---------------------------------------------------------------------------------------- */

static const char *store_host(const tutti_ranks_opts *opts)
{
    return opts->store_host ? opts->store_host : "127.0.0.1";
}

static _Noreturn void child_main(rank_run *run, int port_pipe, pid_t parent)
{
    int port = 0, result = 98;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(97);
    if (read(port_pipe, &port, sizeof port) != sizeof port)
        _exit(96);
    close(port_pipe);
    if (run->opts->before)
        run->opts->before(run->rank);
    if (tutti_store_tcp_connect(&run->store, store_host(run->opts), port, run->timeout_ms) ==
        TUTTI_OK) {
        result = run_body(run);
        tutti_store_free(run->store);
    } else {
        fprintf(stderr, "rank %d: %s\n", run->rank, tutti_last_error());
    }
    fflush(NULL);
    _exit(result);
}

static int wait_child(pid_t pid, double deadline, int rank)
{
    int status, fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0 || poll(&(struct pollfd){fd, POLLIN, 0}, 1, tutti__poll_ms(deadline)) <= 0) {
        fprintf(stderr, "rank %d hangs\n", rank);
        kill(pid, SIGKILL);
    }
    if (fd >= 0)
        close(fd);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void run_processes(rank_run *runs, int n)
{
    pid_t *pids = calloc((size_t)n, sizeof *pids), parent = getpid();
    double deadline = tutti__now_ms() + runs[0].body_ms;
    int port_pipe[2], port;
    tutti_store *store;

    if (!pids || pipe(port_pipe) != 0)
        abort();
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            close(port_pipe[1]);
            child_main(&runs[r], port_pipe[0], parent);
        }
        if (pids[r] < 0)
            abort();
    }
    close(port_pipe[0]);
    if (tutti_store_tcp_serve(&store, store_host(runs[0].opts), 0) == TUTTI_OK) {
        port = tutti_store_port(store);
        for (int r = 0; r < n; r++)
            if (write(port_pipe[1], &port, sizeof port) != sizeof port)
                fprintf(stderr, "rank %d did not take the port\n", r);
    } else {
        store = NULL;
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    close(port_pipe[1]);
    for (int r = 0; r < n; r++)
        runs[r].result = wait_child(pids[r], deadline, r);
    tutti_store_free(store);
    free(pids);
}

/* Threads in a separate process: CUDA does not work in a process forked from one that has initialised it. */
static void run_threads_apart(rank_run *runs, int n)
{
    int results[2], code;
    pid_t pid;

    if (pipe(results) != 0)
        abort();
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0) {
        run_threads(runs, n);
        for (int r = 0; r < n; r++)
            if (write(results[1], &runs[r].result, sizeof code) != sizeof code)
                _exit(1);
        fflush(NULL);
        _exit(0);
    }
    close(results[1]);
    for (int r = 0; r < n; r++)
        runs[r].result = read(results[0], &code, sizeof code) == sizeof code ? code : 95;
    close(results[0]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static bool on_cuda(void)
{
    const char *device = getenv("TUTTI_TEST_DEVICE");

    return device && strncmp(device, "cuda", 4) == 0;
}

/* ---- Both ------------------------------------------------------------------------------------------------ */

/* A body of many calls takes hundreds of times as long on a loaded machine, where each call waits for other programs' time
 * slices: its limit is most of the test's time. */
static int body_ms(const tutti_ranks_opts *opts)
{
    const char *text = getenv("TUTTI_TEST_LIMIT_S");
    int64_t limit_s = TEST_LIMIT_S;

    if (opts->timeout_ms)
        return opts->timeout_ms + GRACE_MS;
    if (text && !tutti__parse_int64(text, &limit_s))
        abort();
    return (int)(limit_s * 750);
}

int tutti_run_ranks(int n, tutti_rank_body *body, void *arg, const tutti_ranks_opts *opts)
{
    const int timeout_ms = getenv("TUTTI_TEST_EMULATOR") ? EMULATED_TIMEOUT_MS : TIMEOUT_MS;
    rank_run *runs = calloc((size_t)n, sizeof *runs);
    int failed = 0;

    if (!runs)
        abort();
    for (int r = 0; r < n; r++)
        runs[r] = (rank_run){.rank = r,
                             .size = n,
                             .body = body,
                             .arg = arg,
                             .opts = opts,
                             .timeout_ms = opts->timeout_ms ? opts->timeout_ms : timeout_ms,
                             .body_ms = body_ms(opts)};
    if (opts->processes)
        run_processes(runs, n);
    else if (on_cuda())
        run_threads_apart(runs, n);
    else
        run_threads(runs, n);
    for (int r = 0; r < n; r++) {
        failed += runs[r].result != 0;
        if (opts->results)
            opts->results[r] = runs[r].result;
        else if (runs[r].result != 0)
            fprintf(stderr, "rank %d of %d failed: %d\n", r, n, runs[r].result);
    }
    free(runs);
    return failed;
}

int tutti_run_ranks_as_threads(int n, tutti_rank_body *body, void *arg)
{
    return tutti_run_ranks(n, body, arg, &(tutti_ranks_opts){0});
}

int tutti_run_ranks_as_processes(int n, tutti_rank_body *body, void *arg, tutti_transport transport)
{
    return tutti_run_ranks(n, body, arg,
                           &(tutti_ranks_opts){.processes = true, .transport = transport});
}

const int tutti_two_hosts[16] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};

int tutti_run_ranks_everywhere(int n, tutti_rank_body *body, void *arg)
{
    return tutti_run_ranks_as_threads(n, body, arg) +
           tutti_run_ranks_as_processes(n, body, arg, TUTTI_TRANSPORT_AUTO) +
           tutti_run_ranks(n, body, arg, &(tutti_ranks_opts){.processes = true, .tuning.fan = 2}) +
           tutti_run_ranks_as_processes(n, body, arg, TUTTI_TRANSPORT_TCP) +
           tutti_run_ranks(n, body, arg,
                           &(tutti_ranks_opts){.processes = true, .hosts = tutti_two_hosts});
}

tutti_status tutti_meet(tutti_group *group, const char *key)
{
    char all[64];
    int64_t n;

    snprintf(all, sizeof all, "%s-all", key);
    TUTTI_TRY(tutti_store_add(group->boot.store, key, 1, &n));
    if (n == tutti_group_size(group))
        TUTTI_TRY(tutti_store_set(group->boot.store, all, "", 0));
    return tutti_store_wait(group->boot.store, all, 30000);
}
