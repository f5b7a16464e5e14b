/* alphabet.h -- GPT-2's alphabet: a printable character for each byte.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TEXT_ALPHABET_H
#define TUTTI_DATA_TEXT_ALPHABET_H

#include "base/base.h"

/* The character of a byte in UTF-8, with a NUL. */
void tutti__alphabet_character(uint8_t byte, char text[4]);
/* The bytes that UTF-8 of such characters means, at most as many as it has, to `bytes`; their number. If a character is of another
 * kind, the text means itself, and *other_p is true. */
size_t tutti__alphabet_bytes(const char *text, uint8_t *bytes, bool *other_p);

#endif
