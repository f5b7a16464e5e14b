/* names.h -- the files of a folder, in the order of their names.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TEXT_NAMES_H
#define TUTTI_DATA_TEXT_NAMES_H

#include "base/base.h"

typedef struct tutti__file_names {
    char **of; /* without the folder */
    size_t n, room;
} tutti__file_names;

/* Those that end so, without hidden ones. Free them in any case. */
tutti_status tutti__file_names_list(tutti__file_names *all, const char *dir, const char *end);
void tutti__file_names_free(tutti__file_names *all);

#endif
