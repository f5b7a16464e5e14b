/* dataset.c -- opening a data set by name, and reading it through its format.   SPDX-License-Identifier: MIT
 *
 * A spec "NAME:DIR/SPLIT" chooses a format: one of the list in dataset.h, or the program's own. What a format returns is
 * checked here, once for all formats. */
#include "data/dataset.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const tutti_dataset_format *const FORMATS[] = {
#define FORMAT(name) &tutti__format_##name,
    TUTTI__FORMATS(FORMAT)
#undef FORMAT
};

#define MAX_SIDE  65536             /* of one delivered image */
#define MAX_BYTES ((size_t)1 << 29) /* of the same */

const tutti_dataset_format *tutti__format_at(size_t i)
{
    return i < TUTTI__COUNT_OF(FORMATS) ? FORMATS[i] : NULL;
}

const tutti_dataset_format *tutti__format_find(const char *name)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(FORMATS); i++)
        if (strcmp(name, FORMATS[i]->name) == 0)
            return FORMATS[i];
    return NULL;
}

const char *tutti__format_usage(const tutti_dataset_format *format, char text[96])
{
    snprintf(text, 96, "%.60s:%strain|test", format->name, format->no_folder ? "" : "DIR/");
    return text;
}

/* ---- Specs ----------------------------------------------------------------------------------------------- */

/* A parsed spec. */
typedef struct place {
    const tutti_dataset_format *format;
    const char *dir, *split;
} place;

static tutti_status fail_format(const char *spec, const char *name, const tutti_dataset_format *own)
{
    const char *names[TUTTI__COUNT_OF(FORMATS) + 1], *nearest;
    const size_t count = TUTTI__COUNT_OF(FORMATS) + (own != NULL);
    char list[1024] = "", usage[96];
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        const tutti_dataset_format *format = i < TUTTI__COUNT_OF(FORMATS) ? FORMATS[i] : own;

        names[i] = format->name;
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                                  tutti__format_usage(format, usage));
    }
    nearest = tutti__nearest(name, names, count);
    return tutti__fail(TUTTI_ERR_ARG,
                       "data set \"%.200s\": there is no format \"%.60s\"%s%s%s; write one of %s",
                       spec, name, nearest ? " (did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?)" : "", list);
}

static tutti_status fail_spec(const char *spec, const tutti_dataset_format *format, const char *why)
{
    char usage[96];

    return tutti__fail(TUTTI_ERR_ARG, "data set \"%.200s\": %s; write %s", spec, why,
                       tutti__format_usage(format, usage));
}

/* Splits "NAME:DIR/SPLIT" in place: the parts point into text. */
static tutti_status parse_spec(const char *spec, char *text, const tutti_dataset_format *own,
                               place *at)
{
    char *colon = strchr(text, ':'), *slash;

    if (colon)
        *colon = '\0';
    at->format = own && strcmp(text, own->name) == 0 ? own : tutti__format_find(text);
    if (!at->format)
        return fail_format(spec, text, own);
    if (!colon || !colon[1])
        return fail_spec(spec, at->format, "the split is missing");
    at->dir = NULL;
    at->split = colon + 1;
    if (!at->format->no_folder) {
        slash = strrchr(colon + 1, '/');
        if (!slash)
            return fail_spec(spec, at->format, "the folder or the split is missing");
        *slash = '\0';
        at->dir = slash == colon + 1 ? "/" : colon + 1;
        at->split = slash + 1;
    }
    if (!at->format->any_split && strcmp(at->split, "train") != 0 && strcmp(at->split, "test") != 0)
        return fail_spec(spec, at->format, "the split is neither train nor test");
    if (!*at->split || strlen(at->split) >= sizeof((tutti_dataset *)NULL)->split)
        return fail_spec(spec, at->format, "the split's name is empty or too long");
    return TUTTI_OK;
}

/* ---- Opening --------------------------------------------------------------------------------------------- */

