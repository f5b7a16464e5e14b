/* base: basic functions of all layers.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/flag.h"
#include "base/pages.h"
#include "base/real.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void philox_matches_the_known_answers_of_random123(void **state)
{
    uint32_t out[4];

    (void)state;
    tutti__philox(0, (tutti__philox_counter){{0, 0, 0, 0}}, out);
    assert_int_equal(out[0], 0x6627e8d5);
    assert_int_equal(out[1], 0xe169c58d);
    assert_int_equal(out[2], 0xbc57ac4c);
    assert_int_equal(out[3], 0x9b00dbd8);
    tutti__philox(UINT64_MAX, (tutti__philox_counter){{~0u, ~0u, ~0u, ~0u}}, out);
    assert_int_equal(out[0], 0x408f276d);
}

static void philox_in_bulk_is_philox_block_by_block(void **state)
{
    uint32_t bulk[1001], block[4];

    (void)state;
    for (int place = 0; place < 4; place++) {
        tutti__philox_counter counter = {{7, UINT32_MAX - 3, 11, 13}};

        tutti__philox_fill(0x123456789abcdefu, counter, place, bulk, 1001);
        for (size_t i = 0; i < 1001; i += 4, counter.v[place]++) {
            tutti__philox(0x123456789abcdefu, counter, block);
            assert_memory_equal(bulk + i, block, (i + 4 < 1001 ? 4 : 1001 - i) * sizeof *bulk);
        }
    }
}

/* Within two ulps of libm, and its values where there is no number. */
static void near_libm(double got, double expected)
{
    if (isnan(expected))
        assert_true(isnan(got));
    else if (isinf(expected) || expected == 0)
        assert_true(got == expected);
    else
        assert_true(fabs(got - expected) <= fmax(fabs(expected) * 0x1p-51, 0x1p-1074));
}

static void elementary_functions_are_those_of_libm(void **state)
{
    static const double special[] = {0,    -0.0,      1,      -1,   INFINITY, -INFINITY,
                                     NAN,  709.7,     709.9,  -708, -744.4,   -745.13,
                                     -746, 0x1p-1074, 1e-310, 1e308};
    uint32_t words[4096];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(special); i++) {
        near_libm(tutti__exp(special[i]), exp(special[i]));
        near_libm(tutti__log(special[i]), log(special[i]));
    }
    tutti__philox_fill(4, (tutti__philox_counter){{0, 1, 2, 3}}, 0, words, 4096);
    for (size_t i = 0; i < 4096; i++) {
        const double u = words[i] * 0x1p-32;

        near_libm(tutti__exp(u * 1400 - 700), exp(u * 1400 - 700));
        near_libm(tutti__exp(u - 0.5), exp(u - 0.5));
        near_libm(tutti__log(u * 4), log(u * 4));
        near_libm(tutti__log(exp(u * 1400 - 700)), log(exp(u * 1400 - 700)));
        assert_true(fabs(tutti__cos_pi(u) - cos(M_PI * u)) < 4e-16);
        assert_true(fabs(tutti__power(1 - u / 100, i) / pow(1 - u / 100, (double)i) - 1) <
                    2e-16 * (double)(i + 1));
    }
    assert_true(tutti__cos_pi(0) == 1 && tutti__cos_pi(1) == -1);
    assert_true(tutti__power(0, 0) == 1 && tutti__power(0.5, 3) == 0.125);
}

static void a_build_s_text_names_each_part_once(void **state)
{
    (void)state;
    assert_memory_equal(tutti__build_text(), TUTTI_VERSION ", ", sizeof TUTTI_VERSION + 1);
    tutti__build_uses("some kernels 2");
    tutti__build_uses("some kernels");
    tutti__build_uses("some kernels 2");
    assert_string_equal(strstr(tutti__build_text(), ", some"), ", some kernels 2, some kernels");
    for (int i = 0; i < 40; i++) {
        char part[16];

        snprintf(part, sizeof part, "part %d", i);
        tutti__build_uses(part);
    }
    assert_int_equal(strlen(tutti__build_text()), TUTTI__BUILD_TEXT - 1);
}

