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

static double sign(uint64_t k)
{
    uint64_t z = (k / 64 + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (z >> k % 64) % 2 ? -1 : 1;
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

/* ---- The same of a device's memory ---- */

static tutti__fingerprint of(const void *host, size_t n, tutti_dtype dtype, size_t first)
{
    const size_t bytes = n * tutti_dtype_size(dtype);
    void *p = ops->alloc(device, bytes + 1, false);
    tutti__fingerprint f;
    uint64_t hash;

    assert_non_null(p);
    ok(tutti__copy_in(stream, p, host, bytes));
    ok(tutti__fingerprint_of(&f, stream, p, n, dtype, first));
    ok(tutti__hash_memory(stream, p, bytes, &hash));
    ops->free(device, p);
    assert_int_equal(f.digest, tutti__hash64(host, bytes));
    assert_int_equal(hash, f.digest);
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
        assert_near((tutti__fingerprint){.norm = sqrt(a.norm * a.norm + b.norm * b.norm),
                                         .dot = a.dot + b.dot},
                    whole);
    }
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
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
