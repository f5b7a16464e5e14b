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

#define MAX_SIDE    65536             /* of one delivered image */
#define MAX_BYTES   ((size_t)1 << 29) /* of the same */
#define MAX_CLASSES (1 << 24)

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
            : !own->read                                       ? "read is NULL"
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
    if (info->count > 0 && info->channels >= 1 && info->channels <= 4 && info->height >= 1 &&
        info->height <= MAX_SIDE && info->width >= 1 && info->width <= MAX_SIDE &&
        tutti__image_bytes(info) <= MAX_BYTES && info->classes >= 1 &&
        info->classes <= MAX_CLASSES && deviates)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "data set %s, %s: %zu images of %dx%dx%d in %d classes; expected at least one image, 1 to "
        "4 channels, 1 to %d a side, at most %zu bytes, 1 to %d classes, and a standard deviation "
        "above 0 for each channel",
        info->name, info->split, info->count, info->channels, info->height, info->width,
        info->classes, MAX_SIDE, MAX_BYTES, MAX_CLASSES);
}

static tutti_status open_place(tutti_dataset *dataset, const place *at, int image_size)
{
    tutti_dataset_source source = {.dir = at->dir,
                                   .split = dataset->split,
                                   .train = strcmp(at->split, "train") == 0,
                                   .image_size = image_size};
    tutti_status status;

    dataset->format = at->format;
    dataset->image_size = image_size;
    snprintf(dataset->split, sizeof dataset->split, "%s", at->split);
    dataset->info.name = at->format->name;
    dataset->info.split = dataset->split;
    for (int c = 0; c < 4; c++)
        dataset->info.std[c] = 1;
    status = at->format->open(&dataset->self, &source, &dataset->info);
    if (status != TUTTI_OK && !tutti_last_error()[0])
        return tutti__fail(status, "the open function of data format %s failed and did not say why",
                           at->format->name);
    TUTTI_TRY(status);
    TUTTI_TRY(check_info(dataset));
    dataset->info.dtype = TUTTI_U8;
    dataset->info.targets = 0;
    dataset->dims = 3;
    dataset->x_bytes = tutti__image_bytes(&dataset->info);
    dataset->y_bytes = sizeof(int64_t);
    return TUTTI_OK;
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
        status = open_place(dataset, &at, image_size);
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

static tutti_status check_shape(const tutti_samples *s)
{
    const bool is_row = s->shape.n == 1, is_u8 = s->dtype == TUTTI_U8;
    size_t count = 1;

    if (!is_row && s->shape.n != 3)
        return fail_samples(s, "a sample has %d dimensions; expected [C,H,W] or [K]", s->shape.n);
    for (int i = 0; i < s->shape.n; i++) {
        const int64_t d = s->shape.d[i];

        if (d < 1 || d > INT_MAX || count > MAX_BYTES / (size_t)d)
            return fail_samples(s,
                                "dimension %d of a sample is %lld; expected at least 1, and at "
                                "most %zu elements in all",
                                i, (long long)d, MAX_BYTES);
        count *= (size_t)d;
    }
    if (!is_u8 && s->dtype != TUTTI_F32 && s->dtype != TUTTI_I64)
        return fail_samples(s, "samples of %s; expected U8, F32 or I64",
                            tutti_dtype_name(s->dtype));
    if (is_u8 && !is_row && s->shape.d[0] > 4)
        return fail_samples(s, "images of U8 with %lld channels; expected 1 to 4, or F32",
                            (long long)s->shape.d[0]);
    for (int c = 0; c < 4; c++)
        if (!isfinite(s->mean[c]) || !(s->std[c] >= 0) || !isfinite(s->std[c]))
            return fail_samples(s,
                                "mean %g and std %g of channel %d; expected numbers, and a "
                                "std above 0 (0: 1)",
                                (double)s->mean[c], (double)s->std[c], c);
    return TUTTI_OK;
}

/* Checks labels in memory once: later reads rely on it. */
static tutti_status check_labels(const tutti_samples *s)
{
    for (size_t i = 0; s->labels && i < s->count; i++)
        if (s->labels[i] < 0 || s->labels[i] >= s->classes)
            return fail_samples(s, "label %zu is %lld, expected 0 to %d", i,
                                (long long)s->labels[i], s->classes - 1);
    return TUTTI_OK;
}

static tutti_status check_samples(const tutti_samples *s)
{
    const bool is_class = s->classes > 0;

    if (s->count == 0)
        return fail_samples(s, "count is 0; expected at least one sample");
    if (s->classes < 0 || s->classes > MAX_CLASSES || s->targets < 0 ||
        (s->classes > 0) == (s->targets > 0))
        return fail_samples(s,
                            "%d classes and %d targets; expected one of them: classes for labels "
                            "(up to %d), targets for numbers to predict",
                            s->classes, s->targets, MAX_CLASSES);
    if (s->read ? s->x || s->labels || s->y
                : !s->x || (is_class ? !s->labels || s->y : !s->y || s->labels))
        return fail_samples(s, "x %s, labels %s, y %s, read %s; expected x and %s, or read alone",
                            s->x ? "given" : "NULL", s->labels ? "given" : "NULL",
                            s->y ? "given" : "NULL", s->read ? "given" : "NULL",
                            is_class ? "labels" : "y");
    TUTTI_TRY(check_shape(s));
    return check_labels(s);
}

static void describe(tutti_dataset *dataset)
{
    const tutti_samples *s = &dataset->samples;
    const bool is_row = s->shape.n == 1;

    snprintf(dataset->name, sizeof dataset->name, "%s",
             s->name   ? s->name
             : s->read ? "own"
                       : "memory");
    snprintf(dataset->split, sizeof dataset->split, "%s", s->split ? s->split : "train");
    dataset->info = (tutti_dataset_info){.name = dataset->name,
                                         .split = dataset->split,
                                         .count = s->count,
                                         .channels = (int)s->shape.d[0],
                                         .height = is_row ? 1 : (int)s->shape.d[1],
                                         .width = is_row ? 1 : (int)s->shape.d[2],
                                         .classes = s->classes,
                                         .class_names = s->class_names,
                                         .dtype = s->dtype,
                                         .targets = s->targets};
    for (int c = 0; c < 4; c++) {
        dataset->info.mean[c] = s->mean[c];
        dataset->info.std[c] = s->std[c] > 0 ? s->std[c] : 1;
    }
    dataset->dims = s->shape.n;
    dataset->x_bytes = (size_t)tutti_shape_count(s->shape) * tutti_dtype_size(s->dtype);
    dataset->y_bytes = s->classes > 0 ? sizeof(int64_t) : (size_t)s->targets * sizeof(float);
}

tutti_status tutti_dataset_new(tutti_dataset **dataset_p, const tutti_samples *samples)
{
    tutti_dataset *dataset;

    *dataset_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(samples));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_samples, samples));
    TUTTI_TRY(check_samples(samples));
    dataset = tutti__alloc(sizeof *dataset);
    if (!dataset)
        return TUTTI_ERR_MEMORY;
    dataset->samples = *samples;
    describe(dataset);
    *dataset_p = dataset;
    return TUTTI_OK;
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

