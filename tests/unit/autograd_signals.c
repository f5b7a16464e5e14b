/* Signals may come at any time: kernels compute the same with a handler that runs thousands of times.
 * SPDX-License-Identifier: MIT */
#include "base/base.h"
#include <tutti/autograd.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <cmocka.h>

enum { ROWS = 32, IN = 64, HIDDEN = 256, OUT = 10, STEPS = 3000, SECONDS = 10, ENOUGH = 10 };

static volatile sig_atomic_t signals_taken;

static void on_alarm(int number)
{
    char frame[512]; /* a handler that uses its stack */

    (void)number;
    memset(frame, 0xA5, sizeof frame);
    signals_taken += (unsigned char)frame[signals_taken % (int)sizeof frame] == 0xA5;
}

static void set_alarm(int microseconds)
{
    const struct itimerval every = {{0, microseconds}, {0, microseconds}};

    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

typedef struct problem {
    float *x, *w1, *w2;
    int64_t labels[ROWS];
} problem;

static float *numbers(size_t n, uint32_t seed)
{
    float *p = malloc(n * sizeof *p);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((i * 2654435761u + seed) % 1000) / 5000 - 0.1f;
    return p;
}

/* Fewer steps where they are slow: unoptimized, or with little left of each 50 us; more where they are over before the timer
 * has interrupted them often enough: on a fast processor, or with a coarse timer. */
static bool goes_on(int i, int steps, uint64_t begin_ns)
{
    return (i < steps || signals_taken <= ENOUGH) &&
           tutti__now_ns() - begin_ns < SECONDS * 1000000000ull;
}

/* A hash over the gradients of one step of a two-layer network: six matrix products. */
static uint64_t step(tutti_ctx *cx, const problem *p)
{
    tutti_tensor *x, *w1, *w2, *loss;
    uint64_t hash;

    tutti_step_begin(cx, NULL);
    x = tutti_input_with_grad(cx, (tutti_array){p->x, TUTTI_SHAPE(ROWS, IN), TUTTI_F32});
    w1 = tutti_input_with_grad(cx, (tutti_array){p->w1, TUTTI_SHAPE(HIDDEN, IN), TUTTI_F32});
    w2 = tutti_input_with_grad(cx, (tutti_array){p->w2, TUTTI_SHAPE(OUT, HIDDEN), TUTTI_F32});
    loss = tutti_cross_entropy(
        tutti_functional_linear(tutti_relu(tutti_functional_linear(x, w1, NULL)), w2, NULL),
        tutti_input(cx, (tutti_array){p->labels, TUTTI_SHAPE(ROWS), TUTTI_I64}));
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    hash = tutti__hash64(tutti_tensor_grad(w1), sizeof(float) * HIDDEN * IN) ^
           tutti__hash64(tutti_tensor_grad(w2), sizeof(float) * OUT * HIDDEN) ^
           tutti__hash64(tutti_tensor_grad(x), sizeof(float) * ROWS * IN);
    tutti_step_end(cx);
    return hash;
}

static void gradients_are_the_same_under_a_rain_of_signals(void **state)
{
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    problem p = {numbers(ROWS * IN, 1), numbers(HIDDEN * IN, 2), numbers(OUT * HIDDEN, 3), {0}};
    tutti_ctx *cx;

    (void)state;
    for (int i = 0; i < ROWS; i++)
        p.labels[i] = i % OUT;
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    for (int threads = 1; threads <= 2; threads++) {
        const tutti_ctx_opts opts = {.threads = threads};
        uint64_t quiet, begin_ns;

        assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &opts), TUTTI_OK);
        quiet = step(cx, &p);
        begin_ns = tutti__now_ns();
        set_alarm(50);
        for (int i = 0; goes_on(i, threads == 1 ? STEPS : STEPS / 10, begin_ns); i++)
            assert_true(step(cx, &p) == quiet);
        set_alarm(0);
        tutti_ctx_free(cx);
    }
    assert_true(signals_taken > ENOUGH);
    free(p.x);
    free(p.w1);
    free(p.w2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_same_under_a_rain_of_signals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
