/* messages.c -- packs and reads the messages of messages.def.   SPDX-License-Identifier: MIT */
#include "launch/message/messages.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char *const NAMES[] = {
    "",
#define MESSAGE(NAME, name, fields) #name,
#include "launch/message/messages.def"
#undef MESSAGE
};

tutti__message_type tutti__message_type_of(const json_t *message)
{
    const char *name = json_string_value(json_object_get(message, "type"));

    for (size_t i = TUTTI__MESSAGE_WORKER + 1; name && i < TUTTI__COUNT_OF(NAMES); i++)
        if (strcmp(name, NAMES[i]) == 0)
            return (tutti__message_type)i;
    return TUTTI__MESSAGE_UNKNOWN;
}

json_t *tutti__message_pack(tutti__message_type type)
{
    return json_pack("{s:s}", "type", NAMES[type]);
}

/* ---- Fields ------------------------------------------------------------------------------------------- */

json_t *tutti__message_string(const char *text)
{
    json_t *string = json_string(text);
    char *copy = string ? NULL : strdup(text);

    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    if (copy)
        string = json_string(copy);
    free(copy);
    return string;
}

static int64_t read_number(const json_t *object, const char *name, int64_t lowest, int64_t highest,
                           int64_t other, const char **invalid_p)
{
    const json_t *value = json_object_get(object, name);
    int64_t number = json_is_integer(value) ? (int64_t)json_integer_value(value) : other;
    bool fits = number >= lowest && number <= highest && (!value || json_is_integer(value));

    if (!fits && !*invalid_p)
        *invalid_p = name;
    return fits ? number : other;
}

static const char *read_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

/* ---- Messages ------------------------------------------------------------------------------------------ */

#define INT(name, lowest, highest, other)                                                          \
    json_object_set_new(object, #name, json_integer(message->name));
#define LONG(name, other) json_object_set_new(object, #name, json_integer(message->name));
#define FLAG(name)        json_object_set_new(object, #name, json_boolean(message->name));
#define TEXT(name)                                                                                 \
    json_object_set_new(object, #name, tutti__message_string(message->name ? message->name : ""));
#define JSON(name)                                                                                 \
    if (message->name)                                                                             \
        json_object_set_new(object, #name, message->name);
#define MESSAGE(NAME, name, fields)                                                                \
    json_t *tutti__message_pack_##name(const tutti__message_##name *message)                       \
    {                                                                                              \
        json_t *object = tutti__message_pack(TUTTI__MESSAGE_##NAME);                               \
                                                                                                   \
        (void)message;                                                                             \
        fields return object;                                                                      \
    }
#include "launch/message/messages.def"
#undef INT
#undef LONG
#undef FLAG
#undef TEXT
#undef JSON
#undef MESSAGE

#define INT(name, lowest, highest, other)                                                          \
    message.name = (int)read_number(object, #name, lowest, highest, other, &message.invalid);
#define LONG(name, other)                                                                          \
    message.name = read_number(object, #name, INT64_MIN, INT64_MAX, other, &message.invalid);
#define FLAG(name) message.name = json_is_true(json_object_get(object, #name));
#define TEXT(name) message.name = read_text(object, #name);
#define JSON(name) message.name = json_object_get(object, #name);
#define MESSAGE(NAME, name, fields)                                                                \
    tutti__message_##name tutti__message_read_##name(const json_t *object)                         \
    {                                                                                              \
        tutti__message_##name message = {.invalid = NULL};                                         \
                                                                                                   \
        (void)object;                                                                              \
        fields return message;                                                                     \
    }
#include "launch/message/messages.def"
