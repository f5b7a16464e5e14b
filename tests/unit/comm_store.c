/* comm: the store, in memory, in a file and over TCP: its operations, and its protection against strangers.
 * SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"
#include "harness/greet.h"
#include "harness/limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static tutti_store *memory_store(void)
{
    tutti_store *store;

    assert_int_equal(tutti_store_memory_new(&store), TUTTI_OK);
    return store;
}

static tutti_store *tcp_store(void)
{
    tutti_store *store;

    assert_int_equal(tutti_store_tcp_serve(&store, "127.0.0.1", 0), TUTTI_OK);
    assert_true(tutti_store_port(store) > 0);
    return store;
}

static void assert_value(tutti_store *store, const char *key, const char *want)
{
    char value[64];
    size_t bytes = sizeof value;

    assert_int_equal(tutti_store_get(store, key, value, &bytes, 1000), TUTTI_OK);
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(value, want, bytes);
}

static void set(tutti_store *store, const char *key, const char *value)
{
    assert_int_equal(tutti_store_set(store, key, value, strlen(value)), TUTTI_OK);
}

/* A path of this test's own, the same in its children, at which there is nothing yet. */
static const char *file_path(void)
{
    static char path[64];

    if (*path)
        return path;
    snprintf(path, sizeof path, "/tmp/tutti-store-%ld", (long)getpid());
    return path;
}

static tutti_store *file_store(void)
{
    tutti_store *store;

    assert_int_equal(tutti_store_file_open(&store, file_path()), TUTTI_OK);
    return store;
}

/* ---- Operations, the same for all stores ------------------------------------------------------------- */

static void check_values(tutti_store *store)
{
    static char big[TUTTI__VALUE_LIMIT + 1], back[TUTTI__VALUE_LIMIT];
    char small[2], key[300];
    size_t bytes;
    bool existed;

    set(store, "key0", "value0");
    set(store, "key0", "value1");
    assert_value(store, "key0", "value1");
    set(store, "empty", "");
    assert_value(store, "empty", "");
    /* Bytes, not text; the largest; one more. */
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 31);
    assert_int_equal(tutti_store_set(store, "big", big, TUTTI__VALUE_LIMIT), TUTTI_OK);
    bytes = sizeof back;
    assert_int_equal(tutti_store_get(store, "big", back, &bytes, 0), TUTTI_OK);
    assert_int_equal(bytes, TUTTI__VALUE_LIMIT);
    assert_memory_equal(back, big, bytes);
    assert_int_equal(tutti_store_set(store, "big", big, sizeof big), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_set(store, "none", NULL, 1), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_get(store, "key0", small, NULL, 0), TUTTI_ERR_ARG);
    bytes = sizeof small;
    assert_int_equal(tutti_store_get(store, "key0", small, &bytes, 0), TUTTI_ERR_ARG);
    assert_int_equal(bytes, 6);
    assert_non_null(strstr(tutti_last_error(), "\"key0\" has 6 bytes, the buffer 2"));
    assert_value(store, "key0", "value1"); /* and the connection is in step */
    memset(key, 'k', sizeof key);
    key[255] = '\0';
    set(store, key, "long");
    assert_value(store, key, "long");
    key[255] = 'k';
    key[256] = '\0';
    assert_int_equal(tutti_store_set(store, key, "", 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_set(store, "", "", 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_delete(store, "key0", &existed), TUTTI_OK);
    assert_true(existed);
    assert_int_equal(tutti_store_delete(store, "key0", &existed), TUTTI_OK);
    assert_false(existed);
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "many/%d", i);
        set(store, key, key);
    }
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "many/%d", i);
        assert_value(store, key, key);
    }
}

static void check_add(tutti_store *store)
{
    int64_t sum = 0;

    for (int i = 1; i <= 6; i++)
        assert_int_equal(tutti_store_add(store, "counter", i, &sum), TUTTI_OK);
    assert_int_equal(sum, 21);
    assert_value(store, "counter", "21");
    assert_int_equal(tutti_store_add(store, "counter", -30, &sum), TUTTI_OK);
    assert_value(store, "counter", "-9");
    set(store, "word", "twelve");
    assert_int_equal(tutti_store_add(store, "word", 1, &sum), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "cannot add to key \"word\""));
    assert_int_equal(tutti_store_add(store, "edge", INT64_MAX, &sum), TUTTI_OK);
    assert_int_equal(tutti_store_add(store, "edge", 1, &sum), TUTTI_ERR_FORMAT);
}

