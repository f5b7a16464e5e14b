/* launch: any contents of a worker's error file are harmless, and only a limited part is read.
 * SPDX-License-Identifier: MIT */
#include "launch/process/error_files.h"
#include "launch/process/job_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static tutti__job job;
static tutti__worker worker = {.job = &job};
static char path[PATH_MAX];

static void write_text(const void *text, size_t bytes)
{
    assert_int_equal(tutti__write_file(path, text, bytes), TUTTI_OK);
}

static bool read_text(const char *text, tutti__reason *reason)
{
    write_text(text, strlen(text));
    return tutti__error_file_read(&worker, reason);
}

/* Without control characters. */
static void check_harmless(const tutti__reason *reason)
{
    size_t n = strlen(reason->text);

    assert_true(n > 0 && n < sizeof reason->text);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)reason->text[i];

        assert_true((c >= 0x20 || c == '\n') && c != 0x7f);
        assert_false(c == 0xc2 && (unsigned char)reason->text[i + 1] < 0xa0);
    }
}

/* Rank 0's file of a form that is right, with bytes changed, removed and repeated. */
static void damaged_files_are_harmless(void **state)
{
    static const char good[] =
        "{\"message\": {\"message\": \"RuntimeError: \\u001b[31m \xc3\xa9 \\ud83d\\ude00\", "
        "\"extraInfo\": {\"py_callstack\": \"...\", \"timestamp\": \"1700000000\"}}}";
    unsigned char text[2 * sizeof good];
    tutti__reason reason;

    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        size_t n = sizeof good - 1, from, count;

        memcpy(text, good, n);
        for (uint32_t change = 0; change < 1 + round % 4; change++) {
            tutti__philox_counter counter = {{round, change, 0, 0}};
            uint32_t draw[4];

            tutti__philox(1, counter, draw);
            from = draw[1] % n;
            count = 1 + draw[2] % (n - from);
            if (draw[0] % 3 == 0) {
                text[from] = (unsigned char)draw[3];
            } else if (draw[0] % 3 == 1 && n > count + 8) {
                memmove(text + from, text + from + count, n - from - count);
                n -= count;
            } else if (n + count <= sizeof text) {
                memmove(text + from + count, text + from, n - from);
                n += count;
            }
        }
        write_text(text, n);
        if (tutti__error_file_read(&worker, &reason))
            check_harmless(&reason);
    }
}

static void times_are_told(void **state)
{
    char text[256];
    tutti__reason reason;
    uint64_t now = tutti__now_ns();

    (void)state;
    assert_true(read_text("{\"message\": \"m\"}", &reason));
    assert_false(reason.effect);
    assert_true(reason.at_ns + 1000000000u > now && reason.at_ns <= tutti__now_ns());
    snprintf(text, sizeof text, "{\"message\": \"m\", \"timestamp\": %lld}",
             (long long)time(NULL) - 60);
    assert_true(read_text(text, &reason)); /* written late */
    assert_true(reason.at_ns + 30000000000u < now);
    snprintf(text, sizeof text,
             "{\"message\": {\"message\": \"m\", \"extraInfo\": {\"timestamp\": \"%lld\"}}}",
             (long long)time(NULL) + 60);
    assert_true(read_text(text, &reason));
    assert_true(reason.effect);
    assert_true(read_text("{\"message\": \"m\", \"timestamp\": -1e300}", &reason));
    assert_true(read_text("{\"message\": \"m\", \"timestamp\": \"nan\"}", &reason));
    assert_false(reason.effect);
}

/* With another exit code the program has failed in another way, and the launcher begins the next round. */
static void only_codes_2_and_3_are_permanent(void **state)
{
    static const char text[] = "{\"message\": {\"message\": \"m\", \"extraInfo\": "
                               "{\"timestamp\": \"0\", \"permanent\": true}}}";
    tutti__reason reason;

    (void)state;
    for (int code = 0; code < 5; code++) {
        worker.status = code << 8; /* as of waitpid */
        assert_true(read_text(text, &reason));
        assert_int_equal(reason.permanent, code == 2 || code == 3);
    }
    worker.status = 2 << 8;
    assert_true(read_text("{\"message\": \"m\"}", &reason));
    assert_false(reason.permanent);
    worker.status = 0;
}

/* Nested too deeply for a JSON parser: taken as text. */
static void deep_nesting(void **state)
{
    enum { DEPTH = 500000 };
    char *text = malloc(DEPTH + 1);
    tutti__reason reason;

    (void)state;
    assert_non_null(text);
    memset(text, '[', DEPTH);
    text[DEPTH] = '\0';
    assert_true(read_text(text, &reason));
    check_harmless(&reason);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_files_are_harmless),
        cmocka_unit_test(times_are_told),
        cmocka_unit_test(only_codes_2_and_3_are_permanent),
        cmocka_unit_test(deep_nesting),
    };
    char folder[PATH_MAX];
    int failures;

    job.opts.title = "test";
    snprintf(job.id, sizeof job.id, "j");
    if (tutti__files_open(&job) != TUTTI_OK ||
        tutti__files_folder(&job, 0, folder, sizeof folder) != TUTTI_OK ||
        !tutti__error_file_path(&job, 0, path, sizeof path))
        return 1;
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    tutti__files_close(&job);
    return failures + (access(job.private_folder, F_OK) == 0);
}
