/* optimizers: state by parameter, complete and sharded.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"
#include "harness/memory.h"
#include "optim/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { WEIGHT = 35, FLAT = 64 }; /* weight [7,5], padded to 48, and bias [7], padded to 16 */

typedef struct world {
    tutti_ctx *cx;
    tutti_module root;
    tutti_linear fc;
    tutti_optim *optim;
    tutti__sharding sharding;
    tutti__range ranges[2];
    int updated, finished;
} world;

static void open_world(world *w, bool adam)
{
    memset(w, 0, sizeof *w);
    assert_int_equal(tutti_ctx_new(&w->cx, test_device(), NULL), TUTTI_OK);
    tutti_module_init(&w->root, w->cx);
    tutti_linear_init(&w->fc, &w->root, "fc", 5, 7);
    if (adam)
        assert_int_equal(tutti_adam_new(&w->optim, &w->root, NULL), TUTTI_OK);
    else
        assert_int_equal(
            tutti_sgd_new(&w->optim, &w->root, &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f}),
            TUTTI_OK);
}

static void close_world(world *w)
{
    tutti_optim_free(w->optim);
    tutti_module_destroy(&w->root);
    tutti_ctx_free(w->cx);
}

static void step(world *w, int salt)
{
    tutti_optim_zero_grad(w->optim);
    for (size_t i = 0; i < 2; i++) {
        tutti_tensor *t = tutti_module_parameter(&w->root, i);
        tutti__parameter *p = t->parameter;
        float *values = test_keep(tutti__tensor_bytes(t));

        if (!p->grad)
            assert_int_equal(p->prepare(p->owner), TUTTI_OK);
        for (int64_t k = 0; k < tutti_shape_count(t->shape); k++)
            values[k] = sinf((float)(k * 7 + salt * 3));
        test_grad_put(t, values);
        p->grad_round = *p->round;
    }
    assert_int_equal(tutti_optim_step(w->optim), TUTTI_OK);
}

/* ---- Shares, as if other ranks had the rest --------------------------------------------------------------------- */

static tutti_status prepare(void *self)
{
    world *w = self;

    w->sharding.layouts = w->root.root->layouts;
    return TUTTI_OK;
}

static tutti_status begin(void *self, const void *optim, double value)
{
    (void)self;
    assert_non_null(optim);
    assert_true(value > 0); /* the rate */
    return TUTTI_OK;
}

static tutti_status updated(void *self, size_t i)
{
    world *w = self;

    assert_int_equal((int)i, w->updated % 2); /* in order, each once per step */
    w->updated++;
    return TUTTI_OK;
}

static tutti_status finish(void *self)
{
    ((world *)self)->finished++;
    return TUTTI_OK;
}

static void share_out(world *w, tutti__range a, tutti__range b)
{
    w->ranges[0] = a;
    w->ranges[1] = b;
    w->sharding = (tutti__sharding){.self = w,
                                    .ranges = w->ranges,
                                    .n = 2,
                                    .prepare = prepare,
                                    .begin = begin,
                                    .updated = updated,
                                    .finish = finish};
    w->root.root->sharding = &w->sharding;
}

static void shares_hold_their_part_of_state_and_have_the_bits_of_the_whole(void **state)
{
    static const tutti__range cut[2] = {{.begin = 9, .end = 30}, {.begin = 41, .end = 58}};
    tutti_flat a, b;
    world whole, share;

    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        open_world(&whole, adam);
        open_world(&share, adam);
        for (int i = 0; i < 4; i++) {
            if (i == 1) /* complete state is sharded */
                share_out(&share, cut[0], cut[1]);
            step(&whole, i);
            step(&share, i);
        }
        assert_int_equal(share.updated, 6);
        assert_int_equal(share.finished, 3);
        assert_int_equal(tutti_optim_state_bytes(whole.optim),
                         sizeof(float) * FLAT * (size_t)(adam + 1));
        assert_int_equal(tutti_optim_state_bytes(share.optim),
                         sizeof(float) * 38 * (size_t)(adam + 1));
        assert_int_equal(tutti_module_flat(&whole.root, &a), TUTTI_OK);
        assert_int_equal(tutti_module_flat(&share.root, &b), TUTTI_OK);
        a.parameters = test_look(whole.cx, a.parameters, FLAT * sizeof(float));
        b.parameters = test_look(share.cx, b.parameters, FLAT * sizeof(float));
        for (size_t r = 0; r < 2; r++)
            assert_memory_equal(a.parameters + cut[r].begin, b.parameters + cut[r].begin,
                                (cut[r].end - cut[r].begin) * sizeof(float));
        assert_true(a.parameters[3] != b.parameters[3]); /* another rank's */
        close_world(&share);
        close_world(&whole);
    }
}

