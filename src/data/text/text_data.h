/* text_data.h -- the bytes of text files, as a sequence.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TEXT_TEXT_DATA_H
#define TUTTI_DATA_TEXT_TEXT_DATA_H

#include "data/text/tokens.h"

/* Appends a file as a document, or all NAME.txt of a folder. */
tutti_status tutti__text_add(tutti__tokens *t, const char *path);
/* Where the last tenth of all text begins, at a character. */
tutti_status tutti__text_divide(const tutti__tokens *t, uint64_t *training_p);
/* Appends the text of a file or folder, as bytes, with 0 between documents, and sets the part of a split. FORMAT for what is not
 * UTF-8, with file and position. */
tutti_status tutti__text_open(tutti__tokens *t, const char *dir, tutti__split split);

#endif
