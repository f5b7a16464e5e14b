/* real.h -- elementary functions in plain arithmetic.   SPDX-License-Identifier: MIT
 *
 * The last bits of a libm's results depend on the machine (it may use fused products) and on its version. What training computes
 * uses these instead. The series suffice for double precision: errors of one or two ulp. Functions in this header have no
 * branches, so that loops over them vectorise. */
#ifndef TUTTI_BASE_REAL_H
#define TUTTI_BASE_REAL_H

#include <stdint.h>
#include <string.h>

/* A function for the CPU, and for GPUs if nvcc compiles it. */
#ifdef __CUDACC__
#define TUTTI__FORMULA static inline __host__ __device__
#else
#define TUTTI__FORMULA                                                                             \
    static inline __attribute__((always_inline)) /* so that loops over it become vector code */
#endif

#define TUTTI__PI 3.14159265358979323846
#define TUTTI__LN2_HIGH                                                                            \
    6.93147180369123816490e-01 /* 33 bits: exact in products with small integers */
#define TUTTI__LN2_LOW      1.90821492927058770002e-10
#define TUTTI__HALF_PI_HIGH 1.57079632673412561417e+00
#define TUTTI__HALF_PI_LOW  6.07710050650619224932e-11

/* log x of a finite, normal x > 0: e log 2 + log m with sqrt(1/2) < m <= sqrt(2), and log m = 2 atanh s. */
TUTTI__FORMULA double tutti__log_normal(double x)
{
    const uint64_t half_root = 0x3fe6a09e667f3bcdu; /* the bits of sqrt(1/2) */
    uint64_t bits;
    double m, s, z, p;
    int32_t e;

    memcpy(&bits, &x, sizeof bits);
    bits += 0x3ff0000000000000u - half_root;
    e = (int32_t)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) + half_root;
    memcpy(&m, &bits, sizeof m);
    s = (m - 1) / (m + 1);
    z = s * s;
    p = 1. / 17 + z * (1. / 19 + z * (1. / 21 + z * (1. / 23)));
    p = 1. / 9 + z * (1. / 11 + z * (1. / 13 + z * (1. / 15 + z * p)));
    p = z * (1. / 3 + z * (1. / 5 + z * (1. / 7 + z * p)));
    return e * TUTTI__LN2_HIGH + (2 * s + (2 * s * p + e * TUTTI__LN2_LOW));
}

/* cos(x + quarter * pi / 2), |x| <= pi / 4: by sine or cosine of x. */
TUTTI__FORMULA double tutti__cos_of_rest(double x, int32_t quarter)
{
    const double z = x * x;
    double c = 1. / 3628800 - z * (1. / 479001600 - z * (1. / 87178291200 - z / 20922789888000));
    double s =
        1. / 39916800 - z * (1. / 6227020800 - z * (1. / 1307674368000 - z / 355687428096000));

    c = 1 - z * (1. / 2 - z * (1. / 24 - z * (1. / 720 - z * (1. / 40320 - z * c))));
    s = x * (1 - z * (1. / 6 - z * (1. / 120 - z * (1. / 5040 - z * (1. / 362880 - z * s)))));
    c = quarter & 1 ? s : c;
    return (quarter + 1) & 2 ? -c : c;
}

/* angle - quarter * pi / 2, where `quarter` is the nearest multiple, up to 2^20. */
TUTTI__FORMULA double tutti__angle_rest(double angle, int32_t quarter)
{
    return (angle - quarter * TUTTI__HALF_PI_HIGH) - quarter * TUTTI__HALF_PI_LOW;
}

/* cos of an angle from 0 to 2 pi, where `quarter` is the nearest multiple of pi / 2. */
TUTTI__FORMULA double tutti__cos_near(double angle, int32_t quarter)
{
    return tutti__cos_of_rest(tutti__angle_rest(angle, quarter), quarter);
}

/* e^x = 2^k e^r with |r| <= log(2) / 2: returns e^r (degree 13; error 4e-18), and stores k + 0x1.8p52, whose last bits are k. */
TUTTI__FORMULA double tutti__exp_of_rest(double x, double *shifted_p)
{
    const double shifted = x * 1.4426950408889634074 + 0x1.8p52, k = shifted - 0x1.8p52;
    const double r = (x - k * TUTTI__LN2_HIGH) - k * TUTTI__LN2_LOW;
    double p = r * (1. / 39916800 + r * (1. / 479001600 + r * (1. / 6227020800)));

    p = r * (1. / 40320 + r * (1. / 362880 + r * (1. / 3628800 + p)));
    p = r * (1. / 120 + r * (1. / 720 + r * (1. / 5040 + p)));
    p = r * (1 + r * (1. / 2 + r * (1. / 6 + r * (1. / 24 + p))));
    *shifted_p = shifted;
    return 1 + p;
}

/* e^x of -708 <= x <= 709, the same bits as tutti__exp; NaN of NaN. */
TUTTI__FORMULA double tutti__exp_normal(double x)
{
    double shifted, power;
    const double rest = tutti__exp_of_rest(x, &shifted);
    uint64_t bits;

    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof power);
    return rest * power;
}

/* e^x of x <= 0, as a term of a sum that has a 1: e^-700 for smaller x; NaN of NaN. */
TUTTI__FORMULA double tutti__exp_negative(double x)
{
    return tutti__exp_normal(x < -700 ? -700 : x);
}

/* For any x, as libm's exp. */
double tutti__exp(double x);
double tutti__log(double x);
/* cos(pi t), 0 <= t <= 1 */
double tutti__cos_pi(double t);
/* base^n by squaring: a relative error of about n * 2^-53 */
double tutti__power(double base, uint64_t n);

#endif
