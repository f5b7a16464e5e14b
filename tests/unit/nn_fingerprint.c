/* nn_fingerprint.c -- a tensor's fingerprint is that of its row-major elements, in whatever layout the kernels have left them, and
 * whether they are stored or not; to read it changes nothing.   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/tensor_fingerprint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/nn.h>
#include <tutti/operations.h>

enum { BATCH = 2, IN = 3, CHANNELS = 72, SIDE = 33, MOST = BATCH * CHANNELS * SIDE * SIDE };

static int in_layout, not_stored; /* how many of the tensors were */

static void assert_read(tutti_tensor *t)
{
    static float memory[MOST];
    tutti__fingerprint f, again, expected;
    bool known;

    in_layout += t->layout != NULL;
    not_stored += !t->data && t->lazy;
    assert_int_equal(tutti__tensor_fingerprint(&f, t, &known), TUTTI_OK);
    assert_true(known);
    assert_int_equal(tutti_tensor_read(t, memory), TUTTI_OK);
    assert_int_equal(tutti__fingerprint_of(&expected, &tutti__cpu_stream, memory,
                                           (size_t)tutti_shape_count(t->shape), t->dtype, 0),
                     TUTTI_OK);
    assert_int_equal(f.digest, expected.digest);
    assert_true(fabs(f.norm - expected.norm) <= 1e-12 * expected.norm);
    assert_true(fabs(f.dot - expected.dot) <= 1e-12 * expected.norm);
    assert_int_equal(tutti__tensor_fingerprint(&again, t, &known), TUTTI_OK);
    assert_int_equal(again.digest, f.digest);
}

/* Of a convolution, batch norm with ReLU, and what follows, whose batch norm is computed as it is read. */
static void check_network(tutti_ctx *cx, int64_t channels, int64_t side, tutti_dtype autocast)
{
    static float images[BATCH * IN * SIDE * SIDE];
    const tutti_conv2d_layer_opts opts = {
        .in = IN, .out = channels, .kernel = 3, .padding = 1, .no_bias = true};
    tutti_batch_norm2d norm;
    tutti_conv2d conv, next;
    tutti_module root;
    tutti_tensor *y[4];

    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)((i * 2654435761u) % 2048) / 1024 - 1;
    tutti_module_init(&root, cx);
    tutti_conv2d_init(&conv, &root, "conv", &opts);
    tutti_batch_norm2d_init(&norm, &root, "norm", channels);
    tutti_conv2d_init(
        &next, &root, "next",
        &(tutti_conv2d_layer_opts){.in = channels, .out = channels, .kernel = 3, .padding = 1});
    assert_int_equal(tutti_module_status(&root), TUTTI_OK);
    tutti_step_begin(cx, &(tutti_step_opts){.autocast = autocast});
    y[0] = tutti_conv2d_forward(
        &conv,
        tutti_input(cx, (tutti_array){images, TUTTI_SHAPE(BATCH, IN, side, side), TUTTI_F32}));
    y[1] = tutti_batch_norm2d_relu_forward(&norm, y[0], NULL);
    y[2] = tutti_conv2d_forward(&next, y[1]);
    y[3] = tutti_global_avg_pool2d(y[2]);
    for (int i = 0; i < 4; i++)
        assert_read(y[i]);
    tutti_step_end(cx);
    tutti_module_destroy(&root);
}

static void row_major_elements_of_any_layout(void **state)
{
    static const int64_t channels[] = {1, 5, 8, 16, 24, CHANNELS}, sides[] = {1, 7, 16, SIDE};
    static const tutti_dtype types[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
    tutti_ctx *cx;

    (void)state;
    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL), TUTTI_OK);
    for (size_t c = 0; c < TUTTI__COUNT_OF(channels); c++)
        for (size_t s = 0; s < TUTTI__COUNT_OF(sides); s++)
            for (size_t k = 0; k < TUTTI__COUNT_OF(types); k++)
                if (k == 0 || tutti_ctx_half_kernels_name(cx, types[k]))
                    check_network(cx, channels[c], sides[s], types[k]);
    printf("%s, at most %s: %d tensors in a layout, %d not stored\n", tutti_ctx_kernels_name(cx),
           getenv("TUTTI_CPU_ISA"), in_layout, not_stored);
    assert_true(in_layout > 0 || strncmp(tutti_ctx_kernels_name(cx), "onednn", 6) != 0);
    tutti_ctx_free(cx);
}

/* Each instruction set has its layouts, and a process has one. */
int main(void)
{
    static const char *const isas[] = {"auto", "avx2", "sse41"};
    const struct CMUnitTest tests[] = {cmocka_unit_test(row_major_elements_of_any_layout)};
    int failed = 0, status;

    for (size_t i = 0; i < TUTTI__COUNT_OF(isas); i++) {
        const pid_t child = fork();

        if (child == 0) {
            setenv("TUTTI_CPU_ISA", isas[i], 1);
            exit(cmocka_run_group_tests(tests, NULL, NULL));
        }
        failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    return failed;
}
