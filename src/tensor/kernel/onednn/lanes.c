/* lanes.c -- per-channel sums: bias gradients and global average pooling.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/lanes.h"

/* ---- Runs of 16 bit ------------------------------------------------------------------------------------- */

const float *tutti__lanes_read(tutti__elements x, int64_t at, const tutti__vector_run *run,
                               float *buffer, tutti__vector_run *as_p)
{
    const uint16_t *from = (const uint16_t *)x.p + at;

    *as_p = *run;
    if (x.dtype == TUTTI_F32)
        return (const float *)x.p + at;
    as_p->stride = TUTTI__WIDTH;
    if (run->stride == TUTTI__WIDTH)
        tutti__half_to_f32(buffer, from, (size_t)((run->steps - 1) * TUTTI__WIDTH + run->width),
                           x.dtype);
    else
        for (int64_t i = 0; i < run->steps; i++)
            tutti__half_to_f32(buffer + i * TUTTI__WIDTH, from + i * run->stride,
                               (size_t)run->width, x.dtype);
    return buffer;
}

float *tutti__lanes_write(tutti__elements y, int64_t at, float *buffer)
{
    return y.dtype == TUTTI_F32 ? (float *)y.p + at : buffer;
}

void tutti__lanes_written(tutti__elements y, int64_t at, const tutti__vector_run *run,
                          const float *buffer)
{
    uint16_t *to = (uint16_t *)y.p + at;

    if (y.dtype == TUTTI_F32)
        return;
    if (run->stride == TUTTI__WIDTH)
        tutti__half_from_f32(to, buffer, (size_t)((run->steps - 1) * TUTTI__WIDTH + run->width),
                             y.dtype);
    else
        for (int64_t i = 0; i < run->steps; i++)
            tutti__half_from_f32(to + i * run->stride, buffer + i * TUTTI__WIDTH,
                                 (size_t)run->width, y.dtype);
}

/* ---- Sums ----------------------------------------------------------------------------------------------- */

typedef struct job {
    tutti__onednn_view view;
    const tutti__runs *runs;
    tutti__elements x;
    float *y;
    bool add;
} job;

/* The sums of the group's channels over `images` images, beginning with element `first`. */
static void sums_of(const job *t, const tutti__lanes *g, int64_t first, int64_t images, double *sum)
{
    double lane[TUTTI__WIDTH] = {0};
    tutti__lanes_buffer buffer;
    tutti__vector_run run, as;

    TUTTI__FOR_CHUNKS(images, &t->view, g, run, at)
    {
        const float *x = tutti__lanes_read(t->x, first + at, &run, buffer, &as);

        t->runs->sum(x, &as, lane);
    }
    tutti__lanes_fold(g, lane, sum);
}

/* ---- Bias gradient -------------------------------------------------------------------------------------- */

static void bias_gradient_group(void *arg, int64_t i, int member)
{
    const job *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    double sum[TUTTI__WIDTH] = {0};

    (void)member;
    sums_of(t, &g, 0, t->view.n, sum);
    for (int c = 0; c < g.channels; c++)
        t->y[g.channel + c] = (float)(sum[c] + (t->add ? (double)t->y[g.channel + c] : 0));
}

tutti_status tutti__onednn_bias_gradient(tutti_tensor *db, tutti_tensor *dy)
{
    job t = {.runs = tutti__runs_of(dy->cx), .y = db->data, .add = db->accumulate};
    const tutti__layout *layout;
    void *data;

    TUTTI_TRY(tutti__onednn_walk(dy, &t.view, &layout, &data));
    t.x = (tutti__elements){data, dy->dtype};
    tutti__parallel(dy->cx, bias_gradient_group, &t, tutti__lanes_count(&t.view));
    return TUTTI_OK;
}

/* ---- Bias of a transposed convolution --------------------------------------------------------------------- */

TUTTI__CLONES static void add_lanes(float *y, const tutti__vector_run *r, const float *lane)
{
    for (int64_t i = 0; i < r->steps; i++, y += r->stride)
        for (int l = 0; l < r->width; l++)
            y[l] += lane[l];
}

static void add_bias_group(void *arg, int64_t i, int member)
{
    const job *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    tutti__lanes_buffer buffer;
    tutti__vector_run run, as;
    float lane[TUTTI__WIDTH];

    (void)member;
    tutti__lanes_spread(&g, t->y + g.channel, lane);
    TUTTI__FOR_CHUNKS(t->view.n, &t->view, &g, run, at)
    {
        float *y = (float *)tutti__lanes_read(t->x, at, &run, buffer, &as);

        add_lanes(y, &as, lane);
        tutti__lanes_written(t->x, at, &run, y);
    }
}

tutti_status tutti__onednn_add_bias(tutti_tensor *y, tutti_tensor *b)
{
    job t = {.x = {y->data, y->dtype}, .y = b->data};

    if (!tutti__onednn_view_of(y->shape, y->layout, &t.view))
        return tutti__fail(TUTTI_ERR_INTERNAL,
                           "oneDNN chose a layout that has no rows of channels");
    tutti__parallel(y->cx, add_bias_group, &t, tutti__lanes_count(&t.view));
    return TUTTI_OK;
}

/* ---- Global average pooling ------------------------------------------------------------------------------ */

static void mean_group(void *arg, int64_t i, int member)
{
    const job *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);

    (void)member;
    for (int64_t n = 0; n < t->view.n; n++) {
        double sum[TUTTI__WIDTH] = {0};

        sums_of(t, &g, n * t->view.image, 1, sum);
        for (int c = 0; c < g.channels; c++)
            t->y[n * t->view.c + g.channel + c] = (float)(sum[c] / (double)t->view.s);
    }
}

tutti_status tutti__onednn_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x)
{
    job t = {.runs = tutti__runs_of(x->cx)};
    const tutti__layout *layout;
    void *data;

    TUTTI_TRY(tutti__onednn_walk(x, &t.view, &layout, &data));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    t.x = (tutti__elements){data, TUTTI_F32};
    t.y = y->data;
    tutti__parallel(y->cx, mean_group, &t, tutti__lanes_count(&t.view));
    return TUTTI_OK;
}

static void spread_group(void *arg, int64_t i, int member)
{
    const job *t = arg;
    const tutti__lanes g = tutti__lanes_at(&t->view, i);
    float share[TUTTI__WIDTH] = {0}, lane[TUTTI__WIDTH];

    (void)member;
    for (int64_t n = 0; n < t->view.n; n++) {
        for (int c = 0; c < g.channels; c++)
            share[c] = ((const float *)t->x.p)[n * t->view.c + g.channel + c] / (float)t->view.s;
        tutti__lanes_spread(&g, share, lane);
        for (int r = 0; r < 2; r++)
            t->runs->fill(t->y + n * t->view.image + g.run[r].offset, &g.run[r], lane);
    }
}

tutti_status tutti__onednn_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy)
{
    const tutti__layout *layout = tutti__onednn_usual_layout(dx->cx, dx->shape, dx->dtype);
    job t = {.runs = tutti__runs_of(dx->cx)};
    void *data;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &data));
    TUTTI_TRY(tutti__tensor_alloc(dx, layout));
    tutti__onednn_view_of(dx->shape, layout, &t.view);
    t.x = (tutti__elements){data, TUTTI_F32};
    t.y = dx->data;
    tutti__parallel(dx->cx, spread_group, &t, tutti__lanes_count(&t.view));
    return TUTTI_OK;
}
