/* json.c -- writes strings of JSON.   SPDX-License-Identifier: MIT */
#include "base/base.h"

void tutti__json_string(FILE *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    putc('"', out);
    while (*p) {
        int n = tutti__utf8_bytes((const char *)p);

        if (n == 0)
            fputs("\\ufffd", out);
        else if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(out, "\\u%04x", *p);
        else
            fwrite(p, 1, (size_t)n, out);
        p += n ? n : 1;
    }
    putc('"', out);
}
