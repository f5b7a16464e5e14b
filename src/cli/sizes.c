/* sizes.c -- a list of sizes on a command line.   SPDX-License-Identifier: MIT */
#include "cli/sizes.h"

#include <string.h>

/* One size, or "8-1M": doubling from the first to the second. */
static tutti_status add(tutti__sizes *s, const char *flag, const char *text, size_t length,
                        const char *remedy)
{
    size_t first = strcspn(text, "-");
    int64_t low, high;

    first = first < length ? first : length;
    if (!tutti__parse_size(text, first, &low) ||
        (first < length && !tutti__parse_size(text + first + 1, length - first - 1, &high)))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: \"%.*s\" is not a size; expected bytes from 1 to 1024G, such as "
                           "4,4K,1M,25M or 8-128M; %s",
                           flag, length < 60 ? (int)length : 60, text, remedy);
    if (first == length)
        high = low;
    if (high < low)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %.*s ends below where it begins", flag,
                           length < 60 ? (int)length : 60, text);
    for (; low <= high; low *= 2) {
        if (s->n == TUTTI__SIZES_MOST)
            return tutti__fail(TUTTI_ERR_ARG, "%s has more than %d sizes", flag, TUTTI__SIZES_MOST);
        s->bytes[s->n++] = low;
    }
    return TUTTI_OK;
}

tutti_status tutti__sizes_read(tutti__sizes *s, const char *flag, const char *text,
                               const char *remedy)
{
    for (const char *next = text;; next++) {
        size_t length = strcspn(next, ",");

        TUTTI_TRY(add(s, flag, next, length, remedy));
        next += length;
        if (!*next)
            return TUTTI_OK;
    }
}
