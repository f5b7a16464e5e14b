/* pace.c -- the fastest of several methods.   SPDX-License-Identifier: MIT */
#include "comm/core/pace.h"

enum {
    /* of each method, before the fastest is used; so many that the last do not touch staging buffers for the first time */
    TRIES = 7,
    AGAIN = 61, /* calls between further trials */
    TIMED = 4,  /* of the other calls, one in so many: clock reads slow down small ones */
};

size_t tutti__pace_size(size_t bytes, size_t least)
{
    size_t size = 0;

    while (size + 1 < TUTTI__PACE_SIZES && bytes >> size >= 2 * least)
        size++;
    return size;
}

static bool is_trial(const tutti__pace *pace, int n_methods)
{
    return pace->calls < (uint32_t)(TRIES * n_methods) || pace->calls % AGAIN == 0;
}

bool tutti__pace_is_timed(const tutti__pace *pace, int n_methods)
{
    return is_trial(pace, n_methods) || pace->calls % TIMED == 0;
}

static bool may(unsigned usable, int method)
{
    return method == 0 || (usable >> method & 1);
}

static int fastest(const tutti__pace *pace, int n_methods, unsigned usable)
{
    int best = 0;

    for (int m = 1; m < n_methods; m++)
        if (may(usable, m) && pace->ns[m] > 0 &&
            (pace->ns[best] <= 0 || pace->ns[m] < pace->ns[best]))
            best = m;
    return best;
}

int tutti__pace_choose(const tutti__pace *pace, int n_methods, unsigned usable)
{
    uint32_t n = (uint32_t)n_methods,
             turn = pace->calls < TRIES * n ? pace->calls : pace->calls / AGAIN;
    int method = (int)(turn % n);

    return is_trial(pace, n_methods) && may(usable, method) ? method
                                                            : fastest(pace, n_methods, usable);
}

/* Accepts faster times at once; slower calls may have been disturbed. */
void tutti__pace_learn(float *mean_ns, float ns)
{
    if (*mean_ns <= 0 || ns < *mean_ns)
        *mean_ns = ns;
    else
        *mean_ns += ((ns < 2 * *mean_ns ? ns : 2 * *mean_ns) - *mean_ns) / 8;
}
