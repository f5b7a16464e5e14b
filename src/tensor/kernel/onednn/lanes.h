/* lanes.h -- views channels as groups that fill a vector.   SPDX-License-Identifier: MIT
 *
 *     row-major    a group is one channel: 16 lanes are 16 pixels of it
 *     nChw16c      a group is a block of 16 channels: one lane each
 *     nChw8c       a group is a block of 8 channels: two pixels of each
 *     nhwc         a group is 16 channels, far apart from pixel to pixel
 *
 * Per-channel reductions and maps work on any of them: a function gets `steps` vectors at a stride, then the rest, as
 * partial vectors. Groups do not share channels, so threads may process them in any order. */
#ifndef TUTTI_TENSOR_KERNEL_ONEDNN_LANES_H
#define TUTTI_TENSOR_KERNEL_ONEDNN_LANES_H

#include "tensor/kernel/onednn/onednn_state.h"

#include <string.h>

/* Float sums run over at most this many steps before they are added to a double. */
#define TUTTI__CHUNK 512

typedef struct tutti__lanes {
    int64_t channel;          /* the first */
    int channels;             /* padding excluded */
    int period;               /* lane l belongs to channel + l % period */
    tutti__vector_run run[2]; /* whole vectors, then the rest; steps may be 0 */
} tutti__lanes;

static inline bool tutti__lanes_contiguous(const tutti__onednn_view *v)
{
    return v->step == v->inner && TUTTI__WIDTH % v->inner == 0;
}

static inline int64_t tutti__lanes_count(const tutti__onednn_view *v)
{
    const int64_t blocks = v->padded_c / v->inner;

    return tutti__lanes_contiguous(v) ? blocks
                                      : blocks * ((v->inner + TUTTI__WIDTH - 1) / TUTTI__WIDTH);
}

static inline tutti__lanes tutti__lanes_at(const tutti__onednn_view *v, int64_t i)
{
    const int64_t length = v->s * v->inner;
    tutti__lanes g = {0};

    if (tutti__lanes_contiguous(v)) {
        g.channel = i * v->inner;
        g.period = (int)v->inner;
        g.run[0] =
            (tutti__vector_run){i * v->block, length / TUTTI__WIDTH, TUTTI__WIDTH, TUTTI__WIDTH};
        g.run[1] = (tutti__vector_run){i * v->block + length / TUTTI__WIDTH * TUTTI__WIDTH,
                                       length % TUTTI__WIDTH != 0, TUTTI__WIDTH,
                                       (int)(length % TUTTI__WIDTH)};
    } else {
        const int64_t in_block = (v->inner + TUTTI__WIDTH - 1) / TUTTI__WIDTH;
        const int64_t first = i % in_block * TUTTI__WIDTH, left = v->inner - first;
        const int width = (int)(left < TUTTI__WIDTH ? left : TUTTI__WIDTH);

        g.channel = i / in_block * v->inner + first;
        g.period = width;
        g.run[width != TUTTI__WIDTH] =
            (tutti__vector_run){i / in_block * v->block + first, v->s, v->step, width};
    }
    g.channels = (int)(v->c - g.channel < g.period ? v->c - g.channel : g.period);
    if (g.channels < 0)
        g.channels = 0;
    return g;
}

/* Spreads a per-channel array over the lanes; padding gets 0. */
static inline void tutti__lanes_spread(const tutti__lanes *g, const float *of_channel,
                                       float lane[TUTTI__WIDTH])
{
    for (int l = 0; l < TUTTI__WIDTH; l++)
        lane[l] = l % g->period < g->channels ? of_channel[l % g->period] : 0.0f;
}

/* Adds the lanes of each channel to its sum. */
static inline void tutti__lanes_fold(const tutti__lanes *g, const double lane[TUTTI__WIDTH],
                                     double *of_channel)
{
    for (int l = 0; l < TUTTI__WIDTH; l++)
        if (l % g->period < g->channels)
            of_channel[l % g->period] += lane[l];
}

static inline tutti__vector_run tutti__run_chunk(const tutti__vector_run *r, int64_t done,
                                                 int64_t more)
{
    return (tutti__vector_run){r->offset + done * r->stride,
                               more < TUTTI__CHUNK ? more : TUTTI__CHUNK, r->stride, r->width};
}

/* Runs the statement that follows for each chunk of the group's runs in `images` images: `run`, `at` from the start of the
 * tensor. */
#define TUTTI__FOR_CHUNKS(images, view, g, run, at)                                                \
    for (int64_t n_ = 0; n_ < (images); n_++)                                                      \
    TUTTI__FOR_CHUNKS_OF(n_, view, g, run, at)
/* From the last image to the first: a second pass then finds in the cache what the first has read last. */
#define TUTTI__FOR_CHUNKS_BACK(images, view, g, run, at)                                           \
    for (int64_t n_ = (images); n_-- > 0;)                                                         \
    TUTTI__FOR_CHUNKS_OF(n_, view, g, run, at)
#define TUTTI__FOR_CHUNKS_OF(image_, view, g, run, at)                                             \
    for (int r_ = 0; r_ < 2; r_++)                                                                 \
        for (int64_t done_ = 0, at = 0, more_ = (g)->run[r_].steps;                                \
             more_ > 0 && ((run) = tutti__run_chunk(&(g)->run[r_], done_, more_),                  \
                          at = (image_) * (view)->image + (run).offset, true);                     \
             done_ += TUTTI__CHUNK, more_ -= TUTTI__CHUNK)

/* Elements that may be 16-bit. Kernels get a run of them as floats: directly, or widened into a buffer in the cache. */
typedef struct tutti__elements {
    void *p;
    tutti_dtype dtype;
} tutti__elements;
typedef float tutti__lanes_buffer[TUTTI__CHUNK * TUTTI__WIDTH];

/* The run `run`, `at` elements from the start; *as_p: its steps and stride there. */
const float *tutti__lanes_read(tutti__elements x, int64_t at, const tutti__vector_run *run,
                               float *buffer, tutti__vector_run *as_p);
/* Memory for a run for which tutti__lanes_read has set *as_p; then call tutti__lanes_written. */
float *tutti__lanes_write(tutti__elements y, int64_t at, float *buffer);
void tutti__lanes_written(tutti__elements y, int64_t at, const tutti__vector_run *run,
                          const float *buffer);

/* The functions on runs for this context's instruction set. */
static inline const tutti__runs *tutti__runs_of(const tutti_ctx *cx)
{
    return ((const tutti__onednn *)cx->kernel_state)->isa->runs;
}

#endif
