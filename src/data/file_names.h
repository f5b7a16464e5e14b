/* file_names.h -- the files of a folder, in the order of their names.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_FILE_NAMES_H
#define TUTTI_DATA_FILE_NAMES_H

#include "base/base.h"

/* Starts as {0}. */
typedef struct tutti__file_names {
    char **of; /* without the folder */
    size_t n, room;
} tutti__file_names;

/* Appends a copy. MEMORY. */
tutti_status tutti__file_names_add(tutti__file_names *all, const char *name);
/* In plain byte order. */
void tutti__file_names_sort(tutti__file_names *all);
/* The sorted names in dir that end so, without hidden ones. Free them in any case. */
tutti_status tutti__file_names_list(tutti__file_names *all, const char *dir, const char *end);
void tutti__file_names_free(tutti__file_names *all);

#endif