tutti_status tutti__format_check(const tutti_dataset_format *own)
{
    const char *wrong;

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_dataset_format, own));
    wrong = !own->name || !own->name[0]                        ? "name is empty"
            : strlen(own->name) > 60 || strchr(own->name, ':') ? "name is too long or has a ':'"
            : !own->open                                       ? "open is NULL"
            : !own->read && !own->read_arrays                  ? "read is NULL"
                                                               : NULL;
    if (!wrong)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "data format \"%.60s\": %s in its tutti_dataset_format; expected a name of 1 "
        "to 60 characters without ':', and the functions open and read",
        own->name ? own->name : "", wrong);
}

/* A format's info is checked, because it determines sizes of allocations and divisors. */
static tutti_status check_info(const tutti_dataset *dataset)
{
    const tutti_dataset_info *info = &dataset->info;
    bool deviates = true;

    for (int c = 0; c < info->channels && c < 4; c++)
        deviates = deviates && isfinite(info->mean[c]) && info->std[c] > 0;
    if (info->fields && info->count > 0 && deviates)
        return TUTTI_OK;
    if (info->count > 0 && info->channels >= 1 && info->channels <= 4 && info->height >= 1 &&
        info->height <= MAX_SIDE && info->width >= 1 && info->width <= MAX_SIDE &&
        tutti__image_bytes(info) <= MAX_BYTES && info->classes >= 1 &&
        info->classes <= TUTTI__MAX_CLASSES && deviates)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "data set %s, %s: %zu images of %dx%dx%d in %d classes; expected at least one image, 1 to "
        "4 channels, 1 to %d a side, at most %zu bytes, 1 to %d classes, and a standard deviation "
        "above 0 for each channel",
        info->name, info->split, info->count, info->channels, info->height, info->width,
        info->classes, MAX_SIDE, MAX_BYTES, TUTTI__MAX_CLASSES);
}

/* Of an image of bytes with a label. */
static tutti_status set_image_fields(tutti_dataset *dataset)
{
    const tutti_dataset_info *info = &dataset->info;
    const tutti_field fields[] = {{.name = "x",
                                   .dtype = TUTTI_U8,
                                   .shape = TUTTI_SHAPE(info->channels, info->height, info->width)},
                                  {.name = "labels", .dtype = TUTTI_I64}};

    return tutti__dataset_set_fields(dataset, fields, 2);
}

static tutti_status open_place(tutti_dataset *dataset, const place *at,
                               const tutti_dataset_opts *opts)
{
    static const tutti_table_opts table = {NULL};
    static const tutti_text_opts text = {0};
    const int image_size = opts ? opts->image_size : 0;
    tutti_dataset_source source = {.dir = at->dir,
                                   .split = dataset->split,
                                   .train = strcmp(at->split, "train") == 0,
                                   .image_size = image_size,
                                   .table = opts && opts->table ? opts->table : &table,
                                   .fit = opts ? opts->fit : NULL,
                                   .text = opts && opts->text ? opts->text : &text};
    tutti_dataset_info *info = &dataset->info;
    tutti_status status;

    dataset->format = at->format;
    dataset->image_size = image_size;
    snprintf(dataset->split, sizeof dataset->split, "%s", at->split);
    snprintf(dataset->name, sizeof dataset->name, "%s", at->format->name);
    info->name = at->format->name;
    info->split = dataset->split;
    for (int c = 0; c < 4; c++)
        info->std[c] = 1;
    status = at->format->open(&dataset->self, &source, info);
    if (status != TUTTI_OK && !tutti_last_error()[0])
        return tutti__fail(status, "the open function of data format %s failed and did not say why",
                           at->format->name);
    TUTTI_TRY(status);
    if (!at->format->read_arrays)
        info->fields = NULL;
    TUTTI_TRY(check_info(dataset));
    return at->format->read_arrays
               ? tutti__dataset_set_fields(dataset, info->fields, info->n_fields)
               : set_image_fields(dataset);
}

