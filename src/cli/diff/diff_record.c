/* diff_record.c -- the record of a run: where its lines are, and what is in one.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "base/terminal.h"

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

enum { FORMAT = 2 };

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

tutti_status tutti__diff_whole(FILE *file, ssize_t got, const char *path)
{
    const int error = errno;

    return got >= 0 || feof(file) ? TUTTI_OK : tutti__fail_errno(error, "cannot read %s", path);
}

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

/* ---- A line as JSON ------------------------------------------------------------------------------------------- */

/* A NORM or DOT: a number, or how one that is not finite is written; null: an older record's. */
static bool read_number(const json_t *value, double *number_p)
{
    static const struct {
        const char *text;
        double is;
    } others[] = {{"nan", (double)NAN}, {"inf", (double)INFINITY}, {"-inf", (double)-INFINITY}};
    const char *text = json_string_value(value);

    *number_p = json_is_number(value) ? json_number_value(value) : (double)NAN;
    for (size_t i = 0; text && i < TUTTI__COUNT_OF(others); i++)
        if (strcmp(text, others[i].text) == 0) {
            *number_p = others[i].is;
            return true;
        }
    return json_is_number(value) || json_is_null(value);
}

static bool is_count(const json_t *value, json_int_t most)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= most;
}

static bool is_absent_or(const json_t *value, bool good)
{
    return !value || good;
}

static int phase_of(const json_t *kind)
{
    const char *text = json_string_value(kind);

    for (int i = 0; text && i < TUTTI__DIFF_PHASES; i++)
        if (strcmp(text, kinds[i]) == 0)
            return i;
    return -1;
}

/* False: it is damaged. phase -1: a kind that another version knows. */
static bool read_entry(const json_t *item, tutti__diff_entry *e, int *phase_p)
{
    const json_t *name = json_array_get(item, 1), *digest = json_array_get(item, 2);
    const json_t *micro = json_array_get(item, 5);

    *phase_p = phase_of(json_array_get(item, 0));
    *e = (tutti__diff_entry){.phase = (tutti__diff_phase)*phase_p,
                             .micro = (int)json_integer_value(micro),
                             .name = json_string_value(name),
                             .digest = json_string_value(digest)};
    return json_is_string(json_array_get(item, 0)) && e->name && e->digest &&
           read_number(json_array_get(item, 3), &e->norm) &&
           read_number(json_array_get(item, 4), &e->dot) &&
           is_absent_or(micro, is_count(micro, INT_MAX));
}

/* [RATE, NAME, ...] */
static bool are_rates(const json_t *lists)
{
    const json_t *list, *name;
    size_t i, k;

    json_array_foreach(lists, i, list)
    {
        if (!json_is_number(json_array_get(list, 0)))
            return false;
        json_array_foreach(list, k, name) if (k > 0 && !json_is_string(name)) return false;
    }
    return json_is_array(lists);
}

static size_t count_rates(const json_t *lists)
{
    const json_t *list;
    size_t i, n = 0;

    json_array_foreach(lists, i, list) n += json_array_size(list) - 1;
    return n;
}

/* Finds the line's place; false: it is damaged. */
static bool read_place(tutti__diff_line *line, const json_t *json)
{
    const json_t *step = json_object_get(json, "step"), *rank = json_object_get(json, "rank");
    const json_t *shard = json_object_get(json, "shard"), *rate = json_object_get(json, "lr");
    const json_t *samples = json_object_get(json, "samples"), *rates = json_object_get(json, "lrs");
    const json_t *entries = json_object_get(json, "entries"), *item;
    tutti__diff_entry e;
    int phase;
    size_t i;

    if (!is_count(step, INT64_MAX) || !is_count(rank, INT_MAX) || !json_is_array(entries) ||
        !is_absent_or(shard, is_count(shard, INT_MAX)) ||
        !is_absent_or(rate, json_is_number(rate)) ||
        !is_absent_or(samples, json_is_string(samples)) || !is_absent_or(rates, are_rates(rates)))
        return false;
    line->step = (uint64_t)json_integer_value(step);
    line->rank = (int)json_integer_value(rank);
    line->shard = shard ? (int)json_integer_value(shard) : -1;
    line->entries = count_rates(rates);
    line->entries += samples && *json_string_value(samples);
    line->entries += rate != NULL;
    json_array_foreach(entries, i, item)
    {
        if (!read_entry(item, &e, &phase))
            return false;
        line->entries += phase >= 0;
        line->initial |= phase == TUTTI__DIFF_INITIAL;
        line->not_finite |= phase >= 0 && !isfinite(e.norm);
    }
    return true;
}

/* ---- Where lines are ------------------------------------------------------------------------------------------ */

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

/* Whether it is the first line of a process that writes the record. */
static bool is_header(const json_t *json)
{
    const json_t *ranks = json_object_get(json, "world_size");

    return json_is_integer(json_object_get(json, "format")) &&
           is_count(json_object_get(json, "step"), INT64_MAX) &&
           is_count(json_object_get(json, "rank"), INT_MAX) &&
           is_absent_or(ranks, is_count(ranks, INT_MAX));
}

/* For the record if it counts. first: of the lines of its file. */
static tutti_status take_header(tutti__diff_record *record, const char *path, json_t *header,
                                size_t first, int number, bool counts)
{
    const json_int_t rank = json_integer_value(json_object_get(header, "rank"));
    const json_int_t format = json_integer_value(json_object_get(header, "format"));
    const json_int_t step = json_integer_value(json_object_get(header, "step"));

    if (format != FORMAT)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: its format is %lld, and this tutti, version %s, reads %d; use the "
                           "tutti that wrote it, or record both runs again",
                           path, (long long)format, TUTTI_VERSION, FORMAT);
    if (rank != number)
        tutti__diff_note("%s: its header says rank %lld: it is another rank's file", path,
                         (long long)rank);
    take_back(record, first, (uint64_t)step);
    if (counts) {
        json_decref(record->header);
        record->header = json_incref(header);
    }
    return TUTTI_OK;
}

