/* mini_resnet.c -- a residual network on real images, data-parallel, from data to saved weights.
 * SPDX-License-Identifier: MIT
 *
 *     tutti run -n 2 build/examples/example_mini_resnet [DATA [EPOCHS [WEIGHTS]]]
 *
 * DATA is what tutti_dataset_open takes, without the split: "digits" (default, in the library), "cifar10:DIR",
 * "folder:DIR", "synthetic". WEIGHTS: where to write them, as safetensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

static tutti_dataset *open_split(const char *data, const char *split)
{
    tutti_dataset *dataset;
    char spec[4096];

    snprintf(spec, sizeof spec, "%s%s%s", data, strchr(data, ':') ? "/" : ":", split);
    TUTTI_MUST(tutti_dataset_open(&dataset, spec));
    return dataset;
}

/* The fraction of test images that the model classifies correctly. Each rank evaluates its part; the sums are exact. */
static double evaluate(tutti_model *model, tutti_ctx *cx, tutti_loader *loader, tutti_group *group,
                       int classes)
{
    double sum[2] = {0}; /* correct, all */
    float *logits = NULL;

    for (tutti_batch batch; tutti_loader_next(loader, &batch);) {
        const int64_t *labels = batch.y.p;

        logits = realloc(logits, batch.n * (size_t)classes * sizeof *logits);
        tutti_step_begin(cx, &(tutti_step_opts){.eval = true});
        TUTTI_MUST(tutti_tensor_read(tutti_model_forward(model, tutti_input(cx, batch.x)), logits));
        tutti_step_end(cx);
        for (size_t i = 0; i < batch.n; i++, sum[1]++) {
            const float *row = logits + i * (size_t)classes;
            int best = 0;

            for (int c = 1; c < classes; c++)
                best = row[c] > row[best] ? c : best;
            sum[0] += best == labels[i];
        }
    }
    free(logits);
    TUTTI_MUST(tutti_loader_status(loader));
    TUTTI_MUST(tutti_all_reduce(group, TUTTI_BUF(sum, 2, TUTTI_F64), TUTTI_SUM, NULL));
    return sum[0] / sum[1];
}

int main(int argc, char **argv)
{
    const char *data = argc > 1 ? argv[1] : "digits";
    int epochs = argc > 2 ? atoi(argv[2]) : 10;
    tutti_dataset *train = open_split(data, "train"), *test = open_split(data, "test");
    tutti_dataset_info info = tutti_dataset_describe(train);
    tutti_model_opts shape = {.channels = info.channels,
                              .height = info.height,
                              .width = info.width,
                              .classes = info.classes};
    tutti_group *group;
    tutti_ctx *cx;
    tutti_model *model;
    tutti_ddp *ddp;
    tutti_optim *optim;
    tutti_loader *train_loader, *test_loader;

    TUTTI_MUST(
        tutti_group_init(&group, NULL)); /* RANK, WORLD_SIZE, MASTER_ADDR, ...; none: alone */
    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    TUTTI_MUST(tutti_model_new(&model, cx, "mini_resnet", &shape));
    TUTTI_MUST(tutti_ddp_new(&ddp, tutti_model_module(model), group, NULL));
    TUTTI_MUST(tutti_sgd_new(
        &optim, tutti_model_module(model),
        &(tutti_sgd_opts){.momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true}));
    TUTTI_MUST(tutti_loader_new(
        &train_loader, train, group,
        &(tutti_loader_opts){.batch = 32, .workers = 1, .shuffle = true, .augment = true}));
    TUTTI_MUST(tutti_loader_new(&test_loader, test, group,
                                &(tutti_loader_opts){.batch = 64, .no_padding = true}));

    size_t steps = tutti_loader_batches(train_loader);
    uint64_t all_steps = (uint64_t)steps * (uint64_t)epochs, step = 0;
    tutti_schedule schedule = {.kind = TUTTI_SCHEDULE_COSINE,
                               .lr = 0.05f,
                               .total_steps = all_steps,
                               .warmup_steps = all_steps / 20};

    for (int epoch = 0; epoch < epochs; epoch++) {
        double sum = 0;

        tutti_loader_set_epoch(train_loader, (uint64_t)epoch);
        for (tutti_batch batch; tutti_loader_next(train_loader, &batch); step++) {
            tutti_step_begin(cx, NULL);
            tutti_tensor *logits = tutti_model_forward(model, tutti_input(cx, batch.x));
            tutti_tensor *loss = tutti_cross_entropy(logits, tutti_input(cx, batch.y));

            tutti_optim_zero_grad(optim);
            TUTTI_MUST(tutti_backward(loss)); /* buckets are reduced while it runs */
            tutti_optim_set_lr(optim, tutti_schedule_lr(&schedule, step));
            TUTTI_MUST(tutti_optim_step(optim));
            sum += (double)tutti_item(loss);
            tutti_step_end(cx);
        }
        TUTTI_MUST(tutti_loader_status(train_loader)); /* the end of the epoch, or a read error? */
        TUTTI_MUST(tutti_all_reduce(group, TUTTI_BUF(&sum, 1, TUTTI_F64), TUTTI_AVG, NULL));
        TUTTI_MUST(tutti_ddp_broadcast_buffers(ddp)); /* all ranks test the same model */
        tutti_log0(group, "epoch %d  loss %.4f  accuracy %.4f", epoch + 1, sum / (double)steps,
                   evaluate(model, cx, test_loader, group, info.classes));
    }
    if (argc > 3 && tutti_group_rank(group) == 0)
        TUTTI_MUST(tutti_module_save(tutti_model_module(model), argv[3]));

    tutti_loader_free(train_loader);
    tutti_loader_free(test_loader);
    tutti_optim_free(optim);
    tutti_ddp_free(ddp);
    tutti_model_free(model);
    tutti_ctx_free(cx);
    tutti_group_free(group);
    tutti_dataset_free(train);
    tutti_dataset_free(test);
    return 0;
}