static tutti_status check_size(const char *spec, const place *at, int image_size)
{
    if (image_size == 0)
        return TUTTI_OK;
    if (!at->format->read_random)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data set \"%.200s\": image_size is for images of different sizes, but "
                           "those of %s have one size; leave it out",
                           spec, at->format->name);
    if (image_size < 1 || image_size > 8192)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data set \"%.200s\": image_size is %d, expected 1 to 8192", spec,
                           image_size);
    return TUTTI_OK;
}

tutti_status tutti_dataset_open_with(tutti_dataset **dataset_p, const char *spec,
                                     const tutti_dataset_opts *opts)
{
    const tutti_dataset_format *own = opts ? opts->format : NULL;
    int image_size = opts ? opts->image_size : 0;
    place at = {0};
    tutti_dataset *dataset = NULL;
    char *text;
    tutti_status status;

    *dataset_p = NULL;
    if (!spec)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data set: the spec is NULL; write e.g. \"digits:train\"");
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_dataset_opts, opts));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_table_opts, opts ? opts->table : NULL));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_text_opts, opts ? opts->text : NULL));
    if (own)
        TUTTI_TRY(tutti__format_check(own));
    text = strdup(spec);
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open a data set");
    status = parse_spec(spec, text, own, &at);
    if (status == TUTTI_OK)
        status = check_size(spec, &at, image_size);
    if (status == TUTTI_OK && !(dataset = tutti__alloc(sizeof *dataset)))
        status = TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = open_place(dataset, &at, opts);
    if (status == TUTTI_OK)
        *dataset_p = dataset;
    else
        tutti_dataset_free(dataset);
    free(text);
    return status;
}

tutti_status tutti_dataset_open(tutti_dataset **dataset_p, const char *spec)
{
    return tutti_dataset_open_with(dataset_p, spec, NULL);
}

void tutti_dataset_free(tutti_dataset *dataset)
{
    if (dataset && dataset->self && dataset->format->close)
        dataset->format->close(dataset->self);
    free(dataset);
}

/* ---- The program's samples --------------------------------------------------------------------------------- */

static tutti_status fail_samples(const tutti_samples *s, const char *format, ...)
    TUTTI_PRINTF(2, 3);
static tutti_status fail_samples(const tutti_samples *s, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti__fail(TUTTI_ERR_ARG, "data set %.60s: %s", s->name ? s->name : "of samples", text);
}

static tutti_status check_statistics(const tutti_samples *s)
{
    for (int c = 0; c < 4; c++)
        if (!isfinite(s->mean[c]) || !(s->std[c] >= 0) || !isfinite(s->std[c]))
            return fail_samples(s,
                                "mean %g and std %g of channel %d; expected numbers, and a "
                                "std above 0 (0: 1)",
                                (double)s->mean[c], (double)s->std[c], c);
    return TUTTI_OK;
}

/* Checks labels in memory once: later reads rely on it. */
static tutti_status check_labels(const tutti_dataset *dataset)
{
    const tutti_samples *s = &dataset->samples;
    const int64_t *labels = dataset->fields[1].data;

    for (size_t i = 0; labels && tutti__dataset_has_labels(dataset) && i < s->count; i++)
        if (labels[i] < 0 || labels[i] >= s->classes)
            return fail_samples(s, "label %zu is %lld, expected 0 to %d", i, (long long)labels[i],
                                s->classes - 1);
    return TUTTI_OK;
}

