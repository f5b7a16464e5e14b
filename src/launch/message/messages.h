/* messages.h -- messages between agents and the coordinator: for each of messages.def a struct, which is packed and read.
 * SPDX-License-Identifier: MIT
 *
 *     json_t *tutti__message_pack_over(const tutti__message_over *)
 *     tutti__message_over tutti__message_read_over(const json_t *)
 *
 * Messages are untrusted: what is missing or invalid is read as its other value. */
#ifndef TUTTI_LAUNCH_MESSAGES_H
#define TUTTI_LAUNCH_MESSAGES_H

#include "base/base.h"

#include <jansson.h>

typedef enum tutti__message_type {
    TUTTI__MESSAGE_UNKNOWN,
#define MESSAGE(NAME, name, fields) TUTTI__MESSAGE_##NAME,
#include "launch/message/messages.def"
#undef MESSAGE
} tutti__message_type;

tutti__message_type tutti__message_type_of(const json_t *message);
/* One without fields. */
json_t *tutti__message_pack(tutti__message_type type);

/* Any text as a JSON string: of invalid UTF-8 only ASCII is kept. */
json_t *tutti__message_string(const char *text);

/* Texts are borrowed from the message that was read; NULL is packed as "". A packed JSON value is taken over; NULL is left out. */
#define INT(name, lowest, highest, other) int name;
#define LONG(name, other)                 int64_t name;
#define FLAG(name)                        bool name;
#define TEXT(name)                        const char *name;
#define JSON(name)                        json_t *name;
#define MESSAGE(NAME, name, fields)                                                                \
    typedef struct tutti__message_##name {                                                         \
        fields const char *invalid; /* read: the first field that is; NULL: none */                \
    } tutti__message_##name;                                                                       \
    json_t *tutti__message_pack_##name(const tutti__message_##name *message);                      \
    tutti__message_##name tutti__message_read_##name(const json_t *object);
#include "launch/message/messages.def"
#undef INT
#undef LONG
#undef FLAG
#undef TEXT
#undef JSON
#undef MESSAGE

#endif
