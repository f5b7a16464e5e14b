/* npy.c -- NumPy arrays: DIR/SPLIT.npz, or DIR/SPLIT/NAME.npy.   SPDX-License-Identifier: MIT
 *
 * x and y are arrays of samples along their first dimension; other arrays of as many are further fields. Arrays of .npz are held
 * in memory, samples of .npy are read when they are needed. */
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/npy_header.h"
#include "data/zip_read.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT   ((uint64_t)64 << 30) /* bytes of one array */
#define AT_ONCE 8192                 /* elements */

typedef struct array {
    char name[32];
    char what[4200]; /* for messages: the file, and its member */
    tutti__npy npy;
    int fd;     /* -1: in memory */
    uint8_t *p; /* owned, with the header */
} array;

typedef struct arrays {
    array of[TUTTI_MAX_FIELDS];
    int n;
    tutti_field fields[TUTTI_MAX_FIELDS];
    size_t count;
    int classes;
    char fit[64];
    char path[4096];
} arrays;

/* ---- Finding arrays ------------------------------------------------------------------------------------------- */

/* The next array, of the file `name`.npy. */
static tutti_status add(arrays *all, const char *path, const char *name, array **array_p)
{
    const size_t n = strlen(name) > 4 ? strlen(name) - 4 : 0;
    array *a = &all->of[all->n];

    if (n == 0 || strcmp(name + n, ".npy") != 0 || n >= sizeof a->name)
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s: \"%.100s\" is not an array; expected NAME.npy, with a name of up to "
            "31 characters",
            path, name);
    if (all->n == TUTTI_MAX_FIELDS)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s has more than %d arrays", path, TUTTI_MAX_FIELDS);
    snprintf(a->name, sizeof a->name, "%.*s", (int)n, name);
    snprintf(a->what, sizeof a->what, "%s/%s", path, name);
    a->fd = -1;
    all->n++;
    *array_p = a;
    return TUTTI_OK;
}

static tutti_status read_members(arrays *all, const tutti__zip *zip)
{
    for (size_t i = 0; i < tutti__zip_count(zip); i++) {
        const tutti__zip_entry *entry = tutti__zip_at(zip, i);
        array *a;

        TUTTI_TRY(add(all, all->path, entry->name, &a));
        TUTTI_TRY(tutti__zip_load(zip, entry, LIMIT, &a->p));
        TUTTI_TRY(tutti__npy_header(&a->npy, a->p,
                                    entry->bytes < TUTTI__NPY_HEADER ? (size_t)entry->bytes
                                                                     : TUTTI__NPY_HEADER,
                                    entry->bytes, a->what));
    }
    return TUTTI_OK;
}

static tutti_status read_npz(arrays *all)
{
    tutti__zip *zip;
    tutti_status status;

    TUTTI_TRY(tutti__zip_open(&zip, all->path, ".npz (zip)"));
    status = read_members(all, zip);
    tutti__zip_close(zip);
    return status;
}

static tutti_status open_npy(array *a)
{
    uint8_t *head;
    uint64_t bytes;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti__open_file(a->what, &a->fd, &bytes));
    n = bytes < TUTTI__NPY_HEADER ? (size_t)bytes : TUTTI__NPY_HEADER;
    head = malloc(n + 1);
    status = head ? tutti__read_at(a->fd, a->what, 0, head, n)
                  : tutti__fail(TUTTI_ERR_MEMORY, "no memory to open %s", a->what);
    if (status == TUTTI_OK)
        status = tutti__npy_header(&a->npy, head, n, bytes, a->what);
    free(head);
    return status;
}

