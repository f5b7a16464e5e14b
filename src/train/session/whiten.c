/* whiten.c -- a first convolution whose results are uncorrelated, by the training images.   SPDX-License-Identifier: MIT
 *
 * Eigenvectors are Jacobi's, by rotations that are swept over all pairs until none is left: patches have few values, and the same images
 * give the same bits on every rank. */
#include "train/session/whiten.h"

#include "data/dataset.h"
#include "nn/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double EPS = 5e-4;

/* ---- Sums over patches --------------------------------------------------------------------------------------------- */

typedef struct patches {
    const tutti_dataset *images;
    tutti__filters filters;
    int height, width; /* of an image */
    size_t size;       /* values of a patch */
    float *image;      /* [channels,height,width], normalised */
    void *arrays[TUTTI_MAX_FIELDS];
    double *sums; /* [size,size] of products; the lower half */
} patches;

/* Sums in four, so that an addition need not wait for the one before. */
static double dot(const float *a, const float *b, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++)
        sum[0] += (double)a[i] * (double)b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Value i of the first patch; that of another lies as far from it as the patch does. */
static const float *value_of(const patches *p, size_t i)
{
    const int64_t kw = p->filters.width, kh = p->filters.height, k = (int64_t)i;

    return p->image + (k / (kh * kw) * p->height + k / kw % kh) * p->width + k % kw;
}

static void add_image(const patches *p)
{
    const int64_t rows = p->height - p->filters.height + 1,
                  columns = p->width - p->filters.width + 1;

    for (size_t i = 0; i < p->size; i++)
        for (size_t k = 0; k <= i; k++)
            for (int64_t y = 0; y < rows; y++)
                p->sums[i * p->size + k] +=
                    dot(value_of(p, i) + y * p->width, value_of(p, k) + y * p->width, columns);
}

static void normalise(const patches *p)
{
    const tutti_dataset_info *info = &p->images->info;
    const size_t pixels = (size_t)p->height * (size_t)p->width;

    for (size_t c = 0; c < (size_t)p->filters.channels; c++) {
        const size_t from = info->channels == 1 ? 0 : c; /* grey ones are repeated */
        const uint8_t *bytes = (const uint8_t *)p->arrays[0] + from * pixels;
        float *out = p->image + c * pixels;

        if (info->dtype == TUTTI_F32)
            memcpy(out, (const float *)p->arrays[0] + from * pixels, pixels * sizeof *out);
        else
            for (size_t i = 0; i < pixels; i++)
                out[i] = ((float)bytes[i] / 255.0f - info->mean[from]) / info->std[from];
    }
}

static tutti_status add_images(const patches *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        TUTTI_TRY(tutti__dataset_read(p->images, i, NULL, p->arrays));
        normalise(p);
        add_image(p);
    }
    return TUTTI_OK;
}

static tutti_status check(const patches *p)
{
    const tutti__filters *f = &p->filters;
    const tutti_dataset_info *info = &p->images->info;
    const int64_t most = 2 * (int64_t)p->size;
    char text[64];

    if (!tutti__dataset_has_images(p->images) || info->dtype == TUTTI_I64 ||
        (info->channels != 1 && info->channels != f->channels) || p->height < f->height ||
        p->width < f->width)
        return tutti__fail(TUTTI_ERR_ARG,
                           "whiten: the filters take patches of %lldx%lldx%lld, and the samples "
                           "are %s; leave whiten out",
                           (long long)f->channels, (long long)f->height, (long long)f->width,
                           tutti__dataset_text(p->images, 2, text));
    if (f->out % 2 != 0 || f->out > most)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "whiten: the first convolution has %lld filters of %zu values; expected an even "
            "number, at most %lld: principal components, and their negatives",
            (long long)f->out, p->size, (long long)most);
    return TUTTI_OK;
}

/* ---- Eigenvectors of a symmetric matrix ----------------------------------------------------------------------------- */

/* a [n,n], of which the diagonal becomes the eigenvalues; v [n,n]: the eigenvectors, in its columns. */
typedef struct eigen {
    double *a, *v;
    size_t n;
} eigen;

/* Turns columns p and q of m, or with `rows` its rows. */
static void turn(double *m, size_t n, size_t p, size_t q, double c, double s, bool rows)
{
    for (size_t k = 0; k < n; k++) {
        double *x = rows ? &m[p * n + k] : &m[k * n + p], *y = rows ? &m[q * n + k] : &m[k * n + q];
        const double before = *x;

        *x = c * before - s * *y;
        *y = s * before + c * *y;
    }
}

/* A rotation that makes a[p,q] 0. */
static void rotate(eigen *e, size_t p, size_t q)
{
    const double apq = e->a[p * e->n + q];
    const double theta = (e->a[q * e->n + q] - e->a[p * e->n + p]) / (2 * apq);
    const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;

    turn(e->a, e->n, p, q, c, s, false);
    turn(e->a, e->n, p, q, c, s, true);
    turn(e->v, e->n, p, q, c, s, false);
}

