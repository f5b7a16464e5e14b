/* State in host memory: updates have the bits of device cpu, whatever the rule, in parts; what cannot be is refused.
 * SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"
#include "harness/memory.h"
#include "optim/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    IN = 1300,
    OUT = 1700,
    STEPS = 2
}; /* with Adam a weight of three parts, the last one not full */

typedef enum rule { SGD, MOMENTUM, ADAM, ADAMW, RMSPROP, ADAGRAD, N_RULES } rule;

typedef struct net {
    tutti_ctx *cx;
    tutti_module root;
    tutti_linear layer;
    tutti_tensor *unused; /* has no gradient, between the others */
    tutti_linear last;
    tutti_optim *optim;
} net;

static tutti_status optim_new(tutti_optim **optim_p, tutti_module *m, rule r)
{
    const tutti_adam_opts adam = {.lr = 0.01f, .weight_decay = 0.1f};

    switch (r) {
    case ADAM:
        return tutti_adam_new(optim_p, m, &adam);
    case ADAMW:
        return tutti_adamw_new(optim_p, m, &adam);
    case RMSPROP:
        return tutti_rmsprop_new(
            optim_p, m, &(tutti_rmsprop_opts){.lr = 0.01f, .momentum = 0.9f, .centered = true});
    case ADAGRAD:
        return tutti_adagrad_new(optim_p, m, &(tutti_adagrad_opts){.lr = 0.01f});
    default:
        return tutti_sgd_new(optim_p, m,
                             &(tutti_sgd_opts){.lr = 0.1f,
                                               .momentum = r == MOMENTUM ? 0.9f : 0,
                                               .nesterov = r == MOMENTUM,
                                               .weight_decay = 0.01f});
    }
}

static void open_net(net *n, tutti_device device, rule r)
{
    memset(n, 0, sizeof *n);
    assert_int_equal(tutti_ctx_new(&n->cx, device, &(tutti_ctx_opts){.seed = 3, .threads = 2}),
                     TUTTI_OK);
    tutti_module_init(&n->root, n->cx);
    tutti_linear_init(&n->layer, &n->root, "layer", IN, r == ADAM ? OUT : 20);
    n->unused = tutti_parameter_new(&n->root, "unused", TUTTI_SHAPE(19), TUTTI_INIT_ONES, 0);
    tutti_linear_init(&n->last, &n->root, "last", 7, 3);
    assert_int_equal(optim_new(&n->optim, &n->root, r), TUTTI_OK);
}

static void close_net(net *n)
{
    tutti_optim_free(n->optim);
    tutti_module_destroy(&n->root);
    tutti_ctx_free(n->cx);
}

static void step(net *n, int salt)
{
    tutti_tensor *t;

    tutti_optim_zero_grad(n->optim);
    for (size_t i = 0; (t = tutti_module_parameter(&n->root, i)); i++) {
        tutti__parameter *p = t->parameter;
        float *values;

        if (t == n->unused)
            continue;
        if (!p->grad)
            assert_int_equal(p->prepare(p->owner), TUTTI_OK);
        values = test_keep(tutti__tensor_bytes(t));
        for (int64_t k = 0; k < tutti_shape_count(t->shape); k++)
            values[k] = (float)((k * 7 + salt * 3 + (int64_t)i) % 101 - 50) / 64;
        test_grad_put(t, values);
        p->grad_round = *p->round;
    }
    assert_int_equal(tutti_optim_step(n->optim), TUTTI_OK);
}

static void check_same(const net *a, const net *b)
{
    const size_t most = (size_t)IN * OUT * sizeof(float);
    float *x = malloc(most), *y = malloc(most);

    for (size_t i = 0; i < tutti_module_n_parameters(&a->root); i++) {
        tutti_tensor *s = tutti_module_parameter(&a->root, i),
                     *t = tutti_module_parameter(&b->root, i);
        const size_t bytes = tutti__tensor_bytes(s);

        assert_int_equal(tutti_tensor_read(s, x), TUTTI_OK);
        assert_int_equal(tutti_tensor_read(t, y), TUTTI_OK);
        assert_memory_equal(x, y, bytes);
        for (size_t k = 0; tutti_optim_state_name(a->optim, k); k++) {
            assert_int_equal(tutti_optim_state_read(a->optim, k, s, x), TUTTI_OK);
            assert_int_equal(tutti_optim_state_read(b->optim, k, t, y), TUTTI_OK);
            assert_memory_equal(x, y, bytes);
        }
    }
    free(x);
    free(y);
}

static void updates_have_the_bits_of_the_cpu(void **state)
{
    const tutti_device device = test_device(), cpu = {TUTTI_CPU, 0};

    (void)state;
    if (device.kind == TUTTI_CPU)
        skip();
    for (int r = 0; r < N_RULES; r++) {
        net plain, offloaded;

        open_net(&plain, cpu, (rule)r);
        open_net(&offloaded, device, (rule)r);
        assert_int_equal(tutti_optim_offload(offloaded.optim), TUTTI_OK);
        for (int i = 0; i < STEPS; i++) {
            step(&plain, i);
            step(&offloaded, i);
        }
        check_same(&plain, &offloaded);
        assert_int_equal(tutti_optim_state_bytes(offloaded.optim),
                         tutti_optim_state_bytes(plain.optim));
        close_net(&plain);
        close_net(&offloaded);
    }
}

/* What was written before the first step is where updates find it. */
static void state_is_written_and_read(void **state)
{
    const tutti_device device = test_device();
    float x[7 * 3], y[7 * 3];
    net n;

    (void)state;
    if (device.kind == TUTTI_CPU)
        skip();
    open_net(&n, device, ADAM);
    assert_int_equal(tutti_optim_offload(n.optim), TUTTI_OK);
    for (int i = 0; i < 7 * 3; i++)
        x[i] = (float)i;
    assert_int_equal(tutti_optim_state_write(n.optim, 1, n.last.weight, x), TUTTI_OK);
    assert_int_equal(tutti_optim_state_read(n.optim, 1, n.last.weight, y), TUTTI_OK);
    assert_memory_equal(x, y, sizeof x);
    step(&n, 1);
    assert_int_equal(tutti_optim_state_read(n.optim, 1, n.last.weight, y), TUTTI_OK);
    for (int i = 1; i < 7 * 3; i++)
        assert_true(y[i] > x[i] * 0.9f && y[i] != x[i]);
    close_net(&n);
}

static void what_cannot_be_is_refused(void **state)
{
    const tutti_device device = test_device();
    tutti_optim *lamb;
    net n;

    (void)state;
    open_net(&n, device, ADAM);
    if (device.kind == TUTTI_CPU) {
        assert_int_equal(tutti_optim_offload(n.optim), TUTTI_ERR_ARG);
        assert_non_null(strstr(tutti_last_error(), "in host memory already"));
    } else {
        assert_int_equal(tutti_lamb_new(&lamb, &n.root, NULL), TUTTI_OK);
        assert_int_equal(tutti_optim_offload(lamb), TUTTI_ERR_UNSUPPORTED);
        tutti_optim_free(lamb);
        step(&n, 1);
        assert_int_equal(tutti_optim_offload(n.optim), TUTTI_ERR_STATE);
        assert_non_null(strstr(tutti_last_error(), "before the first step"));
    }
    close_net(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_have_the_bits_of_the_cpu),
        cmocka_unit_test(state_is_written_and_read),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
