/* bin.c -- .bin files of tokens.   SPDX-License-Identifier: MIT */
#include "data/text/bin.h"

#include "data/data_files.h"
#include "data/dataset.h"

#include <string.h>
#include <unistd.h>

enum { MAGIC_EVALUATION = 20240522 };

static void header_word(const uint8_t *header, int i, int32_t *word_p)
{
    memcpy(word_p, header + 4 * i, sizeof *word_p);
}

/* Of a file that begins with one of the magic numbers. */
static tutti_status look_at_header(tutti__bin *bin, const uint8_t *header, uint64_t bytes,
                                   const char *path)
{
    const int version_expected = bin->width == 2 ? TUTTI__BIN_VERSION_16 : TUTTI__BIN_VERSION_32;
    int32_t version, count, vocab;
    uint64_t expected;

    header_word(header, 1, &version);
    header_word(header, 2, &count);
    header_word(header, 3, &vocab);
    if (version != version_expected)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: llm.c's header of tokens of %d bits has version %d, expected %d",
                           path, 8 * bin->width, version, version_expected);
    expected = TUTTI__BIN_HEADER + (uint64_t)(count < 0 ? 0 : count) * (uint64_t)bin->width;
    if (count < 0 || bytes != expected)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: the header says %d tokens of %d bits, %llu bytes with the header, "
                           "and the file has %llu; was it cut?",
                           path, count, 8 * bin->width, (unsigned long long)expected,
                           (unsigned long long)bytes);
    if (vocab < 0 || vocab > TUTTI__MAX_VOCAB)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: the header says a vocabulary of %d, expected at most %d", path,
                           vocab, TUTTI__MAX_VOCAB);
    bin->offset = TUTTI__BIN_HEADER;
    bin->count = (uint64_t)count;
    bin->vocab = vocab;
    return TUTTI_OK;
}

static tutti_status look_at(tutti__bin *bin, const uint8_t *header, size_t n, uint64_t bytes,
                            const char *path)
{
    int32_t magic = 0;

    if (n >= 4)
        header_word(header, 0, &magic);
    if (magic == MAGIC_EVALUATION)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is one of llm.c's evaluation files (of choices), not of tokens to "
                           "train on",
                           path);
    if (magic == TUTTI__BIN_MAGIC_16 || magic == TUTTI__BIN_MAGIC_32) {
        bin->width = magic == TUTTI__BIN_MAGIC_16 ? 2 : 4;
        if (n == TUTTI__BIN_HEADER)
            return look_at_header(bin, header, bytes, path);
        return tutti__fail(TUTTI_ERR_FORMAT, "%s ends within llm.c's header of %d bytes", path,
                           TUTTI__BIN_HEADER);
    }
    if (bytes % 2)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s has %llu bytes, not a multiple of 2; expected tokens of 16 bits "
                           "(nanoGPT), or llm.c's header",
                           path, (unsigned long long)bytes);
    *bin = (tutti__bin){.width = 2, .count = bytes / 2};
    return TUTTI_OK;
}

tutti_status tutti__bin_look(tutti__bin *bin, const char *path)
{
    uint8_t header[TUTTI__BIN_HEADER];
    tutti_status status;
    uint64_t bytes;
    size_t n;
    int fd;

    *bin = (tutti__bin){0};
    TUTTI_TRY(tutti__open_file(path, &fd, &bytes));
    n = bytes < sizeof header ? (size_t)bytes : sizeof header;
    status = tutti__read_at(fd, path, 0, header, n);
    close(fd);
    return status == TUTTI_OK ? look_at(bin, header, n, bytes, path) : status;
}

void tutti__bin_header(uint8_t header[TUTTI__BIN_HEADER], int width, uint64_t count, int vocab)
{
    const int32_t words[] = {width == 2 ? TUTTI__BIN_MAGIC_16 : TUTTI__BIN_MAGIC_32,
                             width == 2 ? TUTTI__BIN_VERSION_16 : TUTTI__BIN_VERSION_32,
                             (int32_t)count, vocab};

    memset(header, 0, TUTTI__BIN_HEADER);
    memcpy(header, words, sizeof words);
}
