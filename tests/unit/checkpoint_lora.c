/* Low-rank adapters: what they compute, which parameters get gradients and state, which layers are chosen, files with and without them,
 * and mistakes that change nothing.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"
#include "nn/nn.h"
#include "optim/optim.h"
#include <tutti/checkpoint.h>
#include <tutti/operations.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROWS = 5, IN = 6, HIDDEN = 7, OUT = 3, RANK = 2 };

typedef struct net {
    tutti_ctx *cx;
    tutti_module root, body;
    tutti_linear first, second, head;
} net;

static char folder[64];

static void init(net *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    assert_int_equal(
        tutti_ctx_new(&m->cx, test_device(), &(tutti_ctx_opts){.seed = seed, .threads = 1}),
        TUTTI_OK);
    tutti_module_init(&m->root, m->cx);
    tutti_module_init_child(&m->body, &m->root, "body");
    tutti_linear_init(&m->first, &m->body, "first", IN, HIDDEN);
    tutti_linear_init(&m->second, &m->body, "second", HIDDEN, HIDDEN);
    tutti_linear_init(&m->head, &m->root, "head", HIDDEN, OUT);
    assert_int_equal(tutti_module_status(&m->root), TUTTI_OK);
}

static void release(net *m)
{
    tutti_module_destroy(&m->root);
    tutti_ctx_free(m->cx);
}

static tutti_tensor *forward(net *m)
{
    static float x[ROWS * IN];

    for (int i = 0; i < ROWS * IN; i++)
        x[i] = sinf((float)i);
    return tutti_linear_forward(
        &m->head,
        tutti_tanh(tutti_linear_forward(
            &m->second, tutti_tanh(tutti_linear_forward(
                            &m->first, tutti_input(m->cx, (tutti_array){x, TUTTI_SHAPE(ROWS, IN),
                                                                        TUTTI_F32}))))));
}

static void outputs(net *m, float y[ROWS * OUT])
{
    tutti_step_begin(m->cx, &(tutti_step_opts){.eval = true});
    assert_int_equal(tutti_tensor_read(forward(m), y), TUTTI_OK);
    tutti_step_end(m->cx);
}

static void backward(net *m)
{
    tutti_module_zero_grad(&m->root);
    tutti_step_begin(m->cx, NULL);
    assert_int_equal(tutti_backward(tutti_mean(tutti_mul(forward(m), forward(m)))), TUTTI_OK);
    tutti_step_end(m->cx);
}

static void fill(net *m, const char *name, float scale)
{
    tutti_tensor *t = tutti_module_find(&m->root, name);
    float values[HIDDEN * HIDDEN];

    assert_non_null(t);
    for (int i = 0; i < HIDDEN * HIDDEN; i++)
        values[i] = scale * cosf((float)(3 * i));
    assert_int_equal(tutti_tensor_write(t, values), TUTTI_OK);
}

static bool trains(const net *m, const char *name)
{
    const tutti_tensor *t = tutti_module_find(&m->root, name);

    assert_non_null(t);
    return t->needs_grad && t->parameter->requires_grad;
}

static void says(const char *part)
{
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
}

/* At first the model computes what it did; then W x + b + alpha / rank B A x, also as a merged weight. */
static void test_what_is_computed(void **state)
{
    float before[ROWS * OUT], after[ROWS * OUT], merged[ROWS * OUT];
    float w[HIDDEN * IN], a[RANK * IN], b[HIDDEN * RANK];
    net m;

    (void)state;
    init(&m, 1);
    outputs(&m, before);
    assert_int_equal(tutti_lora_apply(&m.root, &(tutti_lora_opts){.rank = RANK, .alpha = 3}),
                     TUTTI_OK);
    outputs(&m, after);
    assert_memory_equal(before, after, sizeof after);
    fill(&m, "body.first.lora_B.weight", 0.5f);
    outputs(&m, after);
    assert_memory_not_equal(before, after, sizeof after);
    assert_int_equal(tutti_tensor_read(m.first.weight, w), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(tutti_module_find(&m.root, "body.first.lora_A.weight"), a),
                     TUTTI_OK);
    assert_int_equal(tutti_tensor_read(tutti_module_find(&m.root, "body.first.lora_B.weight"), b),
                     TUTTI_OK);
    for (int i = 0; i < HIDDEN; i++)
        for (int j = 0; j < IN; j++)
            for (int k = 0; k < RANK; k++)
                w[i * IN + j] += 1.5f * b[i * RANK + k] * a[k * IN + j];
    for (int i = 0; i < RANK * IN; i++)
        assert_true(fabsf(a[i]) < 1 / sqrtf(IN) && a[i] != 0);
    fill(&m, "body.first.lora_B.weight", 0);
    assert_int_equal(tutti_tensor_write(m.first.weight, w), TUTTI_OK);
    outputs(&m, merged);
    for (int i = 0; i < ROWS * OUT; i++)
        assert_true(fabsf(after[i] - merged[i]) < 1e-5f);
    release(&m);
}

