/* elastic_training.c -- training that survives its workers, with the same weights at the end.   SPDX-License-Identifier: MIT
 *
 *     tutti run -n 3 build/examples/example_elastic_training            (kill -9 any of its workers while it runs)
 *
 * A small network with batch norm and dropout learns to read the 8x8 digits. A step is 8 shards of 16 images, whichever worker computes
 * them: the digest of the weights at the end is the same for any number of workers, killed, replaced or not. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { SHARDS = 8, BATCH = 16, HIDDEN = 64 };

typedef struct network {
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
    tutti_linear fc1, fc2;
} network;

static void init(network *net, tutti_ctx *cx)
{
    tutti_module_init(&net->base, cx);
    tutti_conv2d_init(
        &net->conv, &net->base, "conv",
        &(tutti_conv2d_layer_opts){.in = 1, .out = 8, .kernel = 3, .padding = 1, .no_bias = true});
    tutti_batch_norm2d_init(&net->norm, &net->base, "norm", 8);
    tutti_linear_init(&net->fc1, &net->base, "fc1", 8 * 64, HIDDEN);
    tutti_linear_init(&net->fc2, &net->base, "fc2", HIDDEN, 10);
}

static tutti_tensor *forward(network *net, tutti_tensor *x)
{
    x = tutti_relu(tutti_batch_norm2d_forward(&net->norm, tutti_conv2d_forward(&net->conv, x)));
    x = tutti_relu(tutti_linear_forward(&net->fc1, tutti_flatten(x)));
    return tutti_linear_forward(&net->fc2, tutti_dropout(x, 0.25f));
}

/* What is computed for (step, shard), a function of these two and the weights only. */
static tutti_status compute(network *net, tutti_loader *loader, uint64_t step, int shard)
{
    const size_t n = tutti_loader_batches(loader);
    tutti_ctx *cx = tutti_module_ctx(&net->base);
    tutti_batch batch;
    tutti_status status;

    tutti_loader_set_epoch(loader, step / n);
    if (!tutti_loader_take(loader, step % n, shard, &batch))
        return tutti_loader_status(loader);
    tutti_step_begin(cx, NULL);
    tutti_module_zero_grad(&net->base);
    status = tutti_backward(
        tutti_cross_entropy(forward(net, tutti_input(cx, batch.x)), tutti_input(cx, batch.y)));
    tutti_step_end(cx);
    return status;
}

int main(int argc, char **argv)
{
    const uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    tutti_ctx *cx;
    network net;
    tutti_elastic *e;
    tutti_optim *optim;
    tutti_dataset *dataset;
    tutti_loader *loader;
    char digest[33];

    TUTTI_MUST(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL));
    init(&net, cx);
    TUTTI_MUST(tutti_sgd_new(&optim, &net.base, &(tutti_sgd_opts){.lr = 0.05f, .momentum = 0.9f}));
    TUTTI_MUST(tutti_dataset_open(&dataset, "digits:train"));
    TUTTI_MUST(
        tutti_loader_new(&loader, dataset, NULL,
                         &(tutti_loader_opts){.batch = BATCH, .shuffle = true, .shards = SHARDS}));
    TUTTI_MUST(tutti_elastic_new(&e, &(tutti_elastic_opts){.shards = SHARDS}));
    TUTTI_MUST(tutti_elastic_keep_module(e, &net.base, NULL, NULL));
    TUTTI_MUST(tutti_elastic_keep_optim(e, optim));

    while (tutti_elastic_step(e) < steps && tutti_elastic_begin(e)) {
        tutti_status status = TUTTI_OK;
        int shard;

        while (status == TUTTI_OK && (shard = tutti_elastic_shard(e)) >= 0)
            status = compute(&net, loader, tutti_elastic_step(e), shard);
        if (status != TUTTI_OK && tutti_elastic_recover(e, status))
            continue; /* a worker has died */
        if (tutti_elastic_finish(e)) {
            TUTTI_MUST(tutti_optim_step(optim));
            tutti_elastic_commit(e);
        }
    }
    TUTTI_MUST(tutti_elastic_end(e)); /* says why, if it was not the end of the job */
    tutti_module_digest(&net.base, digest);
    if (!tutti_elastic_left(e))
        tutti_log0(tutti_elastic_group(e), "step %llu  digest %s",
                   (unsigned long long)tutti_elastic_step(e), digest);

    tutti_elastic_free(e);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
    tutti_optim_free(optim);
    tutti_module_destroy(&net.base);
    tutti_ctx_free(cx);
    return 0;
}