/* Also at the ends: u = 0 in both draws, the smallest logarithm's argument, angles around a quarter turn. */
static void normal_numbers_are_box_and_muller_s(void **state)
{
    enum { N = 4096 };
    static uint32_t words[4 * N];
    static float values[N];

    (void)state;
    tutti__philox_fill(3, (tutti__philox_counter){{0, 1, 2, 3}}, 0, words, 4 * N);
    for (uint32_t i = 0; i < 1024; i++) {
        words[4 * i] = i < 512 ? i << 8 : ~0u - (i << 8);
        words[4 * i + 1] = ((i % 5) << 30) + ((i - 512) << 8);
    }
    tutti__normal_fill(words, 0.5, values, N);
    for (int i = 0; i < N; i++) {
        double radius = sqrt(-2 * log(1 - (double)tutti__unit_float(words[4 * i])));
        double angle = 2 * M_PI * (double)tutti__unit_float(words[4 * i + 1]);
        float expected = (float)(0.5 * radius * cos(angle));

        assert_true(fabsf(values[i] - expected) <= 1e-7f * fabsf(expected));
    }
}

static void mt19937_matches_the_reference_output(void **state)
{
    tutti__mt19937 mt;
    uint32_t last = 0;

    (void)state;
    tutti__mt19937_seed(&mt, 5489);
    assert_int_equal(tutti__mt19937_next(&mt), 3499211612u);
    for (int i = 1; i < 10000; i++)
        last = tutti__mt19937_next(&mt);
    assert_int_equal(last, 4123659995u); /* the 10,000th, as the C++ standard requires */
}

static void arena_stops_allocating_after_one_round(void **state)
{
    tutti__arena arena = {0};
    uint64_t settled;

    (void)state;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 100; i++) {
            unsigned char *p = tutti__arena_alloc(&arena, 100001);

            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 64, 0);
            memset(p, i, 100001);
        }
        if (round == 0) {
            tutti__arena_reset(&arena);
            settled = arena.allocations;
        } else {
            tutti__arena_reset(&arena);
            assert_int_equal(arena.allocations, settled);
        }
    }
    tutti__arena_destroy(&arena);
}

/* A first round's memory is that of the second; after one that needed more, all is one block. */
static void arena_keeps_its_memory(void **state)
{
    tutti__arena arena = {0};
    unsigned char *first[100];

    (void)state;
    for (int round = 0; round < 2; round++, tutti__arena_reset(&arena))
        for (int i = 0; i < 100; i++) {
            unsigned char *p = tutti__arena_alloc(&arena, 100001);

            if (round == 0)
                first[i] = p;
            assert_ptr_equal(p, first[i]);
        }
    for (int i = 0; i < 300; i++)
        assert_non_null(tutti__arena_alloc(&arena, 100001));
    tutti__arena_reset(&arena);
    for (int i = 0; i < 300; i++) {
        unsigned char *p = tutti__arena_alloc(&arena, 100001);

        assert_ptr_equal(p, i == 0 ? p : first[0] + (size_t)i * 100032);
        if (i == 0)
            first[0] = p;
    }
    assert_true(arena.used <= arena.capacity);
    tutti__arena_destroy(&arena);
    assert_int_equal(arena.capacity, 0);
}

static void nearest_names_the_likely_flag_and_nothing_far(void **state)
{
    const char *const names[] = {"batch_size", "epochs", "lr"};

    (void)state;
    assert_string_equal(tutti__nearest("batchsize", names, 3), "batch_size");
    assert_string_equal(tutti__nearest("batch-siez", names, 3), "batch_size");
    assert_string_equal(tutti__nearest("epoch", names, 3), "epochs");
    assert_null(tutti__nearest("zzzzzz", names, 3));
    /* two swapped letters are one mistake */
    assert_string_equal(tutti__nearest("cdua", (const char *const[]){"cpu", "cuda"}, 2), "cuda");
    assert_string_equal(tutti__nearest("ture", (const char *const[]){"on", "true"}, 2), "true");
    /* not near, but the beginning of one */
    assert_string_equal(tutti__nearest("bat", names, 3), "batch_size");
}

