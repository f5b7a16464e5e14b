/* sizes.h -- a list of sizes on a command line.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_SIZES_H
#define TUTTI_CLI_SIZES_H

#include "base/base.h"

enum { TUTTI__SIZES_MOST = 64 };

typedef struct tutti__sizes {
    int64_t bytes[TUTTI__SIZES_MOST];
    size_t n;
} tutti__sizes;

/* "4,4K,1M,25M", bytes with K, M or G of 1024; "8-1M": doubling from the first to the second. Adds them. remedy: for a size that is none,
 * after what was expected. Errors: ARG, naming the flag. */
tutti_status tutti__sizes_read(tutti__sizes *sizes, const char *flag, const char *text,
                               const char *remedy);

#endif
