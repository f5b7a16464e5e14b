/* A fingerprint is what device/fingerprint.h defines: of any number of elements from any place on, in each dtype, on each device; those of
 * parts add up to the whole's.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "device_stream.h"

#include "base/base.h"
#include "base/half.h"
#include "device/fingerprint.h"

#include <math.h>
#include <string.h>

enum { MOST = 20000 };

static uint64_t seed = 7;

static float draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((int64_t)(seed >> 33) - ((int64_t)1 << 30)) * 0x1p-28f;
}

/* ---- The definition once more ---- */

static uint64_t splitmix64(uint64_t number)
{
    uint64_t z = (number + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double sign(uint64_t k)
{
    return (splitmix64(k / 64) >> k % 64) % 2 ? -1 : 1;
}

static tutti__fingerprint expected(const double *x, size_t n, size_t first)
{
    tutti__fingerprint f = {0};

    for (size_t i = 0; i < n; i++) {
        const size_t at = first + i;

        f.norm += x[i] * x[i];
        f.dot += x[i] * sign(at % 1024) * sign(1024 + at / 1024);
    }
    f.norm = sqrt(f.norm);
    return f;
}

/* Of elements of `size` bytes. */
static uint64_t expected_digest(const void *p, size_t n, size_t size, size_t first)
{
    uint64_t digest = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t at = first + i;
        uint64_t word = 0; /* the machine is little-endian */

        memcpy(&word, (const char *)p + i * size, size);
        digest += word * ((uint32_t)splitmix64(at % 1024) | 1) * (splitmix64(1024 + at / 1024) | 1);
    }
    return digest;
}

/* ---- The same of a device's memory ---- */

static tutti__fingerprint of(const void *host, size_t n, tutti_dtype dtype, size_t first)
{
    const size_t bytes = n * tutti_dtype_size(dtype);
    void *p = ops->alloc(device, bytes + 1, false);
    tutti__fingerprint f;

    assert_non_null(p);
    ok(tutti__copy_in(stream, p, host, bytes));
    ok(tutti__fingerprint_of(&f, stream, p, n, dtype, first));
    ops->free(device, p);
    assert_int_equal(f.digest, expected_digest(host, n, tutti_dtype_size(dtype), first));
    return f;
}

static void assert_near(tutti__fingerprint f, tutti__fingerprint e)
{
    if (fabs(f.norm - e.norm) > 1e-12 * e.norm || fabs(f.dot - e.dot) > 1e-12 * e.norm)
        fail_msg("norm %.17g, dot %.17g; expected %.17g, %.17g", f.norm, f.dot, e.norm, e.dot);
}

static const size_t counts[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 8192, 8193, MOST};

static void any_elements_from_any_place(void **state)
{
    static const size_t places[] = {0, 1, 16, 1000, 1024, 5000, 123457};
    static float x[MOST];
    static double wide[MOST];

    (void)state;
    for (size_t i = 0; i < MOST; i++)
        wide[i] = (double)(x[i] = draw());
    for (size_t c = 0; c < TUTTI__COUNT_OF(counts); c++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(places); k++)
            assert_near(of(x, counts[c], TUTTI_F32, places[k]),
                        expected(wide, counts[c], places[k]));
}

static void each_dtype(void **state)
{
    static uint16_t half[2][MOST];
    static int64_t i64[MOST];
    static double wide[3][MOST];

    (void)state;
    for (size_t i = 0; i < MOST; i++) {
        half[0][i] = tutti__bf16_of_f32(draw());
        half[1][i] = tutti__f16_of_f32(draw());
        i64[i] = (int64_t)(draw() * 1e6f);
        wide[0][i] = (double)tutti__f32_of_bf16(half[0][i]);
        wide[1][i] = (double)tutti__f32_of_f16(half[1][i]);
        wide[2][i] = (double)i64[i];
    }
    for (size_t c = 0; c < TUTTI__COUNT_OF(counts); c++) {
        assert_near(of(half[0], counts[c], TUTTI_BF16, 0), expected(wide[0], counts[c], 0));
        assert_near(of(half[1], counts[c], TUTTI_F16, 0), expected(wide[1], counts[c], 0));
        assert_near(of(i64, counts[c], TUTTI_I64, 0), expected(wide[2], counts[c], 0));
    }
}

static void parts_add_up(void **state)
{
    static float x[MOST];
    tutti__fingerprint whole, a, b;

    (void)state;
    for (size_t i = 0; i < MOST; i++)
        x[i] = draw();
    whole = of(x, MOST, TUTTI_F32, 0);
    for (size_t cut = 1; cut < MOST; cut += 1777) {
        a = of(x, cut, TUTTI_F32, 0);
        b = of(x + cut, MOST - cut, TUTTI_F32, cut);
        assert_int_equal(a.digest + b.digest, whole.digest);
        assert_near((tutti__fingerprint){.norm = sqrt(a.norm * a.norm + b.norm * b.norm),
                                         .dot = a.dot + b.dot},
                    whole);
    }
}

/* The digest sees which element has which bits: one bit of any of them, two that are exchanged, the sign of a zero. */
static void a_digest_sees_each_bit(void **state)
{
    enum { N = 3000 };
    static uint32_t x[N];
    uint64_t digest, changed;

    (void)state;
    for (size_t i = 0; i < N; i++)
        x[i] = (uint32_t)i;
    digest = of(x, N, TUTTI_F32, 0).digest;
    for (size_t i = 0; i < N; i += 37)
        for (int bit = 0; bit < 32; bit += 31) {
            x[i] ^= 1u << bit;
            assert_int_not_equal(of(x, N, TUTTI_F32, 0).digest, digest);
            x[i] ^= 1u << bit;
        }
    x[5] = 2005, x[2005] = 5;
    changed = of(x, N, TUTTI_F32, 0).digest;
    assert_int_not_equal(changed, digest);
}

/* All loops that this CPU can run. */
static void the_same_bits_with_each_instruction_set(void **state)
{
    enum { N = 64 * TUTTI__FINGERPRINT_LANES };
    static float x[N];
    static uint32_t words[N], keys[N];
    static double signs[N];
    tutti__fingerprint_parts parts[2];
    int n = 0;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        x[i] = draw();
        signs[i] = sign(i);
        keys[i] = (uint32_t)splitmix64(i);
    }
    memcpy(words, x, sizeof words);
    for (; tutti__fingerprint_run_at(n); n++) {
        tutti__fingerprint_parts *to = &parts[n > 0];

        memset(to, 0, sizeof *to);
        tutti__fingerprint_run_at(n)(to, x, signs, words, keys, N);
        tutti__fingerprint_run_at(n)(to, x, signs, words, keys, TUTTI__FINGERPRINT_LANES);
        assert_memory_equal(to, &parts[0], sizeof *to);
    }
    assert_true(n > 0);
}

/* A device's memory is read in several. */
static void more_than_a_part(void **state)
{
    enum { N = 2 * TUTTI__READ_PART / sizeof(float) + 1000 };
    static float x[N];
    static double wide[N];

    (void)state;
    for (size_t i = 0; i < N; i++)
        wide[i] = (double)(x[i] = draw());
    assert_near(of(x, N, TUTTI_F32, 3), expected(wide, N, 3));
}

static void nan_comes_through(void **state)
{
    const float x[3] = {1, NAN, 2};

    (void)state;
    assert_true(isnan(of(x, 3, TUTTI_F32, 0).norm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_elements_from_any_place),
        cmocka_unit_test(each_dtype),
        cmocka_unit_test(more_than_a_part),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(nan_comes_through),
        cmocka_unit_test(a_digest_sees_each_bit),
        cmocka_unit_test(the_same_bits_with_each_instruction_set),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
