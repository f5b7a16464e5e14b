/* config.h -- the keys of `tutti train` as one typed table, and one run's values.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_CONFIG_H
#define TUTTI_TRAIN_CONFIG_H

#include "base/base.h"
#include <jansson.h>

#define TUTTI__CONFIG_TEXT 1024 /* bytes of a text value with its NUL */

typedef enum tutti__key_type {
    TUTTI__KEY_INT,
    TUTTI__KEY_STEPS, /* an INT: every so many steps, or below; as a flag: the word, or 1; 0 */
    TUTTI__KEY_REAL,
    TUTTI__KEY_FLAG,
    TUTTI__KEY_CHOICE,
    TUTTI__KEY_NAME,
    TUTTI__KEY_TEXT
} tutti__key_type;

/* Values of STEPS: "auto"; the word that its limits end in. */
enum { TUTTI__STEPS_AUTO = -1, TUTTI__STEPS_WORD = -2 };

typedef struct tutti__key_row {
    const char *name;
    tutti__key_type type;
    size_t offset; /* of the value in tutti__train_config */
    const char *value, *limits, *help;
} tutti__key_row;

/* The value of each key, under its name. */
#define TUTTI__MEMBER_INT(name)    int64_t name;
#define TUTTI__MEMBER_STEPS(name)  int64_t name;
#define TUTTI__MEMBER_REAL(name)   double name;
#define TUTTI__MEMBER_FLAG(name)   bool name;
#define TUTTI__MEMBER_CHOICE(name) char name[32];
#define TUTTI__MEMBER_NAME(name)   char name[TUTTI__CONFIG_TEXT];
#define TUTTI__MEMBER_TEXT(name)   char name[TUTTI__CONFIG_TEXT];
typedef struct tutti__train_config {
#define KEY(type, name, value, limits, help) TUTTI__MEMBER_##type(name)
#include "train/config/config.def"
#undef KEY
    /* ranks of the run; while reading a file: of the run that wrote it; 0: not known */
    int64_t world_size;
} tutti__train_config;

enum {
#define KEY(type, name, value, limits, help) TUTTI__KEY_OF_##name,
#include "train/config/config.def"
#undef KEY
    TUTTI__N_KEYS
};
extern const tutti__key_row tutti__key_table[TUTTI__N_KEYS];
/* Whether `name`, of n bytes, is `key`: '-' in it equals '_'. */
bool tutti__key_is(const char *key, const char *name, size_t n);
/* The key with this name; -1: none. */
int tutti__key_find(const char *name, size_t n);

/* What a flag of STEPS stands for; NULL: for 1. */
const char *tutti__steps_word(const tutti__key_row *key);
/* The value of a key, in its type; owned by the caller. NULL: out of memory. */
json_t *tutti__config_value(const tutti__train_config *config, int key);
/* All keys and values, and world_size if known, as JSON text with a final newline; free() it. NULL: out of memory,
 * message set. */
char *tutti__config_json(const tutti__train_config *config);
/* The steps of `profile`: true if it is "A:B" with 1 <= A <= B, or empty (both 0). */
bool tutti__config_profile(const tutti__train_config *config, int64_t *first_p, int64_t *last_p);
/* The strengths of `color_jitter`: brightness, contrast, saturation, each 0 to 100, and hue, 0 to 0.5. True if it is "S" (without
 * hue), "B,C,S" or "B,C,S,H", or empty. */
bool tutti__config_color_jitter(const tutti__train_config *config, double strength[4]);

#endif
