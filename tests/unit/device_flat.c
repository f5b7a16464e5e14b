/* Arithmetic over flat memory on a device compared with the CPU's: the same bits elementwise and in
 * sums of squares, non-finite values anywhere, more spans than one launch takes.
 * SPDX-License-Identifier: MIT    timeout: 120
 * devices: strict cuda */
#include "device_stream.h"

#include "base/base.h"
#include "device/flat.h"

#include <math.h>
#include <string.h>

#define LONGEST 70001 /* several blocks of every kernel, and some left over */
#define MOST    ((size_t)(1 << 22) + 12345)

static const size_t lengths[] = {0, 1, 7, 8, 9, 255, 256, 257, 2047, 2048, 2049, LONGEST};

static void noise(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(seed >> 40) / 8388608.0 - 1.0);
    }
}

/* The same n floats on the host, and on the device `shift` floats after an aligned address. */
typedef struct both {
    float *host, *block, *p;
    size_t n;
} both;

static both both_new(size_t n, size_t shift, uint64_t seed)
{
    both b = {.host = malloc((n + 1) * sizeof(float)), .n = n};

    assert_non_null(b.host);
    noise(b.host, n, seed);
    b.block = ops->alloc(device, (n + shift + 1) * sizeof(float), true);
    assert_non_null(b.block);
    b.p = b.block + shift;
    ok(tutti__copy_in(stream, b.p, b.host, n * sizeof(float)));
    return b;
}

static void both_end(both *b)
{
    free(b->host);
    ops->free(device, b->block);
}

/* The device's are the host's, bit for bit. */
static void assert_same(const both *b, const char *what)
{
    float *got = malloc((b->n + 1) * sizeof *got);

    assert_non_null(got);
    ok(tutti__read(stream, got, b->p, b->n * sizeof *got));
    for (size_t i = 0; i < b->n; i++)
        if (memcmp(&got[i], &b->host[i], sizeof *got) != 0)
            fail_msg("%s, element %zu of %zu: %.9g, expected %.9g", what, i, b->n, (double)got[i],
                     (double)b->host[i]);
    free(got);
}

/* ---- Element by element ---- */

typedef void pass(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n);

static void do_fill(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->fill(on, p[0], n, -2.5f));
}

static void do_scale(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->scale(on, p[0], n, 0.3f));
}

static void do_plain(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->sgd(on, p[0], p[1], NULL, n, &(tutti__sgd){.lr = 0.1f, .decay = 0.01f}));
}

static void do_momentum(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->sgd(on, p[0], p[1], p[2], n, &(tutti__sgd){0.1f, 0.01f, 0.9f, 0.7f, false}));
}

static void do_nesterov(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->sgd(on, p[0], p[1], p[2], n, &(tutti__sgd){0.1f, 0.01f, 0.9f, 1, true}));
}

static void do_adam(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->adam(on, p[0], p[1], p[2], p[3], n,
                  &(tutti__adam){0.99f, 0.01f, 0.1f, 0.9f, 0.1f, 0.03f, 0.7f, 1e-8f}));
}

static const tutti__rmsprop rmsprop = {0.1f, 0.01f, 0.9f, 0.1f, 0.8f, 1e-8f};

static void do_rmsprop(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->rmsprop(on, p[0], p[1], p[3], NULL, NULL, n, &rmsprop));
    ok(flat->rmsprop(on, p[0], p[1], p[3], NULL, p[4], n, &rmsprop));
}

static void do_centered(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->rmsprop(on, p[0], p[1], p[3], p[2], NULL, n, &rmsprop));
    ok(flat->rmsprop(on, p[0], p[1], p[3], p[2], p[4], n, &rmsprop));
}

static void do_adagrad(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->adagrad(on, p[0], p[1], p[3], n, &(tutti__adagrad){0.1f, 0.01f, 0.5f, 1e-10f}));
}

static void do_clamp(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->clamp(on, p[0], n, 0.25f));
}

static void do_narrow(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    ok(flat->narrow(on, p[0], n, TUTTI_BF16));
    ok(flat->narrow(on, p[1], n, TUTTI_F16));
}

static void do_round(const tutti__flat_ops *flat, tutti_stream *on, float *const p[5], size_t n)
{
    do_narrow(flat, on, p, n);
    ok(flat->widen(on, p[0], n, TUTTI_BF16));
    ok(flat->widen(on, p[1], n, TUTTI_F16));
}

