/* squares.h -- sums of squares that do not depend on the order of the sum.   SPDX-License-Identifier: MIT
 *
 * The square d of a float is exact in double, and lies in a fixed grid of bins, of 26 exponents of x and so 52 of d each:
 *
 *     bin b has x of exponent field 26 b to 26 b + 25, so d < 2^51 q(b), where q(b) = 2^(52 b - 253), and q(b + 1) = 2^52 q(b)
 *     d = a q(b) + a' q(b - 1) + rest,   a = d / q(b) to the nearest integer (halves to even), a' of what is left in the same way
 *
 * A sum consists of the sum of all a of the highest bin of any element, `top`, and of all a' of the bin below it: two integers. d of a bin
 * below has a = 0 for any higher one (halves, of which d may be one, are rounded to 0), so a and a' depend on d and the grid only, not
 * on the other elements, and the integers only on which elements there are. Not on their order, nor on how they are divided among
 * threads or ranks, whose tops may differ: when `top` rises, the lower bin is dropped, as it is from the whole. What is dropped is, for each
 * element, less than 2^-52 of the largest square.
 *
 * Vectors need no integer arithmetic for this: d + 1.5 * 2^52 q has a in its low bits; subtracting the constant again gives a q,
 * and d - a q is exact. */
#ifndef TUTTI_DEVICE_SQUARES_H
#define TUTTI_DEVICE_SQUARES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: the sum of nothing. */
typedef struct tutti__squares {
    uint32_t
        largest; /* the bits of the largest |x|: NaN is above infinity, and infinity above all numbers */
    /* high * 2^32 + low, 0 <= low < 2^32: [0] in units of q(top), [1] of q(top - 1) */
    int64_t high[2], low[2];
} tutti__squares;

enum {
    TUTTI__SQUARES_EXPONENTS = 26, /* of x in a bin */
    /* elements whose a, or a', a signed integer of 64 bits can sum: each is at most 2^51 */
    TUTTI__SQUARES_BLOCK = 2048
};

/* The bin of an x with these bits and no sign. */
#define TUTTI__SQUARES_TOP(bits) ((int)((bits) >> 23) / TUTTI__SQUARES_EXPONENTS)
/* The bits of the double 1.5 * 2^52 q(bin), bin -1 to 9. */
#define TUTTI__SQUARES_MAGIC(bin)                                                                  \
    ((uint64_t)(52 * (bin) + 822) << 52 | UINT64_C(0x0008000000000000))

/* Makes bits the largest, if they are larger; s loses what then is no longer in the top two bins. */
void tutti__squares_raise(tutti__squares *s, uint32_t bits);
/* s += more, whose low may be any int64. */
void tutti__squares_add(tutti__squares *s, const tutti__squares *more);
/* As a double: NaN or infinity if an element is. */
double tutti__squares_value(const tutti__squares *s);

#ifdef __cplusplus
}
#endif
#endif