static void find_eigenvectors(eigen *e)
{
    enum { MOST_SWEEPS = 60 };
    bool turned = true;

    for (size_t i = 0; i < e->n; i++)
        e->v[i * e->n + i] = 1;
    for (int sweep = 0; sweep < MOST_SWEEPS && turned; sweep++) {
        turned = false;
        for (size_t p = 0; p < e->n; p++)
            for (size_t q = p + 1; q < e->n; q++) {
                const double scale = fabs(e->a[p * e->n + p]) + fabs(e->a[q * e->n + q]);

                if (fabs(e->a[p * e->n + q]) <= 1e-16 * scale)
                    continue;
                rotate(e, p, q);
                turned = true;
            }
    }
}

/* The column whose eigenvalue has `rank` smaller ones, of equal ones those before it. */
static size_t column_of(const eigen *e, size_t rank)
{
    for (size_t i = 0; i < e->n; i++) {
        size_t smaller = 0;

        for (size_t k = 0; k < e->n; k++)
            smaller += e->a[k * e->n + k] < e->a[i * e->n + i] ||
                       (e->a[k * e->n + k] == e->a[i * e->n + i] && k < i);
        if (smaller == rank)
            return i;
    }
    return 0;
}

/* ---- Filters --------------------------------------------------------------------------------------------------------- */

static void write_filters(float *weights, const eigen *e, size_t half)
{
    for (size_t i = 0; i < half; i++) {
        const size_t column = column_of(e, e->n - half + i);
        const double variance = e->a[column * e->n + column];
        const double factor = 1 / sqrt((variance > 0 ? variance : 0) + EPS);

        for (size_t k = 0; k < e->n; k++) {
            weights[i * e->n + k] = (float)(e->v[k * e->n + column] * factor);
            weights[(half + i) * e->n + k] = -weights[i * e->n + k];
        }
    }
}

static tutti_status find_filters(float *weights, const patches *p, size_t n)
{
    const int64_t rows = p->height - p->filters.height + 1,
                  columns = p->width - p->filters.width + 1;
    eigen e = {.a = p->sums, .n = p->size};

    TUTTI_TRY(add_images(p, n));
    for (size_t i = 0; i < p->size; i++)
        for (size_t k = 0; k <= i; k++) {
            p->sums[i * p->size + k] /= (double)n * (double)(rows * columns);
            p->sums[k * p->size + i] = p->sums[i * p->size + k];
        }
    e.v = tutti__alloc(p->size * p->size * sizeof *e.v);
    if (!e.v)
        return TUTTI_ERR_MEMORY;
    find_eigenvectors(&e);
    write_filters(weights, &e, (size_t)p->filters.out / 2);
    free(e.v);
    return TUTTI_OK;
}

tutti_status tutti__whiten_filters(float *weights, const tutti__filters *filters,
                                   const tutti_dataset *images, size_t n)
{
    const tutti_dataset_info *info = &images->info;
    patches p = {.images = images,
                 .filters = *filters,
                 .height = info->height,
                 .width = info->width,
                 .size = (size_t)(filters->channels * filters->height * filters->width)};
    tutti_status status;

    TUTTI_TRY(check(&p));
    if (n > info->count)
        n = info->count;
    p.image = tutti__alloc((size_t)filters->channels * (size_t)p.height * (size_t)p.width *
                           sizeof *p.image);
    p.sums = tutti__alloc(p.size * p.size * sizeof *p.sums);
    status = p.image && p.sums ? TUTTI_OK : TUTTI_ERR_MEMORY;
    for (int i = 0; i < info->n_fields && status == TUTTI_OK; i++)
        if (!(p.arrays[i] = tutti__alloc(images->bytes[i])))
            status = TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = find_filters(weights, &p, n);
    for (int i = 0; i < info->n_fields; i++)
        free(p.arrays[i]);
    free(p.image);
    free(p.sums);
    return status;
}

/* The first parameter that is a convolution's of images with these channels. */
static tutti_tensor *first_convolution(const tutti_module *m, int channels)
{
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_parameter(m, i)) != NULL; i++)
        if (t->shape.n == 4 && t->shape.d[1] == channels)
            return t;
    return NULL;
}

tutti_status tutti__session_whiten(tutti__session *s, const char **name_p)
{
    const tutti_dataset *data = s->data.train;
    const int own = s->parts->model->channels, channels = own ? own : data->info.channels;
    tutti_tensor *weight = first_convolution(s->module, channels);
    tutti__filters filters;
    float *values;
    tutti_status status;

    *name_p = weight ? weight->name : NULL;
    if (!weight && s->pipeline)
        return TUTTI_OK;
    if (!weight)
        return tutti__fail(TUTTI_ERR_ARG,
                           "whiten: model %s has no convolution of the images' %d channel%s; leave "
                           "whiten out, or use a model that has one, such as airbench94",
                           s->config->model, channels, tutti__s((uint64_t)channels));
    filters = (tutti__filters){weight->shape.d[0], weight->shape.d[1], weight->shape.d[2],
                               weight->shape.d[3]};
    values = tutti__alloc((size_t)tutti_shape_count(weight->shape) * sizeof *values);
    if (!values)
        return TUTTI_ERR_MEMORY;
    status = tutti__whiten_filters(values, &filters, data, (size_t)s->config->whiten);
    if (status == TUTTI_OK)
        status = tutti_tensor_write(weight, values);
    free(values);
    return status;
}