/* Of samples without a list of fields. */
static tutti_status check_pair(const tutti_samples *s)
{
    const bool is_class = s->classes > 0;

    if (s->classes < 0 || s->classes > TUTTI__MAX_CLASSES || s->targets < 0 ||
        (s->classes > 0) == (s->targets > 0))
        return fail_samples(s,
                            "%d classes and %d targets; expected one of them: classes for labels "
                            "(up to %d), targets for numbers to predict",
                            s->classes, s->targets, TUTTI__MAX_CLASSES);
    if (s->read_arrays)
        return fail_samples(s, "read_arrays is for samples with a list of fields; set read");
    if (s->read ? s->x || s->labels || s->y
                : !s->x || (is_class ? !s->labels || s->y : !s->y || s->labels))
        return fail_samples(s, "x %s, labels %s, y %s, read %s; expected x and %s, or read alone",
                            s->x ? "given" : "NULL", s->labels ? "given" : "NULL",
                            s->y ? "given" : "NULL", s->read ? "given" : "NULL",
                            is_class ? "labels" : "y");
    if (s->shape.n < 1 || s->shape.n > 3)
        return fail_samples(s, "a sample has %d dimensions; expected [C,H,W], [T,K] or [K]",
                            s->shape.n);
    return TUTTI_OK;
}

/* x and labels, or x and targets, as fields. */
static tutti_status set_pair(tutti_dataset *dataset)
{
    const tutti_samples *s = &dataset->samples;
    tutti_field fields[2] = {{.name = "x", .dtype = s->dtype, .shape = s->shape, .data = s->x}};

    TUTTI_TRY(check_pair(s));
    if (s->classes > 0)
        fields[1] = (tutti_field){.name = "labels", .dtype = TUTTI_I64, .data = s->labels};
    else
        fields[1] = (tutti_field){
            .name = "targets", .dtype = TUTTI_F32, .shape = TUTTI_SHAPE(s->targets), .data = s->y};
    return tutti__dataset_set_fields(dataset, fields, 2);
}

static tutti_status set_list(tutti_dataset *dataset)
{
    const tutti_samples *s = &dataset->samples;

    if (s->shape.n || s->dtype || s->targets || s->x || s->labels || s->y || s->read)
        return fail_samples(s, "a list of fields takes the place of shape, dtype, targets, x, "
                               "labels, y and read; leave them 0");
    TUTTI_TRY(tutti__dataset_set_fields(dataset, s->fields, s->n_fields));
    for (int i = 0; i < s->n_fields; i++)
        if (!s->fields[i].data != !!s->read_arrays)
            return fail_samples(s,
                                "field \"%s\": data %s, read_arrays %s; expected data in each "
                                "field, or read_arrays alone",
                                s->fields[i].name, s->fields[i].data ? "given" : "NULL",
                                s->read_arrays ? "given" : "NULL");
    return TUTTI_OK;
}

static tutti_status set_samples(tutti_dataset *dataset, const tutti_samples *s)
{
    dataset->samples = *s;
    snprintf(dataset->name, sizeof dataset->name, "%s",
             s->name                     ? s->name
             : s->read || s->read_arrays ? "own"
                                         : "memory");
    snprintf(dataset->split, sizeof dataset->split, "%s", s->split ? s->split : "train");
    dataset->info = (tutti_dataset_info){.name = dataset->name,
                                         .split = dataset->split,
                                         .count = s->count,
                                         .classes = s->classes,
                                         .class_names = s->class_names};
    for (int c = 0; c < 4; c++) {
        dataset->info.mean[c] = s->mean[c];
        dataset->info.std[c] = s->std[c] > 0 ? s->std[c] : 1;
    }
    if (s->count == 0)
        return fail_samples(s, "count is 0; expected at least one sample");
    TUTTI_TRY(s->fields || s->n_fields ? set_list(dataset) : set_pair(dataset));
    TUTTI_TRY(check_statistics(s));
    return check_labels(dataset);
}

tutti_status tutti_dataset_new(tutti_dataset **dataset_p, const tutti_samples *samples)
{
    tutti_dataset *dataset;
    tutti_status status;

    *dataset_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(samples));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_samples, samples));
    dataset = tutti__alloc(sizeof *dataset);
    if (!dataset)
        return TUTTI_ERR_MEMORY;
    status = set_samples(dataset, samples);
    if (status == TUTTI_OK)
        *dataset_p = dataset;
    else
        tutti_dataset_free(dataset);
    return status;
}