static void check_compare(tutti_store *store, const char *expected, const char *desired,
                          const char *want)
{
    char value[64];
    size_t bytes = sizeof value;

    assert_int_equal(tutti_store_compare_set(store, "cas", expected, strlen(expected), desired,
                                             strlen(desired), value, &bytes),
                     TUTTI_OK);
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(value, want, bytes);
}

static void check_compare_set(tutti_store *store)
{
    assert_int_equal(tutti_store_delete(store, "cas", NULL), TUTTI_OK);
    /* absent: nothing stored */
    check_compare(store, "wrong_old_value", "new_value0", "wrong_old_value");
    assert_int_equal(tutti_store_wait(store, "cas", 0), TUTTI_ERR_TIMEOUT);
    check_compare(store, "", "new_value0", "new_value0");
    check_compare(store, "wrong_old_value", "new_value1", "new_value0");
    check_compare(store, "new_value0", "new_value1", "new_value1");
    check_compare(store, "", "new_value2", "new_value1"); /* present and not empty */
    assert_value(store, "cas", "new_value1");
    assert_int_equal(tutti_store_compare_set(store, "cas", "x", 1, "y", 1, NULL, NULL), TUTTI_OK);
}

/* In a store that is new. */
static void check_num_keys(tutti_store *store)
{
    int64_t n = -1;

    assert_int_equal(tutti_store_num_keys(store, &n), TUTTI_OK);
    assert_int_equal(n, 0);
    for (int i = 0; i < 3; i++) {
        set(store, "one", "1");
        set(store, "two", "2");
        assert_int_equal(tutti_store_add(store, "three", i, NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_store_delete(store, "two", NULL), TUTTI_OK);
    assert_int_equal(tutti_store_delete(store, "two", NULL), TUTTI_OK);
    assert_int_equal(tutti_store_num_keys(store, &n), TUTTI_OK);
    assert_int_equal(n, 2);
}

static void check_time(tutti_store *store)
{
    double begin = tutti__now_ms();

    assert_int_equal(tutti_store_wait(store, "bad_key", 250), TUTTI_ERR_TIMEOUT);
    assert_true(tutti__now_ms() - begin >= 249 && tutti__now_ms() - begin < 8000);
    assert_non_null(strstr(tutti_last_error(), "\"bad_key\" after waiting 0.25 s"));
    assert_int_equal(tutti_store_wait(store, "bad_key", -1), TUTTI_ERR_ARG);
    set(store, "good_key", "");
    assert_int_equal(tutti_store_wait(store, "good_key", 0), TUTTI_OK);
}

typedef struct waiter {
    tutti_store *store;
    const char *key;
    tutti_status status;
    char value[16];
    size_t bytes;
} waiter;

static void *wait_main(void *arg)
{
    waiter *w = arg;

    w->bytes = sizeof w->value;
    w->status = tutti_store_get(w->store, w->key, w->value, &w->bytes, 20000);
    return NULL;
}

/* Several threads wait over one handle, and over a clone, while the first continues to use it. */
static void check_wake_up(tutti_store *store)
{
    enum { N = 6 };
    pthread_t threads[N];
    waiter w[N];
    tutti_store *clone;
    double begin = tutti__now_ms();

    assert_int_equal(tutti_store_clone(&clone, store), TUTTI_OK);
    for (int i = 0; i < N; i++) {
        w[i] = (waiter){.store = i % 2 ? clone : store, .key = "wake"};
        assert_int_equal(pthread_create(&threads[i], NULL, wait_main, &w[i]), 0);
    }
    for (int i = 0; i < 50; i++)
        set(store, "other", "x");
    set(store, "wake", "up");
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(w[i].status, TUTTI_OK);
        assert_int_equal(w[i].bytes, 2);
    }
    assert_true(tutti__now_ms() - begin < 15000); /* woken, not at the end of their time */
    tutti_store_free(clone);
    assert_value(store, "wake", "up");
}

/* One of several threads that each set a key and wait for those of all, in another order. */
typedef struct exchanger {
    tutti_store *store;
    int me, n;
    tutti_status status;
    tutti__wanted wanted[8];
    char keys[8][16], values[8][8];
} exchanger;

static void *exchange_main(void *arg)
{
    exchanger *x = arg;
    char key[16];

    snprintf(key, sizeof key, "of/%d", x->me);
    for (int i = 0; i < x->n; i++) {
        snprintf(x->keys[i], sizeof x->keys[i], "of/%d", (x->me + i) % x->n);
        x->wanted[i] = (tutti__wanted){x->keys[i], x->values[i], sizeof x->values[i]};
    }
    x->status = tutti__store_exchange(
        x->store,
        &(tutti__request){.op = TUTTI__SET, .key = key, .value = key, .value_bytes = strlen(key)},
        x->wanted, x->n, NULL, 20000);
    return NULL;
}

static void check_exchange(tutti_store *store)
{
    enum { N = 6 };
    pthread_t threads[N];
    exchanger x[N];
    char value[4] = "abc";
    tutti__wanted two[] = {{"of/0", value, sizeof value - 1}, {"never set", value, sizeof value}};

    for (int i = 0; i < N; i++) {
        x[i] = (exchanger){.store = store, .me = i, .n = N};
        assert_int_equal(pthread_create(&threads[i], NULL, exchange_main, &x[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(x[i].status, TUTTI_OK);
        for (int k = 0; k < N; k++) {
            assert_int_equal(x[i].wanted[k].bytes, 4);
            assert_memory_equal(x[i].values[k], x[i].keys[k], 4);
        }
    }
    assert_int_equal(tutti__store_exchange(store, NULL, two, 2, NULL, 50), TUTTI_ERR_TIMEOUT);
    two[0].bytes = sizeof value - 1;
    assert_int_equal(tutti__store_exchange(store, NULL, two, 1, NULL, 50), TUTTI_OK);
    assert_int_equal(two[0].bytes, 4); /* it does not fit, and nothing was written */
    assert_string_equal(value, "abc");
}

static void *end_main(void *arg)
{
    tutti_store *store = arg;

    while (tutti_store_wait(store, "waits", 20000) != TUTTI_OK)
        ;
    if (tutti_store_compare_set(store, "another", NULL, 0, "x", 1, NULL, NULL) != TUTTI_OK ||
        tutti_store_compare_set(store, "ended", NULL, 0, "x", 1, NULL, NULL) != TUTTI_OK)
        abort();
    return NULL;
}

/* Another key ends the wait, also one that is there already; not if all wanted keys are there. */
static void check_ended_exchange(tutti_store *store)
{
    const tutti__request own = {.op = TUTTI__SET, .key = "waits", .value = "y", .value_bytes = 1};
    const double began = tutti__now_ms();
    char value[4], why[2] = "";
    tutti__wanted two[] = {{"waits", value, sizeof value}, {"never", value, sizeof value}},
                  ended = {"ended", why, 1};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, end_main, store), 0);
    assert_int_equal(tutti__store_exchange(store, &own, two, 2, &ended, 20000), TUTTI_ERR_ABORTED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(tutti__store_exchange(store, NULL, two, 2, &ended, 20000), TUTTI_ERR_ABORTED);
    assert_true(tutti__now_ms() - began < 10000);
    assert_string_equal(why, "x");
    assert_int_equal(tutti__store_exchange(store, NULL, two, 1, &ended, 0), TUTTI_OK);
    tutti__store_hang_up(store); /* the next call connects again */
    assert_int_equal(tutti__store_exchange(store, NULL, two, 1, NULL, 0), TUTTI_OK);
}

static void check_all(tutti_store *store)
{
    check_exchange(store);
    check_values(store);
    check_add(store);
    check_compare_set(store);
    check_time(store);
    check_wake_up(store);
    tutti_store_free(store);
}

static void memory_store_answers(void **state)
{
    tutti_store *store = memory_store();

    (void)state;
    check_num_keys(store);
    check_all(store);
}

static void tcp_store_answers(void **state)
{
    tutti_store *store = tcp_store(), *own = tcp_store();

    (void)state;
    check_ended_exchange(own);
    tutti_store_free(own);
    check_num_keys(store);
    check_all(store);
}

static void file_store_answers(void **state)
{
    tutti_store *store = file_store();

    (void)state;
    check_num_keys(store);
    check_all(store);
    assert_int_equal(access(file_path(), F_OK), -1);
}

static void a_client_sees_what_the_host_sees(void **state)
{
    tutti_store *host = tcp_store(), *client, *clone;

    (void)state;
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", tutti_store_port(host), 5000),
                     TUTTI_OK);
    set(host, "key", "value");
    assert_value(client, "key", "value");
    check_all(client);
    /* The server lives as long as any handle of its process. */
    assert_int_equal(tutti_store_clone(&clone, host), TUTTI_OK);
    tutti_store_free(host);
    assert_value(clone, "key", "value");
    tutti_store_free(clone);
}

/* ---- Connecting and disconnecting ----------------------------------------------------------------------------------- */

static void a_taken_port_is_told(void **state)
{
    tutti_store *host = tcp_store(), *second;
    char port[16];

    (void)state;
    snprintf(port, sizeof port, ":%d", tutti_store_port(host));
    assert_int_equal(tutti_store_tcp_serve(&second, "127.0.0.1", tutti_store_port(host)),
                     TUTTI_ERR_IO);
    assert_null(second);
    assert_non_null(strstr(tutti_last_error(), port));
    assert_non_null(strstr(tutti_last_error(), "MASTER_PORT"));
    assert_non_null(strstr(tutti_last_error(), "tutti run"));
    tutti_store_free(host);
}

static void a_port_is_free_again_at_once(void **state)
{
    tutti_store *host = tcp_store(), *client, *again;
    int port = tutti_store_port(host);

    (void)state;
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000), TUTTI_OK);
    tutti_store_free(host);
    assert_int_equal(tutti_store_set(client, "key", "", 0), TUTTI_ERR_IO); /* gone, and told so */
    assert_non_null(strstr(tutti_last_error(), "is gone"));
    assert_int_equal(tutti_store_tcp_serve(&again, "127.0.0.1", port), TUTTI_OK);
    tutti_store_free(again);
    tutti_store_free(client);
}

