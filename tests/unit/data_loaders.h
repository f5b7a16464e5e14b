/* data_loaders.h -- what tests of loaders share: a mock of a group, and making a loader.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DATA_LOADERS_H
#define TUTTI_TESTS_DATA_LOADERS_H

#include "base/base.h"
#include "data/dataset.h"
#include "data/loader.h"

#include <tutti/data.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* All that a loader uses of a group. */
struct tutti_group {
    int rank, size;
};

int tutti_group_rank(const tutti_group *group)
{
    return group->rank;
}

int tutti_group_size(const tutti_group *group)
{
    return group->size;
}

static inline tutti_loader *loader_new(const tutti_dataset *dataset, const tutti_group *group,
                                       tutti_loader_opts opts)
{
    tutti_loader *loader;

    if (tutti_loader_new(&loader, dataset, group, &opts) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return loader;
}

#endif
