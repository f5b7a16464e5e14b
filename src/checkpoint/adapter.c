/* adapter.c -- low-rank adapters in weight files: which they are, and merging them.   SPDX-License-Identifier: MIT */
#include "checkpoint/adapter.h"

#include "checkpoint/json_text.h"
#include "nn/nn.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Of a module ------------------------------------------------------------------------------------- */

static int describe_layer(json_t *layers, const tutti_tensor *t)
{
    const tutti__state *state = tutti__state_of(t);

    return json_object_set_new(layers, tutti__module_path(state->owner),
                               json_pack("{s:s, s:b}", "weight", t->name, "fan_in_fan_out",
                                         (int)(state->adaptable == TUTTI__IN_OUT)));
}

tutti_status tutti__adapters_text(const tutti_module *m, char **text_p)
{
    const struct tutti_root *root = m->root;
    json_t *layers, *trained, *json;
    const tutti_tensor *t;
    int failed = 0;

    *text_p = NULL;
    if (root->lora.rank == 0)
        return TUTTI_OK;
    m = tutti__whole_of(m);
    layers = json_object();
    trained = json_array();
    for (size_t i = 0; (t = tutti_module_parameter(m, i)) != NULL; i++) {
        if (tutti__state_of(t)->adapter)
            failed |= describe_layer(layers, t);
        if (t->parameter->requires_grad && !tutti__is_of_adapter(t))
            failed |= json_array_append_new(trained, json_string(t->name));
    }
    json =
        json_pack("{s:i, s:f, s:f, s:o, s:o}", "r", root->lora.rank, "lora_alpha", root->lora.alpha,
                  "lora_dropout", root->lora.dropout, "layers", layers, "trained", trained);
    *text_p = failed ? NULL : tutti__json_text(json, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(json);
    return *text_p ? TUTTI_OK
                   : tutti__fail(TUTTI_ERR_MEMORY, "no memory to describe the model's adapters");
}

/* ---- Of a file --------------------------------------------------------------------------------------- */

static tutti_status malformed(const tutti__weights *file, const char *what)
{
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s: what it says of its adapters (metadata \"" TUTTI__ADAPTERS_KEY
                       "\") does not fit: %.200s",
                       tutti__weights_path(file), what);
}

static bool find(const tutti__weights *file, const char *name, const char *end, size_t *i_p)
{
    const size_t n = name ? strlen(name) : 0, k = strlen(end);

    for (size_t i = 0; name && i < tutti__weights_count(file); i++) {
        const char *at = tutti__weights_at(file, i)->name;

        *i_p = i;
        if (strncmp(at, name, n) == 0 && strncmp(at + n, end, k + 1) == 0)
            return true;
    }
    return false;
}

static bool fits(const tutti__weights *file, const struct tutti__adapted_layer *l, int64_t rank)
{
    const tutti_shape w = tutti__weights_at(file, l->weight)->shape;
    const tutti_shape a = tutti__weights_at(file, l->a)->shape;
    const tutti_shape b = tutti__weights_at(file, l->b)->shape;

    return w.n == 2 && a.n == 2 && b.n == 2 && a.d[0] == rank && b.d[1] == rank &&
           a.d[1] == w.d[l->in_out ? 0 : 1] && b.d[0] == w.d[l->in_out ? 1 : 0];
}

static tutti_status take_layers(tutti__adapters *a, int64_t rank)
{
    json_t *layers = json_object_get(a->json, "layers"), *value;
    const char *path;

    a->layers = tutti__alloc((json_object_size(layers) + 1) * sizeof *a->layers);
    if (!a->layers)
        return TUTTI_ERR_MEMORY;
    json_object_foreach(layers, path, value)
    {
        struct tutti__adapted_layer *l = &a->layers[a->n++];

        l->path = path;
        l->in_out = json_is_true(json_object_get(value, "fan_in_fan_out"));
        if (!find(a->file, json_string_value(json_object_get(value, "weight")), "", &l->weight) ||
            !find(a->file, path, ".lora_A.weight", &l->a) ||
            !find(a->file, path, ".lora_B.weight", &l->b) || !fits(a->file, l, rank))
            return malformed(a->file, path);
    }
    return a->n > 0 ? TUTTI_OK : malformed(a->file, "it names no layers");
}

static tutti_status take_all(tutti__adapters *a)
{
    const json_t *r = json_object_get(a->json, "r"),
                 *alpha = json_object_get(a->json, "lora_alpha");

    if (!json_is_integer(r) || json_integer_value(r) < 1 || !json_is_number(alpha) ||
        !isfinite(json_number_value(alpha)))
        return malformed(a->file, "r or lora_alpha is not a number above 0");
    a->scale = json_number_value(alpha) / (double)json_integer_value(r);
    return take_layers(a, json_integer_value(r));
}

tutti_status tutti__adapters_open(tutti__adapters **adapters_p, const tutti__weights *file)
{
    const char *text = tutti__weights_metadata(file, TUTTI__ADAPTERS_KEY);
    tutti__adapters *a;
    tutti_status status;

    *adapters_p = NULL;
    if (!text)
        return TUTTI_OK;
    a = tutti__alloc(sizeof *a);
    if (!a)
        return TUTTI_ERR_MEMORY;
    *a = (tutti__adapters){.file = file, .json = json_loads(text, 0, NULL)};
    status = a->json ? take_all(a) : malformed(file, "it is not JSON");
    if (status == TUTTI_OK)
        *adapters_p = a;
    else
        tutti__adapters_close(a);
    return status;
}

void tutti__adapters_close(tutti__adapters *a)
{
    if (!a)
        return;
    json_decref(a->json);
    free(a->layers);
    free(a);
}

bool tutti__adapters_hold(const tutti__adapters *a, size_t i)
{
    for (size_t k = 0; a && k < a->n; k++)
        if (a->layers[k].a == i || a->layers[k].b == i)
            return true;
    return false;
}

static const struct tutti__adapted_layer *layer_of(const tutti__adapters *a, size_t i)
{
    for (size_t k = 0; a && k < a->n; k++)
        if (a->layers[k].weight == i)
            return &a->layers[k];
    return NULL;
}

bool tutti__adapters_change(const tutti__adapters *a, size_t i)
{
    return layer_of(a, i) != NULL;
}

/* ---- Merging ----------------------------------------------------------------------------------------- */

/* [rows,columns] to [columns,rows]. NULL: no memory. */
static float *transposed(const float *p, int64_t rows, int64_t columns)
{
    float *q = tutti__alloc((size_t)(rows * columns) * sizeof *q);

    for (int64_t i = 0; q && i < rows; i++)
        for (int64_t k = 0; k < columns; k++)
            q[k * rows + i] = p[i * columns + k];
    return q;
}

/* values [rows,columns] += scale * left [rows,rank] right [rank,columns], each sum in double precision; sums: room for a row. */
static void add_product(float *values, const float *left, const float *right, int64_t rows,
                        int64_t columns, int64_t rank, double scale, double *sums)
{
    for (int64_t i = 0; i < rows; i++) {
        float *row = values + i * columns;

        memset(sums, 0, (size_t)columns * sizeof *sums);
        for (int64_t k = 0; k < rank; k++) {
            const double factor = (double)left[i * rank + k];
            const float *from = right + k * columns;

            for (int64_t j = 0; j < columns; j++)
                sums[j] += factor * (double)from[j];
        }
        for (int64_t j = 0; j < columns; j++)
            row[j] = (float)((double)row[j] + scale * sums[j]);
    }
}

static float *read_f32(const tutti__weights *file, size_t i, tutti_status *status_p)
{
    float *p =
        tutti__alloc((size_t)tutti_shape_count(tutti__weights_at(file, i)->shape) * sizeof *p);

    *status_p = p ? tutti__weights_read_as(file, i, TUTTI_F32, p) : TUTTI_ERR_MEMORY;
    if (*status_p != TUTTI_OK) {
        free(p);
        return NULL;
    }
    return p;
}

tutti_status tutti__adapters_merge(const tutti__adapters *adapters, size_t i, float *values)
{
    const struct tutti__adapted_layer *l = layer_of(adapters, i);
    tutti_shape w, shape_a, shape_b;
    float *a, *b, *a_t = NULL, *b_t = NULL;
    tutti_status status;
    double *sums;

    if (!l)
        return TUTTI_OK;
    w = tutti__weights_at(adapters->file, l->weight)->shape;
    shape_a = tutti__weights_at(adapters->file, l->a)->shape;
    shape_b = tutti__weights_at(adapters->file, l->b)->shape;
    a = read_f32(adapters->file, l->a, &status);
    b = a ? read_f32(adapters->file, l->b, &status) : NULL;
    sums = tutti__alloc((size_t)w.d[1] * sizeof *sums);
    if (b && l->in_out) { /* W^T is B A, so W is A^T B^T */
        a_t = transposed(a, shape_a.d[0], shape_a.d[1]);
        b_t = transposed(b, shape_b.d[0], shape_b.d[1]);
    }
    if (b && (!sums || (l->in_out && (!a_t || !b_t))))
        status = TUTTI_ERR_MEMORY;
    if (b && status == TUTTI_OK)
        add_product(values, l->in_out ? a_t : b, l->in_out ? b_t : a, w.d[0], w.d[1], shape_a.d[0],
                    adapters->scale, sums);
    free(a);
    free(b);
    free(a_t);
    free(b_t);
    free(sums);
    return status;
}
