/* views.c -- the views that the key tta stands for.   SPDX-License-Identifier: MIT
 *
 * Level 2 is that of airbench (Keller Jordan, arXiv 2404.00498, section 3.6): half of the weight is the untranslated pair's, the other half
 * that of the pairs shifted by a pixel. */
#include "train/session/views.h"

#include "data/dataset.h"

static const tutti__view plain[] = {{.weight = 1}};
static const tutti__view mirror[] = {{.weight = 0.5f}, {.mirrored = true, .weight = 0.5f}};
static const tutti__view shifted[] = {{.weight = 0.25f},       {.mirrored = true, .weight = 0.25f},
                                      {-1, -1, false, 0.125f}, {-1, -1, true, 0.125f},
                                      {1, 1, false, 0.125f},   {1, 1, true, 0.125f}};

const tutti__view *tutti__views_of(int64_t tta, size_t *n_p)
{
    *n_p = tta == 0   ? TUTTI__COUNT_OF(plain)
           : tta == 1 ? TUTTI__COUNT_OF(mirror)
                      : TUTTI__COUNT_OF(shifted);
    return tta == 0 ? plain : tta == 1 ? mirror : shifted;
}

/* Place i of n, reflected at the first and the last one. */
static int64_t reflected(int64_t i, int64_t n)
{
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

void tutti__view_make(const tutti__view *view, tutti_array x, float *to)
{
    const int64_t height = x.shape.d[2], width = x.shape.d[3],
                  rows = x.shape.d[0] * x.shape.d[1] * height;
    const float *images = x.p;

    for (int64_t r = 0; r < rows; r++, to += width) {
        const int64_t i = r % height;
        const float *from = images + (r - i + reflected(i + view->down, height)) * width;

        for (int64_t j = 0; j < width; j++)
            to[view->mirrored ? width - 1 - j : j] = from[reflected(j + view->right, width)];
    }
}

tutti_status tutti__views_check(const tutti__session *s, const tutti_dataset *data)
{
    const tutti_dataset_info info = tutti_dataset_describe(data);
    const tutti_shape x = info.fields[0].shape;
    const bool images = x.n == 3 && info.dtype != TUTTI_I64;
    char text[64];

    if (s->config->tta == 0)
        return TUTTI_OK;
    if (s->parts->own.loss)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tta: it averages outputs, and this program's own loss is "
                           "of the outputs of one forward pass; use tta=0");
    if (images && s->task.target.n > 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tta: the targets of task=%s have places, as images do, and views are "
                           "mirrored and shifted; use tta=0",
                           s->task.kind->name);
    if (images && x.d[1] > 1 && x.d[2] > 1)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "tta: it is for images [C,H,W] of at least 2 x 2 pixels, and the samples of "
                       "data=%s are %s %s; use tta=0",
                       s->config->data, tutti_dtype_name(info.dtype),
                       tutti__dataset_text(data, 2, text));
}
