/* optim_models.c -- requirements of every model of the list in nn/nn.h: the output's shape, a gradient for each parameter, learning a
 * batch, dropout, and the same results twice and with every kernel family.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * ALL: a gradient for each parameter of the larger models of a family, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/nn.h"
#include "tensor/tensor.h"
#include <tutti/autograd.h>
#include <tutti/optim.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 12, FEW = 8, SIDE = 8, LARGE_SIDE = 25, WORDS = 16, CLASSES = 4, STEPS = 40 };

typedef struct trained {
    tutti_ctx *cx;
    tutti_model *model;
    int batch, channels, side;
    bool pixels; /* a label for each */
    bool tokens; /* x is I64 [BATCH, WORDS], y the same */
    float x[BATCH * 3 * LARGE_SIDE * LARGE_SIDE];
    int64_t words[BATCH * WORDS];
    int64_t y[BATCH * LARGE_SIDE * LARGE_SIDE];
} trained;

/* A head that begins with zeros hides all that is before it in the first step. */
static void fill_head(tutti_model *model)
{
    tutti_tensor *head = tutti_module_find(tutti_model_module(model), "heads.head.weight");
    const int64_t n = head ? tutti_shape_count(tutti_tensor_shape(head)) : 0;
    float *values = calloc((size_t)n + 1, sizeof *values);

    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(i * 7 % 13 - 6) / 60;
    if (head)
        assert_int_equal(tutti_tensor_write(head, values), TUTTI_OK);
    free(values);
}

/* Pixels of stripes as wide as the class says, and noise. */
static void draw_images(trained *t)
{
    for (int i = 0; i < BATCH; i++) {
        const int n = t->channels * t->side * t->side;

        for (int k = 0; k < (t->pixels ? n : 1); k++)
            t->y[t->pixels ? i * n + k : i] = i % CLASSES;
        for (int k = 0; k < n; k++)
            t->x[i * n + k] =
                (float)(k / (1 + i % CLASSES) % 2) + (float)((i * 31 + k * 17) % 13) / 26;
    }
}

/* Counts, each from another number. */
static void write_words(trained *t)
{
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < WORDS; k++) {
            t->words[i * WORDS + k] = (i + k) % CLASSES;
            t->y[i * WORDS + k] = (i + k + 1) % CLASSES;
        }
}

/* The smallest images that the model's layers leave a pixel of. */
static int side_of(const char *name)
{
    return strcmp(name, "vit_b_16") == 0 ? 16 : strcmp(name, "airbench94") == 0 ? LARGE_SIDE : SIDE;
}

static void begin(trained *t, const char *name, tutti_kernels kernels, double dropout)
{
    const tutti_model_kind *kind = tutti__model_find(name);
    tutti_model_opts opts = {.classes = CLASSES, .dropout = dropout};

    *t = (trained){.batch = BATCH,
                   .channels = kind->channels ? kind->channels : 1,
                   .side = side_of(name),
                   .tokens = kind->sizes & TUTTI_MODEL_TOKENS};
    if (t->tokens) {
        opts.layers = opts.heads = 2;
        opts.hidden = 32;
        opts.context = WORDS;
    }
    opts.channels = t->tokens ? WORDS : t->channels;
    opts.height = opts.width = t->tokens ? 1 : t->side;
    assert_int_equal(tutti_ctx_new(&t->cx, (tutti_device){TUTTI_CPU, 0},
                                   &(tutti_ctx_opts){.seed = 5, .kernels = kernels}),
                     TUTTI_OK);
    assert_int_equal(tutti_model_new(&t->model, t->cx, name, &opts), TUTTI_OK);
    fill_head(t->model);
    t->pixels = strcmp(name, "unet") == 0;
    if (t->tokens)
        write_words(t);
    else
        draw_images(t);
}

static void end(trained *t)
{
    tutti_model_free(t->model);
    tutti_ctx_free(t->cx);
}

static tutti_array input_of(const trained *t)
{
    if (t->tokens)
        return (tutti_array){t->words, TUTTI_SHAPE(t->batch, WORDS), TUTTI_I64};
    return (tutti_array){t->x, TUTTI_SHAPE(t->batch, t->channels, t->side, t->side), TUTTI_F32};
}

/* Logits as rows of classes, and their labels. */
static tutti_tensor *loss_of_logits(const trained *t, tutti_tensor *logits)
{
    const tutti_shape labels = t->tokens   ? TUTTI_SHAPE(t->batch * WORDS)
                               : t->pixels ? TUTTI_SHAPE(t->batch, t->side, t->side)
                                           : TUTTI_SHAPE(t->batch);

    if (t->tokens)
        logits = tutti_reshape(logits, TUTTI_SHAPE(t->batch * WORDS, CLASSES));
    return tutti_cross_entropy(logits, tutti_input(t->cx, (tutti_array){t->y, labels, TUTTI_I64}));
}

