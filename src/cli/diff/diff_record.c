/* diff_record.c -- the record of a run: where its lines are, and what is in one.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "base/terminal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1 };

static const char *const kinds[TUTTI__DIFF_PHASES] = {
#define PHASE(id, kind, words, word) kind,
#include "cli/diff/phases.def"
#undef PHASE
};

const char *tutti__diff_kind(tutti__diff_phase phase)
{
    return kinds[phase];
}

void tutti__diff_note(const char *format, ...)
{
    char text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tutti__print_line(stderr, "tutti diff: note: %s", text);
}

/* ---- Where lines are ------------------------------------------------------------------------------------------ */

static tutti_status open_record(const char *run_dir, int number, FILE **file_p, char path[PATH_MAX])
{
    struct stat st;
    int fd;

    if (snprintf(path, PATH_MAX, "%s/digests/rank-%d.jsonl", run_dir, number) >= PATH_MAX)
        return tutti__fail(TUTTI_ERR_ARG, "the path %.60s... is too long", run_dir);
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would block */
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot read %s", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a regular file", path);
    }
    *file_p = fdopen(fd, "r");
    if (*file_p)
        return TUTTI_OK;
    close(fd);
    return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
}

/* The number after `key`, which is before `end`. False: there is none. */
static bool number_after(const char *text, const char *end, const char *key, uint64_t *value_p)
{
    const size_t n = strlen(key);
    const char *at = memmem(text, (size_t)(end - text), key, n);

    if (!at)
        return false;
    at += n;
    while (*at == ' ')
        at++;
    if (!isdigit((unsigned char)*at))
        return false;
    *value_p = strtoull(at, NULL, 10);
    return true;
}

/* Finds the place of a line by its first keys. False: it is none of a step. */
static bool find_place(tutti__diff_line *line, const char *text, size_t bytes)
{
    const char *entries = memmem(text, bytes, "\"entries\"", 9);
    const char *end = text + bytes;
    uint64_t shard = 0, rank = 0;

    if (!entries || !number_after(text, entries, "\"step\":", &line->step) ||
        !number_after(text, entries, "\"rank\":", &rank) || end[-1] != '}')
        return false;
    line->rank = (int)rank;
    line->shard = number_after(text, entries, "\"shard\":", &shard) ? (int)shard : -1;
    line->initial = memmem(entries, (size_t)(end - entries), "[\"initial\"", 10) != NULL;
    line->bytes = bytes;
    line->hash = tutti__hash64(text, bytes);
    return true;
}

static tutti_status add_line(tutti__diff_record *record, const tutti__diff_line *line)
{
    if (record->n == record->capacity) {
        const size_t capacity = record->capacity ? 2 * record->capacity : 256;
        tutti__diff_line *lines = realloc(record->lines, capacity * sizeof *lines);

        if (!lines)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu lines of a record", capacity);
        record->lines = lines;
        record->capacity = capacity;
    }
    record->lines[record->n++] = *line;
    return TUTTI_OK;
}

/* Steps after `step` are done again: takes out those of the lines from `first` on. */
static void take_back(tutti__diff_record *record, size_t first, uint64_t step)
{
    size_t n = first;

    for (size_t i = first; i < record->n; i++) {
        const tutti__diff_line *line = &record->lines[i];

        if (line->step < step || (line->step == step && !line->initial))
            record->lines[n++] = *line;
    }
    record->n = n;
}

/* The first line of a process that writes the record; NULL: this is none. */
static json_t *read_header(const char *text, size_t bytes)
{
    json_t *header = json_loadb(text, bytes, 0, NULL);

    if (json_is_integer(json_object_get(header, "format")))
        return header;
    json_decref(header);
    return NULL;
}

/* Takes the header over, for the record if it counts. first: of the lines of its file. */
static tutti_status take_header(tutti__diff_record *record, const char *path, json_t *header,
                                size_t first, int number, bool counts)
{
    const json_int_t rank = json_integer_value(json_object_get(header, "rank"));
    const json_int_t format = json_integer_value(json_object_get(header, "format"));
    const json_int_t step = json_integer_value(json_object_get(header, "step"));

    if (format != FORMAT) {
        json_decref(header);
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: its format is %lld, and this tutti, version %s, reads %d; use the "
                           "tutti that wrote it, or record both runs again",
                           path, (long long)format, TUTTI_VERSION, FORMAT);
    }
    if (rank != number)
        tutti__diff_note("%s: its header says rank %lld: it is another rank's file", path,
                         (long long)rank);
    take_back(record, first, (uint64_t)step);
    if (counts) {
        json_decref(record->header);
        record->header = header;
    } else
        json_decref(header);
    return TUTTI_OK;
}

