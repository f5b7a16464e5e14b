/* No operation of ops.def goes through host memory on a GPU: copies to the host are counted in forward and backward of each.
 * SPDX-License-Identifier: MIT
 * timeout: 120   devices: cuda */
#include "harness/copies.h"
#include "op/declared_rows.h"

/* Copies to the host in the operation's forward, and in its backward: not in the sum that makes a loss of its result. */
static int copies_of(const row *r, family f)
{
    tutti_tensor *in[MAX_INPUTS] = {0}, *y;
    bench b;
    int forward;

    bench_init(&b, r, f);
    test_count_begin(b.cx);
    tutti_step_begin(b.cx, NULL);
    for (int i = 0; i < b.n_inputs; i++) /* what is no input has no copy on the host */
        in[i] = b.arrays[i].dtype == TUTTI_F32
                    ? tutti_add_scalar(tutti_input_with_grad(b.cx, b.arrays[i]), 0)
                    : tutti_input(b.cx, b.arrays[i]);
    test_copies = 0;
    y = r->build(r, in, &b);
    if (tutti_tensor_status(y) != TUTTI_OK)
        fail_msg("%s: %s", r->name, tutti_last_error());
    forward = test_copies;
    if (y->needs_grad) {
        tutti_tensor *loss = weighted_sum(y, &b);

        test_copies = 0;
        if (tutti_backward(loss) != TUTTI_OK)
            fail_msg("%s: %s", r->name, tutti_last_error());
        forward += test_copies;
    }
    tutti_step_end(b.cx);
    test_count_end(b.cx);
    bench_free(&b);
    return forward;
}

static void operations_copy_nothing_to_the_host(void **state)
{
    family f;
    int wrong = 0;

    (void)state;
    if (!other_family(&f) || f.device.kind != TUTTI_CUDA)
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int n = copies_of(&rows[i], f);

        wrong += n > 0;
        if (n > 0)
            print_error("%s copies %d times to the host\n", rows[i].name, n);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_copy_nothing_to_the_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
