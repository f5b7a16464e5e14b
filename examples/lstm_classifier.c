/* lstm_classifier.c -- an LSTM tells whether the pitch of a signal rises, falls or stays; lstm_classifier.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_lstm_classifier */
#include <math.h>
#include <tutti/tutti.h>

enum { N = 32, T = 40, STEPS = 241 };
static float signals[N][T];
static int64_t labels[N];

typedef struct {
    tutti_module base; /* first */
    tutti_recurrent lstm;
    tutti_linear fc;
} classifier;

static tutti_random numbers;
#define UNIFORM ((float)tutti_random_uniform(&numbers)) /* in [0, 1) */

static void make_batch(void)
{
    for (int n = 0; n < N; n++) {
        labels[n] = (int64_t)(3 * UNIFORM);
        float phase = 6.2831853f * UNIFORM;
        for (int t = 0; t < T; t++) {
            phase += 0.3f + 0.4f * ((float)t / T - 0.5f) * (float)(labels[n] - 1);
            signals[n][t] = sinf(phase) + 0.2f * (UNIFORM - 0.5f);
        }
    }
}

static void init(classifier *m, tutti_ctx *cx)
{
    tutti_module_init(&m->base, cx);
    tutti_lstm_init(&m->lstm, &m->base, "lstm",
                    &(tutti_recurrent_layer_opts){.in = 1, .hidden = 32, .batch_first = true});
    tutti_linear_init(&m->fc, &m->base, "fc", 32, 3);
}

static tutti_tensor *loss_of(classifier *m, tutti_ctx *cx)
{
    tutti_tensor *x = tutti_input(cx, (tutti_array){signals, TUTTI_SHAPE(N, T, 1), TUTTI_F32});
    tutti_tensor *y = tutti_input(cx, (tutti_array){labels, TUTTI_SHAPE(N), TUTTI_I64});
    tutti_tensor *last; /* [1,N,32]: after the last step */
    tutti_recurrent_forward(&m->lstm, x, &last, NULL);
    return tutti_cross_entropy(tutti_linear_forward(&m->fc, tutti_squeeze_dim(last, 0)), y);
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_optim *optim;
    classifier m;
    TUTTI_MUST(tutti_group_init(&group, NULL));
    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    init(&m, cx);
    TUTTI_MUST(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* gradients: the mean over all ranks */
    TUTTI_MUST(tutti_adam_new(&optim, &m.base, &(tutti_adam_opts){.lr = 5e-3f}));
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
