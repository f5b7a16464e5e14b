/* linear_regression.c -- the program every guide to data-parallel training starts with.   SPDX-License-Identifier: MIT
 *
 *     tutti run -n 2 build/examples/example_linear_regression          (alone, it is a group of one)
 *
 * Fits y = w.x + b to 2048 noisy samples: one linear layer, mean squared error, SGD, five epochs. All ranks together use
 * 32 samples per step, so that the losses do not depend on the number of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define SAMPLES      2048
#define FEATURES     10
#define GLOBAL_BATCH 32

static float x[SAMPLES][FEATURES], y[SAMPLES];

/* The same samples on every rank; the loader gives each rank its share. */
static void make_samples(void)
{
    uint64_t state = 1;

    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0.5f;
        for (int k = 0; k <= FEATURES; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            float u = (float)(state >> 40) * 0x1p-23f - 1; /* in [-1, 1) */

            if (k < FEATURES)
                y[i] += (float)(k - 4) * (x[i][k] = u);
            else
                y[i] += 0.1f * u; /* noise */
        }
    }
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_module model;
    tutti_linear fc;
    tutti_ddp *ddp;
    tutti_optim *optim;
    tutti_dataset *dataset;
    tutti_loader *loader;

    make_samples();
    TUTTI_MUST(tutti_group_init(&group, NULL));
    int ranks = tutti_group_size(group);

    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    tutti_module_init(&model, cx);
    tutti_linear_init(&fc, &model, "fc", FEATURES, 1);
    TUTTI_MUST(tutti_ddp_new(&ddp, &model, group, NULL)); /* all start from rank 0's weights */
    TUTTI_MUST(tutti_sgd_new(&optim, &model, &(tutti_sgd_opts){.lr = 0.01f}));
    TUTTI_MUST(tutti_dataset_from_memory(&dataset, x[0], FEATURES, y, 1, SAMPLES));
    TUTTI_MUST(tutti_loader_new(
        &loader, dataset, group,
        &(tutti_loader_opts){.batch = (GLOBAL_BATCH + ranks - 1) / ranks, .shuffle = true}));

    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        double sum[2] = {0}; /* of losses; of steps */

        tutti_loader_set_epoch(loader, epoch);
        for (tutti_batch batch; tutti_loader_next(loader, &batch);) {
            tutti_step_begin(cx, NULL);
            tutti_tensor *prediction = tutti_linear_forward(&fc, tutti_input(cx, batch.x));
            tutti_tensor *loss = tutti_mse_loss(prediction, tutti_input(cx, batch.y));

            tutti_optim_zero_grad(optim);
            TUTTI_MUST(tutti_backward(loss)); /* gradients are the mean over all ranks */
            TUTTI_MUST(tutti_optim_step(optim));
            sum[0] += (double)tutti_item(loss);
            sum[1]++;
            tutti_step_end(cx);
        }
        TUTTI_MUST(tutti_loader_status(loader));
        TUTTI_MUST(tutti_all_reduce(group, TUTTI_BUF(sum, 2, TUTTI_F64), TUTTI_SUM, NULL));
        tutti_log0(group, "epoch %d  loss %.6f", (int)epoch + 1, sum[0] / sum[1]);
    }

    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
    tutti_optim_free(optim);
    tutti_ddp_free(ddp);
    tutti_module_destroy(&model);
    tutti_ctx_free(cx);
    tutti_group_free(group);
    return 0;
}
