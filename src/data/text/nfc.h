/* nfc.h -- Unicode's normalization form C.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TEXT_NFC_H
#define TUTTI_DATA_TEXT_NFC_H

#include "base/base.h"

/* Valid UTF-8 in form C, to free(); *out_p NULL: it is in that form. MEMORY. */
tutti_status tutti__nfc(const char *text, size_t n, char **out_p, size_t *n_p);

#endif