/* The loss of a training step, whose gradients are kept. */
static float step(trained *t)
{
    const tutti_shape expected = t->tokens   ? TUTTI_SHAPE(t->batch, WORDS, CLASSES)
                                 : t->pixels ? TUTTI_SHAPE(t->batch, CLASSES, t->side, t->side)
                                             : TUTTI_SHAPE(t->batch, CLASSES);
    tutti_tensor *logits, *loss;
    float value;

    tutti_module_zero_grad(tutti_model_module(t->model));
    tutti_step_begin(t->cx, NULL);
    logits = tutti_model_forward(t->model, tutti_input(t->cx, input_of(t)));
    loss = loss_of_logits(t, logits);
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_true(tutti_shape_equal(tutti_tensor_shape(logits), expected));
    value = tutti_item(loss);
    tutti_step_end(t->cx);
    return value;
}

/* They take more memory than a test may. */
static void skip_gigantic(const char *name)
{
    if (strncmp(name, "gpt2-", 5) == 0)
        skip();
}

/* Not for the larger ones of a family, which take long and are the same code. */
static void skip_larger(const char *name)
{
    static const char *const larger[] = {"resnet34", "resnet50", "resnet101", "vit_b_16"};

    skip_gigantic(name);
    for (size_t i = 0; i < TUTTI__COUNT_OF(larger); i++)
        if (strcmp(name, larger[i]) == 0)
            skip();
}

static void every_parameter_has_a_gradient(void **state)
{
    trained t;

    if (getenv("ALL"))
        skip_gigantic(*state);
    else
        skip_larger(*state);
    begin(&t, *state, TUTTI_KERNELS_AUTO, 0);
    step(&t);
    for (size_t i = 0; i < tutti_module_n_parameters(tutti_model_module(t.model)); i++) {
        tutti_tensor *p = tutti_module_parameter(tutti_model_module(t.model), i);

        if (p->parameter->requires_grad && !tutti_tensor_grad(p))
            fail_msg("%s: %s has no gradient", (const char *)*state, tutti_tensor_name(p));
    }
    end(&t);
}

static void it_learns_a_batch(void **state)
{
    tutti_optim *optim;
    float first = 0, last = 0;
    trained t;

    skip_larger(*state);
    begin(&t, *state, TUTTI_KERNELS_AUTO, 0);
    assert_int_equal(
        tutti_adam_new(&optim, tutti_model_module(t.model),
                       &(tutti_adam_opts){.lr = strcmp(*state, "vit") == 0 ? 5e-4f : 5e-3f}),
        TUTTI_OK);
    for (int i = 0; i < STEPS && (i == 0 || !(last < 0.5f * first)); i++) {
        last = step(&t);
        first = i ? first : last;
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
    if (!(last < 0.5f * first))
        fail_msg("%s: the loss of one batch fell from %g to %g only in %d steps of Adam",
                 (const char *)*state, (double)first, (double)last, STEPS);
    tutti_optim_free(optim);
    end(&t);
}

static float loss_of(const char *name, tutti_kernels kernels, int batch, double dropout, int steps)
{
    float loss = 0;
    trained t;

    begin(&t, name, kernels, dropout);
    t.batch = batch;
    for (int i = 0; i < steps; i++)
        loss = step(&t);
    end(&t);
    return loss;
}

/* Weights do not change, so only masks make steps differ. */
static void dropout_is_obeyed(void **state)
{
    const char *name = *state;

    skip_larger(name);
    if (loss_of(name, TUTTI_KERNELS_AUTO, BATCH, 0.5, 1) ==
        loss_of(name, TUTTI_KERNELS_AUTO, BATCH, 0.5, 2))
        fail_msg("%s: two steps with dropout 0.5 have one loss: opts->dropout is not used", name);
    assert_true(loss_of(name, TUTTI_KERNELS_AUTO, BATCH, 0, 1) ==
                loss_of(name, TUTTI_KERNELS_AUTO, BATCH, 0, 2));
}

static void families_agree(void **state)
{
    const char *name = *state;
    float fast, plain;

    skip_larger(name);
    fast = loss_of(name, TUTTI_KERNELS_AUTO, FEW, 0, 1);
    plain = loss_of(name, TUTTI_KERNELS_REFERENCE, FEW, 0, 1);
    assert_true(fast == loss_of(name, TUTTI_KERNELS_AUTO, FEW, 0, 1));
    if (!(fabsf(fast - plain) <= 1e-4f))
        fail_msg("%s: the first loss is %g, by the reference kernels %g", name, (double)fast,
                 (double)plain);
}

/* With a pattern, only the tests whose names match: "*: lenet". */
int main(int argc, char **argv)
{
#define TESTS(symbol, name)                                                                        \
    {"every_parameter_has_a_gradient: " name, every_parameter_has_a_gradient, NULL, NULL, name},   \
        {"it_learns_a_batch: " name, it_learns_a_batch, NULL, NULL, name},                         \
        {"dropout_is_obeyed: " name, dropout_is_obeyed, NULL, NULL, name},                         \
        {"families_agree: " name, families_agree, NULL, NULL, name},
    const struct CMUnitTest tests[] = {TUTTI__MODELS(TESTS)};

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