static void compare(pass *run, const char *what, size_t n, size_t shift)
{
    both b[5];
    float *here[5], *there[5];

    for (size_t i = 0; i < 5; i++) {
        b[i] = both_new(n, shift, 7 * n + i);
        here[i] = b[i].host;
        there[i] = b[i].p;
    }
    for (size_t i = 0; i < n; i++) /* squares are not negative */
        b[3].host[i] = fabsf(b[3].host[i]);
    ok(tutti__copy_in(stream, b[3].p, b[3].host, n * sizeof(float)));
    run(&tutti__cpu_flat_ops, &tutti__cpu_stream, here, n);
    run(ops->flat, stream, there, n);
    for (size_t i = 0; i < 5; i++) {
        assert_same(&b[i], what);
        both_end(&b[i]);
    }
}

static void elements_are_the_cpus_bit_for_bit(void **state)
{
    static const struct {
        pass *run;
        const char *name;
    } passes[] = {{do_fill, "fill"},         {do_scale, "scale"},       {do_plain, "sgd"},
                  {do_momentum, "momentum"}, {do_nesterov, "nesterov"}, {do_adam, "adam"},
                  {do_rmsprop, "rmsprop"},   {do_centered, "centered"}, {do_adagrad, "adagrad"},
                  {do_clamp, "clamp"},       {do_narrow, "narrow"},     {do_round, "widen"}};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(passes); i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(lengths); k++)
            for (size_t shift = 0; shift < 2; shift++)
                compare(passes[i].run, passes[i].name, lengths[k], shift);
}

static void narrowing_in_place_takes_any_length(void **state)
{
    (void)state;
    compare(do_narrow, "narrow", MOST, 0);
    compare(do_round, "widen", MOST, 0);
}

static void counting_adds_one(void **state)
{
    int64_t *p = ops->alloc(device, sizeof *p, true), value;

    (void)state;
    assert_non_null(p);
    ok(ops->flat->count(stream, p));
    ok(ops->flat->count(stream, p));
    ok(tutti__read(stream, &value, p, sizeof value));
    assert_int_equal(value, 2);
    ops->free(device, p);
}

/* ---- Over spans ---- */

enum { SPANS = 300 };

/* A block cut into spans of 0, 1, 2, ... elements, and the rest. */
static size_t cut(float *p, size_t n, tutti__flat_span spans[SPANS])
{
    size_t at = 0;

    for (size_t i = 0; i < SPANS; i++) {
        spans[i] = (tutti__flat_span){p + at, i + 1 < SPANS ? i : n - at};
        at += spans[i].n;
    }
    return SPANS;
}

static void squares_add_up(void **state)
{
    tutti__flat_span spans[SPANS];

    (void)state;
    for (size_t shift = 0; shift < 3; shift++) {
        both b = both_new(LONGEST, shift, 3);
        const tutti__flat_span whole = {b.host, b.n};
        tutti__squares sum = {0}, expected = {0};

        ok(tutti__cpu_flat_ops.sum_squares(&tutti__cpu_stream, &whole, 1, &expected));
        ok(ops->flat->sum_squares(stream, spans, cut(b.p, b.n, spans), &sum));
        ok(ops->flat->sum_squares(stream, spans, 0, &sum)); /* adds nothing */
        assert_int_equal(sum.largest, expected.largest);
        assert_memory_equal(sum.high, expected.high, sizeof sum.high);
        assert_memory_equal(sum.low, expected.low, sizeof sum.low);
        both_end(&b);
    }
}

static void unscaling_finds_what_is_not_finite(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, 0};
    static const size_t places[] = {0, 5, 44849 /* of the last span the first */, 50000,
                                    LONGEST - 1};
    tutti__flat_span spans[SPANS];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(odd); i++) {
        for (size_t k = 0; k < TUTTI__COUNT_OF(places); k++) {
            both b = both_new(LONGEST, k % 2, 3);
            bool finite;

            b.host[places[k]] = odd[i];
            ok(tutti__copy_in(stream, b.p, b.host, b.n * sizeof(float)));
            ok(ops->flat->unscale(stream, spans, cut(b.p, b.n, spans), 0.25f, &finite));
            assert_int_equal(finite, isfinite(odd[i]));
            b.host[places[k]] = 0; /* the payload of a NaN does not matter */
            for (size_t j = 0; j < b.n; j++)
                b.host[j] *= 0.25f;
            if (isfinite(odd[i]))
                b.host[places[k]] = odd[i] * 0.25f;
            else
                ok(tutti__copy_in(stream, b.p + places[k], &b.host[places[k]], sizeof(float)));
            assert_same(&b, "unscale");
            both_end(&b);
        }
    }
}

