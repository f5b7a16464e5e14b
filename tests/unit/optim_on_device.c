/* A step of a model on a GPU copies nothing to the host: no operation of it goes through host memory.   SPDX-License-Identifier: MIT
 * timeout: 60   devices: cuda */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/copies.h"
#include "harness/device.h"
#include <tutti/autograd.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

enum { BATCH = 2, SIDE = 32, CLASSES = 4, TOKENS = 6 };

static float pixels[BATCH * 3 * SIDE * SIDE];
static const int64_t zeros[BATCH * SIDE * SIDE];
static const int64_t tokens[BATCH * TOKENS] = {0, 3, 2, 2, 1, 0, 3, 3, 1, 2, 0, 1};

static const tutti_model_opts of_images = {
    .channels = 3, .height = SIDE, .width = SIDE, .classes = CLASSES};
static const tutti_model_opts of_tokens = {.channels = TOKENS,
                                           .height = 1,
                                           .width = 1,
                                           .classes = CLASSES,
                                           .layers = 2,
                                           .heads = 2,
                                           .hidden = 16,
                                           .context = TOKENS};

static tutti_tensor *loss_of(tutti_model *model, tutti_ctx *cx, bool language)
{
    const tutti_array x = {pixels, TUTTI_SHAPE(BATCH, 3, SIDE, SIDE), TUTTI_F32};
    const tutti_array y = {(int64_t[BATCH]){1, 3}, TUTTI_SHAPE(BATCH), TUTTI_I64};
    const tutti_array z = {zeros, TUTTI_SHAPE(BATCH, SIDE, SIDE), TUTTI_I64};
    const tutti_array t = {tokens, TUTTI_SHAPE(BATCH, TOKENS), TUTTI_I64};
    tutti_tensor *logits = tutti_model_forward(model, tutti_input(cx, language ? t : x));

    if (!language) /* of images, or of pixels */
        return tutti_cross_entropy(logits,
                                   tutti_input(cx, tutti_tensor_shape(logits).n == 4 ? z : y));
    return tutti_cross_entropy(tutti_reshape(logits, TUTTI_SHAPE(BATCH * TOKENS, CLASSES)),
                               tutti_reshape(tutti_input(cx, t), TUTTI_SHAPE(BATCH * TOKENS)));
}

/* How many copies forward, loss and backward make, and AdamW's update. */
static int copies_of_step(const char *name, const tutti_model_opts *opts)
{
    tutti_model *model;
    tutti_optim *optim;
    tutti_ctx *cx;

    for (int i = 0; i < BATCH * 3 * SIDE * SIDE; i++)
        pixels[i] = (float)(i * 31 % 17) / 17;
    assert_int_equal(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.seed = 5}), TUTTI_OK);
    if (tutti_model_new(&model, cx, name, opts) != TUTTI_OK)
        fail_msg("%s: %s", name, tutti_last_error());
    assert_int_equal(
        tutti_adamw_new(&optim, tutti_model_module(model), &(tutti_adam_opts){.lr = 0.01f}),
        TUTTI_OK);
    tutti_step_begin(cx, NULL);
    test_count_begin(cx);
    if (tutti_backward(loss_of(model, cx, opts == &of_tokens)) != TUTTI_OK ||
        tutti_optim_step(optim) != TUTTI_OK)
        fail_msg("%s: %s", name, tutti_last_error());
    test_count_end(cx);
    tutti_step_end(cx);
    tutti_optim_free(optim);
    tutti_model_free(model);
    tutti_ctx_free(cx);
    return test_copies;
}

static void steps_copy_nothing_to_the_host(void **state)
{
    static const struct {
        const char *name;
        const tutti_model_opts *opts;
    } models[] = {{"linear", &of_images},       {"mlp", &of_images},
                  {"mini_resnet", &of_images},  {"resnet18", &of_images},
                  {"mobilenet_v2", &of_images}, {"vit", &of_images},
                  {"lstm", &of_images},         {"unet", &of_images},
                  {"gpt2", &of_tokens},         {"llama", &of_tokens}};

    (void)state;
    if (test_device().kind != TUTTI_CUDA)
        skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const int n = copies_of_step(models[i].name, models[i].opts);

        if (n > 0)
            fail_msg("a step of %s makes %d copies to the host", models[i].name, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_copy_nothing_to_the_host)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
