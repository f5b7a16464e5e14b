/* A step of a model on a GPU copies nothing to the host: no operation of it goes through host memory. LSTM's does, as
 * tensor/op/on_host.def says.   SPDX-License-Identifier: MIT
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

enum { BATCH = 2, SIDE = 32, CLASSES = 4 };

/* How many copies forward, loss and backward make. */
static int copies_of_step(const char *name)
{
    static float pixels[BATCH * 3 * SIDE * SIDE];
    const tutti_array x = {pixels, TUTTI_SHAPE(BATCH, 3, SIDE, SIDE), TUTTI_F32};
    const tutti_array y = {(int64_t[BATCH]){1, 3}, TUTTI_SHAPE(BATCH), TUTTI_I64};
    tutti_model *model;
    tutti_ctx *cx;
    tutti_tensor *loss;

    for (int i = 0; i < BATCH * 3 * SIDE * SIDE; i++)
        pixels[i] = (float)(i * 31 % 17) / 17;
    assert_int_equal(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.seed = 5}), TUTTI_OK);
    if (tutti_model_new(&model, cx, name,
                        &(tutti_model_opts){
                            .channels = 3, .height = SIDE, .width = SIDE, .classes = CLASSES}) !=
        TUTTI_OK)
        fail_msg("%s: %s", name, tutti_last_error());
    tutti_step_begin(cx, NULL);
    test_count_begin(cx);
    loss = tutti_cross_entropy(tutti_model_forward(model, tutti_input(cx, x)), tutti_input(cx, y));
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s: %s", name, tutti_last_error());
    test_count_end(cx);
    tutti_step_end(cx);
    tutti_model_free(model);
    tutti_ctx_free(cx);
    return test_copies;
}

static void steps_copy_nothing_to_the_host(void **state)
{
    static const char *const names[] = {"linear",   "mlp",          "mini_resnet",
                                        "resnet18", "mobilenet_v2", "vit"};

    (void)state;
    if (test_device().kind != TUTTI_CUDA)
        skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int n = copies_of_step(names[i]);

        if (n > 0)
            fail_msg("a step of %s makes %d copies to the host", names[i], n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_copy_nothing_to_the_host)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
