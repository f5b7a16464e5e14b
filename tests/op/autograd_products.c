/* autograd_products.c -- the calls of convolutions and linear layers to cuDNN and cuBLASLt, as recorded by their stand-ins;
 * and their refusals.   SPDX-License-Identifier: MIT
 *
 * Results on all shapes are compared by autograd_ops.c and autograd_shapes.c. */
#include "harness/standin.h"
#include "tensor/kernel.h"
#include "tensor/kernel/cuda/glue.h"

#include <math.h>
#include <setjmp.h>
#include <cmocka.h>
#include <tutti/autograd.h>

enum { MAX_LINES = 400 };

static char path[64]; /* of the record */

typedef struct lines {
    char *of[MAX_LINES];
    int n;
} lines;

/* The recorded lines that begin with the prefix. */
static lines recorded(const char *prefix)
{
    lines l = {.n = 0};
    char line[1024];
    FILE *file = fopen(path, "r");

    while (file && l.n < MAX_LINES && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, prefix, strlen(prefix)) == 0)
            l.of[l.n++] = strdup(line);
    }
    if (file)
        fclose(file);
    return l;
}

static void expect(const char *prefix, const char *const *expected)
{
    const lines l = recorded(prefix);
    int n = 0;

    for (; expected[n]; n++) {
        if (n >= l.n || strcmp(l.of[n], expected[n]) != 0)
            fprintf(stderr, "expected: %s\nrecorded: %s\n", expected[n],
                    n < l.n ? l.of[n] : "nothing");
        CHECK(n < l.n && strcmp(l.of[n], expected[n]) == 0);
    }
    CHECK(l.n == n);
}

#define EXPECT(prefix, ...) expect(prefix, (const char *const[]){__VA_ARGS__, NULL})

/* ---- Layers ------------------------------------------------------------------------------------------------ */

typedef struct layer {
    tutti_shape x, w;
    int stride, padding; /* stride 0: linear */
    bool bias;
} layer;

static const layer convolution = {{4, {2, 3, 9, 7}}, {4, {5, 3, 3, 3}}, 2, 1, true};
static const layer wide = {{4, {2, 8, 6, 6}}, {4, {16, 8, 3, 3}}, 1, 1, false};
static const layer linear = {{2, {6, 3}}, {2, {5, 3}}, 0, 0, true};
static const layer plain_linear = {{2, {6, 3}}, {2, {5, 3}}, 0, 0, false};

typedef struct values {
    float y[2048], dx[2048], dw[2048], db[64];
} values;

static tutti_ctx *context(tutti_device_kind kind)
{
    tutti_ctx *cx;

    CHECK_OK(tutti_ctx_new(&cx, (tutti_device){kind, 0},
                           &(tutti_ctx_opts){.kernels = kind == TUTTI_CPU ? TUTTI_KERNELS_REFERENCE
                                                                          : TUTTI_KERNELS_AUTO}));
    return cx;
}

static tutti_tensor *leaf(tutti_ctx *cx, tutti_shape shape, uint32_t seed)
{
    static float data[4][4096];
    float *p = data[seed % 4];

    for (int64_t i = 0; i < tutti_shape_count(shape); i++)
        p[i] = (float)((uint32_t)(i + 1) * (seed * 2654435761u + 40503u) >> 16 & 0xff) / 128 - 1;
    return tutti_input_with_grad(cx, (tutti_array){p, shape, TUTTI_F32});
}

/* Forward and, where the gradient of y is y, backward. The status of the result. */
static tutti_status step(tutti_ctx *cx, const layer *l, tutti_dtype autocast, values *v)
{
    tutti_tensor *x, *w, *b, *y;
    tutti_status status;

    tutti_step_begin(cx, &(tutti_step_opts){.autocast = autocast});
    x = leaf(cx, l->x, 1);
    w = leaf(cx, l->w, 2);
    b = l->bias ? leaf(cx, TUTTI_SHAPE(l->w.d[0]), 3) : NULL;
    y = l->stride ? tutti_functional_conv2d(
                        x, w, b, (tutti_conv2d_opts){.stride = l->stride, .padding = l->padding})
                  : tutti_functional_linear(x, w, b);
    y = tutti_cast(y, TUTTI_F32);
    status = tutti_tensor_status(y);
    if (status == TUTTI_OK) {
        CHECK_OK(tutti_tensor_read(y, v->y));
        status = tutti_backward(tutti_mse_loss(
            y, tutti_scale(tutti_input(cx, (tutti_array){v->y, tutti_tensor_shape(y), TUTTI_F32}),
                           0.5f)));
    }
    if (status == TUTTI_OK) {
        CHECK_OK(tutti_tensor_grad_read(x, v->dx));
        CHECK_OK(tutti_tensor_grad_read(w, v->dw));
        if (b)
            CHECK_OK(tutti_tensor_grad_read(b, v->db));
    }
    tutti_step_end(cx);
    return status;
}

