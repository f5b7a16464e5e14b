/* attention.c -- a transformer block sorts sequences of digits; attention.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_attention */
#include <math.h>
#include <tutti/tutti.h>

enum { N = 64, T = 8, DIGITS = 10, D = 32, HEADS = 2, STEPS = 201 };
static int64_t sequences[N][T], sorted[N][T];

typedef struct {
    tutti_module base; /* first */
    tutti_tensor *position;
    tutti_embedding token;
    tutti_norm norm1, norm2;
    tutti_linear qkv, out, fc1, fc2, head;
} block;

static tutti_random numbers;
#define UNIFORM ((float)tutti_random_uniform(&numbers)) /* in [0, 1) */

static void make_batch(void)
{
    for (int n = 0; n < N; n++) {
        int count[DIGITS] = {0}, at = 0;
        for (int t = 0; t < T; t++)
            count[sequences[n][t] = (int64_t)(DIGITS * UNIFORM)]++;
        for (int digit = 0; digit < DIGITS; digit++)
            for (int k = 0; k < count[digit]; k++)
                sorted[n][at++] = digit;
    }
}

static void init(block *m, tutti_ctx *cx)
{
    tutti_module *base = &m->base;
    tutti_module_init(base, cx);
    m->position = tutti_parameter_new(base, "position", TUTTI_SHAPE(T, D), TUTTI_INIT_NORMAL, 1);
    tutti_embedding_init(&m->token, base, "token", DIGITS, D, false);
    tutti_layer_norm_init(&m->norm1, base, "norm1", TUTTI_SHAPE(D));
    tutti_linear_init(&m->qkv, base, "qkv", D, 3 * D);
    tutti_linear_init(&m->out, base, "out", D, D);
    tutti_layer_norm_init(&m->norm2, base, "norm2", TUTTI_SHAPE(D));
    tutti_linear_init(&m->fc1, base, "fc1", D, 4 * D);
    tutti_linear_init(&m->fc2, base, "fc2", 4 * D, D);
    tutti_linear_init(&m->head, base, "head", D, DIGITS);
}

static tutti_tensor *attention(block *m, tutti_tensor *x) /* [N,T,D] */
{
    tutti_tensor *part[3]; /* queries, keys, values */
    x = tutti_reshape(tutti_linear_forward(&m->qkv, x), TUTTI_SHAPE(N, T, 3 * HEADS, D / HEADS));
    tutti_chunk(tutti_transpose(x, 1, 2), 3, 1, part); /* [N,HEADS,T,D/HEADS] each */
    x = tutti_matmul_with(part[0], part[1], &(tutti_matmul_opts){.transpose_b = true});
    x = tutti_matmul(tutti_softmax(tutti_scale(x, 1 / sqrtf(D / HEADS))), part[2]);
    return tutti_linear_forward(&m->out,
                                tutti_reshape(tutti_transpose(x, 1, 2), TUTTI_SHAPE(N, T, D)));
}

static tutti_tensor *loss_of(block *m, tutti_ctx *cx)
{
    tutti_tensor *x = tutti_input(cx, (tutti_array){sequences, TUTTI_SHAPE(N, T), TUTTI_I64});
    tutti_tensor *y = tutti_input(cx, (tutti_array){sorted, TUTTI_SHAPE(N * T), TUTTI_I64});
    x = tutti_add(tutti_embedding_forward(&m->token, x), m->position);
    x = tutti_add(x, attention(m, tutti_norm_forward(&m->norm1, x)));
    tutti_tensor *h = tutti_linear_forward(&m->fc1, tutti_norm_forward(&m->norm2, x));
    x = tutti_add(x, tutti_linear_forward(&m->fc2, tutti_gelu(h, TUTTI_GELU_EXACT)));
    return tutti_cross_entropy(
        tutti_reshape(tutti_linear_forward(&m->head, x), TUTTI_SHAPE(N * T, DIGITS)), y);
}

int main(void)
{
    tutti_group *group;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    tutti_optim *optim;
    block m;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    TUTTI_MUST(tutti_ctx_new(&cx, tutti_group_device(group), NULL));
    init(&m, cx);
    TUTTI_MUST(tutti_ddp_new(&ddp, &m.base, group, NULL)); /* gradients: the mean over all ranks */
    TUTTI_MUST(tutti_adam_new(&optim, &m.base, &(tutti_adam_opts){.lr = 3e-3f}));
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
