/* comm: unauthorized connections to a job -- without the secret, with another job's, late, duplicate, silent, slow, sending garbage
 * -- are rejected in time with a log line, and the job continues.   SPDX-License-Identifier: MIT
 * timeout: 90   run: waiting
 *
 * It takes 12 s, because a client has 10 s to authenticate. */
#include "comm/bootstrap/socket.h"
#include "comm/bootstrap/store/store.h"
#include "harness/greet.h"
#include "harness/ranks.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SECRET "0123456789abcdef0123456789abcdef"

enum { PROVE_MS = 10000 };

/* ---- What is logged ----------------------------------------------------------------------------------- */

static int log_fd, kept_stderr;

static void begin_log(void)
{
    fflush(stderr);
    log_fd = memfd_create("log", MFD_CLOEXEC);
    kept_stderr = dup(STDERR_FILENO);
    assert_true(log_fd >= 0 && kept_stderr >= 0);
    dup2(log_fd, STDERR_FILENO);
}

static char *end_log(void)
{
    static char text[1 << 18];
    ssize_t n;

    fflush(stderr);
    dup2(kept_stderr, STDERR_FILENO);
    close(kept_stderr);
    n = pread(log_fd, text, sizeof text - 1, 0);
    close(log_fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static bool logged(const char *what)
{
    static char text[1 << 18];
    ssize_t n = pread(log_fd, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return strstr(text, what) != NULL;
}

static bool logged_within(const char *what, double ms)
{
    double deadline = tutti__now_ms() + ms;

    while (!logged(what) && tutti__now_ms() < deadline)
        usleep(1000);
    return logged(what);
}

static void assert_logged(const char *what)
{
    if (!logged_within(what, TUTTI_LATE_MS)) {
        fprintf(stdout, "not logged: \"%s\", but:\n%s\n", what, end_log());
        fail();
    }
}

/* At most one line a second is logged, which may be another stranger's: this one comes again until it is his. */
static void assert_logged_of(void (*stranger)(int port), int port, const char *what)
{
    double deadline = tutti__now_ms() + TUTTI_LATE_MS;

    do
        stranger(port);
    while (!logged_within(what, 200) && tutti__now_ms() < deadline);
    assert_logged(what);
}

/* ---- A job that goes on -------------------------------------------------------------------------------- */

typedef struct job {
    tutti_store *store;
    _Atomic bool stop;
    _Atomic int failures, rounds;
    double worst_ms;
    pthread_t thread;
} job;

static void *job_main(void *arg)
{
    job *j = arg;

    while (!atomic_load(&j->stop)) {
        double begin = tutti__now_ms();
        int64_t sum;

        if (tutti_store_add(j->store, "step", 1, &sum) != TUTTI_OK)
            atomic_fetch_add(&j->failures, 1);
        begin = tutti__now_ms() - begin;
        j->worst_ms = begin > j->worst_ms ? begin : j->worst_ms;
        atomic_fetch_add(&j->rounds, 1);
        usleep(500);
    }
    return NULL;
}

static void job_begin(job *j, tutti_store *store)
{
    *j = (job){.store = store};
    assert_int_equal(pthread_create(&j->thread, NULL, job_main, j), 0);
}

static void job_end(job *j)
{
    atomic_store(&j->stop, true);
    pthread_join(j->thread, NULL);
    print_message("meanwhile the job made %d requests, the slowest took %.1f ms\n",
                  atomic_load(&j->rounds), j->worst_ms);
    assert_int_equal(atomic_load(&j->failures), 0);
    assert_true(j->worst_ms <
                TUTTI_LATE_MS); /* and not PROVE_MS, which those who wait for others have */
}

/* ---- Strangers ----------------------------------------------------------------------------------------- */

static int knock(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Reads until the other side closes; returns the milliseconds, or -1 if it did not within `ms`. */
static double until_hung_up(int fd, double ms)
{
    double begin = tutti__now_ms(), deadline = begin + ms;
    char rest[256];

    for (;;) {
        if (poll(&(struct pollfd){fd, POLLIN, 0}, 1, tutti__poll_ms(deadline)) <= 0)
            return -1;
        if (recv(fd, rest, sizeof rest, 0) <= 0)
            return tutti__now_ms() - begin;
    }
}

static void assert_turned_away(const char *who, int fd)
{
    double ms = until_hung_up(fd, TUTTI_LATE_MS); /* less than PROVE_MS */

    print_message("%-40s turned away after %.2f ms\n", who, ms);
    assert_true(ms >= 0);
    close(fd);
}

static tutti__secret right_secret(void)
{
    tutti__secret secret;

    assert_int_equal(setenv("TUTTI_SECRET", SECRET, 1), 0);
    assert_int_equal(tutti__secret_read(&secret), TUTTI_OK);
    return secret;
}

/* Performs the handshake with this secret and claim; returns the status, and the client's message in *text. */
static tutti_status greet_as(int port, const tutti__secret *secret, const tutti__claim *claim,
                             char *text)
{
    int fd = knock(port);
    tutti_status status;

    fcntl(fd, F_SETFL, O_NONBLOCK);
    status = test_greet(fd, secret, claim, "the store", TUTTI_LATE_MS);
    snprintf(text, 512, "%s", status == TUTTI_OK ? "" : tutti_last_error());
    close(fd);
    return status;
}

/* Of the job's second attempt. */
static tutti__claim right_claim(const tutti__secret *secret)
{
    tutti__claim claim = tutti__store_claim(secret);

    claim.attempt = 1;
    return claim;
}

static void assert_refused(int port, const tutti__secret *secret, const tutti__claim *claim,
                           const char *why)
{
    char text[512];

    assert_int_equal(greet_as(port, secret, claim, text), TUTTI_ERR_IO);
    assert_non_null(strstr(text, why));
}

static void come_without_secret(int port)
{
    tutti__secret right = right_secret(), none = right;
    const tutti__claim claim = right_claim(&right);

    none.set = false;
    memset(none.key, 0, sizeof none.key);
    assert_refused(port, &none, &claim, "expects a secret while this rank has none");
}

static void come_with_another_secret(int port)
{
    tutti__secret right = right_secret(), other = right;
    const tutti__claim claim = right_claim(&right);

    other.key[7] ^= 1;
    assert_refused(port, &other, &claim, "has another secret: it belongs to another job");
}

static void come_from_the_first_attempt(int port)
{
    tutti__secret right = right_secret();
    tutti__claim stale = right_claim(&right);

    stale.attempt = 0;
    stale.process ^= 1; /* the process that hosts the store outlives attempts */
    assert_refused(port, &right, &stale, "refuses attempt 0 of this job");
}

static void check_claims(int port)
{
    tutti__secret right = right_secret();
    tutti__claim claim = right_claim(&right), elsewhere = claim;
    char text[512];

    assert_int_equal(greet_as(port, &right, &claim, text), TUTTI_OK);
    elsewhere.job = 4711;
    assert_refused(port, &right, &elsewhere, "belongs to another job with the same secret");
    assert_logged_of(come_without_secret, port, "it has no secret");
    assert_logged_of(come_with_another_secret, port,
                     "it rejects our authentication: its secret or job differs");
    assert_logged_of(come_from_the_first_attempt, port,
                     "it belongs to an attempt of the job that has ended");
}

/* Says hello, and gets the answer. */
static int greet_halfway(int port, uint8_t *answer)
{
    tutti__secret right = right_secret();
    const tutti__claim claim = right_claim(&right);
    uint8_t hello[TUTTI__HEAD_BYTES] = "TUTTI/3\n\1";
    int fd = knock(port);

    memcpy(hello + 16, &claim, sizeof claim);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(recv(fd, answer, TUTTI__ANSWER_BYTES, MSG_WAITALL), TUTTI__ANSWER_BYTES);
    return fd;
}

/* Sends a well-formed proof without knowing the secret: one recorded elsewhere, or guessed. */
static void guess_a_proof(int port)
{
    uint8_t answer[TUTTI__ANSWER_BYTES], proof[TUTTI__PROOF_BYTES];
    int fd = greet_halfway(port, answer);

    randombytes_buf(proof, sizeof proof);
    assert_int_equal(send(fd, proof, sizeof proof, MSG_NOSIGNAL), sizeof proof);
    assert_turned_away("a guessed proof", fd);
}

static void replay_the_server_s_proof(int port)
{
    uint8_t answer[TUTTI__ANSWER_BYTES];
    int fd = greet_halfway(port, answer);

    assert_int_equal(send(fd, answer + TUTTI__HEAD_BYTES, TUTTI__PROOF_BYTES, MSG_NOSIGNAL),
                     TUTTI__PROOF_BYTES);
    assert_turned_away("the server's proof, played back", fd);
}

static void check_false_proofs(int port)
{
    assert_logged_of(guess_a_proof, port, "it does not know the job's secret");
    replay_the_server_s_proof(port);
}

/* A rank that is cancelled in the middle of the handshake is not logged as unauthorized. */
static void end_halfway(int port)
{
    uint8_t answer[TUTTI__ANSWER_BYTES];

    close(greet_halfway(port, answer));
}

static void speak_http(int port)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    int fd = knock(port);

    assert_int_equal(send(fd, http, sizeof http - 1, MSG_NOSIGNAL), sizeof http - 1);
    assert_turned_away("HTTP", fd);
}

static void check_rubbish(int port)
{
    tutti__secret right = right_secret();
    tutti__claim claim = right_claim(&right);
    tutti__request_frame giant = {.op = TUTTI__SET, .key_bytes = 1, .value_bytes = UINT32_MAX};
    uint8_t noise[4096];
    int fd;

    assert_logged_of(speak_http, port, "it speaks another protocol");
    randombytes_buf(noise, sizeof noise);
    noise[0] = 0;
    fd = knock(port);
    assert_true(send(fd, noise, sizeof noise, MSG_NOSIGNAL) > 0);
    assert_turned_away("random bytes", fd);
    memcpy(noise, "TUTTI/2\n", 8);
    fd = knock(port);
    assert_true(send(fd, noise, 48, MSG_NOSIGNAL) > 0);
    assert_turned_away("an older version", fd);
    /* Authenticates, then announces a frame of 4 GiB. */
    fd = knock(port);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(test_greet(fd, &right, &claim, "it", TUTTI_LATE_MS), TUTTI_OK);
    assert_int_equal(send(fd, &giant, sizeof giant, MSG_NOSIGNAL), sizeof giant);
    assert_true(until_hung_up(fd, TUTTI_LATE_MS) >= 0);
    close(fd);
}

static void claim_rank_1_too(int port)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        tutti_store *store;
        bool refused =
            tutti_store_tcp_connect(&store, "127.0.0.1", port, TUTTI_LATE_MS) == TUTTI_ERR_IO &&
            strstr(tutti_last_error(), "refuses a second rank 1");

        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* The first process is RANK 1 and stays connected; the second also claims RANK 1. */
static void check_taken_rank(int port)
{
    int ready[2], go_on[2], status;
    char byte = 0;
    pid_t first, second;

    assert_true(pipe(ready) == 0 && pipe(go_on) == 0);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "1", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "1", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    first = fork();
    if (first == 0) {
        tutti_store *store;
        bool ok = tutti_store_tcp_connect(&store, "127.0.0.1", port, TUTTI_LATE_MS) == TUTTI_OK;

        if (write(ready[1], &ok, 1) != 1 || read(go_on[0], &byte, 1) != 1)
            _exit(3);
        _exit(ok && tutti_store_set(store, "first", "x", 1) == TUTTI_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_logged_of(claim_rank_1_too, port, "another process already has its rank");
    assert_int_equal(write(go_on[1], "x", 1), 1);
    assert_int_equal(waitpid(first, &status, 0), first);
    assert_int_equal(status, 0);
    /* The rank is free again once that process has exited. */
    second = fork();
    if (second == 0) {
        tutti_store *store;

        _exit(tutti_store_tcp_connect(&store, "127.0.0.1", port, TUTTI_LATE_MS) != TUTTI_OK);
    }
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go_on[i]);
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_RANK");
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
}

enum { CROWD = 100 };

/* Silent clients, and one that sends a byte now and then, along with the others: none gets more than the time limit. */
typedef struct patience {
    int crowd[CROWD], loris;
    double begin, loris_ms;
    size_t sent;
    pthread_t thread;
} patience;

static void *loris_main(void *arg)
{
    patience *p = arg;
    uint8_t hello[TUTTI__HEAD_BYTES] = "TUTTI/3\n";

    while (p->sent < sizeof hello && send(p->loris, hello + p->sent, 1, MSG_NOSIGNAL) == 1) {
        p->sent++;
        if (poll(&(struct pollfd){p->loris, POLLIN | POLLRDHUP, 0}, 1, 200) > 0)
            break;
    }
    p->loris_ms = tutti__now_ms() - p->begin;
    return NULL;
}

static void patience_begin(patience *p, int port)
{
    *p = (patience){.begin = tutti__now_ms(), .loris = knock(port)};
    for (int i = 0; i < CROWD; i++)
        p->crowd[i] = knock(port);
    assert_int_equal(pthread_create(&p->thread, NULL, loris_main, p), 0);
}

static void patience_end(patience *p)
{
    double ms, late = tutti__now_ms() - p->begin; /* the cases in between may have taken longer */

    for (int i = 0; i < CROWD; i++) {
        assert_true(until_hung_up(p->crowd[i], PROVE_MS + TUTTI_LATE_MS) >= 0);
        close(p->crowd[i]);
    }
    ms = tutti__now_ms() - p->begin;
    pthread_join(p->thread, NULL);
    close(p->loris);
    print_message("%-40s turned away after %.0f ms\n", "100 silent ones", ms);
    print_message("%-40s turned away after %.0f ms, %zu bytes\n", "a byte every 200 ms",
                  p->loris_ms, p->sent);
    assert_true(ms < (late > PROVE_MS ? late : PROVE_MS) + TUTTI_LATE_MS);
    assert_true(p->loris_ms > PROVE_MS - 1000 && p->loris_ms < PROVE_MS + TUTTI_LATE_MS);
    assert_logged("it did not authenticate within 10 s");
}

static void the_store_turns_strangers_away(void **state)
{
    tutti_store *store;
    double begin = tutti__now_ms();
    int port, lines = 0;
    patience p;
    job j;

    (void)state;
    setenv("TUTTI_SECRET", SECRET, 1);
    setenv("TUTTI_LOG", "comm:info", 1); /* has those who hang up, too */
    setenv("TORCHELASTIC_RUN_ID", "security-test", 1);
    assert_int_equal(tutti_store_tcp_serve(&store, "127.0.0.1", 0), TUTTI_OK);
    port = tutti_store_port(store);
    begin_log();
    job_begin(&j, store);
    patience_begin(&p, port);
    check_rubbish(port);
    check_false_proofs(port);
    job_end(&j);
    tutti__store_fence(store, 1); /* the job's next attempt begins */
    check_claims(port);
    patience_end(&p);
    assert_logged_of(end_halfway, port, "it ended before it was authenticated");
    check_taken_rank(port);
    for (const char *at = end_log(); (at = strstr(at, " rejects ")) != NULL; at++)
        lines++;
    print_message("%d log lines in %.0f s\n", lines, (tutti__now_ms() - begin) * 1e-3);
    assert_true(lines >= 8 && lines <= (tutti__now_ms() - begin) * 1e-3 + 2);
    tutti_store_free(store);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("TUTTI_LOG");
}

/* ---- Who listens where ------------------------------------------------------------------------------------ */

typedef struct listening {
    int port;
    bool loopback;
} listening;

static bool owns(pid_t pid, unsigned long inode)
{
    char path[300], want[64], got[64];
    const struct dirent *entry;
    bool found = false;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    folder = opendir(path);
    while (folder && !found && (entry = readdir(folder)) != NULL) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/%d/fd/%.20s", (int)pid, entry->d_name);
        n = readlink(path, got, sizeof got - 1);
        got[n > 0 ? n : 0] = '\0';
        found = strcmp(got, want) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

/* The TCP sockets, of both families, on which a process listens. */
static int list_listening(pid_t pid, listening *list, int capacity)
{
    int n = 0;

    for (int six = 0; six < 2; six++) {
        FILE *file = fopen(six ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
        char line[512], address[64];
        unsigned port, state;
        unsigned long inode;

        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, " %*d: %63[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %lu", address, &port,
                       &state, &inode) == 4 &&
                state == 0x0a && n < capacity && owns(pid, inode))
                list[n++] = (listening){
                    (int)port, six ? strcmp(address, "00000000000000000000000001000000") == 0
                                   : strcmp(address + 6, "7F") == 0};
        if (file)
            fclose(file);
    }
    return n;
}

/* ---- Strangers at a rank's door ---------------------------------------------------------------------------- */

static int join_and_reduce(int rank, int port)
{
    tutti_group_opts opts = {
        .rank = rank, .world_size = 2, .timeout_ms = 30000, .transport = TUTTI_TRANSPORT_TCP};
    tutti_group *group;
    float x = 1;
    int failed = 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (tutti_store_tcp_connect(&opts.store, "127.0.0.1", port, 5000) == TUTTI_OK &&
        tutti_group_init(&group, &opts) == TUTTI_OK) {
        failed =
            tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) != TUTTI_OK ||
            x != 2;
        tutti_group_free(group);
    } else {
        fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
    }
    tutti_store_free(opts.store);
    return failed;
}

/* A store in its own process: this one forks ranks, so it must not have threads. */
static pid_t serve_elsewhere(int *port_p)
{
    int ends[2];
    pid_t server;

    assert_int_equal(pipe(ends), 0);
    server = fork();
    if (server == 0) {
        tutti_store *store;
        int port = 0;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (tutti_store_tcp_serve(&store, "127.0.0.1", 0) == TUTTI_OK)
            port = tutti_store_port(store);
        if (write(ends[1], &port, sizeof port) == sizeof port)
            pause();
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], port_p, sizeof *port_p), sizeof *port_p);
    close(ends[0]);
    assert_true(*port_p > 0);
    return server;
}

/* They connect before the other rank does, and rank 0 handles all of them at once. */
static void a_rank_turns_strangers_away(void **state)
{
    enum { STRANGERS = 40 };
    static const char http[] = "GET / HTTP/1.1\r\n\r\n";
    const tutti__claim wrong_group = {.kind = 'G', .group = 4711, .rank = 2};
    tutti__secret secret = {0};
    tutti__claim no_rank = {.kind = 'G', .group = 4711, .rank = 0x80000000u};
    uint8_t noise[STRANGERS][TUTTI__HEAD_BYTES];
    int strangers[STRANGERS], status, port, n = 0, door = 0;
    double deadline = tutti__now_ms() + 10000;
    listening doors[8];
    pid_t ranks[2], server;
    const char *log;
    char text[512];

    (void)state;
    setenv("TUTTI_SECRET", SECRET, 1);
    server = serve_elsewhere(&port);
    begin_log();
    for (int r = 0; r < 2; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            _exit(join_and_reduce(r, port));
        while (r == 0 && door == 0 && tutti__now_ms() < deadline) {
            n = list_listening(ranks[0], doors, 8);
            for (int i = 0; i < n; i++)
                door = doors[i].port;
            usleep(1000);
        }
        for (int i = 0; i < STRANGERS && r == 0; i++) {
            strangers[i] = knock(door);
            randombytes_buf(noise[i], sizeof noise[i]);
            memcpy(noise[i], i % 4 == 1 ? "TUTTI/3\n\1" : "noise    ", 9);
            memcpy(noise[i] + 16, &wrong_group, sizeof wrong_group);
            if (i % 4 == 0)
                assert_true(send(strangers[i], http, sizeof http, MSG_NOSIGNAL) > 0);
            else if (i % 4 < 3) /* the fourth kind is silent */
                assert_true(send(strangers[i], noise[i], sizeof noise[i], MSG_NOSIGNAL) > 0);
        }
        if (r == 0) { /* one that knows the secret and claims an impossible rank */
            assert_int_equal(tutti__secret_read(&secret), TUTTI_OK);
            no_rank.job = secret.job;
            no_rank.attempt = secret.attempt;
            assert_int_not_equal(greet_as(door, &secret, &no_rank, text), TUTTI_OK);
            if (strstr(text, "closed"))
                fail_msg("%s", text);
        }
    }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        assert_int_equal(status, 0);
    }
    log = end_log();
    assert_true(door > 0);
    for (int i = 0; i < n; i++)
        assert_true(doors[i].loopback);
    for (int i = 0; i < STRANGERS; i++) {
        assert_true(until_hung_up(strangers[i], 2000) >= 0);
        close(strangers[i]);
    }
    assert_non_null(strstr(log, "rank 0 of group \"world\" rejects 127.0.0.1:"));
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

/* ---- Under tutti run ----------------------------------------------------------------------------------------- */

static bool file_has(const char *path, const char *text)
{
    char bytes[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, bytes, sizeof bytes) : 0;

    if (fd >= 0)
        close(fd);
    return n > 0 && memmem(bytes, (size_t)n, text, strlen(text)) != NULL;
}

static bool proc_has(pid_t pid, const char *file, const char *text)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    return file_has(path, text);
}