static void scopes_and_exit_codes_follow_the_table(void **state)
{
    (void)state;
    assert_int_equal(tutti_status_exit_code(TUTTI_OK), 0);
    assert_int_equal(tutti_status_exit_code(TUTTI_ERR_ARG), 2);
    assert_int_equal(tutti_status_exit_code(TUTTI_ERR_IO), 1);
    assert_int_equal(tutti_status_exit_code(TUTTI_ERR_PEER), 3);
    assert_int_equal(tutti_status_exit_code(TUTTI_ERR_ABORTED), 3);
    assert_int_equal(tutti_status_exit_code(TUTTI_ERR_DISK), 4);
    assert_int_equal(tutti_status_scope(TUTTI_ERR_UNSUPPORTED), TUTTI_SCOPE_CALL);
    assert_int_equal(tutti_status_scope(TUTTI_ERR_MISMATCH), TUTTI_SCOPE_GROUP);
    assert_int_equal(tutti_status_scope(TUTTI_ERR_MEMORY), TUTTI_SCOPE_PROCESS);
}

static void numbers_are_whole_or_refused(void **state)
{
    int64_t i;
    double d;

    (void)state;
    assert_true(tutti__parse_int64("-12", &i) && i == -12);
    assert_false(tutti__parse_int64("12x", &i));
    assert_false(tutti__parse_int64("", &i));
    assert_false(tutti__parse_int64("99999999999999999999", &i));
    assert_true(tutti__parse_double("1e-3", &d) && d == 1e-3);
    assert_false(tutti__parse_double("1e-3s", &d));
}

static void recorder_keeps_the_newest(void **state)
{
    tutti__recorder *recorder = tutti__recorder_new(4);
    tutti__time_span events[8];

    (void)state;
    for (int i = 0; i < 6; i++)
        tutti__record(recorder, "test", "span", i, 0, 1, 2);
    assert_int_equal(tutti__recorder_read(recorder, events, 8), 4);
    assert_int_equal(events[0].arg, 2);
    assert_int_equal(events[3].arg, 5);
    tutti__recorder_free(recorder);
}

static void hash128_does_not_depend_on_the_cuts(void **state)
{
    char a[33], b[33];
    tutti__hash128_state *h = tutti__hash128_new();

    (void)state;
    tutti__hash128_add(h, "tut", 3);
    tutti__hash128_add(h, "ti", 2);
    tutti__hash128_end(h, a);
    h = tutti__hash128_new();
    tutti__hash128_add(h, "tutti", 5);
    tutti__hash128_end(h, b);
    assert_string_equal(a, b);
    assert_int_equal(strlen(a), 32);
}

static void what_a_terminal_would_obey_is_shown(void **state)
{
    static const char *const cases[][2] = {
        {"plain, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x88 \\",
         "plain, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x88 \\"},
        {"a\nb\tc\rd\x1b[31m\x7f", "a\\nb\\tc\\rd\\x1b[31m\\x7f"},
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m"}, /* the escape of one character */
        {"\xff\xc3", "\\xff\\xc3"},
        {"gpj.\xe2\x80\xae"
         "exe",
         "gpj.\\xe2\\x80\\xaeexe"},
        {"\xe2\x80\x8d\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c\xd8\x9b", /* U+200D to U+200F, U+061C, U+061B */
         "\xe2\x80\x8d\\xe2\\x80\\x8e\\xe2\\x80\\x8f\\xd8\\x9c\xd8\x9b"},
        {"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9", /* U+2027 to U+2029 */
         "\xe2\x80\xa7\\xe2\\x80\\xa8\\xe2\\x80\\xa9"},
    };
    char out[128], small[6];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(cases); i++)
        assert_string_equal(tutti__printable(cases[i][0], out, sizeof out), cases[i][1]);
    assert_string_equal(tutti__printable("abc\n\n", small, sizeof small), "abc\\n");
    /* never half of one */
    assert_string_equal(tutti__printable("abcd\n", small, sizeof small), "abcd");
    tutti__fail(TUTTI_ERR_IO, "cannot open %s", "a\nb\x1b[2J");
    assert_string_equal(tutti_last_error(), "cannot open a\\nb\\x1b[2J");
}