typedef struct problems {
    uint64_t bad, first_bad, lines;
    bool half;
} problems;

static void say_problems(const char *path, const problems *p)
{
    if (p->half)
        tutti__diff_note("%s ends in half a line (the run was killed, or is writing), which was "
                         "left out",
                         path);
    if (p->bad > 0)
        tutti__diff_note("%s has %llu damaged line%s, left out; the first is line %llu", path,
                         (unsigned long long)p->bad, tutti__s(p->bad),
                         (unsigned long long)p->first_bad);
}

static tutti_status read_lines(tutti__diff_record *record, FILE *file, const char *path, int number,
                               bool counts)
{
    problems p = {0, 0, 0, false};
    const size_t first = record->n;
    json_t *header;
    uint64_t offset = 0;
    size_t size = 0;
    char *text = NULL;
    ssize_t got;
    tutti_status status = TUTTI_OK;

    while (status == TUTTI_OK && (got = getline(&text, &size, file)) > 0) {
        tutti__diff_line line = {.file = number, .offset = offset};
        const size_t bytes = (size_t)got - (text[got - 1] == '\n');

        offset += (uint64_t)got;
        p.lines++;
        if (bytes == (size_t)got) /* no newline: even if it is complete, more may follow */
            p.half = true;
        else if (bytes > 0 && find_place(&line, text, bytes))
            status = add_line(record, &line);
        else if ((header = read_header(text, bytes)))
            status = take_header(record, path, header, first, number, counts);
        else if (p.bad++ == 0)
            p.first_bad = p.lines;
    }
    if (status == TUTTI_OK && ferror(file))
        status = tutti__fail_errno(errno, "cannot read %s", path);
    free(text);
    say_problems(path, &p);
    return status;
}

static int by_place(const void *a, const void *b)
{
    const tutti__diff_line *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->initial != y->initial)
        return x->initial ? 1 : -1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The numbers of the files rank-N.jsonl; free() them. */
static tutti_status list_files(const char *run_dir, int **numbers_p, int *n_p)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *dir;
    int n = 0, capacity = 0, *numbers = NULL;

    *numbers_p = NULL;
    *n_p = 0;
    snprintf(path, sizeof path, "%s/digests", run_dir);
    dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? TUTTI_OK : tutti__fail_errno(errno, "cannot read %s", path);
    while ((entry = readdir(dir))) {
        int number, end = 0;

        if (sscanf(entry->d_name, "rank-%d.jsonl%n", &number, &end) != 1 || !end ||
            entry->d_name[end] || number < 0)
            continue;
        if (n == capacity) {
            int *more = realloc(numbers, (size_t)(capacity = 2 * capacity + 8) * sizeof *more);

            if (!more)
                break;
            numbers = more;
        }
        numbers[n++] = number;
    }
    closedir(dir);
    *numbers_p = numbers;
    *n_p = n;
    if (entry)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the files of %s", path);
    if (n > 0)
        qsort(numbers, (size_t)n, sizeof *numbers, by_number);
    return TUTTI_OK;
}

/* Ranks that should have written a file, as the last header of the lowest rank says. */
static void say_missing(const tutti__diff_record *record, const char *run_dir)
{
    const json_int_t ranks = json_integer_value(json_object_get(record->header, "world_size"));

    if (record->files > 0 && record->n == 0)
        tutti__diff_note("%s/digests has no recorded step", run_dir);
    else if (record->files > 0 && record->files < ranks)
        tutti__diff_note("%s/digests has files of %d of %lld ranks: the others were not compared",
                         run_dir, record->files, (long long)ranks);
}

tutti_status tutti__diff_record_read(tutti__diff_record *record, const char *run_dir)
{
    char path[PATH_MAX];
    int *numbers, n;
    tutti_status status = list_files(run_dir, &numbers, &n);

    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        FILE *file = NULL;

        status = open_record(run_dir, numbers[i], &file, path);
        if (status == TUTTI_OK)
            status = read_lines(record, file, path, numbers[i], i == 0);
        if (file)
            fclose(file);
    }
    free(numbers);
    if (record->n > 0)
        qsort(record->lines, record->n, sizeof *record->lines, by_place);
    record->files = n;
    if (status == TUTTI_OK)
        say_missing(record, run_dir);
    return status;
}

void tutti__diff_record_free(tutti__diff_record *record)
{
    free(record->lines);
    json_decref(record->header);
    *record = (tutti__diff_record){.n = 0};
}

