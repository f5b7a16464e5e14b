/* hash.c -- XXH3 under our own names.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdio.h>
#include <xxhash.h>

uint64_t tutti__hash64(const void *p, size_t bytes)
{
    return XXH3_64bits(p, bytes);
}

static XXH3_state_t *new_state(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (!state)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for a digest");
    return state;
}

tutti__hash64_state *tutti__hash64_new(void)
{
    XXH3_state_t *state = new_state();

    if (state)
        XXH3_64bits_reset(state);
    return (tutti__hash64_state *)state;
}

void tutti__hash64_add(tutti__hash64_state *state, const void *p, size_t bytes)
{
    XXH3_64bits_update((XXH3_state_t *)state, p, bytes);
}

uint64_t tutti__hash64_end(tutti__hash64_state *state)
{
    const uint64_t hash = XXH3_64bits_digest((XXH3_state_t *)state);

    XXH3_freeState((XXH3_state_t *)state);
    return hash;
}

tutti__hash128_state *tutti__hash128_new(void)
{
    XXH3_state_t *state = new_state();

    if (state)
        XXH3_128bits_reset(state);
    return (tutti__hash128_state *)state;
}

void tutti__hash128_add(tutti__hash128_state *state, const void *p, size_t bytes)
{
    XXH3_128bits_update((XXH3_state_t *)state, p, bytes);
}

void tutti__hash128_end(tutti__hash128_state *state, char digits[33])
{
    XXH128_hash_t hash = XXH3_128bits_digest((XXH3_state_t *)state);

    snprintf(digits, 33, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
    XXH3_freeState((XXH3_state_t *)state);
}