static tutti_status read_folder(arrays *all)
{
    DIR *d = opendir(all->path);
    tutti_status status = TUTTI_OK;
    struct dirent *entry;
    array *a;

    if (!d)
        return tutti__fail_errno(errno, "cannot list folder %s", all->path);
    while (status == TUTTI_OK && (entry = readdir(d))) {
        if (entry->d_name[0] == '.' || !tutti__ends_in(entry->d_name, ".npy"))
            continue;
        status = add(all, all->path, entry->d_name, &a);
        if (status == TUTTI_OK)
            status = open_npy(a);
    }
    closedir(d);
    return status;
}

/* x, y, then the others by name. */
static int in_order(const void *p, const void *q)
{
    const array *a = p, *b = q;
    const int first = (strcmp(a->name, "x") == 0) - (strcmp(b->name, "x") == 0);
    const int second = (strcmp(a->name, "y") == 0) - (strcmp(b->name, "y") == 0);

    return first ? -first : second ? -second : strcmp(a->name, b->name);
}

static tutti_status find_arrays(arrays *all, const char *dir, const char *split)
{
    char file[128];

    if (!tutti__is_folder(dir))
        return tutti__fail(TUTTI_ERR_NOT_FOUND, "data folder %s is not a folder", dir);
    snprintf(file, sizeof file, "%.60s.npz", split);
    TUTTI_TRY(tutti__path(all->path, dir, file));
    if (access(all->path, F_OK) == 0) {
        TUTTI_TRY(read_npz(all));
    } else {
        TUTTI_TRY(tutti__path(all->path, dir, split));
        if (!tutti__is_folder(all->path))
            return tutti__fail(TUTTI_ERR_NOT_FOUND,
                               "there is no %s/%s.npz, nor a folder %s/%s with x.npy and y.npy",
                               dir, split, dir, split);
        TUTTI_TRY(read_folder(all));
    }
    qsort(all->of, (size_t)all->n, sizeof *all->of, in_order);
    if (all->n < 2 || strcmp(all->of[0].name, "x") != 0 || strcmp(all->of[1].name, "y") != 0)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s has %d array%s, without x or y; expected the arrays x and y "
                           "(numpy.savez(\"%.60s.npz\", x=..., y=...))",
                           all->path, all->n, tutti__s((size_t)all->n), split);
    return TUTTI_OK;
}

static void close_arrays(arrays *all)
{
    for (int i = 0; i < all->n; i++) {
        free(all->of[i].p);
        if (all->of[i].fd >= 0)
            close(all->of[i].fd);
    }
    all->n = 0;
}

/* ---- Elements ------------------------------------------------------------------------------------------------- */

/* The field that an array becomes: its shape without the first dimension. */
static tutti_field field_of(const arrays *all, int i)
{
    const array *a = &all->of[i];
    const bool is_float = a->npy.type == TUTTI__NPY_F32 || a->npy.type == TUTTI__NPY_F64;
    tutti_field field = {.name = a->name, .shape = {.n = a->npy.shape.n - 1}};

    for (int k = 0; k < field.shape.n; k++)
        field.shape.d[k] = a->npy.shape.d[k + 1];
    field.dtype = is_float ? TUTTI_F32 : a->npy.type == TUTTI__NPY_U8 ? TUTTI_U8 : TUTTI_I64;
    if (i == 0 && field.dtype == TUTTI_U8 && field.shape.n == 2) /* grey images */
        field.shape = TUTTI_SHAPE(1, field.shape.d[0], field.shape.d[1]);
    if (field.shape.n == 0 && (i == 0 || (i == 1 && is_float)))
        field.shape = TUTTI_SHAPE(1);
    if (field.dtype == TUTTI_U8 && (i == 1 || (i > 0 && field.shape.n == 0)))
        field.dtype = TUTTI_I64; /* labels */
    return field;
}

/* Masks of an image move with it. */
static void let_move(tutti_field *fields, int i)
{
    const tutti_shape *image = &fields[0].shape, *shape = &fields[i].shape;

    fields[i].moves = fields[0].dtype == TUTTI_U8 && image->n == 3 && shape->n >= 2 &&
                      shape->n <= 3 && shape->d[shape->n - 2] == image->d[1] &&
                      shape->d[shape->n - 1] == image->d[2];
    fields[i].fill = fields[i].dtype == TUTTI_F32 ? 0 : TUTTI__IGNORED_LABEL;
}