static void find_one(tutti_dtype dtype, const void *elements, size_t n, int expected)
{
    const size_t bytes = n * tutti_dtype_size(dtype);
    int32_t *found = ops->alloc(device, 64 + bytes, true), value;
    void *p = (char *)found + 64;

    assert_non_null(found);
    ok(tutti__copy_in(stream, p, elements, bytes));
    ok(ops->flat->find_nonfinite(stream, p, n, dtype, found));
    ok(tutti__read(stream, &value, found, sizeof value));
    assert_int_equal(value, expected);
    ops->free(device, found);
}

static void nothing_but_infinities_and_nans_is_not_finite(void **state)
{
    static const double doubles[][2] = {{1, 1e308}, {1, INFINITY}, {NAN, 1}};
    static const uint16_t f16[][2] = {{0x7bff, 0xfbff}, {0x7c00, 0}, {0, 0xfe01}};
    static const uint16_t bf16[][2] = {{0x7f7f, 0xff7f}, {0x7f80, 0}, {0, 0xffc1}};
    static const float floats[][2] = {{3.4e38f, -3.4e38f}, {0, -INFINITY}, {NAN, 0}};
    static const int64_t integers[2] = {INT64_MAX, -1};

    (void)state;
    for (int i = 0; i < 3; i++) {
        find_one(TUTTI_F64, doubles[i], 2, i > 0);
        find_one(TUTTI_F16, f16[i], 2, i > 0);
        find_one(TUTTI_BF16, bf16[i], 2, i > 0);
        find_one(TUTTI_F32, floats[i], 2, i > 0);
    }
    find_one(TUTTI_I64, integers, 2, 0);
    find_one(TUTTI_F32, floats[2], 0, 0);
}

/* ---- Sums that do not depend on the order ---- */

/* Memory of the device with these bytes. */
static void *device_copy(const void *from, size_t bytes)
{
    void *p = ops->alloc(device, bytes + 64, false);

    assert_non_null(p);
    ok(tutti__copy_in(stream, p, from, bytes));
    return p;
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed ^ *seed >> 29;
}

/* Gradients for which |g * 2^exponent| stays below 2^limit: of all sizes, and special values. */
static void draw_gradients(float *g, size_t n, int exponent, int limit, uint64_t seed)
{
    const float most = ldexpf(1 - 0x1p-24f, limit - exponent);
    const float special[] = {0,
                             -0.0f,
                             0x1p-149f,
                             -0x1p-127f,
                             most,
                             -most,
                             ldexpf(0.5f, -exponent),
                             ldexpf(1.5f, -exponent),
                             ldexpf(-2.5f, -exponent)};

    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = next(&seed);
        const float x = (float)((double)(bits >> 40) / 8388608.0 - 1);

        g[i] = i % 11 == 3 && fabsf(special[bits % TUTTI__COUNT_OF(special)]) <= most
                   ? special[bits % TUTTI__COUNT_OF(special)]
                   : ldexpf(x, limit - exponent - (int)(bits % 60));
    }
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits & INT32_MAX;
}