static double difference(const float *a, const float *b, int64_t n)
{
    double error = 0, norm = 1e-30;

    for (int64_t i = 0; i < n; i++) {
        error = fmax(error, fabs((double)(a[i] - b[i])));
        norm = fmax(norm, fabs((double)b[i]));
    }
    return error / norm;
}

/* Compares with the reference kernels. */
static void compare(const layer *l, const values *got, double tolerance)
{
    static values expected;
    tutti_ctx *cx = context(TUTTI_CPU);

    CHECK_OK(step(cx, l, TUTTI_F32, &expected));
    CHECK(difference(got->dx, expected.dx, tutti_shape_count(l->x)) <= tolerance);
    CHECK(difference(got->dw, expected.dw, tutti_shape_count(l->w)) <= tolerance);
    if (l->bias)
        CHECK(difference(got->db, expected.db, l->w.d[0]) <= tolerance);
    tutti_ctx_free(cx);
}

/* One step on the GPU, compared with the reference; then frees the context. */
static void one_step(const layer *l, tutti_dtype dtype)
{
    static values v;
    tutti_ctx *cx = context(TUTTI_CUDA);

    CHECK_OK(step(cx, l, dtype, &v));
    compare(l, &v, dtype == TUTTI_F32 ? 1e-5 : 3e-2);
    tutti_ctx_free(cx);
}

/* ---- Calls ------------------------------------------------------------------------------------------------- */

#define FORMS(type)                                                                                \
    "x=" type "[2,3,9,7](189,1,21,3)@16 w=" type "[5,3,3,3](27,1,9,3)@16 y=" type                  \
    "[2,5,5,4](100,1,20,5)@16 stride=2,2 before=1,1 after=1,1 alpha=1 beta=0"

static void convolution_f32(void)
{
    one_step(&convolution, TUTTI_F32);
    EXPECT("cudnn execute", "cudnn execute forward " FORMS("f32") " engine=70 workspace=4096",
           "cudnn execute backward_filter " FORMS("f32") " engine=70 workspace=4096",
           "cudnn execute backward_data " FORMS("f32") " engine=70 workspace=4096");
    EXPECT("cudnn destroy", "cudnn destroy, descriptors left: 0");
    CHECK(recorded("cublaslt").n == 0); /* not opened */
}

static void convolution_bf16(void)
{
    one_step(&convolution, TUTTI_BF16);
    EXPECT("cudnn graph", "cudnn graph forward " FORMS("bf16"),
           "cudnn graph backward_filter " FORMS("bf16"),
           "cudnn graph backward_data " FORMS("bf16"));
}

static void convolution_f16(void)
{
    one_step(&convolution, TUTTI_F16);
    EXPECT("cudnn graph", "cudnn graph forward " FORMS("f16"),
           "cudnn graph backward_filter " FORMS("f16"), "cudnn graph backward_data " FORMS("f16"));
}

/* Of row-major x [6,3] and w [5,3]: y' [5,6] = w'' x', dw' [3,5] = x' dy'', dx' [3,6] = w' dy'. */
static void linear_f32(void)
{
    one_step(&linear, TUTTI_F32);
    EXPECT("cublaslt multiply",
           "cublaslt multiply a=f32[3,5]3T b=f32[3,6]3 d=f32[5,6]5 compute=f32 epilogue=bias "
           "alpha=1 beta=0",
           "cublaslt multiply a=f32[3,6]3 b=f32[5,6]5T d=f32[3,5]3 compute=f32 epilogue=bgradb "
           "alpha=1 beta=0",
           "cublaslt multiply a=f32[3,5]3 b=f32[5,6]5 d=f32[3,6]3 compute=f32 epilogue=none "
           "alpha=1 beta=0");
    EXPECT("cublaslt destroy", "cublaslt destroy, descriptors left: 0");
    CHECK(recorded("cudnn").n == 0);
}

