/* printable.c -- text that is safe to show on a terminal.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <string.h>

int tutti__utf8_bytes(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    int n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90)) /* overlong */
        return 0;
    /* surrogate, or above U+10FFFF */
    if ((p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return n;
}

bool tutti__is_utf8(const char *text)
{
    for (int n; *text; text += n)
        if ((n = tutti__utf8_bytes(text)) == 0)
            return false;
    return true;
}

bool tutti__is_obeyed(const char *text, int n)
{
    const unsigned char *p = (const unsigned char *)text;

    if (n == 1)
        return *p < 0x20 || *p == 0x7f;
    if (n == 2)
        return (p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xd8 && p[1] == 0x9c);
    return n == 3 && p[0] == 0xe2 &&
           ((p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
            (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
}

static const char *make_printable(const char *text, char *out, size_t size, bool lines)
{
    size_t used = 0;

    while (*text) {
        const unsigned char *p = (const unsigned char *)text;
        int n = tutti__utf8_bytes(text), bytes = n ? n : 1;
        char shown[4 * 4 + 1];

        if (n > 0 && (!tutti__is_obeyed(text, n) || (lines && *p == '\n')))
            snprintf(shown, sizeof shown, "%.*s", n, text);
        else if (*p == '\n' || *p == '\t' || *p == '\r')
            snprintf(shown, sizeof shown, "\\%c", *p == '\n' ? 'n' : *p == '\t' ? 't' : 'r');
        else
            for (int i = 0; i < bytes; i++)
                snprintf(shown + 4 * i, sizeof shown - 4 * (size_t)i, "\\x%02x", p[i]);
        if (used + strlen(shown) + 1 > size)
            break;
        memcpy(out + used, shown, strlen(shown));
        used += strlen(shown);
        text += bytes;
    }
    out[used] = '\0';
    return out;
}

const char *tutti__printable(const char *text, char *out, size_t size)
{
    return make_printable(text, out, size, false);
}

const char *tutti__printable_lines(const char *text, char *out, size_t size)
{
    return make_printable(text, out, size, true);
}
