/* json_text.h -- JSON as text: complete, or none.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_JSON_TEXT_H
#define TUTTI_CHECKPOINT_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>

/* json_dumps, for a file that must not lack a member: also NULL where memory is missing for an object's key, which jansson 2.14
 * then leaves out of the text. value may be NULL: no text. free() the text. */
char *tutti__json_text(const json_t *value, size_t flags);
/* value; if adding a member or element to it has `failed`, for want of memory, NULL, and value is released. */
json_t *tutti__json_complete(json_t *value, bool failed);

#endif
