/* Broadcasting, and operations that only move elements.   SPDX-License-Identifier: MIT
 * timeout: 240   devices: strict cuda */
#define CASES "op/cases_moves.def"
#include "op/rows.h"

/* Of tutti_split and its like. */
static tutti_tensor *parts[4];

/* The n parts in reverse order; NULL if there are others. */
static tutti_tensor *joined(tutti_tensor *x, int returned, int n, int dim)
{
    tutti_tensor *reversed[4];

    for (int i = 0; i < n; i++)
        reversed[i] = parts[n - 1 - i];
    return returned == n && x ? tutti_cat(reversed, n, dim) : NULL;
}

#include "op/cases.h"
