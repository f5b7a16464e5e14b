/* comm: malformed input from strangers and members: the handshake and the store's frames, mutated at random
 * from a fixed seed; the server keeps running and answers correctly.   SPDX-License-Identifier: MIT    timeout: 120 */
#include "comm/bootstrap/store/store.h"
#include "harness/connect.h"
#include "harness/greet.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROUNDS = 1000, SEED = 7 };

static uint32_t dice(uint32_t round, uint32_t what)
{
    uint32_t out[4];

    tutti__philox(SEED, (tutti__philox_counter){{round, what, 0, 0}}, out);
    return out[0];
}

/* Changes a few bytes, or the length. */
static size_t mutate(uint8_t *bytes, size_t n, uint32_t round)
{
    uint32_t changes = dice(round, 0) % 6;

    for (uint32_t i = 0; i < changes; i++) {
        uint32_t at = dice(round, 10 + i) % (uint32_t)n;

        switch (dice(round, 20 + i) % 4) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << dice(round, 30 + i) % 8);
            break;
        case 1:
            bytes[at] = 0xff;
            break;
        case 2:
            bytes[at] = 0;
            break;
        default:
            bytes[at] = (uint8_t)dice(round, 30 + i);
        }
    }
    return dice(round, 1) % 4 == 0 ? dice(round, 2) % (uint32_t)(n + 1) : n;
}

/* A request with a key and values of some length. */
static size_t make_frame(uint8_t *bytes, uint32_t round)
{
    tutti__request_frame frame = {.op = (uint8_t)(1 + dice(round, 3) % TUTTI__COUNT),
                                  .key_bytes = (uint8_t)(1 + dice(round, 4) % 20),
                                  .value_bytes = dice(round, 5) % 100,
                                  .expected_bytes = dice(round, 6) % 30,
                                  .number = dice(round, 7) % 3};
    size_t n = sizeof frame + frame.key_bytes + frame.value_bytes + frame.expected_bytes;

    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(dice(round, 100 + (uint32_t)i) % 256);
    memcpy(bytes, &frame, sizeof frame);
    return n;
}

static void send_some(int fd, const uint8_t *bytes, size_t n)
{
    char answers[4096];

    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent <= 0)
            break;
        bytes += sent;
        n -= (size_t)sent;
    }
    shutdown(fd, SHUT_WR);
    (void)tutti__receive_all(fd, answers, sizeof answers, tutti__now_ms() + 20);
}

static void the_server_outlives_rubbish(void **state)
{
    const tutti__secret none = {0};
    const tutti__claim claim = tutti__store_claim(&none);
    tutti__address address;
    tutti_store *store;

    (void)state;
    unsetenv("TUTTI_SECRET");
    setenv("TUTTI_LOG", "error", 1);
    assert_int_equal(tutti_store_tcp_serve(&store, "127.0.0.1", 0), TUTTI_OK);
    assert_int_equal(tutti__resolve(&address, "127.0.0.1", tutti_store_port(store)), TUTTI_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        static uint8_t bytes[1 << 12];
        int fd = tutti_connect(&address, 5000);
        char text[32];
        size_t n;

        assert_true(fd >= 0);
        if (round % 3 == 0) { /* a stranger: a hello and a proof */
            memset(bytes, (int)dice(round, 8) % 256, sizeof bytes);
            memcpy(bytes, "TUTTI/3\n", 8);
            bytes[8] = 0;
            bytes[16] = 'S';
            n = mutate(bytes, TUTTI__HEAD_BYTES + TUTTI__PROOF_BYTES, round);
        } else { /* a member: several frames, each a little wrong */
            if (test_greet(fd, &none, &claim, "it", 5000) != TUTTI_OK)
                fail_msg("%s", tutti_last_error());
            n = 0;
            for (uint32_t k = 0; k < 3; k++) {
                size_t whole = make_frame(bytes + n, 3 * round + k);

                n += mutate(bytes + n, whole, 3 * round + k);
            }
        }
        send_some(fd, bytes, n);
        close(fd);
        if (round % 50 != 0)
            continue;
        snprintf(text, sizeof text, "round %u", round);
        assert_int_equal(tutti_store_set(store, "good", text, strlen(text)), TUTTI_OK);
        n = sizeof bytes;
        assert_int_equal(tutti_store_get(store, "good", bytes, &n, 0), TUTTI_OK);
        assert_int_equal(n, strlen(text));
        assert_memory_equal(bytes, text, n);
    }
    tutti_store_free(store);
}

/* A log with records mutated while others read it. */
static void a_file_outlives_rubbish(void **state)
{
    char path[64];
    tutti_store *first, *second;

    (void)state;
    snprintf(path, sizeof path, "/tmp/tutti-fuzz-%ld", (long)getpid());
    for (uint32_t round = 0; round < 300; round++) {
        static uint8_t bytes[1 << 14];
        ssize_t n;
        int fd;

        assert_int_equal(tutti_store_file_open(&first, path), TUTTI_OK);
        for (int k = 0; k < 5; k++) {
            char key[16];

            snprintf(key, sizeof key, "key/%d", k);
            assert_int_equal(tutti_store_set(first, key, bytes, 40), TUTTI_OK);
        }
        fd = open(path, O_RDWR | O_CLOEXEC);
        n = read(fd, bytes, sizeof bytes);
        assert_true(n > 16);
        n = 16 + (ssize_t)mutate(bytes + 16, (size_t)n - 16, round);
        assert_true(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, (size_t)n, 0) == n);
        close(fd);
        assert_int_equal(tutti_store_file_open(&second, path), TUTTI_OK);
        assert_int_equal(tutti_store_set(second, "after", "x", 1), TUTTI_OK);
        assert_int_equal(tutti_store_wait(second, "after", 0), TUTTI_OK);
        tutti_store_free(second);
        tutti_store_free(first);
        assert_int_equal(access(path, F_OK), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_outlives_rubbish),
        cmocka_unit_test(a_file_outlives_rubbish),
    };

    unsetenv("XDG_CONFIG_HOME"); /* nor HOME: the user's own secret is another test's */
    unsetenv("HOME");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
