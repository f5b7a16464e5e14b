/* random.c -- a source of random numbers for augmentation.   SPDX-License-Identifier: MIT
 *
 * Blocks of Philox are numbered by the counter's last word, to which an epoch below 2^32 leaves its place. The state is the counter,
 * the last block, and how many of its words are left. */
#include "data/augment.h"

#include "base/real.h"

#include <math.h>

enum { COUNTER = 0, WORDS = 4, LEFT = 8 };

tutti_random tutti__random_start(uint64_t key, uint64_t epoch, size_t sample)
{
    return (tutti_random){.key = key,
                          .state = {(uint32_t)sample, (uint32_t)((uint64_t)sample >> 32),
                                    (uint32_t)epoch, (uint32_t)(epoch >> 32)}};
}

static uint32_t next(tutti_random *r)
{
    if (r->state[LEFT] == 0 || r->state[LEFT] > 4) {
        tutti__philox_counter counter;

        for (int i = 0; i < 4; i++)
            counter.v[i] = r->state[COUNTER + i];
        tutti__philox(r->key, counter, r->state + WORDS);
        r->state[COUNTER + 3]++;
        r->state[LEFT] = 4;
    }
    return r->state[WORDS + 4 - r->state[LEFT]--];
}

double tutti_random_uniform(tutti_random *random)
{
    return random ? next(random) * 0x1p-32 : 0;
}

/* Box and Muller; the cosine of an angle up to pi is distributed as that of one up to 2 pi. */
double tutti_random_normal(tutti_random *random)
{
    double u, v;

    if (!random)
        return 0;
    u = tutti_random_uniform(random);
    v = tutti_random_uniform(random);
    return sqrt(-2 * tutti__log(1 - u)) * tutti__cos_pi(v);
}

double tutti__random_between(tutti_random *random, double low, double high)
{
    return low + (high - low) * tutti_random_uniform(random);
}

int tutti__random_below(tutti_random *random, int n)
{
    return (int)(((uint64_t)next(random) * (uint64_t)n) >> 32);
}

/* The logarithm of a Gamma(alpha) variate, by Marsaglia and Tsang (2000); for alpha < 1 that of alpha + 1, times u^(1/alpha). In
 * logarithms, because with a small alpha the variate itself is often smaller than any number. */
static double log_gamma_variate(tutti_random *random, double alpha)
{
    const double shape = alpha < 1 ? alpha + 1 : alpha, d = shape - 1. / 3, c = 1 / sqrt(9 * d);
    const double boost = alpha < 1 ? tutti__log(1 - tutti_random_uniform(random)) / alpha : 0;

    for (;;) {
        const double x = tutti_random_normal(random), root = 1 + c * x, v = root * root * root;
        const double u = 1 - tutti_random_uniform(random);

        if (root > 0 && tutti__log(u) < x * x / 2 + d - d * v + d * tutti__log(v))
            return tutti__log(d * v) + boost;
    }
}

double tutti__random_beta(tutti_random *random, double alpha)
{
    const double x = log_gamma_variate(random, alpha), y = log_gamma_variate(random, alpha);

    return 1 / (1 + tutti__exp(y - x));
}
