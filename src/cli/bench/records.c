/* records.c -- reads bench/records.json, and cells of Markdown tables.   SPDX-License-Identifier: MIT */
#include "cli/bench/records.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The file ---- */

/* `at` names the record and figure of errors. */
typedef struct place {
    const char *path;
    char at[128];
} place;

static tutti_status take_text(const place *p, const json_t *object, const char *key,
                              const char **text_p)
{
    *text_p = json_string_value(json_object_get(object, key));
    if (*text_p)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s: \"%s\" is missing, or no text", p->path, p->at,
                       key);
}

static tutti_status take_number(const place *p, const json_t *object, const char *key,
                                double *number_p)
{
    const json_t *value = json_object_get(object, key);

    *number_p = json_number_value(value);
    if (json_is_number(value) && *number_p > 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s: \"%s\" is missing, or no number above 0", p->path,
                       p->at, key);
}

static tutti_status take_cell(const place *p, const json_t *object, const char *key,
                              const char *cell[2])
{
    const json_t *pair = json_object_get(object, key);

    for (size_t i = 0; i < 2; i++)
        cell[i] = json_string_value(json_array_get(pair, i));
    if (cell[0] && cell[1] && json_array_size(pair) == 2)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s: \"%s\" is missing, or not [ROW, COLUMN]", p->path,
                       p->at, key);
}

static tutti_status take_figure(const place *p, const json_t *object, tutti__bench_figure *figure)
{
    const char *better;

    TUTTI_TRY(take_text(p, object, "what", &figure->what));
    TUTTI_TRY(take_text(p, object, "unit", &figure->unit));
    TUTTI_TRY(take_text(p, object, "better", &better));
    if (strcmp(better, "higher") != 0 && strcmp(better, "lower") != 0)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: %s: \"better\" is \"%.60s\", expected \"higher\" or \"lower\"",
                           p->path, p->at, better);
    figure->higher = strcmp(better, "higher") == 0;
    TUTTI_TRY(take_number(p, object, "ours", &figure->ours));
    TUTTI_TRY(take_number(p, object, "peer", &figure->peer));
    if (json_object_get(object, "asked"))
        TUTTI_TRY(take_number(p, object, "asked", &figure->asked));
    TUTTI_TRY(take_cell(p, object, "our_cell", figure->our_cell));
    return take_cell(p, object, "peer_cell", figure->peer_cell);
}

static tutti_status take_record(place *p, const json_t *object, tutti__bench_record *record)
{
    const json_t *figures = json_object_get(object, "figures");

    snprintf(p->at, sizeof p->at, "record %.60s", record->name);
    TUTTI_TRY(take_text(p, object, "title", &record->title));
    TUTTI_TRY(take_text(p, object, "peer", &record->peer));
    TUTTI_TRY(take_text(p, object, "command", &record->command));
    TUTTI_TRY(take_text(p, object, "needs", &record->needs));
    TUTTI_TRY(take_text(p, object, "measured", &record->measured));
    if (json_array_size(figures) == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s: \"figures\" is missing, or empty", p->path,
                           p->at);
    record->figures = tutti__alloc(json_array_size(figures) * sizeof *record->figures);
    if (!record->figures)
        return TUTTI_ERR_MEMORY;
    for (; record->n < json_array_size(figures); record->n++) {
        snprintf(p->at, sizeof p->at, "record %.60s, figure %zu", record->name, record->n + 1);
        TUTTI_TRY(take_figure(p, json_array_get(figures, record->n), &record->figures[record->n]));
    }
    return TUTTI_OK;
}

static void find_file(char *path, size_t bytes)
{
    char built[4096 - 64], *slash;

    snprintf(path, bytes, "bench/records.json");
    if (access(path, F_OK) == 0 || !tutti__executable(built, sizeof built))
        return;
    for (int up = 0; up < 2; up++) /* of build/tutti */
        if ((slash = strrchr(built, '/')))
            *slash = '\0';
    snprintf(path, bytes, "%s/bench/records.json", built);
}

static tutti_status read_all(tutti__bench_records *records)
{
    place p = {.path = records->path};
    const char *name;
    json_t *value;

    if (!json_is_object(records->root) || json_object_size(records->root) == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: expected an object with a member for each record",
                           records->path);
    records->list = tutti__alloc(json_object_size(records->root) * sizeof *records->list);
    if (!records->list)
        return TUTTI_ERR_MEMORY;
    json_object_foreach(records->root, name, value)
    {
        tutti__bench_record *record = &records->list[records->n++];

        record->name = name;
        TUTTI_TRY(take_record(&p, value, record));
    }
    return TUTTI_OK;
}

tutti_status tutti__bench_records_open(tutti__bench_records *records, const char *path)
{
    json_error_t error;
    struct stat st;
    int fd;
    FILE *file;
    tutti_status status;

    *records = (tutti__bench_records){0};
    if (path)
        snprintf(records->path, sizeof records->path, "%s", path);
    else
        find_file(records->path, sizeof records->path);
    fd = open(records->path,
              O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* which a FIFO would not come back from */
    file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file)
        return tutti__fail_errno(errno, "cannot read the records, %s%s", records->path,
                                 path ? ""
                                      : ", which is in the source: run this in a clone of it, or "
                                        "name the file by --records");
    if (fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode)) {
        fclose(file);
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a regular file", records->path);
    }
    records->root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    status = records->root ? read_all(records)
                           : tutti__fail(TUTTI_ERR_FORMAT, "%s, line %d: %s", records->path,
                                         error.line, error.text);
    if (status != TUTTI_OK)
        tutti__bench_records_close(records);
    return status;
}

void tutti__bench_records_close(tutti__bench_records *records)
{
    for (size_t i = 0; i < records->n; i++)
        free(records->list[i].figures);
    free(records->list);
    json_decref(records->root);
    *records = (tutti__bench_records){0};
}

double tutti__bench_advantage(const tutti__bench_figure *figure, double ours, double peer)
{
    return figure->higher ? ours / peer : peer / ours;
}

/* ---- Tables ---- */

/* The cell's text, without the spaces around it, from a line "| a | b |"; false: there is no such column. */
static bool take_column(const char *line, size_t column, char *cell, size_t bytes)
{
    size_t length;

    for (size_t i = 0; i <= column; i++) {
        line += *line == '|';
        line += strspn(line, " ");
        length = strcspn(line, "|\n");
        if (line[length] != '|')
            return false;
        if (i < column)
            line += length;
    }
    while (length > 0 && line[length - 1] == ' ')
        length--;
    snprintf(cell, bytes, "%.*s", (int)length, line);
    return true;
}

static bool first_number(const char *text, double *number_p)
{
    char *end;

    text += strcspn(text, "0123456789");
    *number_p = strtod(text, &end);
    return end > text;
}

static bool line_has(const char *line, const char *text)
{
    return memmem(line, strcspn(line, "\n"), text, strlen(text)) != NULL;
}

bool tutti__bench_cell(const char *text, const char *const cell[2], double *number_p)
{
    bool inside = false; /* of a table, so that the line is not a head */
    size_t column = SIZE_MAX;
    char found[512];

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (*line != '|') {
            inside = false;
        } else if (!inside) {
            inside = true;
            column = 0;
            while (take_column(line, column, found, sizeof found) && strcmp(found, cell[1]) != 0)
                column++;
            if (!take_column(line, column, found, sizeof found))
                column = SIZE_MAX;
        } else if (column != SIZE_MAX && line_has(line, cell[0])) {
            return take_column(line, column, found, sizeof found) && first_number(found, number_p);
        }
    }
    return false;
}
