/* rng.c -- Philox4x32-10 and MT19937.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real.h"

#include <math.h>
#include <string.h>

/* Constants of Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

void tutti__philox(uint64_t key, tutti__philox_counter counter, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter.v[0], c1 = counter.v[1], c2 = counter.v[2], c3 = counter.v[3];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#define LANES 16

/* LANES blocks at once, one per lane. Words are stored in 64 bits, so that each product of a round is one vector instruction. */
TUTTI__CLONES static void philox_lanes(uint64_t key, tutti__philox_counter counter, int place,
                                       uint32_t out[4 * LANES])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint64_t c[4][LANES];

    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t lane = 0; lane < LANES; lane++)
            c[i][lane] = (uint32_t)(counter.v[i] + ((int)i == place ? lane : 0));
    for (int round = 0; round < 10; round++) {
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t p0 = (uint64_t)(uint32_t)c[0][lane] * PHILOX_M0;
            uint64_t p1 = (uint64_t)(uint32_t)c[2][lane] * PHILOX_M1;

            c[0][lane] = (p1 >> 32) ^ c[1][lane] ^ k0;
            c[1][lane] = (uint32_t)p1;
            c[2][lane] = (p0 >> 32) ^ c[3][lane] ^ k1;
            c[3][lane] = (uint32_t)p0;
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++)
            out[4 * lane + i] = (uint32_t)c[i][lane];
}

void tutti__philox_fill(uint64_t key, tutti__philox_counter counter, int place, uint32_t *out,
                        size_t n)
{
    uint32_t last[4 * LANES];

    for (; n >= 4 * LANES; n -= 4 * LANES, out += 4 * LANES) {
        philox_lanes(key, counter, place, out);
        counter.v[place] += LANES;
    }
    philox_lanes(key, counter, place, last);
    memcpy(out, last, n * sizeof *out);
}

/* ---- Normal numbers --------------------------------------------------------------------------------------
 * In plain arithmetic, so that loops vectorise. */

/* cos(2 pi j / 2^24) of an integer 0 <= j < 2^24 */
static inline double cos_of_24_bits(int32_t j)
{
    return tutti__cos_near(2 * TUTTI__PI * ((double)j * 0x1p-24), (j + (1 << 21)) >> 22);
}

/* Not the public function itself: clang 14 emits no linkable symbol for one with target clones. */
TUTTI__CLONES static void fill_normal(const uint32_t *words, double deviation, float *values,
                                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double radius =
            sqrt(-2 * tutti__log_normal(((1 << 24) - (int32_t)(words[4 * i] >> 8)) * 0x1p-24));

        values[i] = (float)(deviation * radius * cos_of_24_bits((int32_t)(words[4 * i + 1] >> 8)));
    }
}

void tutti__normal_fill(const uint32_t *words, double deviation, float *values, size_t n)
{
    fill_normal(words, deviation, values, n);
}

/* Matsumoto and Nishimura, 2002. */
void tutti__mt19937_seed(tutti__mt19937 *mt, uint64_t seed)
{
    mt->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < 624; i++) {
        uint32_t previous = mt->state[i - 1];

        mt->state[i] = 1812433253u * (previous ^ (previous >> 30)) + i;
    }
    mt->next = 624;
}

static void mt19937_refill(tutti__mt19937 *mt)
{
    for (int i = 0; i < 624; i++) {
        uint32_t y = (mt->state[i] & 0x80000000u) | (mt->state[(i + 1) % 624] & 0x7fffffffu);

        mt->state[i] = mt->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    mt->next = 0;
}

uint32_t tutti__mt19937_next(tutti__mt19937 *mt)
{
    uint32_t y;

    if (mt->next >= 624)
        mt19937_refill(mt);
    y = mt->state[mt->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}
