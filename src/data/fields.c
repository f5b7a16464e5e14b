/* fields.c -- a sample's named arrays: checked once for all sources, and their shapes in a batch.   SPDX-License-Identifier: MIT */
#include "data/dataset.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 29) /* of one array of a sample */

static tutti_status fail_field(const tutti_dataset *dataset, const tutti_field *f, const char *why)
{
    return tutti__fail(dataset->format ? TUTTI_ERR_FORMAT : TUTTI_ERR_ARG,
                       "data set %s, field \"%.60s\" %s of %s: %s", dataset->name,
                       f->name ? f->name : "", tutti__shape_text(f->shape),
                       tutti_dtype_name(f->dtype), why);
}

static bool is_shape(const tutti_field *f)
{
    const size_t most = MAX_BYTES / sizeof(int64_t); /* U8 is delivered as I64 */
    size_t count = 1;

    if (f->shape.n < 0 || f->shape.n >= TUTTI_MAX_DIMS)
        return false;
    for (int i = 0; i < f->shape.n; i++) {
        if (f->shape.d[i] < 1 || f->shape.d[i] > INT_MAX || count > most / (size_t)f->shape.d[i])
            return false;
        count *= (size_t)f->shape.d[i];
    }
    return true;
}

static bool as_large_as(const tutti_shape *image, const tutti_shape *shape)
{
    return image->n == 3 && (shape->n == 2 || shape->n == 3) &&
           shape->d[shape->n - 2] == image->d[1] && shape->d[shape->n - 1] == image->d[2];
}

static tutti_status check_field(const tutti_dataset *dataset, const tutti_field *fields, int i)
{
    const tutti_field *f = &fields[i];

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_field, f));
    if (!f->name || !f->name[0] || strlen(f->name) >= sizeof dataset->names[0])
        return fail_field(dataset, f, "expected a name of 1 to 31 characters");
    for (int k = 0; k < i; k++)
        if (strcmp(fields[k].name, f->name) == 0)
            return fail_field(dataset, f, "there are two fields of this name");
    if (f->dtype != TUTTI_U8 && f->dtype != TUTTI_F32 && f->dtype != TUTTI_I64)
        return fail_field(dataset, f, "expected U8, F32 or I64");
    if (!is_shape(f))
        return fail_field(dataset, f,
                          "expected up to 5 dimensions of at least 1, and at most 2^26 elements");
    if (i == 0 && f->shape.n == 0)
        return fail_field(dataset, f, "the model's input needs at least one dimension");
    if (i == 0 && f->dtype == TUTTI_U8 && f->shape.n != 1 && (f->shape.n != 3 || f->shape.d[0] > 4))
        return fail_field(dataset, f, "expected images [C,H,W] of 1 to 4 channels, or [K]");
    if (f->moves &&
        (i == 0 || fields[0].dtype != TUTTI_U8 || !as_large_as(&fields[0].shape, &f->shape)))
        return fail_field(dataset, f,
                          "only an array [H,W] or [C,H,W] as large as the image of U8, the first "
                          "field, can move with it");
    return TUTTI_OK;
}

/* Of y: what the model's outputs are compared with. */
static tutti_status check_classes(const tutti_dataset *dataset, const tutti_field *y)
{
    const int classes = dataset->info.classes;

    if (y->dtype == TUTTI_F32 && classes != 0)
        return fail_field(dataset, y, "numbers to predict have no classes; leave classes 0");
    if (y->dtype != TUTTI_F32 && (classes < 1 || classes > TUTTI__MAX_CLASSES))
        return fail_field(dataset, y,
                          "integers are classes; set classes, 1 to 16777216, which they are less "
                          "than");
    return TUTTI_OK;
}

/* x as [C,H,W], for models. */
static void describe_input(tutti_dataset_info *info, const tutti_field *x)
{
    const int64_t *d = x->shape.d;
    int64_t width = 1;

    for (int i = 2; i < x->shape.n; i++)
        width *= d[i];
    info->dtype = x->dtype;
    info->channels = x->shape.n == 2 ? 1 : (int)d[0];
    info->height = x->shape.n == 1 ? 1 : (int)d[x->shape.n == 2 ? 0 : 1];
    info->width = x->shape.n == 2 ? (int)d[1] : (int)width;
}

tutti_status tutti__dataset_set_fields(tutti_dataset *dataset, const tutti_field *fields, int n)
{
    if (!fields || n < 2 || n > TUTTI_MAX_FIELDS)
        return tutti__fail(dataset->format ? TUTTI_ERR_FORMAT : TUTTI_ERR_ARG,
                           "data set %s: %d fields%s; expected at least 2, x and y, and at most %d",
                           dataset->name, n, fields ? "" : " (NULL)", TUTTI_MAX_FIELDS);
    for (int i = 0; i < n; i++) {
        tutti_field *f = &dataset->fields[i];

        TUTTI_TRY(check_field(dataset, fields, i));
        *f = fields[i];
        snprintf(dataset->names[i], sizeof dataset->names[i], "%s", fields[i].name);
        f->name = dataset->names[i];
        dataset->bytes[i] = (size_t)tutti_shape_count(f->shape) * tutti_dtype_size(f->dtype);
    }
    TUTTI_TRY(check_classes(dataset, &fields[1]));
    describe_input(&dataset->info, &fields[0]);
    dataset->info.targets =
        fields[1].dtype == TUTTI_F32 ? (int)tutti_shape_count(fields[1].shape) : 0;
    dataset->info.fields = dataset->fields;
    dataset->info.n_fields = n;
    return TUTTI_OK;
}

bool tutti__dataset_has_labels(const tutti_dataset *dataset)
{
    return dataset->fields[1].dtype == TUTTI_I64 && dataset->fields[1].shape.n == 0;
}

tutti_array tutti__dataset_array(const tutti_dataset *dataset, int field, int64_t n, int channels)
{
    const tutti_field *f = &dataset->fields[field];
    tutti_array array = {.shape = {.n = f->shape.n + 1, .d = {n}}, .dtype = f->dtype};

    for (int i = 0; i < f->shape.n; i++)
        array.shape.d[i + 1] = f->shape.d[i];
    if (field == 0 && channels)
        array.shape.d[1] = channels;
    if (f->dtype == TUTTI_U8)
        array.dtype = field == 0 ? TUTTI_F32 : TUTTI_I64;
    return array;
}

tutti_array tutti_batch_array(const tutti_batch *batch, const char *name)
{
    char list[TUTTI_MAX_FIELDS * 40] = "";
    size_t n = 0;

    if (!batch || !name) {
        (void)tutti__fail(TUTTI_ERR_ARG, "tutti_batch_array: the batch or the name is NULL");
        return (tutti_array){0};
    }
    for (size_t i = 0; i < batch->n_arrays; i++) {
        if (strcmp(batch->arrays[i].name, name) == 0)
            return batch->arrays[i].array;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                              batch->arrays[i].name);
    }
    (void)tutti__fail(TUTTI_ERR_ARG, "the batch has no array \"%.60s\"; it has %s", name,
                      batch->n_arrays ? list : "none");
    return (tutti_array){0};
}