static void shares_are_not_read_as_if_they_were_whole(void **state)
{
    float x[WEIGHT];
    world w;

    (void)state;
    open_world(&w, false);
    share_out(&w, (tutti__range){.end = 20}, (tutti__range){.begin = 30, .end = 40});
    step(&w, 0);
    assert_int_equal(tutti_optim_state_read(w.optim, 0, w.fc.weight, x), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "tutti_zero_consolidate"));
    w.root.root->sharding = NULL; /* the other ranks' shares are lost */
    assert_int_equal(tutti_optim_step(w.optim), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "share of the state"));
    close_world(&w);
}

/* ---- Names, reading, writing ---------------------------------------------------------------------------------------- */

static void states_have_pytorchs_names(void **state)
{
    tutti_optim *plain;
    world w;

    (void)state;
    open_world(&w, true);
    assert_string_equal(tutti_optim_state_name(w.optim, 0), "exp_avg");
    assert_string_equal(tutti_optim_state_name(w.optim, 1), "exp_avg_sq");
    assert_null(tutti_optim_state_name(w.optim, 2));
    assert_int_equal(tutti_sgd_new(&plain, &w.root, &(tutti_sgd_opts){.lr = 1}), TUTTI_OK);
    assert_null(tutti_optim_state_name(plain, 0));
    tutti_optim_free(plain);
    close_world(&w);
}

/* A second optimizer that is given the first one's parameters and state continues with the same bits; `shared_out`: sharded. */
static void state_travels(bool shared_out)
{
    float x[WEIGHT];
    tutti_flat flat[2];
    world a, b;

    open_world(&a, true);
    open_world(&b, true);
    step(&a, 1);
    step(&a, 2);
    if (shared_out)
        share_out(&b, (tutti__range){.end = 31}, (tutti__range){.begin = 31, .end = FLAT});
    for (size_t i = 0; i < 2; i++) {
        tutti_tensor *from = tutti_module_parameter(&a.root, i),
                     *to = tutti_module_parameter(&b.root, i);

        assert_int_equal(tutti_tensor_read(from, x), TUTTI_OK);
        assert_int_equal(tutti_tensor_write(to, x), TUTTI_OK);
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(tutti_optim_state_read(a.optim, k, from, x), TUTTI_OK);
            assert_int_equal(tutti_optim_state_write(b.optim, k, to, x), TUTTI_OK);
        }
        assert_int_equal(tutti_optim_updates(a.optim, from), 2);
        assert_int_equal(tutti_optim_set_updates(b.optim, to, 2), TUTTI_OK);
    }
    step(&a, 3);
    step(&b, 3);
    assert_int_equal(tutti_module_flat(&a.root, &flat[0]), TUTTI_OK);
    assert_int_equal(tutti_module_flat(&b.root, &flat[1]), TUTTI_OK);
    assert_memory_equal(test_look(a.cx, flat[0].parameters, FLAT * sizeof(float)),
                        test_look(b.cx, flat[1].parameters, FLAT * sizeof(float)),
                        FLAT * sizeof(float));
    close_world(&a);
    close_world(&b);
}

static void written_state_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    state_travels(false);
    state_travels(true);
}

static void state_of_strangers_is_refused(void **state)
{
    float x[WEIGHT];
    world a, b;

    (void)state;
    open_world(&a, true);
    open_world(&b, true);
    assert_int_equal(tutti_optim_state_read(a.optim, 0, b.fc.weight, x), TUTTI_ERR_ARG);
    assert_int_equal(tutti_optim_state_read(a.optim, 2, a.fc.weight, x), TUTTI_ERR_ARG);
    assert_int_equal(tutti_optim_state_write(a.optim, 0, NULL, x), TUTTI_ERR_ARG);
    assert_int_equal(tutti_optim_state_read(a.optim, 0, a.fc.weight, x), TUTTI_OK); /* no step */
    assert_true(x[0] == 0 && tutti_optim_state_bytes(a.optim) == 0);
    close_world(&a);
    close_world(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_hold_their_part_of_state_and_have_the_bits_of_the_whole),
        cmocka_unit_test(shares_are_not_read_as_if_they_were_whole),
        cmocka_unit_test(states_have_pytorchs_names),
        cmocka_unit_test(written_state_goes_on_with_the_same_bits),
        cmocka_unit_test(state_of_strangers_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