static void a_server_that_never_comes_is_told(void **state)
{
    tutti_store *host = tcp_store(), *client;
    int port = tutti_store_port(host);

    (void)state;
    tutti_store_free(host);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 200), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error(), "is rank 0 (or tutti run) started"));
    assert_int_equal(tutti_store_tcp_connect(&client, "no-such-host.invalid", port, 200),
                     TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", 0, 200), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_tcp_serve(&client, "127.0.0.1", 70000), TUTTI_ERR_ARG);
    /* nobody's: documentation */
    assert_int_equal(tutti_store_tcp_serve(&client, "203.0.113.7", 0), TUTTI_ERR_IO);
    assert_non_null(strstr(tutti_last_error(), "not of this host"));
}

static void *late_server(void *arg)
{
    tutti_store *store;

    usleep(100000);
    if (tutti_store_tcp_serve(&store, "127.0.0.1", *(int *)arg) != TUTTI_OK)
        return NULL;
    return store;
}

static void clients_may_come_first(void **state)
{
    tutti_store *host = tcp_store(), *client;
    int port = tutti_store_port(host);
    pthread_t thread;
    void *late;

    (void)state;
    tutti_store_free(host);
    assert_int_equal(pthread_create(&thread, NULL, late_server, &port), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 10000), TUTTI_OK);
    assert_int_equal(pthread_join(thread, &late), 0);
    assert_non_null(late);
    tutti_store_free(client);
    tutti_store_free(late);
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

