/* bin.h -- .bin files of tokens: nanoGPT's, and llm.c's with a header.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TEXT_BIN_H
#define TUTTI_DATA_TEXT_BIN_H

#include "base/base.h"

enum {
    TUTTI__BIN_HEADER = 1024, /* bytes */
    TUTTI__BIN_MAGIC_16 = 20240520,
    TUTTI__BIN_VERSION_16 = 1,
    TUTTI__BIN_MAGIC_32 = 20240801,
    TUTTI__BIN_VERSION_32 = 7
};

typedef struct tutti__bin {
    int width;       /* of a token, in bytes: 2 or 4 */
    uint64_t offset; /* where tokens begin */
    uint64_t count;
    int vocab; /* 0: the file does not say */
} tutti__bin;

/* Errors: NOT_FOUND, IO; FORMAT for another version, or for a size that is not the header's. */
tutti_status tutti__bin_look(tutti__bin *bin, const char *path);
/* The header of `count` tokens of 2 or 4 bytes. */
void tutti__bin_header(uint8_t header[TUTTI__BIN_HEADER], int width, uint64_t count, int vocab);

#endif