/* Gradients, updates and optimizer state belong to the adapters and what `train` names; base weights keep their bits. */
static void test_what_is_trained(void **state)
{
    float first[HIDDEN * IN], again[HIDDEN * IN], head[OUT * HIDDEN], moved[OUT * HIDDEN];
    tutti_optim *optim;
    net m;

    (void)state;
    init(&m, 1);
    assert_int_equal(tutti_lora_apply(&m.root, &(tutti_lora_opts){.rank = RANK, .train = "head"}),
                     TUTTI_OK);
    assert_int_equal(tutti_module_n_parameters(&m.root), 6 + 4);
    assert_null(tutti_module_find(&m.root, "head.lora_A.weight"));
    assert_true(trains(&m, "head.weight") && trains(&m, "head.bias"));
    assert_true(trains(&m, "body.second.lora_A.weight") && trains(&m, "body.second.lora_B.weight"));
    assert_false(trains(&m, "body.second.weight") || trains(&m, "body.second.bias"));
    assert_int_equal(tutti_adamw_new(&optim, &m.root, &(tutti_adam_opts){.lr = 0.1f}), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(m.first.weight, first), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(m.head.weight, head), TUTTI_OK);
    for (int i = 0; i < 3; i++) {
        backward(&m);
        assert_null(tutti_tensor_grad(m.first.weight));
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
    assert_int_equal(tutti_tensor_read(m.first.weight, again), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(m.head.weight, moved), TUTTI_OK);
    assert_memory_equal(first, again, sizeof again);
    assert_memory_not_equal(head, moved, sizeof moved);
    assert_int_equal(tutti_optim_updates(optim, m.first.weight), 0);
    assert_int_equal(
        tutti_optim_updates(optim, tutti_module_find(&m.root, "body.first.lora_B.weight")), 3);
    tutti_optim_free(optim);
    release(&m);
}

static size_t adapters_of(const char *targets)
{
    net m;
    size_t n;

    init(&m, 1);
    assert_int_equal(
        tutti_lora_apply(&m.root, &(tutti_lora_opts){.rank = RANK, .targets = targets}), TUTTI_OK);
    n = (tutti_module_n_parameters(&m.root) - 6) / 2;
    release(&m);
    return n;
}

/* Names of tensors and modules, patterns of them, and last names alone. */
static void test_which_layers(void **state)
{
    (void)state;
    assert_int_equal(adapters_of(NULL), 3);
    assert_int_equal(adapters_of(""), 3);
    assert_int_equal(adapters_of("first"), 1);
    assert_int_equal(adapters_of("body"), 2);
    assert_int_equal(adapters_of("body.*,head"), 3);
    assert_int_equal(adapters_of("body.second.weight"), 1);
    assert_int_equal(adapters_of("*st,head"), 2);
}

static void refused(net *m, const tutti_lora_opts *o, tutti_status status, const char *part)
{
    const size_t n = tutti_module_n_parameters(&m->root);

    assert_int_equal(tutti_lora_apply(&m->root, o), status);
    says(part);
    assert_int_equal(tutti_module_n_parameters(&m->root), n);
    assert_int_equal(tutti_module_status(&m->root), TUTTI_OK);
    assert_true(trains(m, "body.first.weight"));
}

static void test_mistakes_change_nothing(void **state)
{
    tutti_flat flat;
    net m;

    (void)state;
    init(&m, 1);
    refused(&m, &(tutti_lora_opts){.rank = 0}, TUTTI_ERR_ARG, "rank is 0");
    refused(&m, &(tutti_lora_opts){.rank = 1, .alpha = NAN}, TUTTI_ERR_ARG, "alpha is");
    refused(&m, &(tutti_lora_opts){.rank = 1, .dropout = 1}, TUTTI_ERR_ARG, "dropout is 1");
    refused(&m, &(tutti_lora_opts){.rank = 1, .targets = "first,third"}, TUTTI_ERR_ARG,
            "\"third\" is no layer that can have an adapter; expected a linear layer, or a pattern "
            "of some, such as body.first");
    refused(&m, &(tutti_lora_opts){.rank = 1, .targets = "body.first.bias"}, TUTTI_ERR_ARG,
            "no layer that can have an adapter");
    refused(&m, &(tutti_lora_opts){.rank = 1, .train = "haed"}, TUTTI_ERR_ARG, "\"haed\" is not");
    refused(&m, &(tutti_lora_opts){.rank = 1, .train = "body,head"}, TUTTI_ERR_ARG,
            "trained as a whole");
    assert_int_equal(tutti_lora_load(&m.root, folder), TUTTI_ERR_STATE);
    says("has no adapters");
    assert_int_equal(tutti_module_flat(&m.root, &flat), TUTTI_OK);
    refused(&m, &(tutti_lora_opts){.rank = 1}, TUTTI_ERR_STATE, "laid out already");
    release(&m);
    init(&m, 1);
    assert_int_equal(tutti_lora_apply(&m.root, &(tutti_lora_opts){.rank = 1}), TUTTI_OK);
    assert_int_equal(tutti_lora_apply(&m.root, &(tutti_lora_opts){.rank = 1}), TUTTI_ERR_STATE);
    says("has adapters already, of rank 1");
    release(&m);
}

/* A file with adapters, one without, and one with a part of them. */
static void test_weight_files(void **state)
{
    char base[96], whole[96], said[512];
    float y[ROWS * OUT], z[ROWS * OUT];
    net a, b, c;

    (void)state;
    snprintf(base, sizeof base, "%s/base.safetensors", folder);
    snprintf(whole, sizeof whole, "%s/whole.safetensors", folder);
    init(&a, 1);
    assert_int_equal(tutti_module_save(&a.root, base), TUTTI_OK);
    assert_int_equal(tutti_lora_apply(&a.root, &(tutti_lora_opts){.rank = RANK}), TUTTI_OK);
    fill(&a, "body.second.lora_B.weight", 0.3f);
    assert_int_equal(tutti_module_save(&a.root, whole), TUTTI_OK);
    outputs(&a, y);

    init(&b, 2);
    assert_int_equal(tutti_lora_apply(&b.root, &(tutti_lora_opts){.rank = RANK}), TUTTI_OK);
    assert_int_equal(tutti_module_load(&b.root, whole), TUTTI_OK);
    outputs(&b, z);
    assert_memory_equal(y, z, sizeof z);
    assert_int_equal(tutti_module_load_with(&b.root, base, NULL, said, sizeof said), TUTTI_OK);
    assert_non_null(strstr(said, "6 of 12 tensors"));
    outputs(&b, z);
    assert_memory_equal(y, z, sizeof z); /* the adapters stayed */

    init(&c, 1);
    assert_int_equal(tutti_module_load(&c.root, whole), TUTTI_ERR_FORMAT);
    says("unexpected");
    says("tutti checkpoint export");
    release(&c);
    init(&c, 1);
    assert_int_equal(
        tutti_lora_apply(&c.root, &(tutti_lora_opts){.rank = RANK, .targets = "first"}), TUTTI_OK);
    assert_int_equal(tutti_module_save(&c.root, base), TUTTI_OK);
    assert_int_equal(tutti_module_load(&b.root, base), TUTTI_ERR_FORMAT);
    says("missing: body.second.lora_A.weight");
    release(&a);
    release(&b);
    release(&c);
}

static void steps(net *m, tutti_optim *optim, int n)
{
    for (int i = 0; i < n; i++) {
        backward(m);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
}

/* Saved and loaded in the middle: the bits of the run that was not interrupted, dropout included. Parameters that were trained before
 * they were frozen keep their state. */
static void test_checkpoint_continues(void **state)
{
    const tutti_lora_opts opts = {.rank = RANK, .dropout = 0.3, .train = "head"};
    char path[96], one[33], two[33];
    tutti_optim *optim[2];
    net m[2];

    (void)state;
    snprintf(path, sizeof path, "%s/checkpoint", folder);
    for (int k = 0; k < 2; k++) {
        init(&m[k], 1);
        assert_int_equal(tutti_lora_apply(&m[k].root, &opts), TUTTI_OK);
        assert_int_equal(tutti_adamw_new(&optim[k], &m[k].root, &(tutti_adam_opts){.lr = 0.1f}),
                         TUTTI_OK);
    }
    steps(&m[0], optim[0], 2);
    assert_int_equal(tutti_module_freeze(&m[0].root, "head.bias"), TUTTI_OK);
    steps(&m[0], optim[0], 1);
    assert_int_equal(tutti_checkpoint_save(path, &m[0].root, optim[0], NULL), TUTTI_OK);
    assert_int_equal(tutti_module_freeze(&m[1].root, "head.bias"), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_load(path, &m[1].root, optim[1], NULL), TUTTI_OK);
    for (int k = 0; k < 2; k++) {
        steps(&m[k], optim[k], 1);
        tutti_parameter_set_requires_grad(tutti_module_find(&m[k].root, "head.bias"), true);
        steps(&m[k], optim[k], 2);
    }
    tutti_module_digest(&m[0].root, one);
    tutti_module_digest(&m[1].root, two);
    assert_string_equal(one, two);
    for (int k = 0; k < 2; k++) {
        tutti_optim_free(optim[k]);
        release(&m[k]);
    }
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tutti-lora-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_computed), cmocka_unit_test(test_what_is_trained),
        cmocka_unit_test(test_which_layers),     cmocka_unit_test(test_mistakes_change_nothing),
        cmocka_unit_test(test_weight_files),     cmocka_unit_test(test_checkpoint_continues),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
