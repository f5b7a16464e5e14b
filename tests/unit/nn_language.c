/* nn_language.c -- language models: sizes, names and counts of parameters, and what they refuse.   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tutti_ctx *cx;

static int set_up(void **state)
{
    (void)state;
    return tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    tutti_ctx_free(cx);
    return 0;
}

static tutti_model_opts small(void)
{
    return (tutti_model_opts){.channels = 6,
                              .height = 1,
                              .width = 1,
                              .classes = 11,
                              .layers = 2,
                              .heads = 4,
                              .hidden = 16,
                              .context = 8};
}

static void expect_refused(const char *name, tutti_model_opts opts, const char *text)
{
    tutti_model *model = NULL;

    assert_int_equal(tutti_model_new(&model, cx, name, &opts), TUTTI_ERR_ARG);
    assert_null(model);
    if (!strstr(tutti_last_error(), text))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), text);
}

static void sizes_that_do_not_fit_are_refused_by_their_key(void **state)
{
    tutti_model_opts opts = small();

    (void)state;
    opts.heads = 3;
    expect_refused("gpt2", opts, "width: gpt2 of 16 features with 3 heads");
    opts = small();
    opts.channels = 9;
    expect_refused("gpt2", opts, "context: samples have 9 tokens and gpt2 looks back over 8");
    opts = small();
    opts.llama = &(tutti_llama_opts){.kv_heads = 2};
    expect_refused("gpt2", opts, "model gpt2 has no kv_heads that could be chosen");
    opts.llama = &(tutti_llama_opts){.kv_heads = 3};
    expect_refused("llama", opts, "kv_heads: llama of 4 heads with 3 of keys and values");
    opts.llama = &(tutti_llama_opts){.norm_eps = -1};
    expect_refused("llama", opts, "norm_eps is -1");
    opts.llama = &(tutti_llama_opts){.ffn_width = -1};
    expect_refused("llama", opts, "ffn_width is -1");
    opts.llama = &(tutti_llama_opts){.rope.position = 5};
    expect_refused("llama", opts, "rope.position is 5");
    opts = small();
    opts.hidden = 12;
    expect_refused("llama", opts, "expected heads of an even number of features");
    opts = small();
    opts.context = -1;
    expect_refused("llama", opts, "context is -1");
    expect_refused("gpt2-medium", small(), "model gpt2-medium has no layers that could be chosen");
    expect_refused("gpt-2", small(), "did you mean 'gpt2'?");
}

static void expect_input_refused(tutti_model *model, tutti_array x, const char *text)
{
    tutti_tensor *y;

    tutti_step_begin(cx, NULL);
    y = tutti_model_forward(model, tutti_input(cx, x));
    assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), text))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), text);
    tutti_step_end(cx);
}

static void input_that_is_no_tokens_is_refused(void **state)
{
    static const int64_t tokens[20] = {[3] = 11};
    static const float numbers[20];
    const char *const names[] = {"gpt2", "llama"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const tutti_model_opts opts = small();
        tutti_model *model;

        assert_int_equal(tutti_model_new(&model, cx, names[i], &opts), TUTTI_OK);
        expect_input_refused(model, (tutti_array){numbers, TUTTI_SHAPE(2, 6), TUTTI_F32},
                             "input is F32 [2,6], expected tokens, I64 [N,T], of at most 8");
        expect_input_refused(model, (tutti_array){tokens, TUTTI_SHAPE(2, 9), TUTTI_I64},
                             "input is I64 [2,9], expected tokens");
        expect_input_refused(model, (tutti_array){tokens, TUTTI_SHAPE(6), TUTTI_I64},
                             "input is I64 [6], expected tokens");
        expect_input_refused(model, (tutti_array){tokens, TUTTI_SHAPE(1, 6), TUTTI_I64},
                             "is 11, but weight has 11 rows");
        tutti_model_free(model);
    }
}

/* Standard deviation of a parameter; its mean is near 0. */
static double deviation(const tutti_model *model, const char *name)
{
    tutti_tensor *t = tutti_module_find(tutti_model_module((tutti_model *)(uintptr_t)model), name);
    const int64_t n = t ? tutti_shape_count(tutti_tensor_shape(t)) : 0;
    float *values = malloc(((size_t)n + 1) * sizeof *values);
    double sum = 0;

    if (!t)
        fail_msg("there is no %s", name);
    assert_int_equal(tutti_tensor_read(t, values), TUTTI_OK);
    for (int64_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    free(values);
    return sqrt(sum / (double)n);
}

static void weights_begin_as_gpt2_s(void **state)
{
    const double added = 0.02 / sqrt(2.0 * 2);
    tutti_model_opts opts = small();
    tutti_model *model;

    (void)state;
    opts.hidden = 64;
    opts.context = 100;
    opts.classes = 100;
    assert_int_equal(tutti_model_new(&model, cx, "gpt2", &opts), TUTTI_OK);
    assert_true(fabs(deviation(model, "transformer.wte.weight") / 0.02 - 1) < 0.05);
    assert_true(fabs(deviation(model, "transformer.wpe.weight") / 0.02 - 1) < 0.05);
    assert_true(fabs(deviation(model, "transformer.h.1.attn.c_attn.weight") / 0.02 - 1) < 0.05);
    assert_true(fabs(deviation(model, "transformer.h.1.attn.c_proj.weight") / added - 1) < 0.05);
    assert_true(fabs(deviation(model, "transformer.h.1.mlp.c_fc.weight") / 0.02 - 1) < 0.05);
    assert_true(fabs(deviation(model, "transformer.h.0.mlp.c_proj.weight") / added - 1) < 0.05);
    assert_true(deviation(model, "transformer.h.0.mlp.c_fc.bias") == 0);
    assert_true(deviation(model, "transformer.ln_f.weight") == 1);
    tutti_model_free(model);
}

static void gpt2_has_124_million_parameters(void **state)
{
    const tutti_model_opts opts = {.channels = 64, .height = 1, .width = 1, .classes = 50257};
    tutti_model *model;

    (void)state;
    assert_int_equal(tutti_model_new(&model, cx, "gpt2", &opts), TUTTI_OK);
    assert_int_equal(tutti_module_count(tutti_model_module(model)), 124439808);
    assert_ptr_equal(tutti_module_find(tutti_model_module(model), "lm_head.weight"),
                     tutti_module_find(tutti_model_module(model), "transformer.wte.weight"));
    tutti_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_do_not_fit_are_refused_by_their_key),
        cmocka_unit_test(input_that_is_no_tokens_is_refused),
        cmocka_unit_test(weights_begin_as_gpt2_s),
        cmocka_unit_test(gpt2_has_124_million_parameters)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