/* The device's equal the C library's in long double; added twice, and then once with `first`. */
static void check_fixed_add(size_t n, size_t shift, const tutti__fixed *f, int limit)
{
    const size_t width = (size_t)f->bits / 8;
    float *g = malloc((n + 2) * sizeof *g), *there;
    void *got = malloc((n + 1) * width);
    char *sums = ops->alloc(device, (n + 2) * width, false);
    uint32_t *largest = ops->alloc(device, sizeof *largest, true), value, most = 0;
    uint64_t *total = ops->alloc(device, sizeof *total, true), all, expected_total = 0;
    const tutti__fixed_seen seen = {largest, total};

    assert_true(g && got && sums && largest && total);
    draw_gradients(g, n + shift, f->exponent, limit, n + (uint64_t)f->exponent);
    there = device_copy(g, (n + shift) * sizeof *g);
    for (int k = 0; k < 3; k++)
        ok(ops->flat->fixed_add(stream, sums + shift * width, there + shift, n, f, k != 1, &seen));
    ok(ops->flat->fixed_add(stream, sums + shift * width, there + shift, n, f, false, &seen));
    ok(tutti__read(stream, got, sums + shift * width, n * width));
    ok(tutti__read(stream, &value, largest, sizeof value));
    ok(tutti__read(stream, &all, total, sizeof all));
    for (size_t i = 0; i < n; i++) {
        const int64_t expected = 2 * (int64_t)rintl(ldexpl((long double)g[i + shift], f->exponent));
        const int64_t sum = f->bits == 64 ? ((const int64_t *)got)[i] : ((const int32_t *)got)[i];

        if (sum != expected)
            fail_msg("element %zu of %zu, %a * 2^%d: %lld, expected %lld", i, n,
                     (double)g[i + shift], f->exponent, (long long)sum, (long long)expected);
        most = bits_of(g[i + shift]) > most ? bits_of(g[i + shift]) : most;
        expected_total += 2 * (uint64_t)expected; /* four times this element */
    }
    assert_int_equal(value, most);
    if (f->bits == 64)
        assert_true(all == expected_total);
    else
        assert_true((uint32_t)all == (uint32_t)expected_total);
    ops->free(device, total);
    ops->free(device, there);
    ops->free(device, sums);
    ops->free(device, largest);
    free(g);
    free(got);
}

static void integers_are_rounded_gradients(void **state)
{
    static const int exponents[] = {-89, 0, 45, 188};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(exponents); i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(lengths); k++)
            for (size_t shift = 0; shift < 2; shift++) {
                const int limit = exponents[i] < -70 ? 38 : 51;

                check_fixed_add(lengths[k], shift, &(tutti__fixed){64, exponents[i]}, limit);
                check_fixed_add(lengths[k], shift, &(tutti__fixed){32, exponents[i]}, 28);
            }
}

static void what_is_not_finite_is_the_largest(void **state)
{
    static const float odd[] = {-INFINITY, NAN, -NAN, 3e38f};
    const tutti__fixed f = {64, 45};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(odd); i++) {
        float g[300] = {1, -2};
        int64_t sums[300] = {0};
        uint32_t value = bits_of(1.5f);
        float *there;
        int64_t *sums_there = device_copy(sums, sizeof sums);
        uint32_t *largest = device_copy(&value, sizeof value);
        uint64_t *total = ops->alloc(device, sizeof *total, true);
        const tutti__fixed_seen seen = {largest, total};

        g[7 + 70 * i] = odd[i];
        there = device_copy(g, sizeof g);
        ok(ops->flat->fixed_add(stream, sums_there, there, 300, &f, false, &seen));
        ok(tutti__read(stream, &value, largest, sizeof value));
        assert_int_equal(value, bits_of(odd[i]));
        assert_int_equal(value >= 0x7f800000, !isfinite(odd[i]));
        ok(tutti__read(stream, sums, sums_there, sizeof sums));
        assert_true(sums[0] == INT64_C(1) << 45 && sums[1] == -(INT64_C(2) << 45) && sums[2] == 0);
        ops->free(device, there);
        ops->free(device, sums_there);
        ops->free(device, largest);
        ops->free(device, total);
    }
}

