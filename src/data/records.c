/* records.c -- files of records: label bytes and 3x32x32 pixel bytes.   SPDX-License-Identifier: MIT
 *
 * The files may have any number of records, and the file of names, where present, says how many classes there are: so the
 * layout serves for any 32x32 images of up to 256 classes (`tutti data pack` writes CIFAR-10's).
 * Records are read with pread, not mapped: the page cache is shared between ranks all the same, and a file that shrinks
 * or a disk that fails is an error with a name instead of SIGBUS. */
#include "data/records.h"

#include "data/files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIXELS  3072
#define FILES   5
#define CLASSES 256 /* what a label byte can say */

typedef struct records {
    const tutti__records_layout *layout;
    size_t bytes; /* of a record */
    int n_files, classes;
    int fd[FILES];
    size_t end[FILES]; /* the index after the file's last record */
    char *path[FILES];
    char *names; /* the text of the file of names, cut into lines */
    const char *class_names[CLASSES];
} records;

static tutti_status open_file(records *r, const char *dir, const char *file)
{
    char path[4096];
    uint64_t bytes;
    int i = r->n_files;

    TUTTI_TRY(tutti__path(path, dir, file));
    TUTTI_TRY(tutti__open_file(path, &r->fd[i], &bytes));
    r->n_files++;
    r->path[i] = strdup(path);
    if (!r->path[i])
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open %s", path);
    if (bytes % r->bytes != 0)
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s has %llu bytes, which is not a whole number of records of %zu bytes (the last has "
            "%llu): is the file truncated? The original has %llu bytes",
            path, (unsigned long long)bytes, r->bytes, (unsigned long long)(bytes % r->bytes),
            r->layout->own_bytes);
    r->end[i] = (i ? r->end[i - 1] : 0) + (size_t)(bytes / r->bytes);
    return TUTTI_OK;
}

static tutti_status read_names(records *r, const char *dir)
{
    char path[4096];
    size_t bytes;
    int n = 0;

    TUTTI_TRY(tutti__path(path, dir, r->layout->names));
    r->classes = r->layout->classes;
    if (access(path, F_OK) != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__read_file(path, 1 << 20, (uint8_t **)&r->names, &bytes));
    for (char *rest = r->names, *line; (line = strsep(&rest, "\r\n"));) {
        if (!*line)
            continue;
        if (n == CLASSES)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s names more than %d classes", path, CLASSES);
        r->class_names[n++] = line;
    }
    if (n == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s names no class: expected a name a line", path);
    r->classes = n;
    return TUTTI_OK;
}

tutti_status tutti__records_open(void **self_p, const tutti_dataset_source *source,
                                 const tutti__records_layout *layout, tutti_dataset_info *info)
{
    records *r = tutti__alloc(sizeof *r);
    char found[4096];

    if (!r)
        return TUTTI_ERR_MEMORY;
    *self_p = r;
    r->layout = layout;
    r->bytes = layout->label_bytes + PIXELS;
    TUTTI_TRY(tutti__find_folder(found, source->dir, &layout->folder, 1, layout->files, 1));
    for (size_t i = 0; i < layout->n_files; i++)
        TUTTI_TRY(open_file(r, found, layout->files[i]));
    TUTTI_TRY(read_names(r, found));
    info->count = r->end[layout->n_files - 1];
    if (info->count == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "the files of %s in %s hold no records", info->split,
                           found);
    info->channels = 3;
    info->height = 32;
    info->width = 32;
    info->classes = r->classes;
    info->class_names = r->names ? r->class_names : NULL;
    memcpy(info->mean, layout->mean, sizeof layout->mean);
    memcpy(info->std, layout->std, sizeof layout->std);
    return TUTTI_OK;
}

/* The file of a sample, and its number there. */
static int file_of(const records *r, size_t index, size_t *number_p)
{
    int i = 0;

    while (index >= r->end[i])
        i++;
    *number_p = index - (i ? r->end[i - 1] : 0);
    return i;
}

tutti_status tutti__records_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    const records *r = self;
    uint8_t record[8 + PIXELS];
    size_t number, labels = r->layout->label_bytes;
    int i = file_of(r, index, &number), label;

    TUTTI_TRY(tutti__read_at(r->fd[i], r->path[i], (uint64_t)number * r->bytes, record, r->bytes));
    label = record[labels - 1];
    if (label >= r->classes)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: record %zu has label %d, expected 0 to %d%s%s%s",
                           r->path[i], number, label, r->classes - 1,
                           r->names ? " (the classes of " : "", r->names ? r->layout->names : "",
                           r->names ? ")" : "");
    *label_p = label;
    memcpy(image, record + labels, PIXELS);
    return TUTTI_OK;
}

void tutti__records_locate(const void *self, size_t index, char *text, size_t size)
{
    const records *r = self;
    size_t number;
    int i = file_of(r, index, &number);

    snprintf(text, size, "%s, record %zu", r->path[i], number);
}

void tutti__records_close(void *self)
{
    records *r = self;

    for (int i = 0; i < r->n_files; i++) {
        close(r->fd[i]);
        free(r->path[i]);
    }
    free(r->names);
    free(r);
}
