/* records.c -- files of records: label bytes and pixel bytes, 3x32x32 unless images.json says otherwise.
 * SPDX-License-Identifier: MIT
 *
 * The files may have any number of records, and the file of names, if there is one, determines the number of classes: so the
 * layout fits any images of up to 256 classes (`tutti data pack` writes CIFAR-10's). Records are read with pread, not mapped:
 * ranks share the page cache anyway, and a file that shrinks or a disk that fails gives an error with the file's name instead
 * of SIGBUS. */
#include "data/records.h"

#include "data/data_files.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES   5
#define CLASSES 256 /* values of a label byte */

typedef struct records {
    const tutti__records_layout *layout;
    size_t bytes; /* of a record */
    size_t pixels;
    bool described; /* there is an images.json */
    int n_files, classes;
    int fd[FILES];
    size_t end[FILES]; /* the index after the file's last record */
    char *path[FILES];
    char *names; /* the text of the file of names, cut into lines */
    const char *class_names[CLASSES];
} records;

static tutti_status open_file(records *r, const char *dir, const char *file)
{
    char path[4096], original[64];
    uint64_t bytes;
    int i = r->n_files;

    TUTTI_TRY(tutti__path(path, dir, file));
    TUTTI_TRY(tutti__open_file(path, &r->fd[i], &bytes));
    r->n_files++;
    r->path[i] = strdup(path);
    if (!r->path[i])
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open %s", path);
    if (bytes % r->bytes != 0) {
        snprintf(original, sizeof original, "? The original has %llu bytes", r->layout->own_bytes);
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s has %llu bytes, which is not a whole number of records of %zu bytes (the last has "
            "%llu): is the file truncated%s",
            path, (unsigned long long)bytes, r->bytes, (unsigned long long)(bytes % r->bytes),
            r->described ? ", or of another size than " TUTTI__RECORDS_INFO " says?" : original);
    }
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

/* Reads a number of images.json, which must be from low to high. */
static bool take_number(const json_t *value, double low, double high, double *number_p)
{
    *number_p = json_number_value(value);
    return json_is_number(value) && *number_p >= low && *number_p <= high;
}

static bool take_numbers(const json_t *root, const char *name, double low, float numbers[3])
{
    const json_t *list = json_object_get(root, name);
    double number;

    if (json_array_size(list) != 3)
        return false;
    for (size_t i = 0; i < 3; i++) {
        if (!take_number(json_array_get(list, i), low, 1, &number))
            return false;
        numbers[i] = (float)number;
    }
    return true;
}

/* Sets the images' size and statistics: those of images.json, if there is one, else the layout's. */
static tutti_status describe(records *r, const char *dir, tutti_dataset_info *info)
{
    char path[4096];
    double height = 32, width = 32;
    json_error_t error;
    uint8_t *text;
    size_t bytes;
    json_t *root;

    memcpy(info->mean, r->layout->mean, sizeof r->layout->mean);
    memcpy(info->std, r->layout->std, sizeof r->layout->std);
    TUTTI_TRY(tutti__path(path, dir, TUTTI__RECORDS_INFO));
    r->described = access(path, F_OK) == 0;
    if (r->described) {
        TUTTI_TRY(tutti__read_file(path, 1 << 16, &text, &bytes));
        root = json_loadb((const char *)text, bytes, 0, &error);
        free(text);
        if (!take_number(json_object_get(root, "height"), 1, TUTTI__RECORDS_SIDE, &height) ||
            !take_number(json_object_get(root, "width"), 1, TUTTI__RECORDS_SIDE, &width) ||
            height != floor(height) || width != floor(width) ||
            !take_numbers(root, "mean", 0, info->mean) ||
            !take_numbers(root, "std", 1e-6, info->std)) {
            json_decref(root);
            return tutti__fail(
                TUTTI_ERR_FORMAT,
                "%s: expected height and width from 1 to %d, and mean and std, three "
                "numbers up to 1 each; tutti data pack writes it",
                path, TUTTI__RECORDS_SIDE);
        }
        json_decref(root);
    }
    info->channels = 3;
    info->height = (int)height;
    info->width = (int)width;
    r->pixels = tutti__image_bytes(info);
    r->bytes = r->layout->label_bytes + r->pixels;
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
    TUTTI_TRY(tutti__with_origin(
        tutti__find_folder(found, source->dir, &layout->folder, 1, layout->files, 1),
        layout->origin));
    TUTTI_TRY(describe(r, found, info));
    for (size_t i = 0; i < layout->n_files; i++)
        TUTTI_TRY(open_file(r, found, layout->files[i]));
    TUTTI_TRY(read_names(r, found));
    info->count = r->end[layout->n_files - 1];
    if (info->count == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "the files of %s in %s hold no records", info->split,
                           found);
    info->classes = r->classes;
    info->class_names = r->names ? r->class_names : NULL;
    return TUTTI_OK;
}

/* The file of a sample, and its index there. */
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
    uint8_t head[8];
    size_t number, labels = r->layout->label_bytes;
    int i = file_of(r, index, &number), label;
    const uint64_t at = (uint64_t)number * r->bytes;
    const struct iovec parts[] = {{head, labels}, {image, r->pixels}};

    if (preadv(r->fd[i], parts, 2, (off_t)at) != (ssize_t)r->bytes) { /* short read, or an error */
        TUTTI_TRY(tutti__read_at(r->fd[i], r->path[i], at, head, labels));
        TUTTI_TRY(tutti__read_at(r->fd[i], r->path[i], at + labels, image, r->pixels));
    }
    label = head[labels - 1];
    if (label >= r->classes)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: record %zu has label %d, expected 0 to %d%s%s%s",
                           r->path[i], number, label, r->classes - 1,
                           r->names ? " (the classes of " : "", r->names ? r->layout->names : "",
                           r->names ? ")" : "");
    *label_p = label;
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
