/* dataset.c -- opening a data set by name, and reading it through its format.   SPDX-License-Identifier: MIT
 *
 * A spec "NAME:DIR/SPLIT" chooses a row of the table of formats; everything else is the row's. */
#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tutti__format *const FORMATS[] = {
    &tutti__format_digits, &tutti__format_cifar10,   &tutti__format_mnist,
    &tutti__format_folder, &tutti__format_synthetic,
};

static tutti_status fail_format(const char *spec, const char *name)
{
    const char *names[TUTTI__COUNT_OF(FORMATS)], *nearest;
    char list[512] = "";
    size_t n = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(FORMATS); i++) {
        names[i] = FORMATS[i]->name;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", FORMATS[i]->usage);
    }
    nearest = tutti__nearest(name, names, TUTTI__COUNT_OF(FORMATS));
    return tutti__fail(TUTTI_ERR_ARG,
                       "data set \"%.200s\": there is no format \"%.60s\"%s%s%s; write one of %s",
                       spec, name, nearest ? ", did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?" : "", list);
}

static tutti_status fail_spec(const char *spec, const tutti__format *format, const char *why)
{
    return tutti__fail(TUTTI_ERR_ARG, "data set \"%.200s\": %s; write %s", spec, why,
                       format->usage);
}

/* Splits "NAME:DIR/SPLIT" in place: name, dir and split point into text. */
static tutti_status parse_spec(const char *spec, char *text, const tutti__format **format_p,
                               const char **dir_p, const char **split_p)
{
    char *colon = strchr(text, ':'), *slash;
    const tutti__format *format = NULL;

    if (colon)
        *colon = '\0';
    for (size_t i = 0; i < TUTTI__COUNT_OF(FORMATS); i++)
        if (strcmp(text, FORMATS[i]->name) == 0)
            format = FORMATS[i];
    if (!format)
        return fail_format(spec, text);
    *format_p = format;
    if (!colon || !colon[1])
        return fail_spec(spec, format, "the split is missing");
    *dir_p = NULL;
    *split_p = colon + 1;
    if (!format->in_library) {
        slash = strrchr(colon + 1, '/');
        if (!slash)
            return fail_spec(spec, format, "the folder or the split is missing");
        *slash = '\0';
        *dir_p = slash == colon + 1 ? "/" : colon + 1;
        *split_p = slash + 1;
    }
    if (!format->any_split && strcmp(*split_p, "train") != 0 && strcmp(*split_p, "test") != 0)
        return fail_spec(spec, format, "the split is neither train nor test");
    if (!**split_p || strlen(*split_p) >= sizeof((tutti_dataset *)NULL)->split)
        return fail_spec(spec, format, "the split's name is empty or too long");
    return TUTTI_OK;
}

tutti_status tutti__dataset_new(tutti_dataset **dataset_p, const tutti__format *format,
                                const char *split)
{
    tutti_dataset *dataset = tutti__alloc(format->size);

    if (!dataset)
        return TUTTI_ERR_MEMORY;
    dataset->format = format;
    snprintf(dataset->split, sizeof dataset->split, "%s", split);
    dataset->info.name = format->name;
    dataset->info.split = dataset->split;
    *dataset_p = dataset;
    return TUTTI_OK;
}

tutti_status tutti_dataset_open(tutti_dataset **dataset_p, const char *spec)
{
    const tutti__format *format = NULL;
    const char *dir = NULL, *split = NULL;
    tutti_dataset *dataset = NULL;
    char *text;
    tutti_status status;

    *dataset_p = NULL;
    if (!spec)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data set: the spec is NULL; write e.g. \"digits:train\"");
    text = strdup(spec);
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open a data set");
    status = parse_spec(spec, text, &format, &dir, &split);
    if (status == TUTTI_OK)
        status = tutti__dataset_new(&dataset, format, split);
    if (status == TUTTI_OK)
        status = format->open(dataset, dir);
    if (status == TUTTI_OK)
        *dataset_p = dataset;
    else
        tutti_dataset_free(dataset);
    free(text);
    return status;
}

void tutti_dataset_free(tutti_dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->format->close)
        dataset->format->close(dataset);
    free(dataset);
}

tutti_dataset_info tutti_dataset_describe(const tutti_dataset *dataset)
{
    return dataset ? dataset->info : (tutti_dataset_info){.name = "", .split = ""};
}

tutti_status tutti_dataset_read(const tutti_dataset *dataset, size_t index, uint8_t *image,
                                int64_t *label_p)
{
    const tutti_dataset_info *info;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(dataset));
    info = &dataset->info;
    if (index >= info->count)
        return tutti__fail(TUTTI_ERR_ARG, "data set %s, %s: there is no sample %zu, it has %zu",
                           info->name, info->split, index, info->count);
    if (dataset->rows.x)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "a data set from memory holds rows of F32, not images: read it through a loader");
    status = dataset->format->read(dataset, index, image, label_p);
    if (status != TUTTI_OK)
        return tutti__fail(status, "%s (sample %zu of data set %s, %s)", tutti_last_error(), index,
                           info->name, info->split);
    return TUTTI_OK;
}

bool tutti__dataset_is_train(const tutti_dataset *dataset)
{
    return strcmp(dataset->split, "train") == 0;
}

size_t tutti__dataset_image_bytes(const tutti_dataset *dataset)
{
    const tutti_dataset_info *info = &dataset->info;

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