/* Reads from the program's memory, or by its function. */
static tutti_status read_samples(const tutti_dataset *dataset, size_t index, void *x, void *y)
{
    const tutti_samples *s = &dataset->samples;

    if (s->read)
        return s->read(s->self, index, x, y);
    memcpy(x, (const char *)s->x + index * dataset->x_bytes, dataset->x_bytes);
    if (s->labels)
        memcpy(y, s->labels + index, dataset->y_bytes);
    else
        memcpy(y, s->y + index * (size_t)s->targets, dataset->y_bytes);
    return TUTTI_OK;
}

tutti_status tutti__dataset_read(const tutti_dataset *dataset, size_t index, bool random,
                                 uint64_t chance, void *x, void *y)
{
    const tutti_dataset_info *info = &dataset->info;
    tutti_status status;
    int64_t label = 0;

    if (!dataset->format)
        status = read_samples(dataset, index, x, y);
    else if (random)
        status = dataset->format->read_random(dataset->self, index, chance, x, y);
    else
        status = dataset->format->read(dataset->self, index, x, y);
    if (info->classes > 0)
        memcpy(&label, y, sizeof label);
    if (status == TUTTI_OK && info->classes > 0 && (label < 0 || label >= info->classes))
        status = tutti__fail(TUTTI_ERR_FORMAT, "the label is %lld, expected 0 to %d",
                             (long long)label, info->classes - 1);
    if (status != TUTTI_OK)
        return tutti__fail(status, "%s (sample %zu of data set %s, %s)",
                           tutti_last_error()[0] ? tutti_last_error()
                                                 : "its read function failed and did not say why",
                           index, info->name, info->split);
    return TUTTI_OK;
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
    if (info->dtype != TUTTI_U8 || info->classes == 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "data set %s, %s: its samples are %s with %s, not bytes with a label: "
                           "read it through a loader",
                           info->name, info->split, tutti_dtype_name(info->dtype),
                           info->classes > 0 ? "a label" : "targets");
    return tutti__dataset_read(dataset, index, false, 0, image, label_p);
}

tutti_shape tutti__dataset_x_shape(const tutti_dataset *dataset, int64_t n, int channels)
{
    const tutti_dataset_info *info = &dataset->info;

    if (dataset->dims == 1)
        return TUTTI_SHAPE(n, info->channels);
    return TUTTI_SHAPE(n, channels ? channels : info->channels, info->height, info->width);
}

tutti_shape tutti__dataset_y_shape(const tutti_dataset *dataset, int64_t n)
{
    return dataset->info.classes > 0 ? TUTTI_SHAPE(n) : TUTTI_SHAPE(n, dataset->info.targets);
}

bool tutti__dataset_has_images(const tutti_dataset *dataset)
{
    return dataset->info.dtype == TUTTI_U8 && dataset->dims == 3;
}

const char *tutti__dataset_noun(const tutti_dataset *dataset)
{
    return dataset->dims == 1 ? "samples" : "images";
}

const char *tutti__dataset_text(const tutti_dataset *dataset, size_t n, char text[64])
{
    const tutti_dataset_info *info = &dataset->info;

    if (dataset->dims == 1)
        snprintf(text, 64, "row%s of %d", tutti__s(n), info->channels);
    else
        snprintf(text, 64, "image%s of %dx%dx%d", tutti__s(n), info->channels, info->height,
                 info->width);
    return text;
}

const char *tutti__dataset_locate(const tutti_dataset *dataset, size_t index, char *text,
                                  size_t size)
{
    const tutti_dataset_info *info = &dataset->info;
    char raw[4200] = "", where[4200];

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