static void json_strings_are_escaped_and_utf8(void **state)
{
    static const char *const cases[][2] = {
        {"", "\"\""},
        {"say \"hi\" \\ /", "\"say \\\"hi\\\" \\\\ /\""},
        {"\n\t\x01\x7f", "\"\\u000a\\u0009\\u0001\x7f\""},
        {"\u00e9 \u20ac \U0001f3b5", "\"\u00e9 \u20ac \U0001f3b5\""},
        {"\xe2\x82", "\"\\ufffd\\ufffd\""}, /* the end is missing */
        {"\xc0\xaf\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* too long */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},                       /* half of a pair */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},            /* past the last */
        {"a\x80z\xff", "\"a\\ufffdz\\ufffd\""},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(cases); i++) {
        char text[128] = "";
        FILE *out = fmemopen(text, sizeof text, "w");

        tutti__json_string(out, cases[i][0]);
        assert_int_equal(fclose(out), 0);
        assert_string_equal(text, cases[i][1]);
    }
}

/* ---- Log lines to a callback --------------------------------------------------------------------------------- */

typedef struct heard {
    int n, rank;
    tutti_log_level level;
    char area[16], text[2100];
} heard;

static void hear(void *user, tutti_log_level level, const char *area, int rank, const char *text)
{
    heard *h = user;

    h->n++;
    h->level = level;
    h->rank = rank;
    snprintf(h->area, sizeof h->area, "%s", area);
    snprintf(h->text, sizeof h->text, "%s", text);
    if (h->n == 1) {
        tutti_log(TUTTI_LOG_WARN, "inner", "its own line");
        tutti_log_set_callback(NULL, NULL); /* refused here */
    }
}

/* Redirects standard error to a file; returns the old descriptor. */
static int divert(FILE *to)
{
    int was = dup(STDERR_FILENO);

    dup2(fileno(to), STDERR_FILENO);
    return was;
}

static void restore(int was)
{
    dup2(was, STDERR_FILENO);
    close(was);
}

static void lines_go_to_the_callback_and_back(void **state)
{
    FILE *file = tmpfile();
    char written[4096] = "";
    heard h = {0};
    int was;

    (void)state;
    assert_non_null(file);
    unsetenv("TUTTI_LOG");
    was = divert(file);
    tutti_log_set_callback(hear, &h);
    tutti__log_set_rank(3);
    tutti_log(TUTTI_LOG_WARN, "comm", "%d of %s", 7, "nine");
    tutti__log_set_rank(-1);
    tutti_log(TUTTI_LOG_INFO, "comm", "below the level");
    assert_int_equal(h.n, 1);
    assert_int_equal(h.level, TUTTI_LOG_WARN);
    assert_int_equal(h.rank, 3);
    assert_string_equal(h.area, "comm");
    assert_string_equal(h.text, "7 of nine");
    tutti_log(TUTTI_LOG_ERROR, "ddp", "%3000s", "cut");
    assert_int_equal(h.n, 2);
    assert_int_equal(h.rank, -1);
    assert_int_equal(strlen(h.text), 2047);
    tutti_log_set_callback(NULL, NULL);
    tutti_log(TUTTI_LOG_WARN, "comm", "here again");
    restore(was);
    assert_int_equal(h.n, 2);
    rewind(file);
    assert_true(fread(written, 1, sizeof written - 1, file) > 0);
    fclose(file);
    assert_string_equal(written,
                        "tutti[3] warn inner: its own line\n"
                        "tutti[3] error log: tutti_log_set_callback from inside the callback "
                        "changes nothing; call it outside\n"
                        "tutti warn comm: here again\n");
}

static void tally(void *user, tutti_log_level level, const char *area, int rank, const char *text)
{
    (void)level;
    (void)area;
    (void)rank;
    (void)text;
    atomic_fetch_add((atomic_int *)user, 1);
}

static atomic_bool stop;

static void *chatter(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        tutti_log(TUTTI_LOG_WARN, "comm", "again");
    return NULL;
}

/* A callback's data may be freed after it was replaced, while other threads log (checked by sanitizers). */
static void a_callback_that_was_replaced_runs_no_more(void **state)
{
    FILE *file = fopen("/dev/null", "w");
    int was = divert(file);
    pthread_t threads[3];

    (void)state;
    atomic_store(&stop, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, chatter, NULL), 0);
    for (int i = 0; i < 100; i++) {
        atomic_int *n = calloc(1, sizeof *n);

        tutti_log_set_callback(tally, n);
        while (atomic_load(n) == 0)
            sched_yield();
        tutti_log_set_callback(NULL, NULL);
        free(n);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    restore(was);
    fclose(file);
}

static void an_error_that_quotes_the_peer_s_does_not_replace_it(void **state)
{
    char path[] = "/tmp/tutti-error-XXXXXX", text[1024];

    (void)state;
    close(mkstemp(path));
    assert_int_equal(setenv("TORCHELASTIC_ERROR_FILE", path, 1), 0);
    tutti__error_file_write(false, "rank 2 was lost");
    tutti__error_file_write(true, "rank 0 said: an exception: rank 2 was lost");
    for (int round = 0; round < 2; round++) {
        FILE *file = fopen(path, "r");

        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        assert_non_null(strstr(text, round ? "\"rank 0 has no data\"" : "\"rank 2 was lost\""));
        tutti__error_file_write(true, "rank 0 has no data");
    }
    assert_int_equal(unsetenv("TORCHELASTIC_ERROR_FILE"), 0);
    assert_int_equal(unlink(path), 0);
}

static void an_error_file_leaves_the_message_and_its_status(void **state)
{
    char path[] = "/tmp/tutti-error-XXXXXX";

    (void)state;
    close(mkstemp(path));
    assert_int_equal(setenv("TORCHELASTIC_ERROR_FILE", path, 1), 0);
    tutti__fail(TUTTI_ERR_DEVICE, "the device failed");
    tutti__error_file_write(true, "why");
    assert_int_equal(tutti__last_status(), TUTTI_ERR_DEVICE);
    assert_string_equal(tutti_last_error(), "the device failed");
    assert_int_equal(unsetenv("TORCHELASTIC_ERROR_FILE"), 0);
    assert_int_equal(unlink(path), 0);
}

static void a_flag_is_the_same_with_hyphens_and_underscores(void **state)
{
    (void)state;
    assert_true(tutti__flag_is("--data-dir", "--data-dir"));
    assert_true(tutti__flag_is("--data_dir=here", "--data-dir"));
    assert_true(tutti__flag_is("data-dir", "data_dir"));
    assert_false(tutti__flag_is("--data", "--data-dir"));
    assert_false(tutti__flag_is("--data-dirs", "--data-dir"));
    assert_false(tutti__flag_is("--data-di=r", "--data-dir"));
}

static size_t resident(void)
{
    size_t all, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu %zu", &all, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Memory that was given back may serve again, but not after a trim. */
static void trimmed_memory_goes_to_the_system(void **state)
{
    enum { BYTES = 16 << 20 };
    char *p = tutti__memory_reserve(BYTES);
    size_t with;

    (void)state;
    assert_non_null(p);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tutti__memory_back(p, BYTES, false), TUTTI_OK);
        memset(p, 1 + k, BYTES);
        with = resident();
        tutti__memory_give_back(p, BYTES);
        tutti__memory_trim();
        assert_true(resident() + BYTES * 3 / 4 < with);
    }
    tutti__memory_unreserve(p, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flag_is_the_same_with_hyphens_and_underscores),
        cmocka_unit_test(philox_matches_the_known_answers_of_random123),
        cmocka_unit_test(philox_in_bulk_is_philox_block_by_block),
        cmocka_unit_test(elementary_functions_are_those_of_libm),
        cmocka_unit_test(a_build_s_text_names_each_part_once),
        cmocka_unit_test(normal_numbers_are_box_and_muller_s),
        cmocka_unit_test(mt19937_matches_the_reference_output),
        cmocka_unit_test(arena_stops_allocating_after_one_round),
        cmocka_unit_test(arena_keeps_its_memory),
        cmocka_unit_test(trimmed_memory_goes_to_the_system),
        cmocka_unit_test(nearest_names_the_likely_flag_and_nothing_far),
        cmocka_unit_test(an_error_that_quotes_the_peer_s_does_not_replace_it),
        cmocka_unit_test(an_error_file_leaves_the_message_and_its_status),
        cmocka_unit_test(scopes_and_exit_codes_follow_the_table),
        cmocka_unit_test(numbers_are_whole_or_refused),
        cmocka_unit_test(recorder_keeps_the_newest),
        cmocka_unit_test(hash128_does_not_depend_on_the_cuts),
        cmocka_unit_test(what_a_terminal_would_obey_is_shown),
        cmocka_unit_test(json_strings_are_escaped_and_utf8),
        cmocka_unit_test(lines_go_to_the_callback_and_back),
        cmocka_unit_test(a_callback_that_was_replaced_runs_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