static void check_fixed_mean(size_t n, size_t shift, const tutti__fixed *f, int count)
{
    const size_t width = (size_t)f->bits / 8;
    int64_t *wide = malloc((n + 2) * sizeof *wide);
    int32_t *narrow = malloc((n + 2) * sizeof *narrow);
    float *got = malloc((n + 1) * sizeof *got),
          *mean = ops->alloc(device, (n + 2) * sizeof *mean, false);
    uint32_t *largest = ops->alloc(device, sizeof *largest, true), value, most = 0;
    uint64_t *total = ops->alloc(device, sizeof *total, true), all, expected_total = 0;
    const tutti__fixed_seen seen = {largest, total};
    uint64_t seed = n + (uint64_t)count;
    char *sums;

    assert_true(wide && narrow && got && mean && largest && total);
    for (size_t i = 0; i < n + shift; i++) {
        wide[i] = (int64_t)next(&seed) >> next(&seed) % 64;
        narrow[i] = (int32_t)(next(&seed) >> 32) >> next(&seed) % 32;
    }
    sums = device_copy(f->bits == 64 ? (void *)wide : narrow, (n + shift) * width);
    ok(ops->flat->fixed_mean(stream, mean + shift, sums + shift * width, n, f, count, &seen));
    ok(tutti__read(stream, got, mean + shift, n * sizeof *got));
    ok(tutti__read(stream, &value, largest, sizeof value));
    ok(tutti__read(stream, &all, total, sizeof all));
    for (size_t i = 0; i < n; i++) {
        const double sum = f->bits == 64 ? (double)wide[i + shift] : (double)narrow[i + shift];
        const float expected = (float)(ldexp(sum, -f->exponent) / count);

        if (memcmp(&got[i], &expected, sizeof expected) != 0)
            fail_msg("element %zu of %zu, %.17g / %d: %a, expected %a", i, n, sum, count,
                     (double)got[i], (double)expected);
        most = bits_of(expected) > most ? bits_of(expected) : most;
        expected_total += f->bits == 64 ? (uint64_t)wide[i + shift] : (uint32_t)narrow[i + shift];
    }
    assert_int_equal(value, most);
    if (f->bits == 64)
        assert_true(all == expected_total);
    else
        assert_true((uint32_t)all == (uint32_t)expected_total);
    ops->free(device, total);
    ops->free(device, sums);
    ops->free(device, mean);
    ops->free(device, largest);
    free(wide);
    free(narrow);
    free(got);
}

static void means_are_those_of_double(void **state)
{
    static const int counts[] = {1, 3, 8, 4095, 4096};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(counts); i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(lengths); k++)
            for (size_t shift = 0; shift < 2; shift++) {
                check_fixed_mean(lengths[k], shift, &(tutti__fixed){64, 45}, counts[i]);
                check_fixed_mean(lengths[k], shift, &(tutti__fixed){64, 180}, counts[i]);
                check_fixed_mean(lengths[k], shift, &(tutti__fixed){32, -80}, counts[i]);
            }
}

static void check_join(const tutti__fixed *f, size_t n)
{
    const size_t width = (size_t)f->bits / 8;
    unsigned char a[2049 * 8], b[2049 * 8];
    uint64_t seed = n;
    void *sums, *more;

    for (size_t i = 0; i < n * width; i++) {
        a[i] = (unsigned char)next(&seed);
        b[i] = (unsigned char)next(&seed);
    }
    sums = device_copy(a, n * width);
    more = device_copy(b, n * width);
    ok(ops->flat->fixed_join(stream, sums, more, n, f));
    ok(tutti__read(stream, b, more, n * width));
    for (size_t i = 0; i < n; i++) { /* modulo 2^bits */
        uint64_t x = 0, y = 0, z;

        memcpy(&x, a + i * width, width);
        memcpy(&y, b + i * width, width);
        z = x + y;
        memcpy(a + i * width, &z, width);
    }
    ok(tutti__read(stream, b, sums, n * width));
    assert_memory_equal(a, b, n * width);
    ops->free(device, sums);
    ops->free(device, more);
}

static void integers_are_joined_modulo_their_size(void **state)
{
    (void)state;
    for (size_t k = 1; lengths[k] <= 2049; k++) {
        check_join(&(tutti__fixed){.bits = 64}, lengths[k]);
        check_join(&(tutti__fixed){.bits = 32}, lengths[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_the_cpus_bit_for_bit),
        cmocka_unit_test(narrowing_in_place_takes_any_length),
        cmocka_unit_test(counting_adds_one),
        cmocka_unit_test(squares_add_up),
        cmocka_unit_test(unscaling_finds_what_is_not_finite),
        cmocka_unit_test(nothing_but_infinities_and_nans_is_not_finite),
        cmocka_unit_test(integers_are_rounded_gradients),
        cmocka_unit_test(what_is_not_finite_is_the_largest),
        cmocka_unit_test(means_are_those_of_double),
        cmocka_unit_test(integers_are_joined_modulo_their_size),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