static void convert(const tutti__npy *npy, tutti_dtype dtype, const uint8_t *from, size_t n,
                    void *to)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = from + i * npy->element;
        union {
            int32_t i32;
            int64_t i64;
            float f32;
            double f64;
        } v = {.i64 = 0};

        memcpy(&v, p, npy->element);
        if (dtype == TUTTI_U8)
            ((uint8_t *)to)[i] = *p;
        else if (dtype == TUTTI_F32)
            ((float *)to)[i] = npy->type == TUTTI__NPY_F32 ? v.f32 : (float)v.f64;
        else
            ((int64_t *)to)[i] = npy->type == TUTTI__NPY_U8    ? *p
                                 : npy->type == TUTTI__NPY_I32 ? v.i32
                                                               : v.i64;
    }
}

/* Reads n elements from `first` on. */
static tutti_status read_elements(const array *a, tutti_dtype dtype, uint64_t first, size_t n,
                                  void *to)
{
    const uint64_t at = a->npy.header_bytes + first * a->npy.element;
    const size_t each = tutti_dtype_size(dtype);
    uint8_t some[AT_ONCE * sizeof(double)];

    if (a->fd < 0) {
        convert(&a->npy, dtype, a->p + at, n, to);
        return TUTTI_OK;
    }
    for (size_t done = 0; done < n;) {
        const size_t now = n - done < AT_ONCE ? n - done : AT_ONCE;

        TUTTI_TRY(
            tutti__read_at(a->fd, a->what, at + done * a->npy.element, some, now * a->npy.element));
        convert(&a->npy, dtype, some, now, (char *)to + done * each);
        done += now;
    }
    return TUTTI_OK;
}

/* ---- Classes -------------------------------------------------------------------------------------------------- */

/* One more than the largest value of an integer y, without those that mean "ignored". */
static tutti_status count_classes(const arrays *all, int *classes_p)
{
    const array *y = &all->of[1];
    const bool is_label = y->npy.shape.n == 1;
    int64_t some[AT_ONCE], most = -1;

    for (uint64_t first = 0; first < y->npy.count; first += AT_ONCE) {
        const uint64_t left = y->npy.count - first;
        const size_t n = left < AT_ONCE ? (size_t)left : AT_ONCE;

        TUTTI_TRY(read_elements(y, TUTTI_I64, first, n, some));
        for (size_t i = 0; i < n; i++) {
            if (!is_label && (some[i] == TUTTI__IGNORED_LABEL ||
                              (y->npy.type == TUTTI__NPY_U8 && some[i] == TUTTI__IGNORED_BYTE)))
                continue;
            if (some[i] < 0 || some[i] >= TUTTI__MAX_CLASSES)
                return tutti__fail(TUTTI_ERR_FORMAT,
                                   "%s: element %llu is %lld; integers are classes, expected 0 to "
                                   "%d (numbers to predict: save floats)",
                                   y->what, (unsigned long long)(first + i), (long long)some[i],
                                   TUTTI__MAX_CLASSES - 1);
            most = some[i] > most ? some[i] : most;
        }
    }
    *classes_p = most < 1 ? 2 : (int)most + 1;
    return TUTTI_OK;
}