tutti_status tutti_dataset_from_memory(tutti_dataset **dataset_p, const float *x, size_t n_x,
                                       const float *y, size_t n_y, size_t count)
{
    *dataset_p = NULL;
    if (!x || !y || n_x < 1 || n_x > INT_MAX || n_y < 1 || n_y > INT_MAX)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data set from memory: x %s with rows of %zu and y %s with rows of %zu; "
                           "both are needed, with "
                           "at least 1 value a row",
                           x ? "given" : "NULL", n_x, y ? "given" : "NULL", n_y);
    return tutti_dataset_new(dataset_p, &(tutti_samples){.count = count,
                                                         .shape = TUTTI_SHAPE((int64_t)n_x),
                                                         .targets = (int)n_y,
                                                         .x = x,
                                                         .y = y,
                                                         .name = "memory"});
}

/* ---- Reading --------------------------------------------------------------------------------------------- */

tutti_dataset_info tutti_dataset_describe(const tutti_dataset *dataset)
{
    return dataset ? dataset->info : (tutti_dataset_info){.name = "", .split = ""};
}

const char *tutti_dataset_fitted(const tutti_dataset *dataset)
{
    return dataset && dataset->format && dataset->format->fitted
               ? dataset->format->fitted(dataset->self)
               : NULL;
}

/* Reads from the program's memory, or by its function. */
static tutti_status read_samples(const tutti_dataset *dataset, size_t index, void *const *arrays)
{
    const tutti_samples *s = &dataset->samples;

    if (s->read)
        return s->read(s->self, index, arrays[0], arrays[1]);
    if (s->read_arrays)
        return s->read_arrays(s->self, index, arrays);
    for (int i = 0; i < dataset->info.n_fields; i++)
        memcpy(arrays[i], (const char *)dataset->fields[i].data + index * dataset->bytes[i],
               dataset->bytes[i]);
    return TUTTI_OK;
}

static tutti_status read_file(const tutti_dataset *dataset, size_t index, const uint64_t *chance,
                              void *const *arrays)
{
    const tutti_dataset_format *format = dataset->format;

    if (format->read_arrays)
        return format->read_arrays(dataset->self, index, chance, arrays);
    if (chance)
        return format->read_random(dataset->self, index, *chance, arrays[0], arrays[1]);
    return format->read(dataset->self, index, arrays[0], arrays[1]);
}

void tutti__dataset_take_part(tutti_dataset *dataset, size_t n)
{
    dataset->whole = dataset->info.count;
    dataset->info.count = n;
}

/* Where a sample is in the whole. */
static size_t place_of(const tutti_dataset *dataset, size_t index)
{
    const size_t n = dataset->info.count, whole = dataset->whole;

    return whole > 0 ? whole / n * index + whole % n * index / n : index;
}

tutti_status tutti__dataset_read(const tutti_dataset *dataset, size_t index, const uint64_t *chance,
                                 void *const *arrays)
{
    const tutti_dataset_info *info = &dataset->info;
    const size_t at = place_of(dataset, index);
    tutti_status status = dataset->format ? read_file(dataset, at, chance, arrays)
                                          : read_samples(dataset, at, arrays);
    int64_t label = 0;

    if (tutti__dataset_has_labels(dataset))
        memcpy(&label, arrays[1], sizeof label);
    if (status == TUTTI_OK && tutti__dataset_has_labels(dataset) &&
        (label < 0 || label >= info->classes))
        status = tutti__fail(TUTTI_ERR_FORMAT, "the label is %lld, expected 0 to %d",
                             (long long)label, info->classes - 1);
    if (status != TUTTI_OK)
        return tutti__fail(status, "%s (sample %zu of data set %s, %s)",
                           tutti_last_error()[0] ? tutti_last_error()
                                                 : "its read function failed and did not say why",
                           at, info->name, info->split);
    return TUTTI_OK;
}