static void linear_bf16(void)
{
    one_step(&linear, TUTTI_BF16);
    EXPECT("cublaslt multiply",
           "cublaslt multiply a=bf16[3,5]3T b=bf16[3,6]3 d=bf16[5,6]5 compute=f32 epilogue=bias "
           "alpha=1 beta=0",
           "cublaslt multiply a=bf16[3,6]3 b=bf16[5,6]5T d=f32[3,5]3 compute=f32 epilogue=bgradb "
           "alpha=1 beta=0",
           "cublaslt multiply a=bf16[3,5]3 b=bf16[5,6]5 d=bf16[3,6]3 compute=f32 epilogue=none "
           "alpha=1 beta=0");
}

static void linear_without_bias(void)
{
    one_step(&plain_linear, TUTTI_F32);
    EXPECT("cublaslt choose",
           "cublaslt choose a=f32[3,5]3T b=f32[3,6]3 d=f32[5,6]5 compute=f32 epilogue=none "
           "reductions=2 alignment=16,16,16,16",
           "cublaslt choose a=f32[3,6]3 b=f32[5,6]5T d=f32[3,5]3 compute=f32 epilogue=none "
           "reductions=2 alignment=16,16,16,16",
           "cublaslt choose a=f32[3,5]3 b=f32[5,6]5 d=f32[3,6]3 compute=f32 epilogue=none "
           "reductions=2 alignment=16,16,16,16");
}

/* dw and db with data, at any address that is aligned for a float, as in a bucket. */
static void accumulation(void)
{
    tutti_ctx *cx = context(TUTTI_CUDA);
    float x[18], dy[30], before[21], after[21];
    float *memory = cx->device_ops->alloc(cx->device, sizeof before, true);
    tutti_tensor *dw = tutti__tensor_persistent(cx, TUTTI_SHAPE(5, 3), TUTTI_F32);
    tutti_tensor *db = tutti__tensor_persistent(cx, TUTTI_SHAPE(5), TUTTI_F32);

    for (int i = 0; i < 30; i++)
        dy[i] = (float)(i % 7) - 3;
    for (int i = 0; i < 18; i++)
        x[i] = (float)(i % 5) - 2;
    for (int i = 0; i < 21; i++)
        before[i] = 100;
    CHECK_OK(tutti__copy_in(cx->stream, memory, before, sizeof before));
    tutti_step_begin(cx, NULL);
    dw->data = memory + 1;
    db->data = memory + 16;
    dw->accumulate = db->accumulate = true;
    CHECK_OK(cx->kernels->linear_backward_weights(
        dw, db, tutti_input(cx, (tutti_array){dy, TUTTI_SHAPE(6, 5), TUTTI_F32}),
        tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(6, 3), TUTTI_F32})));
    CHECK_OK(tutti__read(cx->stream, after, memory, sizeof after));
    tutti_step_end(cx);
    for (int m = 0; m < 5; m++) {
        float sums[4] = {100, 100, 100, 100}; /* of three columns of x, and of ones */

        for (int r = 0; r < 6; r++)
            for (int k = 0; k < 4; k++)
                sums[k] += dy[r * 5 + m] * (k < 3 ? x[r * 3 + k] : 1);
        CHECK(memcmp(after + 1 + m * 3, sums, 3 * sizeof(float)) == 0);
        CHECK(after[16 + m] == sums[3]);
    }
    CHECK(after[0] == 100);
    EXPECT("cublaslt choose",
           "cublaslt choose a=f32[3,6]3 b=f32[5,6]5T d=f32[3,5]3 compute=f32 epilogue=none "
           "reductions=2 alignment=16,16,4,4");
    EXPECT("cublaslt multiply",
           "cublaslt multiply a=f32[3,6]3 b=f32[5,6]5T d=f32[3,5]3 compute=f32 epilogue=none "
           "alpha=1 beta=1");
    cx->device_ops->free(cx->device, memory);
    free(dw);
    free(db);
    tutti_ctx_free(cx);
}

/* ---- Plans ------------------------------------------------------------------------------------------------- */

static void second_step_plans_nothing(void)
{
    static values v, again;
    tutti_ctx *cx = context(TUTTI_CUDA);
    uint64_t waits;
    int n;

    CHECK_OK(step(cx, &convolution, TUTTI_F32, &v));
    CHECK_OK(step(cx, &linear, TUTTI_F32, &v));
    CHECK_OK(step(cx, &convolution, TUTTI_BF16, &v));
    n = recorded("cudnn graph").n + recorded("cudnn plan").n + recorded("cublaslt choose").n;
    waits = standin_waits("cudaMalloc");
    CHECK_OK(step(cx, &convolution, TUTTI_F32, &v));
    CHECK_OK(step(cx, &linear, TUTTI_F32, &v));
    CHECK_OK(step(cx, &convolution, TUTTI_BF16, &v));
    CHECK(n ==
          recorded("cudnn graph").n + recorded("cudnn plan").n + recorded("cublaslt choose").n);
    CHECK(recorded("cudnn execute").n == 12 && recorded("cublaslt multiply").n == 6);
    CHECK(standin_waits("cudaMalloc") == waits);
    CHECK_OK(step(cx, &convolution, TUTTI_BF16, &again));
    CHECK(memcmp(v.dw, again.dw, sizeof v.dw) == 0 && memcmp(v.dx, again.dx, sizeof v.dx) == 0);
    tutti_ctx_free(cx);
}

