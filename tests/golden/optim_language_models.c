/* Language models compared with Hugging Face's (tools/make_golden_language.py): logits, gradients, and the losses of ten steps of AdamW.
 * SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "golden/golden.h"
#include "harness/device.h"

#include <math.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

enum { VOCAB = 29, CONTEXT = 10, STEPS = 10, BATCH = 2, TOKENS = BATCH * CONTEXT };

static const tutti_llama_opts of_llama = {.ffn_width = 40,
                                          .kv_heads = 2,
                                          .rope = {.scaling = TUTTI_ROPE_LLAMA3,
                                                   .factor = 4,
                                                   .low_freq_factor = 1,
                                                   .high_freq_factor = 4,
                                                   .original_context = 8}};
static const tutti_model_opts opts_gpt2 = {.channels = CONTEXT,
                                           .height = 1,
                                           .width = 1,
                                           .classes = VOCAB,
                                           .layers = 2,
                                           .hidden = 16,
                                           .heads = 2,
                                           .context = CONTEXT};
static const tutti_model_opts opts_llama = {.channels = CONTEXT,
                                            .height = 1,
                                            .width = 1,
                                            .classes = VOCAB,
                                            .layers = 2,
                                            .hidden = 16,
                                            .heads = 4,
                                            .context = CONTEXT,
                                            .llama = &of_llama};

typedef struct twin {
    const char *name;
    golden g;
    tutti_ctx *cx;
    tutti_model *model;
    tutti_module *m;
} twin;

static void begin(twin *t, const char *name, const tutti_model_opts *opts, tutti_ctx_opts ctx_opts)
{
    tutti_tensor *p;

    *t = (twin){.name = name};
    golden_open(&t->g, name);
    assert_int_equal(tutti_ctx_new(&t->cx,
                                   ctx_opts.kernels == TUTTI_KERNELS_REFERENCE
                                       ? (tutti_device){TUTTI_CPU, 0} /* no GPU has them */
                                       : test_device(),
                                   &ctx_opts),
                     TUTTI_OK);
    if (tutti_model_new(&t->model, t->cx, name, opts) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    t->m = tutti_model_module(t->model);
    for (size_t i = 0; (p = tutti_module_parameter(t->m, i)); i++) {
        size_t n;
        const void *values = golden_tensor(&t->g, tutti_tensor_name(p), "F32", &n);

        assert_int_equal(n, tutti_shape_count(tutti_tensor_shape(p)));
        assert_int_equal(tutti_tensor_write(p, values), TUTTI_OK);
    }
}

static void end(twin *t)
{
    tutti_model_free(t->model);
    tutti_ctx_free(t->cx);
    golden_close(&t->g);
}

/* |ours - theirs| in units of the largest of theirs, or of `least`. */
static double difference(const float *ours, const float *theirs, size_t n, double least)
{
    double worst = 0, largest = least;

    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)ours[i] - (double)theirs[i]));
        largest = fmax(largest, fabs((double)theirs[i]));
    }
    return worst / largest;
}

static tutti_tensor *input(twin *t, const char *name, tutti_shape shape)
{
    size_t n;

    return tutti_input(t->cx,
                       (tutti_array){golden_tensor(&t->g, name, "I64", &n), shape, TUTTI_I64});
}

/* The loss of a training step, whose gradients are kept; logits NULL: not wanted. */
static float step(twin *t, float *logits)
{
    tutti_tensor *y, *loss;
    float value;

    tutti_module_zero_grad(t->m);
    tutti_step_begin(t->cx, NULL);
    y = tutti_model_forward(t->model, input(t, "x", TUTTI_SHAPE(BATCH, CONTEXT)));
    if (logits)
        assert_int_equal(tutti_tensor_read(y, logits), TUTTI_OK);
    loss = tutti_cross_entropy(tutti_reshape(y, TUTTI_SHAPE(TOKENS, VOCAB)),
                               input(t, "y", TUTTI_SHAPE(TOKENS)));
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s: %s", t->name, tutti_last_error());
    value = tutti_item(loss);
    tutti_step_end(t->cx);
    return value;
}