bool tutti__dataset_label(const tutti_dataset *dataset, size_t index, int64_t *label_p)
{
    char path[4096];

    return dataset->format == &tutti__format_folder &&
           tutti__folder_sample(dataset->self, index, path, label_p) == TUTTI_OK;
}

tutti_status tutti_dataset_read(const tutti_dataset *dataset, size_t index, uint8_t *image,
                                int64_t *label_p)
{
    const tutti_dataset_info *info;

    TUTTI_TRY(TUTTI__NOT_NULL(dataset));
    info = &dataset->info;
    if (index >= info->count)
        return tutti__fail(TUTTI_ERR_ARG, "data set %s, %s: there is no sample %zu, it has %zu",
                           info->name, info->split, index, info->count);
    if (info->dtype != TUTTI_U8 || info->n_fields > 2 || !tutti__dataset_has_labels(dataset))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "data set %s, %s: its samples are %s with %s, not bytes with a label: "
                           "read it through a loader",
                           info->name, info->split, tutti_dtype_name(info->dtype),
                           tutti__dataset_has_labels(dataset) && info->n_fields == 2
                               ? "a label"
                               : dataset->names[1]);
    return tutti__dataset_read(dataset, index, NULL, (void *const[]){image, label_p});
}

bool tutti__dataset_has_images(const tutti_dataset *dataset)
{
    return dataset->info.dtype == TUTTI_U8 && dataset->fields[0].shape.n == 3;
}

const char *tutti__dataset_noun(const tutti_dataset *dataset)
{
    return dataset->fields[0].shape.n == 3 ? "images" : "samples";
}

bool tutti__dataset_has_tokens(const tutti_dataset *dataset)
{
    const tutti_field *x = &dataset->fields[0], *y = &dataset->fields[1];

    return x->dtype == TUTTI_I64 && y->dtype == TUTTI_I64 && x->shape.n == 1 &&
           tutti_shape_equal(x->shape, y->shape);
}

const char *tutti__dataset_text(const tutti_dataset *dataset, size_t n, char text[64])
{
    const tutti_shape *shape = &dataset->fields[0].shape;
    const bool tokens = tutti__dataset_has_tokens(dataset);
    size_t used = (size_t)snprintf(text, 64, "%s%s of ",
                                   tokens          ? "sample"
                                   : shape->n == 1 ? "row"
                                   : shape->n == 3 ? "image"
                                                   : "sample",
                                   tutti__s(n));

    for (int i = 0; i < shape->n && used < 64; i++)
        used += (size_t)snprintf(text + used, 64 - used, "%s%lld", i ? "x" : "",
                                 (long long)shape->d[i]);
    if (tokens && used < 64)
        snprintf(text + used, 64 - used, " tokens");
    return text;
}

const char *tutti__dataset_locate(const tutti_dataset *dataset, size_t index, char *text,
                                  size_t size)
{
    const tutti_dataset_info *info = &dataset->info;
    char raw[4200] = "", where[4200];

    index = place_of(dataset, index);
    if (dataset->format && dataset->format->locate)
        dataset->format->locate(dataset->self, index, raw, sizeof raw);
    tutti__printable(raw, where, sizeof where);
    snprintf(text, size, "%s%ssample %zu of data set %s, %s%s", where, *where ? " (" : "", index,
             info->name, info->split, *where ? ")" : "");
    return text;
}

size_t tutti__image_bytes(const tutti_dataset_info *info)
{
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width;
}

tutti_status tutti__path(char path[4096], const char *dir, const char *file)
{
    if (snprintf(path, 4096, "%s/%s", dir, file) >= 4096)
        return tutti__fail(TUTTI_ERR_ARG, "path %.60s.../%.60s is too long", dir, file);
    return TUTTI_OK;
}

tutti_status tutti__tick_call(const tutti__tick *tick, size_t done, size_t total)
{
    if (tick && tick->call && !tick->call(tick->user, done, total))
        return tutti__fail(TUTTI_ERR_STATE, "stopped after %zu of %zu", done, total);
    return TUTTI_OK;
}
