/* elastic.c -- attempts at steps, in groups that are left and formed again.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <tutti/elastic.h>

struct tutti_elastic {
    tutti_elastic_opts opts;
    uint64_t step;
    bool left;
};

uint64_t tutti_elastic_step(const tutti_elastic *e)
{
    return e ? e->step : 0;
}

bool tutti_elastic_left(const tutti_elastic *e)
{
    return e && e->left;
}
