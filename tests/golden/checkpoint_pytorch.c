/* weights saved by PyTorch: loaded by name, they give PyTorch's outputs.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "nn/nn.h"
#include <tutti/checkpoint.h>

#include "golden/golden.h"
#include "harness/device.h"
#include "harness/memory.h"

#include <math.h>

#define N       2
#define CLASSES 10

typedef struct net {
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
    tutti_linear fc;
} net;

static void net_open(net *m, tutti_ctx *cx)
{
    tutti_module_init(&m->base, cx);
    tutti_conv2d_init(&m->conv, &m->base, "conv",
                      &(tutti_conv2d_layer_opts){.in = 3, .out = 4, .kernel = 3, .padding = 1});
    tutti_batch_norm2d_init(&m->norm, &m->base, "norm", 4);
    tutti_linear_init(&m->fc, &m->base, "fc", 4 * 4 * 4, CLASSES);
    assert_int_equal(tutti_module_status(&m->base), TUTTI_OK);
}

static void net_answer(net *m, const float *x, float logits[N * CLASSES])
{
    tutti_tensor *y;

    tutti_step_begin(m->base.cx, &(tutti_step_opts){.eval = true});
    y = tutti_input(m->base.cx, (tutti_array){x, TUTTI_SHAPE(N, 3, 4, 4), TUTTI_F32});
    y = tutti_batch_norm2d_relu_forward(&m->norm, tutti_conv2d_forward(&m->conv, y), NULL);
    y = tutti_linear_forward(&m->fc, tutti_flatten(y));
    if (tutti_tensor_read(y, logits) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    tutti_step_end(m->base.cx);
}

/* The image that the script drew after three batches of eight. */
static void draw_picture(float *x, size_t n)
{
    static float skipped[3 * 8 * 3 * 4 * 4];
    tutti__mt19937 mt;

    tutti__mt19937_seed(&mt, 5);
    draw_uniform(&mt, skipped, TUTTI__COUNT_OF(skipped));
    draw_uniform(&mt, x, n);
}

static void a_state_dict_of_pytorch_gives_pytorchs_answers(void **state)
{
    char path[1024];
    float x[N * 3 * 4 * 4], logits[N * CLASSES];
    const float *expected;
    tutti_ctx *cx;
    golden g;
    size_t n;
    net m;

    (void)state;
    golden_path(path, sizeof path, "state_dict");
    golden_open(&g, "logits");
    expected = golden_tensor(&g, "logits", "F32", &n);
    assert_int_equal(n, N * CLASSES);
    assert_int_equal(tutti_ctx_new(&cx, test_device(), NULL), TUTTI_OK);
    net_open(&m, cx);
    if (tutti_module_load(&m.base, path) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_int_equal(*(int64_t *)test_look(cx, m.norm.num_batches_tracked->data, sizeof(int64_t)),
                     3);
    draw_picture(x, TUTTI__COUNT_OF(x));
    net_answer(&m, x, logits);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(logits[i] - expected[i]) <= 1e-5f))
            fail_msg("logit %zu: %g, PyTorch has %g", i, (double)logits[i], (double)expected[i]);
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_dict_of_pytorch_gives_pytorchs_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
