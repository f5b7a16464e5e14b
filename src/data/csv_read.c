/* csv_read.c -- CSV files by RFC 4180, record by record.   SPDX-License-Identifier: MIT
 *
 * Fields are separated by commas, records end with LF or CR LF. A field in quotes may hold commas, line ends, and quotes, doubled.
 * Blanks are part of a field. Why not a library: docs/design/data.md. */
#include "data/csv_read.h"

#include "data/data_files.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT ((size_t)8 << 30) /* bytes of a file */

tutti_status tutti__csv_open(tutti__csv *csv, const char *path)
{
    uint8_t *text;

    *csv = (tutti__csv){.path = path, .next_line = 1};
    TUTTI_TRY(tutti__read_file(path, LIMIT, &text, &csv->bytes));
    csv->text = (char *)text;
    if (csv->bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        csv->at = 3; /* a byte order mark, as spreadsheets write it */
    if (memchr(csv->text, '\0', csv->bytes))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s has a NUL byte: is it a text file in UTF-8?",
                           path);
    return TUTTI_OK;
}

void tutti__csv_close(tutti__csv *csv)
{
    free(csv->text);
    free(csv->fields);
    *csv = (tutti__csv){NULL};
}

static tutti_status add_field(tutti__csv *csv, char *field)
{
    if (csv->n == csv->room) {
        const size_t room = csv->room ? 2 * csv->room : 64;
        char **grown = realloc(csv->fields, room * sizeof *grown);

        if (!grown)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", csv->path);
        csv->fields = grown;
        csv->room = room;
    }
    csv->fields[csv->n++] = field;
    return TUTTI_OK;
}

static tutti_status fail_quote(const tutti__csv *csv, size_t line, const char *why)
{
    return tutti__fail(TUTTI_ERR_FORMAT, "%s, line %zu, field %zu: %s", csv->path, line, csv->n + 1,
                       why);
}

/* A field in quotes, from after the first one; its text is moved over the quotes that go. */
static tutti_status take_quoted(tutti__csv *csv, char **field_p)
{
    char *p = csv->text + csv->at, *to = p, *end = csv->text + csv->bytes;
    const size_t line = csv->next_line;

    *field_p = p;
    for (; p < end && (*p != '"' || (p + 1 < end && p[1] == '"')); p++) {
        csv->next_line += *p == '\n';
        *to++ = *p;
        p += *p == '"';
    }
    if (p == end)
        return fail_quote(csv, line, "the quote that begins it is never closed");
    csv->at = (size_t)(p + 1 - csv->text);
    p = csv->text + csv->at;
    if (p < end && *p != ',' && *p != '\n' && *p != '\r')
        return fail_quote(csv, csv->next_line,
                          "text follows its closing quote; a quote within quotes is doubled");
    *to = '\0';
    return TUTTI_OK;
}

static tutti_status take_plain(tutti__csv *csv, char **field_p)
{
    char *p = csv->text + csv->at;
    const size_t n = strcspn(p, ",\n\r\""); /* the text ends with NUL */

    *field_p = p;
    csv->at += n;
    if (p[n] == '"')
        return fail_quote(csv, csv->next_line,
                          "a quote within a field that does not begin with one");
    return TUTTI_OK;
}

/* Ends a field: cuts the text behind it. *last_p: it is its record's last. */
static tutti_status end_field(tutti__csv *csv, char *end, bool *last_p)
{
    const char c = csv->at < csv->bytes ? csv->text[csv->at] : '\n';

    *last_p = c != ',';
    if (c == '\r' && csv->at + 1 < csv->bytes && csv->text[csv->at + 1] != '\n')
        return fail_quote(
            csv, csv->next_line,
            "a carriage return that no line feed follows; lines end with LF or CR LF");
    csv->at += c == '\r' ? 2 : 1;
    csv->next_line += c != ',';
    if (end)
        *end = '\0';
    return TUTTI_OK;
}

tutti_status tutti__csv_next(tutti__csv *csv, bool *more_p)
{
    bool last = false;

    while (csv->at < csv->bytes && (csv->text[csv->at] == '\n' || csv->text[csv->at] == '\r')) {
        csv->next_line += csv->text[csv->at] == '\n';
        csv->at++;
    }
    csv->n = 0;
    csv->line = csv->next_line;
    *more_p = csv->at < csv->bytes;
    while (*more_p && !last) {
        char *field, *end = NULL;

        if (csv->at < csv->bytes && csv->text[csv->at] == '"') {
            csv->at++;
            TUTTI_TRY(take_quoted(csv, &field));
        } else {
            TUTTI_TRY(take_plain(csv, &field));
            end = csv->text + csv->at;
        }
        TUTTI_TRY(end_field(csv, end, &last));
        TUTTI_TRY(add_field(csv, field));
    }
    return TUTTI_OK;
}
