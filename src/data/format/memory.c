/* memory.c -- F32 rows and targets that the caller holds.   SPDX-License-Identifier: MIT */
#include "data/dataset.h"

#include <limits.h>

static const tutti__format MEMORY = {.name = "memory", .size = sizeof(tutti_dataset)};

tutti_status tutti_dataset_from_memory(tutti_dataset **dataset_p, const float *x, size_t n_x,
                                       const float *y, size_t n_y, size_t count)
{
    tutti_dataset_info *info;

    *dataset_p = NULL;
    if (!x || !y || n_x < 1 || n_x > INT_MAX || n_y < 1 || n_y > INT_MAX)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data set from memory: x %s with rows of %zu and y %s with rows of %zu; "
                           "both are needed, with "
                           "at least 1 value a row",
                           x ? "given" : "NULL", n_x, y ? "given" : "NULL", n_y);
    TUTTI_TRY(tutti__dataset_new(dataset_p, &MEMORY, ""));
    (*dataset_p)->rows = (tutti__rows){x, y, n_x, n_y};
    info = &(*dataset_p)->info;
    info->count = count;
    info->channels = (int)n_x;
    info->height = 1;
    info->width = 1;
    info->std[0] = 1;
    return TUTTI_OK;
}