typedef struct problems {
    uint64_t bad, first_bad, lines;
    bool half;
    char why[JSON_ERROR_TEXT_LENGTH]; /* the first of them is */
} problems;

static void say_problems(const char *path, const problems *p)
{
    if (p->half)
        tutti__diff_note("%s ends in half a line (the run was killed, or is writing), which was "
                         "left out",
                         path);
    if (p->bad > 0)
        tutti__diff_note("%s has %llu damaged line%s, left out; the first is line %llu: %s", path,
                         (unsigned long long)p->bad, tutti__s(p->bad),
                         (unsigned long long)p->first_bad, p->why);
}

/* text: a line without its end. */
static tutti_status read_one(tutti__diff_record *record, problems *p, tutti__diff_line *line,
                             const char *text, bool *is_header_p, json_t **json_p)
{
    json_error_t error = {.text = "it is neither a header nor a line of entries"};
    json_t *json = *json_p = json_loadb(text, line->bytes, 0, &error);

    *is_header_p = is_header(json);
    if (*is_header_p)
        return TUTTI_OK;
    if (json_is_object(json) && read_place(line, json)) {
        line->hash = tutti__hash64(text, line->bytes);
        return add_line(record, line);
    }
    if (p->bad++ == 0) {
        p->first_bad = p->lines;
        snprintf(p->why, sizeof p->why, "%s", error.text);
    }
    return TUTTI_OK;
}

static tutti_status read_lines(tutti__diff_record *record, FILE *file, const char *path, int number,
                               bool counts)
{
    problems p = {.lines = 0};
    const size_t first = record->n;
    json_t *json;
    uint64_t offset = 0;
    size_t size = 0;
    char *text = NULL;
    ssize_t got = 0;
    bool header;
    tutti_status status = TUTTI_OK;

    while (status == TUTTI_OK && (got = getline(&text, &size, file)) > 0) {
        tutti__diff_line line = {.file = number, .offset = offset, .bytes = (size_t)got - 1};

        offset += (uint64_t)got;
        p.lines++;
        if (text[got - 1] != '\n') { /* even if it is complete, more may follow */
            p.half = true;
            break;
        }
        status = read_one(record, &p, &line, text, &header, &json);
        if (status == TUTTI_OK && header)
            status = take_header(record, path, json, first, number, counts);
        json_decref(json);
    }
    if (status == TUTTI_OK)
        status = tutti__diff_whole(file, got, path);
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
        char name[32];
        int number;

        if (sscanf(entry->d_name, "rank-%9d", &number) != 1 || number < 0)
            continue;
        snprintf(name, sizeof name, "rank-%d.jsonl", number);
        if (strcmp(entry->d_name, name) != 0) /* rank-07.jsonl */
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
    int phase;

    json_array_foreach(list, i, item)
    {
        tutti__diff_entry *e = &step->entries[step->n];

        if (read_entry(item, e, &phase) && phase >= 0) {
            e->order = i + 1;
            step->n++;
        }
    }
}

static void add_rate(tutti__diff_step *step, const char *name, double rate)
{
    tutti__diff_entry *e = &step->entries[step->n];

    *e = (tutti__diff_entry){
        .phase = TUTTI__DIFF_RATE, .name = name, .digest = "", .norm = rate, .order = ++step->n};
}

/* Those of the line itself. */
static void take_keys(tutti__diff_step *step)
{
    const json_t *samples = json_object_get(step->json, "samples");
    const json_t *rate = json_object_get(step->json, "lr");
    const json_t *rates = json_object_get(step->json, "lrs"), *list, *name;
    size_t i, k;

    if (samples && *json_string_value(samples))
        step->entries[step->n++] = (tutti__diff_entry){.phase = TUTTI__DIFF_SAMPLES,
                                                       .name = "",
                                                       .digest = json_string_value(samples),
                                                       .norm = (double)NAN,
                                                       .dot = (double)NAN};
    step->has_rates = rate && rates;
    step->rate = json_number_value(rate);
    if (rate)
        add_rate(step, "", step->rate);
    json_array_foreach(rates, i, list) json_array_foreach(list, k, name) if (k > 0)
        add_rate(step, json_string_value(name), json_number_value(json_array_get(list, 0)));
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
    tutti__diff_line again = {.file = line->file};
    tutti_status status;

    *step = (tutti__diff_step){.json = NULL};
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a line of %zu bytes", line->bytes);
    status = read_text(run_dir, line, path, text);
    if (status == TUTTI_OK) {
        step->json = json_loadb(text, line->bytes, 0, NULL);
        if (!step->json || !read_place(&again, step->json) || again.step != line->step)
            status = tutti__fail(TUTTI_ERR_FORMAT, "%s changed while it was read", path);
    }
    free(text);
    if (status == TUTTI_OK) {
        step->entries = tutti__alloc((again.entries + 1) * sizeof *step->entries);
        status = step->entries ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    if (status != TUTTI_OK) {
        tutti__diff_unload(step);
        return status;
    }
    take_keys(step);
    take_entries(step, json_object_get(step->json, "entries"));
    number_entries(step);
    return TUTTI_OK;
}

void tutti__diff_unload(tutti__diff_step *step)
{
    json_decref(step->json);
    free(step->entries);
    *step = (tutti__diff_step){.json = NULL};
}
