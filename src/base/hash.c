/* hash.c -- XXH3 under our own names.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdio.h>
#include <xxhash.h>

uint64_t tutti__hash64(const void *p, size_t bytes)
{
    return XXH3_64bits(p, bytes);
}

tutti__hash128_state *tutti__hash128_new(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state)
        XXH3_128bits_reset(state);
    else
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for a digest");
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