/* The stand-in's engine 62 has tensor cores: no F32 unless TF32 is allowed, but 16 bit always. */
static void tensor_cores_are_for_16_bit(void)
{
    one_step(&wide, TUTTI_F32);
    CHECK(strstr(recorded("cudnn execute").of[0], "engine=70 "));
    one_step(&wide, TUTTI_BF16);
    CHECK(strstr(recorded("cudnn execute").of[3], "engine=62 "));
}

static void tf32_is_allowed(void)
{
    static values v;
    tutti_ctx *cx = context(TUTTI_CUDA);

    CHECK_OK(step(cx, &wide, TUTTI_F32, &v));
    compare(&wide, &v, 2e-3);
    CHECK(strstr(recorded("cudnn execute").of[0], "engine=62 "));
    CHECK_OK(step(cx, &linear, TUTTI_F32, &v));
    CHECK(strstr(recorded("cublaslt multiply").of[0], "compute=tf32"));
    tutti_ctx_free(cx);
}

/* Both suitable engines are measured once: 1 + 3 times each, and then the faster one is used. */
static void measures(tutti_ctx *cx)
{
    static values v;

    CHECK_OK(step(cx, &convolution, TUTTI_F32, &v));
    compare(&convolution, &v, 1e-5);
    CHECK(recorded("cudnn execute").n == 3 * (2 * 4 + 1));
    CHECK_OK(step(cx, &convolution, TUTTI_F32, &v));
    CHECK(recorded("cudnn execute").n == 3 * (2 * 4 + 1) + 3);
    tutti_ctx_free(cx);
}

static void the_fastest_is_taken(void)
{
    measures(context(TUTTI_CUDA));
}

