/* chance.h -- random numbers of a simulation: functions of a seed.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_SIMULATE_CHANCE_H
#define TUTTI_SIMULATE_CHANCE_H

#include <stdint.h>

/* splitmix64 */
static inline uint64_t tutti__chance_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
/* The next one of a sequence. */
static inline uint64_t tutti__chance_next(uint64_t *state)
{
    return tutti__chance_mix(*state += 0x9e3779b97f4a7c15u);
}
/* [0, 1): the draw-th of what `number` names. In no order, so that what happens elsewhere changes nothing. */
static inline double tutti__chance_unit(uint64_t seed, uint64_t number, uint64_t draw)
{
    const uint64_t word = tutti__chance_mix(
        tutti__chance_mix(seed + 0x9e3779b97f4a7c15u * (number + 1)) + 0xd1342543de82ef95u * draw);

    return (double)(word >> 11) * 0x1p-53;
}

#endif
