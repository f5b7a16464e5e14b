/* bring_your_own_gradients.c -- for a program that computes its gradients itself.   SPDX-License-Identifier: MIT
 *
 *     cc bring_your_own_gradients.c $(pkg-config --cflags --libs tutti_comm) && tutti run -n 2 ./a.out
 *
 * Fits sin(x) with one hidden layer, forward and backward by hand: no tensors, no tape. The reducer owns the gradients'
 * memory; backward fills it from the last layer to the first and reports each final gradient, and the last layer is averaged over
 * the ranks while the first is still being computed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/reducer.h>

enum { W1, B1, W2, B2, N_PARAMETERS, HIDDEN = 64, SAMPLES = 768, STEPS = 1000 };

static float w1[HIDDEN], b1[HIDDEN], w2[HIDDEN], b2[1];
static float *const values[N_PARAMETERS] = {w1, b1, w2, b2};
static const tutti_reducer_parameter parameters[N_PARAMETERS] = {
    {.name = "w1", .count = HIDDEN, .dtype = TUTTI_F32},
    {.name = "b1", .count = HIDDEN, .dtype = TUTTI_F32},
    {.name = "w2", .count = HIDDEN, .dtype = TUTTI_F32},
    {.name = "b2", .count = 1, .dtype = TUTTI_F32}};
static float x[SAMPLES], hidden[SAMPLES][HIDDEN], delta[SAMPLES];
static float *g[N_PARAMETERS]; /* gradients, in the reducer's memory */

/* Predicts this rank's samples (every size-th), keeps what backward needs, and returns the mean squared error. */
static double forward(int rank, int size)
{
    double loss = 0;

    for (int i = rank; i < SAMPLES; i += size) {
        float y = b2[0];

        x[i] = 6.0f * (float)i / SAMPLES - 3.0f; /* evenly spread over [-3, 3) */
        for (int h = 0; h < HIDDEN; h++)
            y += w2[h] * (hidden[i][h] = tanhf(w1[h] * x[i] + b1[h]));
        delta[i] = 2 * (y - sinf(x[i])) * (float)size / SAMPLES; /* dloss/dy */
        loss += pow((double)(y - sinf(x[i])), 2);
    }
    return loss * size / SAMPLES;
}

static void backward(tutti_reducer *r, int rank, int size)
{
    for (size_t p = 0; p < N_PARAMETERS; p++)
        g[p] = memset(tutti_reducer_grad(r, p), 0, parameters[p].count * sizeof(float));
    for (int i = rank; i < SAMPLES; i += size) {
        g[B2][0] += delta[i];
        for (int h = 0; h < HIDDEN; h++)
            g[W2][h] += delta[i] * hidden[i][h];
    }
    tutti_reducer_ready(r, B2); /* errors are kept for tutti_reducer_finish */
    tutti_reducer_ready(r, W2); /* full: its all_reduce starts */
    for (int i = rank; i < SAMPLES; i += size)
        for (int h = 0; h < HIDDEN; h++) {
            float d = delta[i] * w2[h] * (1 - hidden[i][h] * hidden[i][h]);

            g[B1][h] += d;
            g[W1][h] += d * x[i];
        }
    tutti_reducer_ready(r, B1);
    tutti_reducer_ready(r, W1);
}

int main(void)
{
    const double mb[] = {2e-4, 5e-4}; /* one bucket per layer; real programs keep the defaults */
    const tutti_reducer_opts opts = {.bucket_mb_list = mb, .n_bucket_mb_list = 2};
    tutti_group *group;
    tutti_reducer *r;
    int overlapped = 0;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    TUTTI_MUST(tutti_reducer_new(&r, group, parameters, N_PARAMETERS, &opts));
    for (int h = 0; h < HIDDEN; h++) { /* the same start on every rank */
        w1[h] = 0.5f + (float)h / HIDDEN;
        b1[h] = 6.0f * (float)(h * 37 % HIDDEN) / HIDDEN - 3.0f;
    }
    for (int step = 1; step <= STEPS; step++) {
        double loss = forward(tutti_group_rank(group), tutti_group_size(group));

        TUTTI_MUST(tutti_reducer_begin(r));
        backward(r, tutti_group_rank(group), tutti_group_size(group));
        TUTTI_MUST(tutti_reducer_finish(r)); /* now the gradients are the mean over all ranks */
        /* the last layer's mean was complete before the first layer's gradient */
        overlapped += tutti_reducer_bucket(r, 0).done_ms < tutti_reducer_bucket(r, 1).ready_ms;
        for (size_t p = 0; p < N_PARAMETERS; p++)
            for (size_t k = 0; k < parameters[p].count; k++)
                values[p][k] -= 0.02f * g[p][k];
        TUTTI_MUST(tutti_all_reduce(group, TUTTI_BUF(&loss, 1, TUTTI_F64), TUTTI_AVG, NULL));
        if (step % (STEPS / 5) == 0)
            tutti_log0(group, "step %4d  loss %.6f", step, loss);
    }
    tutti_log0(group, "overlap in %d of %d steps", overlapped, STEPS);
    tutti_reducer_free(r);
    tutti_group_free(group);
    return 0;
}
