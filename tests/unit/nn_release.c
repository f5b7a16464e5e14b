/* nn_release.c -- what a model's forward and backward do not keep: gradients are those of a forward that keeps all.
 * SPDX-License-Identifier: MIT
 *
 * tutti_module_forward keeps every result, because the caller may read it; tutti_model_forward does not. Same model, same step: all
 * gradients must be the same bits, and the model's step must take less memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <tutti/autograd.h>
#include <tutti/nn.h>

enum { BATCH = 3, SIDE = 64, CLASSES = 5, PIXELS = BATCH * 3 * SIDE * SIDE };

static uint8_t *gradients_of(tutti_ctx *cx, tutti_model *model, bool as_model, size_t *bytes_p,
                             size_t *used_p)
{
    static float pixels[PIXELS];
    static const int64_t labels[BATCH] = {1, 4, 0};
    tutti_module *m = tutti_model_module(model);
    tutti_tensor *x, *y, *loss;
    tutti_flat flat;
    uint8_t *copy;

    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (float)(i * 7919 % 2003) / 1001 - 1;
    tutti_module_zero_grad(m);
    tutti_step_begin(cx, NULL);
    x = tutti_input(cx, (tutti_array){pixels, TUTTI_SHAPE(BATCH, 3, SIDE, SIDE), TUTTI_F32});
    y = as_model ? tutti_model_forward(model, x) : tutti_module_forward(m, x);
    *used_p = tutti_ctx_memory_stats(cx).arena_used_bytes;
    loss = tutti_cross_entropy(
        y, tutti_input(cx, (tutti_array){labels, TUTTI_SHAPE(BATCH), TUTTI_I64}));
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_int_equal(tutti_tensor_status(y), TUTTI_OK); /* the result stays */
    assert_int_equal(tutti_module_flat(m, &flat), TUTTI_OK);
    *bytes_p = flat.n * sizeof(float);
    copy = malloc(*bytes_p);
    assert_non_null(copy);
    memcpy(copy, flat.gradients, *bytes_p);
    tutti_step_end(cx);
    return copy;
}

static void gradients_are_those_of_a_forward_that_keeps_all(void **state)
{
    static const struct {
        const char *name;
        bool less;
    } rows[] = {
        {"vit", true}, {"mobilenet_v2", false}, {"resnet18", false}, {"mini_resnet", false}};
    const tutti_model_opts opts = {
        .channels = 3, .height = SIDE, .width = SIDE, .classes = CLASSES};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tutti_model *model;
        tutti_ctx *cx;
        uint8_t *all, *few;
        size_t bytes, used_all, used_few;

        assert_int_equal(
            tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 2}),
            TUTTI_OK);
        assert_int_equal(tutti_model_new(&model, cx, rows[i].name, &opts), TUTTI_OK);
        all = gradients_of(cx, model, false, &bytes, &used_all);
        few = gradients_of(cx, model, true, &bytes, &used_few);
        print_message("%s: %zu bytes used after forward, of %zu\n", rows[i].name, used_few,
                      used_all);
        assert_memory_equal(few, all, bytes);
        assert_true(rows[i].less ? used_few < used_all * 7 / 10 : used_few <= used_all);
        free(few);
        free(all);
        tutti_model_free(model);
        tutti_ctx_free(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_a_forward_that_keeps_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
