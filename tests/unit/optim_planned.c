/* optim_planned.c -- a step on the planned device uses as much of the arenas as on the CPU, and no memory.   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/planned/planned.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/autograd.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

typedef struct subject {
    const char *model;
    tutti_model_opts opts;
    tutti_shape x;
    tutti_dtype dtype, autocast;
} subject;

/* What the arenas have used after two training steps, and an evaluation; and what the flat memory, the optimizer's state and kernels
 * have, where it is counted. */
typedef struct used {
    size_t training, evaluation, allocated;
} used;

static void step(tutti_ctx *cx, tutti_model *model, const subject *s, tutti_array x, tutti_array y,
                 size_t *used_p)
{
    tutti_tensor *loss;

    tutti_module_zero_grad(tutti_model_module(model));
    tutti_step_begin(cx, &(tutti_step_opts){.autocast = s->autocast});
    loss = tutti_model_forward(model, tutti_input(cx, x));
    if (s->dtype == TUTTI_I64) {
        const tutti_shape shape = tutti_tensor_shape(loss);

        loss = tutti_reshape(loss, TUTTI_SHAPE(shape.d[0] * shape.d[1], shape.d[2]));
    }
    loss = tutti_cross_entropy(loss, tutti_input(cx, y));
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s: %s", s->model, tutti_last_error());
    *used_p = tutti_ctx_memory_stats(cx).arena_used_bytes;
    tutti_step_end(cx);
}

static used use_of(const subject *s, tutti_device device)
{
    const int64_t n = s->dtype == TUTTI_I64 ? tutti_shape_count(s->x) : s->x.d[0];
    void *x_memory = calloc((size_t)tutti_shape_count(s->x), 8);
    int64_t *labels = calloc((size_t)n, sizeof *labels);
    const tutti_array x = {x_memory, s->x, s->dtype}, y = {labels, TUTTI_SHAPE(n), TUTTI_I64};
    tutti_ctx *cx;
    tutti_model *model;
    tutti_optim *optim;
    used u;

    assert_int_equal(tutti_ctx_new(&cx, device, &(tutti_ctx_opts){.threads = 2}), TUTTI_OK);
    if (tutti_model_new(&model, cx, s->model, &s->opts) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_int_equal(
        tutti_adamw_new(&optim, tutti_model_module(model), &(tutti_adam_opts){.lr = 0.001f}),
        TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        step(cx, model, s, x, y, &u.training);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
    tutti_step_begin(cx, &(tutti_step_opts){.eval = true});
    assert_int_equal(tutti_tensor_status(tutti_model_forward(model, tutti_input(cx, x))), TUTTI_OK);
    u.evaluation = tutti_ctx_memory_stats(cx).arena_used_bytes;
    tutti_step_end(cx);
    u.allocated = tutti__planned_count().now;
    tutti_optim_free(optim);
    tutti_model_free(model);
    tutti_ctx_free(cx);
    free(labels);
    free(x_memory);
    return u;
}

/* The reference kernels would take minutes for images. */
static bool is_fast(const subject *s)
{
    tutti_ctx *cx;
    bool fast;

    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL), TUTTI_OK);
    fast = strcmp(tutti_ctx_kernels_name(cx), "reference") != 0 || s->x.d[1] != 3;
    tutti_ctx_free(cx);
    return fast;
}

static const subject subjects[] = {
    {"mlp",
     {.channels = 1, .height = 8, .width = 8, .classes = 10},
     TUTTI_SHAPE(32, 1, 8, 8),
     TUTTI_F32,
     TUTTI_F32},
    {"mini_resnet",
     {.channels = 3, .height = 32, .width = 32, .classes = 10, .dropout = 0.1},
     TUTTI_SHAPE(8, 3, 32, 32),
     TUTTI_F32,
     TUTTI_F32},
    {"mini_resnet",
     {.channels = 3, .height = 32, .width = 32, .classes = 10, .recompute = true},
     TUTTI_SHAPE(8, 3, 32, 32),
     TUTTI_F32,
     TUTTI_F32},
    {"resnet18",
     {.channels = 3, .height = 64, .width = 64, .classes = 7},
     TUTTI_SHAPE(2, 3, 64, 64),
     TUTTI_F32,
     TUTTI_F32},
    {"mobilenet_v2",
     {.channels = 3, .height = 64, .width = 64, .classes = 7},
     TUTTI_SHAPE(2, 3, 64, 64),
     TUTTI_F32,
     TUTTI_F32},
    {"vit",
     {.channels = 3,
      .height = 32,
      .width = 32,
      .classes = 7,
      .layers = 2,
      .hidden = 64,
      .heads = 4,
      .patch = 8},
     TUTTI_SHAPE(4, 3, 32, 32),
     TUTTI_F32,
     TUTTI_F32},
    {"gpt2",
     {.channels = 32,
      .height = 1,
      .width = 1,
      .classes = 65,
      .layers = 2,
      .hidden = 64,
      .heads = 4,
      .context = 32,
      .dropout = 0.1},
     TUTTI_SHAPE(4, 32),
     TUTTI_I64,
     TUTTI_F32},
    {"gpt2",
     {.channels = 32,
      .height = 1,
      .width = 1,
      .classes = 65,
      .layers = 2,
      .hidden = 64,
      .heads = 4,
      .context = 32,
      .recompute = true},
     TUTTI_SHAPE(4, 32),
     TUTTI_I64,
     TUTTI_F32},
    {"llama",
     {.channels = 32,
      .height = 1,
      .width = 1,
      .classes = 65,
      .layers = 2,
      .hidden = 64,
      .heads = 4,
      .context = 32},
     TUTTI_SHAPE(4, 32),
     TUTTI_I64,
     TUTTI_F32},
    {"llama",
     {.channels = 32,
      .height = 1,
      .width = 1,
      .classes = 65,
      .layers = 2,
      .hidden = 64,
      .heads = 4,
      .context = 32},
     TUTTI_SHAPE(4, 32),
     TUTTI_I64,
     TUTTI_BF16},
};

static void steps_use_as_much_as_on_the_cpu(void **state)
{
    (void)state;
    setenv("TUTTI_EMULATE_HALF", "1", 1);
    for (size_t i = 0; i < TUTTI__COUNT_OF(subjects); i++) {
        const subject *s = &subjects[i];
        used real, planned;

        if (!is_fast(s))
            continue;
        real = use_of(s, (tutti_device){TUTTI_CPU, 0});
        tutti__planned_begin();
        planned = use_of(s, (tutti_device){TUTTI__PLANNED, 0});
        tutti__planned_end();
        if (planned.training != real.training || planned.evaluation != real.evaluation)
            fail_msg("%s (%zu): planned %zu and %zu, used %zu and %zu", s->model, i,
                     planned.training, planned.evaluation, real.training, real.evaluation);
        assert_true(planned.allocated > 0);
    }
    assert_int_equal(tutti__planned_count().now, 0);
}

/* 64 GiB of parameters, gradients and state. */
static void what_no_machine_has_is_counted(void **state)
{
    const subject s = {"mlp",
                       {.channels = 1, .height = 1, .width = 1 << 20, .classes = 4096},
                       TUTTI_SHAPE(4, 1, 1, 1 << 20),
                       TUTTI_F32,
                       TUTTI_F32};
    used u;

    (void)state;
    tutti__planned_begin();
    u = use_of(&s, (tutti_device){TUTTI__PLANNED, 0});
    tutti__planned_end();
    assert_true(u.allocated >= (size_t)4 << 30);
    tutti__planned_drop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_use_as_much_as_on_the_cpu),
        cmocka_unit_test(what_no_machine_has_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