static void the_fastest_is_asked_for(void)
{
    tutti_ctx *cx;

    CHECK_OK(tutti_ctx_new(&cx, (tutti_device){TUTTI_CUDA, 0},
                           &(tutti_ctx_opts){.nondeterministic = true}));
    measures(cx);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------- */

static void no_engine(void)
{
    static values v;
    tutti_ctx *cx = context(TUTTI_CUDA);

    CHECK(step(cx, &convolution, TUTTI_BF16, &v) == TUTTI_ERR_UNSUPPORTED);
    CHECK_SAYS("conv2d: cuda:0 (");
    CHECK_SAYS("forward, x [2,3,9,7], weight [5,3,3,3], stride 2x2, padding 1x1, dilation 1x1, "
               "BF16: cuDNN ");
    CHECK_SAYS("has no engine for it");
    CHECK(step(cx, &convolution, TUTTI_F32, &v) == TUTTI_ERR_UNSUPPORTED);
    tutti_ctx_free(cx);
    EXPECT("cudnn destroy", "cudnn destroy, descriptors left: 0");
}

static void no_plan(void)
{
    no_engine();
    CHECK_SAYS("CUDNN_STATUS_NOT_SUPPORTED: this engine wants channels in eights");
}

static void no_memory(void)
{
    static values v;
    tutti_ctx *cx = context(TUTTI_CUDA);

    CHECK(step(cx, &convolution, TUTTI_F32, &v) == TUTTI_ERR_MEMORY);
    CHECK_SAYS("forward, x [2,3,9,7]");
    CHECK_SAYS("workspace of 200000000 bytes");
    tutti_ctx_free(cx);
    EXPECT("cudnn destroy", "cudnn destroy, descriptors left: 0");
}

static void no_algorithm(void)
{
    static values v;
    tutti_ctx *cx = context(TUTTI_CUDA);

    CHECK(step(cx, &plain_linear, TUTTI_F32, &v) == TUTTI_ERR_UNSUPPORTED);
    CHECK_SAYS("forward, a product [6,5] of 3 terms, F32 to F32: cuBLASLt ");
    CHECK_SAYS("has no algorithm for it");
    CHECK(step(cx, &linear, TUTTI_F32, &v) == TUTTI_ERR_UNSUPPORTED);
    tutti_ctx_free(cx);
}

/* Then bias and its gradient are computed separately; cuBLASLt is asked only once. */
static void no_epilogue(void)
{
    static values v;
    tutti_ctx *cx = context(TUTTI_CUDA);

    for (int i = 0; i < 2; i++) {
        CHECK_OK(step(cx, &linear, TUTTI_F32, &v));
        compare(&linear, &v, 1e-5);
        CHECK(recorded("cublaslt choose").n == 5);
    }
    CHECK_OK(step(cx, &linear, TUTTI_BF16, &v));
    compare(&linear, &v, 3e-2);
    tutti_ctx_free(cx);
}

/* A view of the middle of a tensor: no epilogue, instead of a fault on the device. */
static void unaligned_vectors(void)
{
    tutti_ctx *cx = context(TUTTI_CUDA);
    const tutti__cuda_products *products = tutti__cuda_state_of(cx)->products;
    float *memory = cx->device_ops->alloc(cx->device, 4096, true);
    tutti__cuda_product p = {.rows = 4,
                             .columns = 4,
                             .inner = 4,
                             .dtype = TUTTI_F32,
                             .result = TUTTI_F32,
                             .a = memory,
                             .b = memory + 64,
                             .c = memory + 128};

    CHECK(memory);
    for (int i = 0; i < 8; i++) {
        const bool aligned = i / 2 % 4 == 0;
        float *vector = memory + 192 + i / 2;

        p.bias = i % 2 ? NULL : vector;
        p.a_sums = i % 2 ? vector : NULL;
        CHECK(products->product(tutti__cuda_products_handle(cx), &p) ==
              (aligned ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED));
    }
    CHECK(recorded("cublaslt multiply").n == 2);
    cx->device_ops->free(cx->device, memory);
    tutti_ctx_free(cx);
}

/* ---- Cases ------------------------------------------------------------------------------------------------- */

static void run(void **state)
{
    const struct {
        void (*body)(void);
        const char *environment[4];
    } *test = *state;
    char variable[80];
    int file;

    snprintf(path, sizeof path, "/tmp/tutti-record-XXXXXX");
    file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    snprintf(variable, sizeof variable, "STANDIN_RECORD=%s", path);
    putenv(variable);
    assert_true(in_process(test->body, test->environment));
    unsetenv("STANDIN_RECORD");
    unlink(path);
}

int main(void)
{
    static struct {
        void (*body)(void);
        const char *environment[4];
    } cases[] = {
        {convolution_f32, {NULL}},
        {convolution_bf16, {NULL}},
        {convolution_f16, {NULL}},
        {linear_f32, {NULL}},
        {linear_bf16, {NULL}},
        {linear_without_bias, {NULL}},
        {accumulation, {NULL}},
        {second_step_plans_nothing, {NULL}},
        {tensor_cores_are_for_16_bit, {NULL}},
        {tf32_is_allowed, {"TUTTI_TF32=1"}},
        {the_fastest_is_taken, {"TUTTI_DETERMINISTIC=0"}},
        {the_fastest_is_asked_for, {NULL}},
        {no_engine, {"STANDIN_CUDNN=none"}},
        {no_plan, {"STANDIN_CUDNN=refuse"}},
        {no_memory, {"STANDIN_CUDNN=workspace=200000000", "STANDIN_CUDA_MEMORY=64"}},
        {no_algorithm, {"STANDIN_CUBLASLT=none"}},
        {no_epilogue, {"STANDIN_CUBLASLT=no_epilogue"}},
        {no_epilogue, {"STANDIN_CUBLASLT=wrong_epilogue"}},
        {no_epilogue, {"STANDIN_CUBLASLT=late_epilogue"}},
        {unaligned_vectors, {NULL}},
    };
    static const char *const names[] = {"convolution_f32",
                                        "convolution_bf16",
                                        "convolution_f16",
                                        "linear_f32",
                                        "linear_bf16",
                                        "linear_without_bias",
                                        "accumulation",
                                        "second_step_plans_nothing",
                                        "tensor_cores_are_for_16_bit",
                                        "tf32_is_allowed",
                                        "the_fastest_is_taken",
                                        "the_fastest_is_asked_for",
                                        "no_engine",
                                        "no_plan",
                                        "no_memory",
                                        "no_algorithm",
                                        "no_epilogue",
                                        "wrong_epilogue",
                                        "late_epilogue",
                                        "unaligned_vectors"};
    struct CMUnitTest tests[sizeof cases / sizeof cases[0]];

    use_standin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tests[i] =
            (struct CMUnitTest){.name = names[i], .test_func = run, .initial_state = &cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
