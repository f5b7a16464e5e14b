/* flag_text.h -- the flags of `tutti run` as text: between the command line and its meaning.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FLAG_TEXT_H
#define TUTTI_LAUNCH_FLAG_TEXT_H

#include "base/base.h"

#include <stdio.h>

typedef enum tutti__flag_id {
#define FLAG(id, name, letter, metavar, help) TUTTI__FLAG_##id,
#define OURS(id, name, letter, metavar, help) TUTTI__FLAG_##id,
#define ONLY(id, name, accepted, help, why)   TUTTI__FLAG_##id,
#define REFUSED(id, name, why)                TUTTI__FLAG_##id,
#include "launch/front/flags.def"
#undef FLAG
#undef OURS
#undef ONLY
#undef REFUSED
    TUTTI__N_FLAGS
} tutti__flag_id;

/* A flag's text as it was given, and how to name it in messages. */
typedef struct tutti__flag_text {
    const char *text; /* NULL: not given */
    char source[64];  /* "--tee", "PET_TEE" */
} tutti__flag_text;

typedef struct tutti__flag_texts {
    tutti__flag_text of[TUTTI__N_FLAGS];
} tutti__flag_texts;

/* From the command line, or else from PET_<NAME>. *next_p: index of the program in argv. */
tutti_status tutti__flag_texts_read(tutti__flag_texts *texts, int argc, char **argv, int *next_p);

/* '--tee is "4", expected 0, 1, 2 or 3' */
#define TUTTI__BAD_FLAG(g, expected, ...)                                                          \
    tutti__fail(TUTTI_ERR_ARG, "%s is \"%s\", expected " expected, (g)->source, (g)->text,         \
                __VA_ARGS__)

/* Conversions. Values that were not given are unchanged. */
tutti_status tutti__flag_read_port(const tutti__flag_text *g, int *port_p);
tutti_status tutti__flag_read_count(const tutti__flag_text *g, int low, int high, int *n_p);
void tutti__run_print_help(FILE *file);

#endif
