/* Operations that take indices.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#define CASES "op/cases_index.def"
#include "op/rows.h"

/* x[0] times the indices as they are, in F32: a result of integers. */
static tutti_tensor *times_integers(tutti_tensor *x, tutti_tensor *y)
{
    return tutti_mul(tutti_select(x, 0, 0), tutti_cast(y, TUTTI_F32));
}

/* [3,4] of -1, -2, ... -6 */
static tutti_tensor *negative(bench *b)
{
    static const int64_t from_the_end[12] = {-1, -2, -3, -4, -5, -6, -6, -1, -2, -3, -4, -5};

    return tutti_input(b->cx, (tutti_array){from_the_end, TUTTI_SHAPE(3, 4), TUTTI_I64});
}

#include "op/cases.h"
