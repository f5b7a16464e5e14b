/* Sums of squares have the bits that device/squares.h defines, whatever the order, the spans, and the partial sums that are added:
 * with a top that rises in the middle, halves, denormals, the largest floats.   SPDX-License-Identifier: MIT    timeout: 120
 * devices: strict cuda */
#include "device_stream.h"

#include "base/base.h"
#include "device/flat.h"

#include <math.h>
#include <string.h>

__extension__ typedef __int128 wide;

static uint64_t seed = 5;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 20) % below;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- The definition, in integers ---- */

/* m * 2^shift to the nearest integer, halves to even, m >= 0 unless the result is exact. */
static int64_t rounded(int64_t m, int shift)
{
    int64_t down, rest, half;

    if (shift >= 0)
        return m * ((int64_t)1 << shift);
    if (shift < -60)
        return 0;
    down = m >> -shift;
    rest = m - (down << -shift);
    half = (int64_t)1 << (-shift - 1);
    return down + (rest > half || (rest == half && down % 2));
}

typedef struct sum {
    uint32_t largest;
    wide part[2];
} sum;

static sum expected(const float *x, size_t n)
{
    sum s = {0};
    int unit;

    for (size_t i = 0; i < n; i++)
        if ((bits_of(x[i]) & INT32_MAX) > s.largest)
            s.largest = bits_of(x[i]) & INT32_MAX;
    unit = 52 * ((int)(s.largest >> 23) / 26) - 253;
    for (size_t i = 0; i < n; i++) {
        const int field = (int)(bits_of(x[i]) >> 23 & 255);
        const int64_t m = (bits_of(x[i]) & 0x7fffff) | (field > 0 ? 0x800000 : 0);
        const int shift = 2 * ((field > 0 ? field : 1) - 150) - unit;
        const int64_t a = rounded(m * m, shift);
        const int64_t rest = shift >= 0 ? 0 : a == 0 ? m * m : m * m - a * ((int64_t)1 << -shift);

        s.part[0] += a;
        s.part[1] += shift >= 0 ? 0 : rounded(rest, shift + 52);
    }
    return s;
}

static void assert_sum(const tutti__squares *got, const sum *s, const char *what)
{
    for (int k = 0; k < 2; k++)
        if (got->largest != s->largest || got->low[k] < 0 || got->low[k] > UINT32_MAX ||
            (wide)got->high[k] * ((wide)1 << 32) + got->low[k] != s->part[k])
            fail_msg("%s, integer %d: %lld * 2^32 + %lld of largest %08x, expected %.17g of %08x",
                     what, k, (long long)got->high[k], (long long)got->low[k],
                     (unsigned)got->largest, (double)s->part[k], (unsigned)s->largest);
}

/* ---- Elements ---- */

static float special(void)
{
    static const float all[] = {0,         -0.0f,           0x1p-149f, 0x1.fffffcp-127f,
                                0x1p-126f, 0x1.fffffep127f, -3e38f,    1};

    return all[draw(TUTTI__COUNT_OF(all))];
}

/* About a limit of a bin: the square is half a unit, or next to it. */
static float limit(void)
{
    return of_bits((uint32_t)(26 * (1 + draw(9)) << 23) + (uint32_t)draw(5) - 2);
}

/* In order, so that the top rises again and again. */
static float rising(size_t i, size_t n)
{
    return of_bits((uint32_t)((0x7f7fffff / n) * i));
}

/* d = m^2 2^2e, m odd, is k + 1/2 units for many m; all equal: the largest sum of a', 2^51 of each. */
static float half(void)
{
    return ldexpf((float)(2 * draw(4) + 1), 26 * (int)draw(9) - 127 + 13 * (int)draw(2));
}

enum { KINDS = 10 };

static float element(int kind, size_t i, size_t n)
{
    const float unit = (float)draw(1 << 24) / (float)(1 << 23) - 1;

    switch (kind) {
    case 0:
        return unit;
    case 1:
        return of_bits((uint32_t)draw(0x7f800000)); /* of all sizes */
    case 2:
        return draw(4) ? unit : special();
    case 3:
        return limit();
    case 4:
        return rising(i, n);
    case 5:
        return half();
    case 6:
        return 0x1p-101f; /* a' of each is 2^51 */
    case 7:
        return of_bits((uint32_t)draw(0x800000)); /* denormals */
    case 8:
        return draw(50) ? 0 : unit * 1e-20f;
    default:
        return i + 1 < n ? unit * 0x1p-30f : 0x1.8p20f; /* one outweighs all others */
    }
}

/* ---- Orders ---- */

static void shuffle(float *x, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        const size_t k = draw(i);
        const float kept = x[k];

        x[k] = x[i - 1];
        x[i - 1] = kept;
    }
}

enum { PARTIAL = 5 };

