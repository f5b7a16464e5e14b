/* nn_own_operation.c -- operations of a program's own beside the library's that compute the same.   SPDX-License-Identifier: MIT
 *
 *     bench_nn_own_operation [ROUNDS]
 *
 * relu has a kernel in the library; mul is declared there as a program declares it. A step is a chain of 16 operations on a
 * parameter, their sum, and backward; the library's and the program's take turns, and the medians of ROUNDS (31) times of a
 * millisecond or more are compared. By number of elements, and with 1 and 2 threads. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { CHAIN = 16, MOST_ROUNDS = 1001 };

TUTTI__CLONES static void relu_forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = x[i] < 0 ? 0 : x[i];
}

TUTTI__CLONES static void relu_backward(const tutti_op_args *p)
{
    float *dx = p->dsrc[0];

    for (int64_t i = 0; i < p->count; i++) {
        const float d = p->dy[i];

        dx[i] = p->y[i] <= 0 ? 0 : d;
    }
}

static tutti_tensor *own_relu(tutti_tensor *x)
{
    static const tutti_op op = {.name = "own relu",
                                .forward = relu_forward,
                                .backward = relu_backward,
                                .elementwise = true,
                                .backward_reads = TUTTI_OP_RESULT,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}

TUTTI__CLONES static void mul_forward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = a[i] * b[i];
}

TUTTI__CLONES static void mul_backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++) {
        const float *other = p->src[1 - k];

        for (int64_t i = 0; p->dsrc[k] && i < p->count; i++)
            p->dsrc[k][i] = p->dy[i] * other[i];
    }
}

static tutti_tensor *own_square(tutti_tensor *x)
{
    static const tutti_op op = {.name = "own mul",
                                .forward = mul_forward,
                                .backward = mul_backward,
                                .elementwise = true,
                                .backward_reads = 3,
                                .activations = 3};

    return tutti_op_run(&op, (tutti_tensor *[]){x, x}, 2, NULL, 0);
}

static tutti_tensor *square(tutti_tensor *x)
{
    return tutti_mul(x, x);
}

typedef struct pair {
    const char *name;
    tutti_tensor *(*run[2])(tutti_tensor *x); /* the library's, and the program's */
} pair;
static const pair PAIRS[] = {{"relu", {tutti_relu, own_relu}}, {"mul", {square, own_square}}};

static void step(tutti_module *m, tutti_tensor *(*run)(tutti_tensor *x))
{
    tutti_tensor *x = tutti_module_parameter(m, 0);

    tutti_step_begin(m->cx, NULL);
    for (int i = 0; i < CHAIN; i++)
        x = run(x);
    TUTTI_MUST(tutti_backward(tutti_sum(x)));
    tutti_step_end(m->cx);
    tutti_module_zero_grad(m);
}

/* Microseconds of one operation, forward and backward. */
static double measure(tutti_module *m, tutti_tensor *(*run)(tutti_tensor *x), int steps)
{
    const uint64_t begin_ns = tutti__now_ns();

    for (int i = 0; i < steps; i++)
        step(m, run);
    return (double)(tutti__now_ns() - begin_ns) * 1e-3 / steps / CHAIN;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void compare(const pair *p, int64_t n, int threads, int rounds)
{
    static double us[2][MOST_ROUNDS];
    tutti_module m;
    tutti_ctx *cx;
    double once;
    int steps;

    TUTTI_MUST(
        tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = threads}));
    tutti_module_init(&m, cx);
    tutti_parameter_new(&m, "x", TUTTI_SHAPE(n), TUTTI_INIT_ONES, 0);
    TUTTI_MUST(tutti_module_status(&m));
    measure(&m, p->run[0], 3);
    once = measure(&m, p->run[1], 3);
    steps = once * CHAIN < 1000 ? (int)(1000 / (once * CHAIN)) + 1 : 1;
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < 2; k++)
            us[k][i] = measure(&m, p->run[k], steps);
    for (int k = 0; k < 2; k++)
        qsort(us[k], (size_t)rounds, sizeof us[k][0], by_value);
    printf("%-5s %8lld %7d %10.2f %10.2f %8.2f\n", p->name, (long long)n, threads,
           us[0][rounds / 2], us[1][rounds / 2], us[1][rounds / 2] / us[0][rounds / 2]);
    tutti_module_destroy(&m);
    tutti_ctx_free(cx);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 31;

    if (rounds < 1 || rounds > MOST_ROUNDS)
        return 1;
    printf("# us of an operation, forward and backward: the library's, the program's; their ratio\n"
           "#     elements threads  library    own        ratio\n");
    for (size_t i = 0; i < TUTTI__COUNT_OF(PAIRS); i++)
        for (int threads = 1; threads <= 2; threads++)
            for (int64_t n = 1000; n <= 1000000; n *= 10)
                compare(&PAIRS[i], n, threads, rounds);
    return 0;
}