/* ---- What is in a line ---------------------------------------------------------------------------------------- */

static double number_or_nan(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int phase_of(const json_t *kind)
{
    const char *text = json_string_value(kind);

    for (int i = 0; text && i < TUTTI__DIFF_PHASES; i++)
        if (strcmp(text, kinds[i]) == 0)
            return i;
    return -1;
}

static const char *text_or_empty(const json_t *value)
{
    return json_is_string(value) ? json_string_value(value) : "";
}

static int by_name(const void *a, const void *b)
{
    const tutti__diff_entry *x = a, *y = b;
    const int order = strcmp(x->name, y->name);

    if (x->phase != y->phase)
        return x->phase < y->phase ? -1 : 1;
    if (order != 0)
        return order;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void number_entries(tutti__diff_step *step)
{
    tutti__diff_entry *e = step->entries;

    qsort(e, step->n, sizeof *e, by_name);
    for (size_t i = 1; i < step->n; i++)
        if (e[i].phase == e[i - 1].phase && strcmp(e[i].name, e[i - 1].name) == 0)
            e[i].nth = e[i - 1].nth + 1;
}

/* Kinds that another version knows are left out. */
static void take_entries(tutti__diff_step *step, const json_t *list)
{
    const json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        const int phase = phase_of(json_array_get(item, 0));

        if (phase < 0)
            continue;
        step->entries[step->n++] =
            (tutti__diff_entry){.phase = (tutti__diff_phase)phase,
                                .micro = (int)json_integer_value(json_array_get(item, 5)),
                                .name = text_or_empty(json_array_get(item, 1)),
                                .digest = text_or_empty(json_array_get(item, 2)),
                                .norm = number_or_nan(json_array_get(item, 3)),
                                .dot = number_or_nan(json_array_get(item, 4)),
                                .order = i + 1};
    }
}

/* Those of the line itself. */
static void take_keys(tutti__diff_step *step)
{
    const json_t *samples = json_object_get(step->json, "samples");
    const json_t *rate = json_object_get(step->json, "lr");

    if (json_is_string(samples) && *json_string_value(samples))
        step->entries[step->n++] = (tutti__diff_entry){.phase = TUTTI__DIFF_SAMPLES,
                                                       .name = "",
                                                       .digest = json_string_value(samples),
                                                       .norm = (double)NAN,
                                                       .dot = (double)NAN};
    if (json_is_number(rate))
        step->entries[step->n++] = (tutti__diff_entry){.phase = TUTTI__DIFF_RATE,
                                                       .name = "",
                                                       .digest = "",
                                                       .norm = json_number_value(rate),
                                                       .dot = 0};
}

static tutti_status read_text(const char *run_dir, const tutti__diff_line *line,
                              char path[PATH_MAX], char *text)
{
    FILE *file = NULL;
    ssize_t got;

    TUTTI_TRY(open_record(run_dir, line->file, &file, path));
    got = pread(fileno(file), text, line->bytes, (off_t)line->offset);
    fclose(file);
    if (got != (ssize_t)line->bytes)
        return tutti__fail(TUTTI_ERR_IO, "%s became shorter while it was read", path);
    return TUTTI_OK;
}

tutti_status tutti__diff_load(tutti__diff_step *step, const char *run_dir,
                              const tutti__diff_line *line)
{
    char path[PATH_MAX], *text = malloc(line->bytes + 1);
    json_error_t error;
    const json_t *list;
    tutti_status status;

    *step = (tutti__diff_step){.json = NULL};
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a line of %zu bytes", line->bytes);
    status = read_text(run_dir, line, path, text);
    if (status == TUTTI_OK) {
        step->json = json_loadb(text, line->bytes, 0, &error);
        if (!json_is_array(json_object_get(step->json, "entries")))
            status = tutti__fail(TUTTI_ERR_FORMAT, "%s: the line of step %llu is damaged: %s", path,
                                 (unsigned long long)line->step,
                                 step->json ? "it has no array of entries" : error.text);
    }
    free(text);
    if (status == TUTTI_OK) {
        list = json_object_get(step->json, "entries");
        step->entries = tutti__alloc((json_array_size(list) + 2) * sizeof *step->entries);
        status = step->entries ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    if (status != TUTTI_OK) {
        tutti__diff_unload(step);
        return status;
    }
    take_keys(step);
    take_entries(step, list);
    number_entries(step);
    return TUTTI_OK;
}

void tutti__diff_unload(tutti__diff_step *step)
{
    json_decref(step->json);
    free(step->entries);
    *step = (tutti__diff_step){.json = NULL};
}