/* From the training split, unless the caller knows: a class may be missing in the others. */
static tutti_status learn_classes(arrays *all, const tutti_dataset_source *source)
{
    arrays train = {.n = 0};
    json_t *fit = source->fit ? json_loads(source->fit, 0, NULL) : NULL;
    const json_int_t said = json_integer_value(json_object_get(fit, "classes"));
    tutti_status status;

    json_decref(fit);
    if (source->fit) {
        all->classes = said >= 1 && said <= TUTTI__MAX_CLASSES ? (int)said : 0;
        return all->classes
                   ? TUTTI_OK
                   : tutti__fail(TUTTI_ERR_FORMAT,
                                 "the classes of the training data (the checkpoint's state.json, "
                                 "\"data\") are missing: %.200s",
                                 source->fit);
    }
    if (source->train)
        return count_classes(all, &all->classes);
    status = find_arrays(&train, source->dir, "train");
    if (status == TUTTI_OK)
        status = count_classes(&train, &all->classes);
    close_arrays(&train);
    return status;
}

/* ---- The format ----------------------------------------------------------------------------------------------- */

static tutti_status check_counts(const arrays *all)
{
    for (int i = 0; i < all->n; i++) {
        const array *a = &all->of[i];

        if (a->npy.shape.n == 0)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s is a scalar; expected [N, ...]", a->what);
        if (a->npy.shape.d[0] != all->of[0].npy.shape.d[0])
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s has %lld samples, and %s has %lld: their first dimensions must "
                               "be equal",
                               a->what, (long long)a->npy.shape.d[0], all->of[0].what,
                               (long long)all->of[0].npy.shape.d[0]);
    }
    return TUTTI_OK;
}

static tutti_status npy_open(void **self_p, const tutti_dataset_source *source,
                             tutti_dataset_info *info)
{
    arrays *all = *self_p = tutti__alloc(sizeof *all);

    if (!all)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(find_arrays(all, source->dir, source->split));
    TUTTI_TRY(check_counts(all));
    for (int i = 0; i < all->n; i++) {
        all->fields[i] = field_of(all, i);
        if (i > 0)
            let_move(all->fields, i);
    }
    if (all->fields[1].dtype != TUTTI_F32) {
        TUTTI_TRY(learn_classes(all, source));
        snprintf(all->fit, sizeof all->fit, "{\"format\":\"npy\",\"classes\":%d}", all->classes);
    }
    info->count = (size_t)all->of[0].npy.shape.d[0];
    info->classes = all->classes;
    info->fields = all->fields;
    info->n_fields = all->n;
    return TUTTI_OK;
}

/* In masks of bytes, which cannot hold -100, 255 means the same. */
static void ignore_255(const arrays *all, int64_t *y, size_t n)
{
    if (all->fields[1].shape.n == 0 || all->of[1].npy.type != TUTTI__NPY_U8)
        return;
    for (size_t i = 0; i < n; i++)
        if (y[i] == TUTTI__IGNORED_BYTE)
            y[i] = TUTTI__IGNORED_LABEL;
}

static tutti_status npy_read(const void *self, size_t index, const uint64_t *chance,
                             void *const *to)
{
    const arrays *all = self;

    (void)chance;
    for (int i = 0; i < all->n; i++) {
        const size_t n = (size_t)tutti_shape_count(all->fields[i].shape);

        TUTTI_TRY(read_elements(&all->of[i], all->fields[i].dtype, index * n, n, to[i]));
        if (i == 1)
            ignore_255(all, to[i], n);
    }
    return TUTTI_OK;
}

static void npy_locate(const void *self, size_t index, char *text, size_t size)
{
    snprintf(text, size, "%s, sample %zu", ((const arrays *)self)->path, index);
}

static const char *npy_fitted(const void *self)
{
    const arrays *all = self;

    return all->fit[0] ? all->fit : NULL;
}

static void npy_close(void *self)
{
    close_arrays(self);
    free(self);
}

const tutti_dataset_format tutti__format_npy = {
    .name = "npy",
    .help = "NumPy arrays x and y: DIR/train.npz and test.npz, or DIR/train/x.npy, y.npy",
    .any_split = true,
    .open = npy_open,
    .read_arrays = npy_read,
    .close = npy_close,
    .locate = npy_locate,
    .fitted = npy_fitted,
};
