/* json_text.c -- JSON as text: complete, or none.   SPDX-License-Identifier: MIT */
#include "checkpoint/json_text.h"

#include <stdlib.h>
#include <string.h>

char *tutti__json_text(const json_t *value, size_t flags)
{
    char *text = value ? json_dumps(value, flags) : NULL;

    if (text && strlen(text) == json_dumpb(value, NULL, 0, flags))
        return text;
    free(text);
    return NULL;
}

json_t *tutti__json_complete(json_t *value, bool failed)
{
    if (!failed)
        return value;
    json_decref(value);
    return NULL;
}