static void check_gradients(twin *t)
{
    tutti_tensor *p;

    for (size_t i = 0; (p = tutti_module_parameter(t->m, i)); i++) {
        char key[160];
        size_t n;
        const float *theirs;
        float *ours;
        double off;

        snprintf(key, sizeof key, "grad.%s", tutti_tensor_name(p));
        theirs = golden_tensor(&t->g, key, "F32", &n);
        ours = malloc(n * sizeof *ours);
        assert_int_equal(tutti_tensor_grad_read(p, ours), TUTTI_OK);
        off = difference(ours, theirs, n, 1e-3);
        free(ours);
        if (!(off <= 1e-4))
            fail_msg("%s: the gradient of %s is off by %.2g of its largest element", t->name,
                     tutti_tensor_name(p), off);
    }
}

static void run(const char *name, const tutti_model_opts *opts, tutti_ctx_opts ctx_opts)
{
    float logits[TOKENS * VOCAB], losses[STEPS];
    tutti_optim *optim;
    const float *theirs;
    size_t n;
    twin t;

    begin(&t, name, opts, ctx_opts);
    losses[0] = step(&t, logits);
    theirs = golden_tensor(&t.g, "logits", "F32", &n);
    assert_true(difference(logits, theirs, n, 0) <= 1e-5);
    check_gradients(&t);
    assert_int_equal(
        tutti_adamw_new(&optim, t.m, &(tutti_adam_opts){.lr = 1e-2f, .weight_decay = 0.01f}),
        TUTTI_OK);
    for (int i = 0; i < STEPS; i++) {
        losses[i] = step(&t, NULL);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
    theirs = golden_tensor(&t.g, "losses", "F32", &n);
    assert_true(fabsf(losses[0] - theirs[0]) <= 2e-6f * theirs[0]);
    if (!(difference(losses, theirs, n, 0) <= 1e-5))
        fail_msg("%s: the loss after ten steps is %g, expected %g", name, (double)losses[STEPS - 1],
                 (double)theirs[STEPS - 1]);
    tutti_optim_free(optim);
    end(&t);
}

static void gpt2_is_transformers(void **state)
{
    (void)state;
    run("gpt2", &opts_gpt2, (tutti_ctx_opts){.threads = 2});
}

static void gpt2_by_the_reference_kernels(void **state)
{
    (void)state;
    run("gpt2", &opts_gpt2, (tutti_ctx_opts){.kernels = TUTTI_KERNELS_REFERENCE});
}

static void llama_is_transformers(void **state)
{
    (void)state;
    run("llama", &opts_llama, (tutti_ctx_opts){.threads = 2});
}

static void recomputed_blocks_have_the_same_bits(void **state)
{
    const tutti_model_opts *const all[] = {&opts_gpt2, &opts_llama};
    const char *const names[] = {"gpt2", "llama"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        float values[2][64];
        const char *name = k ? "model.norm.weight" : "transformer.ln_f.weight";

        for (int recompute = 0; recompute < 2; recompute++) {
            tutti_model_opts opts = *all[k];
            twin t;

            opts.recompute = recompute;
            begin(&t, names[k], &opts, (tutti_ctx_opts){.threads = 1});
            step(&t, NULL);
            assert_int_equal(
                tutti_tensor_grad_read(tutti_module_find(t.m, name), values[recompute]), TUTTI_OK);
            end(&t);
        }
        assert_memory_equal(values[0], values[1], 16 * sizeof(float));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_is_transformers),
                                       cmocka_unit_test(gpt2_by_the_reference_kernels),
                                       cmocka_unit_test(llama_is_transformers),
                                       cmocka_unit_test(recomputed_blocks_have_the_same_bits)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
