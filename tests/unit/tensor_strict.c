/* The strict device: only kernels and copies can access its memory.   SPDX-License-Identifier: MIT */
#include "device/flat.h"
#include "device/strict/strict_device.h"
#include "tensor/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define STRICT ((tutti_device){TUTTI_STRICT, 0})

/* The signal that kills a process which reads or writes a byte there; 0: none. */
static int dies_of(volatile char *p, bool writes)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (writes)
            *p = 1;
        else
            (void)*p;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_process_that_touches_a_tensor_dies(void **state)
{
    const float values[4] = {1, -2, 3, -4}, target[4] = {0};
    float read[4];
    tutti_ctx *cx;
    tutti_tensor *x, *y, *loss;

    (void)state;
    assert_int_equal(tutti_ctx_new(&cx, STRICT, NULL), TUTTI_OK);
    assert_string_equal(tutti_ctx_kernels_name(cx), "strict");
    tutti_step_begin(cx, NULL);
    x = tutti_input_with_grad(cx, (tutti_array){values, TUTTI_SHAPE(4), TUTTI_F32});
    y = tutti_relu(x);
    loss = tutti_mse_loss(y, tutti_input(cx, (tutti_array){target, TUTTI_SHAPE(4), TUTTI_F32}));
    assert_int_equal(tutti_tensor_read(y, read), TUTTI_OK);
    assert_true(read[0] == 1 && read[1] == 0 && read[2] == 3 && read[3] == 0);
    assert_true(tutti_item(loss) == 2.5f);
    assert_int_equal(dies_of(x->data, false), SIGSEGV);
    assert_int_equal(dies_of(y->data, false), SIGSEGV);
    assert_int_equal(dies_of(y->data, true), SIGSEGV);
    assert_int_equal(dies_of(loss->data, false), SIGSEGV);
    assert_int_equal(dies_of((char *)(uintptr_t)x->host, false), 0);
    tutti_step_end(cx);
    assert_int_equal(dies_of(y->data, false), SIGSEGV);
    tutti_ctx_free(cx);
}

static void memory_is_open_as_long_as_anything_runs(void **state)
{
    char *p = tutti__strict_ops.alloc(STRICT, 100, true);

    (void)state;
    assert_non_null(p);
    tutti__strict_open();
    tutti__strict_open();
    assert_int_equal(dies_of(p, true), 0);
    tutti__strict_close();
    assert_int_equal(dies_of(p, true), 0);
    tutti__strict_close();
    assert_int_equal(dies_of(p, false), SIGSEGV);
    tutti__strict_ops.free(STRICT, p);
}

static void read_floats(const void *p, float *values, size_t n)
{
    tutti_stream *stream;

    assert_int_equal(tutti_stream_new(&stream, STRICT), TUTTI_OK);
    assert_int_equal(tutti__read(stream, values, p, n * sizeof *values), TUTTI_OK);
    tutti_stream_free(stream);
}

static void what_is_new_or_free_holds_no_numbers(void **state)
{
    const tutti__device_ops *ops = &tutti__strict_ops;
    float values[16];
    void *first = ops->alloc(STRICT, 64, true), *second = ops->alloc(STRICT, 64, false), *again;

    (void)state;
    read_floats(first, values, 16);
    for (int i = 0; i < 16; i++)
        assert_true(values[i] == 0);
    read_floats(second, values, 16);
    for (int i = 0; i < 16; i++)
        assert_true(isnan(values[i]));
    ops->free(STRICT, first);
    read_floats(first, values, 16);
    for (int i = 0; i < 16; i++)
        assert_true(isnan(values[i]));
    again = ops->alloc(STRICT, 64, true);
    assert_ptr_equal(again, first);
    ops->free(STRICT, again);
    ops->free(STRICT, second);
    ops->free(STRICT, NULL);
}

/* Pieces of all sizes, freed in another order: they do not overlap, and in the end one piece has the size of all. */
static void pieces_are_cut_and_joined(void **state)
{
    const tutti__device_ops *ops = &tutti__strict_ops;
    enum { N = 40 };
    char *p[N], *all;

    (void)state;
    for (int i = 0; i < N; i++) {
        p[i] = ops->alloc(STRICT, (size_t)(1 + i * 1000), false);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        for (int k = 0; k < i; k++)
            assert_true(p[k] + 1 + k * 1000 <= p[i] || p[i] + 1 + i * 1000 <= p[k]);
    }
    for (int i = 0; i < N; i++)
        ops->free(STRICT, p[i * 7 % N]);
    all = ops->alloc(STRICT, (size_t)N * (N - 1) / 2 * 1000, false);
    assert_ptr_equal(all, p[0]);
    ops->free(STRICT, all);
    assert_null(ops->alloc(STRICT, (size_t)1 << 40, false));
    assert_non_null(strstr(tutti_last_error(), "strict"));
}

static void a_device_is_named_and_counted(void **state)
{
    tutti_device device;
    tutti_stream *stream;
    tutti_ctx *cx;

    (void)state;
    assert_int_equal(tutti_device_parse(&device, "strict", 3), TUTTI_OK);
    assert_int_equal(device.kind, TUTTI_STRICT);
    assert_int_equal(device.index, 0);
    assert_int_equal(tutti_stream_new(&stream, (tutti_device){TUTTI_STRICT, 1}), TUTTI_ERR_ARG);
    assert_int_equal(tutti_ctx_new(&cx, STRICT, &(tutti_ctx_opts){.kernels = TUTTI_KERNELS_ONEDNN}),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "device strict has its own"));
}

/* What was given back dies also in kernels and copies; a page that is in it only in part stays. */
static void pages_come_and_go(void **state)
{
    const tutti__device_ops *ops = &tutti__strict_ops;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = ops->reserve(STRICT, 8 * page);
    float value;

    (void)state;
    assert_non_null(p);
    tutti__strict_open();
    assert_int_equal(dies_of(p, false), SIGSEGV);
    assert_int_equal(ops->back(STRICT, p + 1, 3 * page - 2, false), TUTTI_OK);
    assert_int_equal(dies_of(p, true), 0);
    assert_int_equal(dies_of(p + 3 * page, true), SIGSEGV);
    tutti__strict_close();
    assert_int_equal(dies_of(p, false), SIGSEGV);
    read_floats(p + page, &value, 1);
    assert_true(isnan(value)); /* nothing relies on zeros */
    ops->give_back(STRICT, p + 1, 2 * page - 1);
    ops->give_back(STRICT, p, 0);
    tutti__strict_open();
    assert_int_equal(dies_of(p, true), 0);
    assert_int_equal(dies_of(p + page, false), SIGSEGV);
    assert_int_equal(dies_of(p + 2 * page, true), 0);
    tutti__strict_close();
    ops->unreserve(STRICT, p, 8 * page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_touches_a_tensor_dies),
        cmocka_unit_test(memory_is_open_as_long_as_anything_runs),
        cmocka_unit_test(what_is_new_or_free_holds_no_numbers),
        cmocka_unit_test(pieces_are_cut_and_joined),
        cmocka_unit_test(pages_come_and_go),
        cmocka_unit_test(a_device_is_named_and_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
