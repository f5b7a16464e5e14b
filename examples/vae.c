/* vae.c -- a variational autoencoder of images of a light spot; vae.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_vae */
#include <math.h>
#include <tutti/tutti.h>

enum { N = 64, SIDE = 12, PIXELS = SIDE * SIDE, LATENT = 4, STEPS = 301 };
static float images[N][SIDE][SIDE], noise[N][LATENT];

typedef struct {
    tutti_module base; /* first */
    tutti_linear encoder, mean, log_var, decoder, out;
} vae;

static tutti_random numbers;
#define UNIFORM ((float)tutti_random_uniform(&numbers)) /* in [0, 1) */

static void make_batch(void)
{
    for (int n = 0; n < N; n++) {
        float a = 2 + (SIDE - 5) * UNIFORM, b = 2 + (SIDE - 5) * UNIFORM;
        for (int i = 0; i < SIDE; i++)
            for (int k = 0; k < SIDE; k++)
                images[n][i][k] = expf(-(powf((float)i - a, 2) + powf((float)k - b, 2)) / 3);
        for (int k = 0; k < LATENT; k++)
            noise[n][k] = (float)tutti_random_normal(&numbers);
    }
}

static void init(vae *m, tutti_ctx *cx)
{
    tutti_module_init(&m->base, cx);
    tutti_linear_init(&m->encoder, &m->base, "encoder", PIXELS, 128);
    tutti_linear_init(&m->mean, &m->base, "mean", 128, LATENT);
    tutti_linear_init(&m->log_var, &m->base, "log_var", 128, LATENT);
    tutti_linear_init(&m->decoder, &m->base, "decoder", LATENT, 128);
    tutti_linear_init(&m->out, &m->base, "out", 128, PIXELS);
}

/* Squared error and KL divergence from N(0, 1), of a sample. */
static tutti_tensor *loss_of(vae *m, tutti_ctx *cx)
{
    tutti_tensor *x = tutti_input(cx, (tutti_array){images, TUTTI_SHAPE(N, PIXELS), TUTTI_F32});
    tutti_tensor *e = tutti_input(cx, (tutti_array){noise, TUTTI_SHAPE(N, LATENT), TUTTI_F32});
    tutti_tensor *h = tutti_relu(tutti_linear_forward(&m->encoder, x));
    tutti_tensor *mean = tutti_linear_forward(&m->mean, h);
    tutti_tensor *log_var = tutti_linear_forward(&m->log_var, h);
    tutti_tensor *z = tutti_add(mean, tutti_mul(tutti_exp(tutti_scale(log_var, 0.5f)), e));
    h = tutti_relu(tutti_linear_forward(&m->decoder, z));
    h = tutti_sigmoid(tutti_linear_forward(&m->out, h));
    tutti_tensor *error =
        tutti_mse_loss_with(h, x, &(tutti_loss_opts){.reduction = TUTTI_REDUCTION_SUM});
    tutti_tensor *kl =
        tutti_sub(tutti_add(tutti_square(mean), tutti_exp(log_var)), tutti_add_scalar(log_var, 1));
    return tutti_scale(tutti_add(error, tutti_scale(tutti_sum(kl), 0.05f)), 1.0f / N);
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_optim *optim;
    vae m;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    init(&m, cx);
    TUTTI_MUST(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* gradients: the mean over all ranks */
    TUTTI_MUST(tutti_adam_new(&optim, &m.base, &(tutti_adam_opts){.lr = 2e-3f}));
    numbers.key = (uint64_t)tutti_group_rank(group); /* each rank has samples of its own */
    for (int step = 0; step < STEPS; step++) {
        make_batch();
        tutti_step_begin(cx, NULL);
        tutti_tensor *loss = loss_of(&m, cx);
        tutti_optim_zero_grad(optim);
        TUTTI_MUST(tutti_backward(loss));
        TUTTI_MUST(tutti_optim_step(optim));
        if (step % 20 == 0) /* of rank 0's samples */
            tutti_log0(group, "step %3d  loss %.4f", step, (double)tutti_item(loss));
        tutti_step_end(cx);
    }
    tutti_optim_free(optim);
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    tutti_group_free(group);
}