/* In random spans, each added to one of several partial sums, which are then added in random order. */
static tutti__squares sum_divided(float *p, size_t n)
{
    tutti__squares partial[PARTIAL] = {{0}};
    const size_t longest = draw(3) ? 5000 : 30;

    for (size_t at = 0; at < n;) {
        tutti__flat_span spans[3] = {{0}};

        for (int k = 0; k < 3 && at < n; k++) {
            const size_t most = draw(longest);

            spans[k] = (tutti__flat_span){p + at, most < n - at ? most : n - at};
            at += spans[k].n;
        }
        ok(ops->flat->sum_squares(stream, spans, 3, &partial[draw(PARTIAL)]));
    }
    for (size_t left = PARTIAL; left > 1; left--) {
        const size_t from = draw(left), kept = (from + 1 + draw(left - 1)) % left;

        tutti__squares_add(&partial[kept], &partial[from]);
        partial[from] = partial[left - 1];
    }
    return partial[0];
}

static void check(float *x, size_t n, const char *what)
{
    float *p = ops->alloc(device, (n + 1) * sizeof(float), false);
    const sum s = expected(x, n);
    const tutti__flat_span all = {p + (n % 2), n}; /* aligned, or not */
    tutti__squares got = {0};

    assert_non_null(p);
    ok(tutti__copy_in(stream, all.p, x, n * sizeof(float)));
    ok(ops->flat->sum_squares(stream, &all, 1, &got));
    assert_sum(&got, &s, what);
    for (int i = 0; i < 6; i++) {
        shuffle(x, n);
        ok(tutti__copy_in(stream, all.p, x, n * sizeof(float)));
        got = sum_divided(all.p, n);
        assert_sum(&got, &s, what);
    }
    ops->free(device, p);
}

static void neither_order_nor_division_changes_a_bit(void **state)
{
    static const size_t lengths[] = {1, 2, 7, 64, 2047, 2048, 2049, 9001};
    float *x = malloc(lengths[TUTTI__COUNT_OF(lengths) - 1] * sizeof *x);

    (void)state;
    assert_non_null(x);
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(lengths); k++) {
            char what[64];

            for (size_t i = 0; i < lengths[k]; i++)
                x[i] = element(kind, i, lengths[k]);
            snprintf(what, sizeof what, "%zu elements of kind %d", lengths[k], kind);
            check(x, lengths[k], what);
        }
    free(x);
}

/* Sums beyond 64 bits. */
static void many_of_the_largest_kind_fit(void **state)
{
    const size_t n = 300001;
    float *x = malloc(n * sizeof *x);

    (void)state;
    assert_non_null(x);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < n; i++)
            x[i] = kind == 0 ? 0x1p-101f : kind == 1 ? 0x1.fffffep127f : element(1, i, n);
        check(x, n, "many");
    }
    free(x);
}

/* ---- Values ---- */

static double value_of(const float *x, size_t n)
{
    float *p = ops->alloc(device, (n + 1) * sizeof(float), false);
    const tutti__flat_span all = {p, n};
    tutti__squares s = {0};

    assert_non_null(p);
    ok(tutti__copy_in(stream, p, x, n * sizeof(float)));
    ok(ops->flat->sum_squares(stream, &all, 1, &s));
    ops->free(device, p);
    return tutti__squares_value(&s);
}

static void the_value_is_the_sum_to_double_precision(void **state)
{
    enum { N = 5000 };
    static float x[N];

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        long double total = 0, largest = 0;
        double value;

        for (size_t i = 0; i < N; i++) {
            x[i] = element(kind, i, N);
            total += (long double)x[i] * (long double)x[i];
            largest = fmaxl(largest, (long double)x[i] * (long double)x[i]);
        }
        value = value_of(x, N);
        if (fabsl((long double)value - total) > 0x1p-52L * (N * largest + 2 * total))
            fail_msg("kind %d: %.17g, expected %.17Lg", kind, value, total);
    }
    assert_true(value_of(x, 0) == 0);
    assert_true(value_of((const float[]){3, -4, 0, -0.0f}, 4) == 25);
    assert_true(value_of((const float[]){0x1p-149f}, 1) == 0x1p-298);
    assert_true(value_of((const float[]){0x1p-149f, 0x1.fffffep127f}, 2) ==
                0x1.fffffep127 * 0x1.fffffep127);
}

static void nan_and_infinity_come_through(void **state)
{
    enum { N = 5000 };
    static float x[N];
    const tutti__squares infinite = {.largest = 0x7f800000};
    tutti__squares s = {.largest = bits_of(1)};

    (void)state;
    for (size_t at = 0; at < N; at += N - 1) {
        for (size_t i = 0; i < N; i++)
            x[i] = element(1, i, N);
        x[at] = -INFINITY;
        assert_true(isinf(value_of(x, N)) && value_of(x, N) > 0);
        x[N / 2] = NAN;
        assert_true(isnan(value_of(x, N)));
    }
    tutti__squares_add(&s, &infinite);
    assert_true(isinf(tutti__squares_value(&s)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neither_order_nor_division_changes_a_bit),
        cmocka_unit_test(many_of_the_largest_kind_fit),
        cmocka_unit_test(the_value_is_the_sum_to_double_precision),
        cmocka_unit_test(nan_and_infinity_come_through),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