static pid_t parent_of(pid_t pid)
{
    char path[64];
    int parent = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file && fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1)
        parent = 0;
    if (file)
        fclose(file);
    return parent;
}

static int check_process(pid_t pid, const char *what, bool may_know)
{
    listening doors[16];
    const char *secret = getenv("TUTTI_SECRET");
    int n = list_listening(pid, doors, 16), failures = 0;

    for (int i = 0; i < n; i++)
        if (!doors[i].loopback) {
            printf("%s listens on port %d of all addresses\n", what, doors[i].port);
            failures++;
        }
    if (!secret || proc_has(pid, "cmdline", secret) ||
        (!may_know && proc_has(pid, "environ", secret))) {
        printf("%s shows the job's secret\n", what);
        failures++;
    }
    printf("%s: %d listening\n", what, n);
    return failures;
}

/* Rank 0 joins; rank 1 inspects all processes while rank 0 waits for it, then joins too. */
static int look_around(void)
{
    tutti_group_opts opts = {.transport = TUTTI_TRANSPORT_TCP};
    tutti_group *group;
    pid_t agent = getppid(), front = parent_of(agent), other = 0;
    double deadline = tutti__now_ms() + 5000;
    listening doors[4];
    char path[64];
    int failures = 0;

    if (strcmp(getenv("RANK"), "1") == 0) {
        while (tutti__now_ms() < deadline && (other == 0 || list_listening(other, doors, 4) == 0)) {
            int child;
            FILE *file;

            snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)agent, (int)agent);
            file = fopen(path, "re");
            while (file && fscanf(file, "%d", &child) == 1)
                other = child != getpid() ? child : other;
            if (file)
                fclose(file);
            usleep(1000);
        }
        failures = check_process(other, "rank 0", true) + check_process(agent, "the agent", false) +
                   check_process(front, "the front", false) +
                   check_process(getpid(), "rank 1", true);
        if (list_listening(agent, doors, 4) != 1 || list_listening(other, doors, 4) != 1)
            failures++;
    }
    if (tutti_group_init(&group, &opts) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_last_error());
        return 1;
    }
    tutti_group_free(group);
    return failures;
}

static void a_standalone_job_listens_on_loopback_only(void **state)
{
    char self[512], command[1200];
    const char *tutti = getenv("TUTTI");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    (void)state;
    assert_true(n > 0);
    self[n] = '\0';
    unsetenv("TUTTI_SECRET");
    snprintf(command, sizeof command, "%s run -n 2 %s look", tutti ? tutti : "../tutti", self);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_store_turns_strangers_away),
        cmocka_unit_test(a_rank_turns_strangers_away),
        cmocka_unit_test(a_standalone_job_listens_on_loopback_only),
    };

    if (argc == 2 && strcmp(argv[1], "look") == 0)
        return look_around();

    return cmocka_run_group_tests(tests, NULL, NULL);
}