static void a_file_goes_with_its_last_user(void **state)
{
    tutti_store *first = file_store(), *second = file_store(), *clone;
    struct stat info;

    (void)state;
    assert_int_equal(stat(file_path(), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    set(first, "key", "value");
    assert_value(second, "key", "value");
    assert_int_equal(tutti_store_clone(&clone, second), TUTTI_OK);
    tutti_store_free(first);
    tutti_store_free(second);
    assert_int_equal(access(file_path(), F_OK), 0);
    assert_value(clone, "key", "value");
    tutti_store_free(clone);
    assert_int_equal(access(file_path(), F_OK), -1);
}

static void what_a_killed_job_left_is_not_met_again(void **state)
{
    tutti_store *store;
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        store = file_store();
        set(store, "old", "x");
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(access(file_path(), F_OK), 0);
    store = file_store();
    assert_int_equal(tutti_store_wait(store, "old", 0), TUTTI_ERR_TIMEOUT);
    tutti_store_free(store);
    assert_int_equal(access(file_path(), F_OK), -1);
}

/* The log may end with any prefix of a record, left by a killed writer. */
static void half_a_record_is_cut_off(void **state)
{
    tutti_store *store = file_store(), *reader;
    int fd = open(file_path(), O_RDWR);
    off_t before, after;

    (void)state;
    set(store, "first", "1");
    before = lseek(fd, 0, SEEK_END);
    set(store, "second", "a value of some length");
    after = lseek(fd, 0, SEEK_END);
    assert_true(after > before);
    for (off_t cut = after - 1; cut >= before; cut--) {
        assert_int_equal(ftruncate(fd, cut), 0);
        reader = file_store();
        assert_value(reader, "first", "1");
        assert_int_equal(tutti_store_wait(reader, "second", 0), TUTTI_ERR_TIMEOUT);
        tutti_store_free(reader);
    }
    reader = file_store();
    assert_int_equal(pwrite(fd, "rubbish of more than a head's length", 36, before), 36);
    set(reader, "third", "3");
    assert_value(reader, "third", "3");
    tutti_store_free(store);
    store = file_store();
    assert_value(store, "first", "1");
    assert_value(store, "third", "3");
    tutti_store_free(reader);
    tutti_store_free(store);
    close(fd);
}

enum { ADDERS = 4, ADDS = 300 };

/* Many processes add, and some are killed while they do. Every addition counts once, and no process waits for a dead one. */
static void writers_may_be_killed(void **state)
{
    tutti_store *store = file_store();
    pid_t victim, adders[ADDERS];
    int64_t sum = 0;
    int status;

    (void)state;
    for (int i = 0; i < ADDERS; i++) {
        adders[i] = fork();
        if (adders[i] != 0)
            continue;
        store = file_store(); /* not the parent's, which is not for children */
        for (int k = 0; k < ADDS; k++)
            if (tutti_store_add(store, "sum", 1, NULL) != TUTTI_OK)
                _exit(1);
        _exit(0);
    }
    for (int round = 0; round < 20; round++) {
        victim = fork();
        if (victim == 0) {
            static char value[4096];

            store = file_store();
            for (;;)
                if (tutti_store_set(store, "victim", value, sizeof value) != TUTTI_OK)
                    _exit(1);
        }
        usleep(3000);
        kill(victim, SIGKILL);
        assert_int_equal(waitpid(victim, &status, 0), victim);
        assert_true(WIFSIGNALED(status));
    }
    for (int i = 0; i < ADDERS; i++) {
        assert_int_equal(waitpid(adders[i], &status, 0), adders[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(tutti_store_add(store, "sum", 0, &sum), TUTTI_OK);
    assert_int_equal(sum, ADDERS * ADDS);
    tutti_store_free(store);
    assert_int_equal(access(file_path(), F_OK), -1);
}

static void other_files_are_left_alone(void **state)
{
    char path[] = "/tmp/tutti-letter-XXXXXX", text[16] = "";
    int fd = mkstemp(path);
    tutti_store *store;

    (void)state;
    assert_int_equal(write(fd, "Dear reader", 11), 11);
    assert_int_equal(tutti_store_file_open(&store, path), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "is not a store of Tutti"));
    assert_null(store);
    assert_int_equal(pread(fd, text, sizeof text, 0), 11);
    assert_string_equal(text, "Dear reader");
    close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tutti_store_file_open(&store, "/nowhere/at/all"), TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti_store_file_open(&store, "/dev/null"), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_file_open(&store, ""), TUTTI_ERR_ARG);
}

/* ---- Strangers --------------------------------------------------------------------------------------------- */

static int knock(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {5, 0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static tutti_status greet(int fd)
{
    const tutti__secret none = {0};
    const tutti__claim claim = tutti__store_claim(&none);

    tutti_status status;

    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    status = test_greet(fd, &none, &claim, "the store", 5000);
    (void)fcntl(fd, F_SETFL, 0);
    return status;
}

static void assert_turned_away(int fd)
{
    char byte[256];
    ssize_t n;

    do /* a call with a time limit is not restarted when the process was suspended */
        n = recv(fd, byte, sizeof byte, 0);
    while (n > 0 || (n < 0 && errno == EINTR));
    assert_true(n == 0 || errno == ECONNRESET);
    close(fd);
}

static bool is_turned_away(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* Has no descriptor left for the first client's first attempt, and closes all its later ones: the process ends. */
static void *full_server(void *arg)
{
    struct pollfd listener = {.fd = *(int *)arg, .events = POLLIN};

    for (bool refused = false;; refused = true) {
        int fd = poll(&listener, 1, -1) == 1 ? tutti__accept(listener.fd, NULL) : -1;

        if (fd < 0)
            return NULL;
        assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 5000), 1);
        if (!refused)
            tutti__refuse_full(fd);
        close(fd);
    }
}

static void a_full_store_is_told_although_it_ends(void **state)
{
    tutti__address at;
    tutti_store *client;
    pthread_t thread;
    int listener;

    (void)state;
    assert_int_equal(tutti__resolve(&at, "127.0.0.1", 0), TUTTI_OK);
    assert_int_equal(tutti__listen(&at, &listener), TUTTI_OK);
    assert_int_equal(pthread_create(&thread, NULL, full_server, &listener), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", tutti__address_port(&at), 500),
                     TUTTI_ERR_MEMORY);
    assert_non_null(strstr(tutti_last_error(), "has no descriptor left for another connection"));
    assert_int_equal(shutdown(listener, SHUT_RDWR), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(listener);
}

/* Four hundred connect before the first of them goes on, as the ranks of a big job on few cores do. Each has 10 s from its
 * connection on, too short on a busy machine to let all of them go on: two do, the oldest first. */
static void all_ranks_may_come_at_once(void **state)
{
    int ranks[400], port;
    tutti_store *host;

    (void)state;
    test_needs_files(2 * TUTTI__COUNT_OF(ranks) + 50);
    host = tcp_store();
    port = tutti_store_port(host);
    for (size_t i = 0; i < TUTTI__COUNT_OF(ranks); i++)
        ranks[i] = knock(port);
    set(host, "key", "value"); /* the server accepts all of them after this, at the latest, */
    set(host, "key", "value"); /* and before this */
    for (size_t i = 0; i < TUTTI__COUNT_OF(ranks); i++)
        assert_false(is_turned_away(ranks[i]));
    for (size_t i = 0; i < TUTTI__COUNT_OF(ranks); i++) {
        if (i % 200 == 0)
            assert_int_equal(greet(ranks[i]), TUTTI_OK);
        close(ranks[i]);
    }
    tutti_store_free(host);
}

static void rubbish_disturbs_nobody(void **state)
{
    struct rlimit limit, few;
    tutti_store *host;
    int port, silent[100], fd;
    char rubbish[4096];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = 150; /* of which strangers get half */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    host = tcp_store();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    port = tutti_store_port(host);
    for (size_t i = 0; i < sizeof rubbish; i++)
        rubbish[i] = (char)(i * 7 + 1);
    /* Silent ones, more than the server keeps; one that speaks HTTP; one cut off in its hello. */
    for (size_t i = 0; i < TUTTI__COUNT_OF(silent); i++)
        silent[i] = knock(port);
    assert_turned_away(silent[0]);
    silent[0] = dup(silent[1]);
    fd = knock(port);
    assert_true(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL) == 18);
    assert_turned_away(fd);
    fd = knock(port);
    assert_true(send(fd, "TUTTI/3\n", 8, MSG_NOSIGNAL) == 8);
    close(fd);
    set(host, "key", "value");
    assert_value(host, "key", "value");
    for (size_t i = 0; i < TUTTI__COUNT_OF(silent); i++)
        close(silent[i]);
    /* Known, then rubbish: a frame with lengths beyond the limits. */
    fd = knock(port);
    assert_int_equal(greet(fd), TUTTI_OK);
    memset(rubbish, 0xff, sizeof rubbish);
    assert_true(send(fd, rubbish, sizeof rubbish, MSG_NOSIGNAL) > 0);
    assert_turned_away(fd);
    /* Known, one byte at a time, then an operation that does not exist. */
    fd = knock(port);
    assert_int_equal(greet(fd), TUTTI_OK);
    {
        tutti__request_frame frame = {.op = 99, .key_bytes = 1};

        for (size_t i = 0; i < sizeof frame; i++)
            assert_int_equal(send(fd, (char *)&frame + i, 1, MSG_NOSIGNAL), 1);
        assert_int_equal(send(fd, "k", 1, MSG_NOSIGNAL), 1);
    }
    assert_turned_away(fd);
    /* A waiting client that disconnects. */
    fd = knock(port);
    assert_int_equal(greet(fd), TUTTI_OK);
    {
        tutti__request_frame frame = {.op = TUTTI__GET, .key_bytes = 1, .number = 60000};

        assert_int_equal(send(fd, &frame, sizeof frame, MSG_NOSIGNAL), sizeof frame);
        assert_int_equal(send(fd, "k", 1, MSG_NOSIGNAL), 1);
    }
    close(fd);
    set(host, "k", "v");
    assert_value(host, "key", "value");
    tutti_store_free(host);
}

static void the_secret_decides(void **state)
{
    tutti_store *host, *client;
    char path[] = "/tmp/tutti-secret-XXXXXX";
    int port, fd;

    (void)state;
    assert_int_equal(setenv("TUTTI_SECRET", "0123456789abcdef0123456789abcdef", 1), 0);
    host = tcp_store();
    port = tutti_store_port(host);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000), TUTTI_OK);
    check_add(client);
    tutti_store_free(client);
    /* Another secret, none, too short a one. */
    assert_int_equal(setenv("TUTTI_SECRET", "fedcba9876543210fedcba9876543210", 1), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000), TUTTI_ERR_IO);
    assert_non_null(strstr(tutti_last_error(), "has another secret"));
    assert_int_equal(unsetenv("TUTTI_SECRET"), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000), TUTTI_ERR_IO);
    assert_non_null(strstr(tutti_last_error(), "expects a secret while this rank has none"));
    assert_int_equal(setenv("TUTTI_SECRET", "short", 1), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000), TUTTI_ERR_ARG);
    assert_int_equal(unsetenv("TUTTI_SECRET"), 0);
    /* From a file, which others must not be able to read. */
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "0123456789abcdef0123456789abcdef\n", 33), 33);
    close(fd);
    assert_int_equal(setenv("TUTTI_SECRET_FILE", path, 1), 0);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "expected 0600"));
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000), TUTTI_OK);
    tutti_store_free(client);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tutti_store_tcp_connect(&client, "127.0.0.1", port, 5000),
                     TUTTI_ERR_NOT_FOUND);
    assert_int_equal(unsetenv("TUTTI_SECRET_FILE"), 0);
    set(host, "key", "value");
    tutti_store_free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_store_answers),
        cmocka_unit_test(tcp_store_answers),
        cmocka_unit_test(file_store_answers),
        cmocka_unit_test(a_file_goes_with_its_last_user),
        cmocka_unit_test(what_a_killed_job_left_is_not_met_again),
        cmocka_unit_test(half_a_record_is_cut_off),
        cmocka_unit_test(writers_may_be_killed),
        cmocka_unit_test(other_files_are_left_alone),
        cmocka_unit_test(a_client_sees_what_the_host_sees),
        cmocka_unit_test(a_taken_port_is_told),
        cmocka_unit_test(a_port_is_free_again_at_once),
        cmocka_unit_test(a_server_that_never_comes_is_told),
        cmocka_unit_test(clients_may_come_first),
        cmocka_unit_test(all_ranks_may_come_at_once),
        cmocka_unit_test(a_full_store_is_told_although_it_ends),
        cmocka_unit_test(rubbish_disturbs_nobody),
        cmocka_unit_test(the_secret_decides),
    };

    unsetenv("XDG_CONFIG_HOME"); /* nor HOME: the user's own secret is another test's */
    unsetenv("HOME");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
