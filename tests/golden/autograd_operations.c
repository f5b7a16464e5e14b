/* Operations compared with PyTorch's (tools/make_golden.py), results and gradients.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "golden/golden.h"
#include "harness/device.h"

#include <math.h>
#include <tutti/autograd.h>

#define N 32

typedef struct operation {
    const char *name;
    tutti_tensor *(*of_one)(tutti_tensor *x);
    tutti_tensor *(*of_two)(tutti_tensor *a, tutti_tensor *b);
} operation;

static tutti_tensor *gelu(tutti_tensor *x)
{
    return tutti_gelu(x, TUTTI_GELU_EXACT);
}

static tutti_tensor *gelu_tanh(tutti_tensor *x)
{
    return tutti_gelu(x, TUTTI_GELU_TANH);
}

static const operation operations[] = {
    {"sigmoid", tutti_sigmoid, NULL}, {"tanh", tutti_tanh, NULL},
    {"mean", tutti_mean, NULL},       {"gelu", gelu, NULL},
    {"gelu_tanh", gelu_tanh, NULL},   {"sub", NULL, tutti_sub},
    {"mul", NULL, tutti_mul},
};

static const float *values(const golden *g, const char *name, const char *part, size_t *n_p)
{
    char full[64];

    snprintf(full, sizeof full, "%s%s%s", name, *part ? "." : "", part);
    return golden_tensor(g, full, "F32", n_p);
}

/* Results within a few ULP of PyTorch's, gradients within what one ULP of y changes in 1 - y and 1 - y * y. */
static void compare(const char *name, const char *part, const golden *g, const float *got)
{
    const double least = strcmp(part, "y") == 0 ? 1e-10 : 2e-7;
    size_t n;
    const float *expected = values(g, name, part, &n);

    for (size_t i = 0; i < n; i++) {
        const double a = (double)got[i], b = (double)expected[i];

        if (!(fabs(a - b) <= 1e-6 * fabs(b) + least))
            fail_msg("%s.%s[%zu] is %.9g, PyTorch has %.9g", name, part, i, a, b);
    }
}

static void as_pytorch(void **state)
{
    const operation *o = *state;
    float y[N], gradient[N];
    tutti_tensor *in[2], *result, *weighted;
    tutti_array array = {NULL, TUTTI_SHAPE(N), TUTTI_F32};
    tutti_ctx *cx;
    golden g;
    size_t n;

    golden_open(&g, "operations");
    assert_int_equal(tutti_ctx_new(&cx, test_device(), NULL), TUTTI_OK);
    tutti_step_begin(cx, NULL);
    for (int i = 0; i < 2; i++) {
        array.p = values(&g, i ? "b" : "a", "", &n);
        assert_int_equal(n, N);
        in[i] = tutti_input_with_grad(cx, array);
    }
    result = o->of_one ? o->of_one(in[0]) : o->of_two(in[0], in[1]);
    assert_int_equal(tutti_tensor_read(result, y), TUTTI_OK);
    compare(o->name, "y", &g, y);
    array.p = values(&g, "dy", "", &n);
    array.shape = tutti_tensor_shape(result);
    weighted = tutti_mul(result, tutti_input(cx, array));
    if (array.shape.n > 0) /* y becomes the sum of dy * y */
        weighted = tutti_scale(tutti_mean(weighted), N);
    if (tutti_backward(weighted) != TUTTI_OK)
        fail_msg("%s: %s", o->name, tutti_last_error());
    for (int i = 0; i < (o->of_two ? 2 : 1); i++) {
        assert_int_equal(tutti_tensor_grad_read(in[i], gradient), TUTTI_OK);
        compare(o->name, i ? "grad1" : "grad0", &g, gradient);
    }
    tutti_step_end(cx);
    tutti_ctx_free(cx);
    golden_close(&g);
}

int main(void)
{
    struct CMUnitTest tests[sizeof operations / sizeof *operations];
    const size_t n = sizeof operations / sizeof *operations;

    for (size_t i = 0; i < n; i++)
        tests[i] =
            (struct CMUnitTest){operations[i].name, as_pytorch, NULL, NULL, (void *)&operations[i]};
    return _cmocka_run_group_tests("operations", tests, n, NULL, NULL);
}
