/* One parameter by two names, as the embedding and the head of a language model: lists, gradients, an update, freezing, and files
 * with both names or one.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "checkpoint/safetensors.h"
#include "harness/device.h"
#include <tutti/autograd.h>
#include <tutti/checkpoint.h>
#include <tutti/operations.h>
#include <tutti/optim.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { TOKENS = 6, WIDTH = 4, STEPS = 5 };

typedef struct language {
    tutti_ctx *cx;
    tutti_module root;
    tutti_embedding tokens;
    tutti_linear hidden, head;
    int ready, order;
} language;

static char path[64], other_path[80];

static void language_init(language *m, uint64_t seed, bool sparse, bool tied)
{
    memset(m, 0, sizeof *m);
    assert_int_equal(
        tutti_ctx_new(&m->cx, test_device(), &(tutti_ctx_opts){.seed = seed, .threads = 1}),
        TUTTI_OK);
    tutti_module_init(&m->root, m->cx);
    tutti_embedding_init(&m->tokens, &m->root, "tokens", TOKENS, WIDTH, sparse);
    tutti_linear_init_with(&m->head, &m->root, "head",
                           &(tutti_linear_layer_opts){.in = WIDTH, .out = TOKENS, .no_bias = true});
    if (tied)
        tutti_parameter_tie(&m->head.weight, m->tokens.weight);
    tutti_linear_init(&m->hidden, &m->root, "hidden", WIDTH, WIDTH);
    assert_int_equal(tutti_module_status(&m->root), TUTTI_OK);
}

static void language_free(language *m)
{
    tutti_module_destroy(&m->root);
    tutti_ctx_free(m->cx);
}

static tutti_tensor *loss_of(language *m)
{
    static const int64_t words[STEPS] = {0, 3, 3, 5, 1}, next[STEPS] = {3, 3, 5, 1, 0};
    const tutti_shape shape = TUTTI_SHAPE(STEPS);
    tutti_tensor *x = tutti_embedding_forward(
        &m->tokens, tutti_input(m->cx, (tutti_array){words, shape, TUTTI_I64}));

    x = tutti_tanh(tutti_linear_forward(&m->hidden, x));
    return tutti_cross_entropy(tutti_linear_forward(&m->head, x),
                               tutti_input(m->cx, (tutti_array){next, shape, TUTTI_I64}));
}

static void backward(language *m)
{
    tutti_module_zero_grad(&m->root);
    tutti_step_begin(m->cx, NULL);
    if (tutti_backward(loss_of(m)) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    tutti_step_end(m->cx);
}

static int set_up(void **state)
{
    int fd;

    (void)state;
    strcpy(path, "/tmp/tutti-tied-XXXXXX");
    fd = mkstemp(path);
    snprintf(other_path, sizeof other_path, "%s.pt", path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(other_path);
    return unlink(path);
}

static void copy(tutti_tensor *to, tutti_tensor *from)
{
    float values[TOKENS * WIDTH];

    assert_int_equal(tutti_tensor_read(from, values), TUTTI_OK);
    assert_int_equal(tutti_tensor_write(to, values), TUTTI_OK);
}

static void says(const char *part)
{
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
}

/* ---- In memory -------------------------------------------------------------------------------------- */

static void it_is_listed_once_and_known_by_both_names(void **state)
{
    tutti_tensor *t = NULL;
    language m;

    (void)state;
    language_init(&m, 1, false, true);
    assert_ptr_equal(m.head.weight, m.tokens.weight);
    assert_int_equal(tutti_module_n_parameters(&m.root), 3);
    assert_int_equal(tutti_module_n_state(&m.root), 3);
    assert_int_equal(tutti_module_count(&m.root), TOKENS * WIDTH + WIDTH * WIDTH + WIDTH);
    assert_string_equal(tutti_tensor_name(m.head.weight), "tokens.weight");
    assert_ptr_equal(tutti_module_find(&m.root, "head.weight"), m.tokens.weight);
    assert_ptr_equal(tutti_module_find(&m.root, "tokens.weight"), m.tokens.weight);
    assert_int_equal(tutti_module_n_tied(&m.root), 1);
    assert_string_equal(tutti_module_tied(&m.root, 0, &t), "head.weight");
    assert_ptr_equal(t, m.tokens.weight);
    assert_null(tutti_module_tied(&m.root, 1, NULL));
    assert_int_equal(tutti_module_n_parameters(&m.head.base), 1); /* as part of each module */
    assert_ptr_equal(tutti_module_parameter(&m.head.base, 0), m.tokens.weight);
    assert_int_equal(tutti_module_n_parameters(&m.tokens.base), 1);
    language_free(&m);
}

static void what_is_made_after_it_has_the_values_as_without(void **state)
{
    float a[WIDTH * WIDTH], b[WIDTH * WIDTH];
    language tied, apart;

    (void)state;
    language_init(&tied, 1, false, true);
    language_init(&apart, 1, false, false);
    assert_int_equal(tutti_tensor_read(tied.hidden.weight, a), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(apart.hidden.weight, b), TUTTI_OK);
    assert_memory_equal(a, b, sizeof a);
    language_free(&tied);
    language_free(&apart);
}

static tutti_status note_order(void *self, tutti_tensor *const *order, size_t n)
{
    language *m = self;

    for (size_t i = 0; i < n; i++)
        m->order += order[i] == m->tokens.weight;
    return n == 3 && order[n - 1] == m->tokens.weight ? TUTTI_OK : TUTTI_ERR_INTERNAL;
}

static void note_ready(void *self, tutti_tensor *parameter)
{
    language *m = self;

    m->ready += parameter == m->tokens.weight;
}

static void gradient_is_the_sum_of_both_uses(bool sparse)
{
    float sum[TOKENS * WIDTH], of_tokens[TOKENS * WIDTH], of_head[TOKENS * WIDTH];
    language tied, apart;

    language_init(&tied, 1, sparse, true);
    language_init(&apart, 1, sparse, false);
    copy(apart.head.weight, apart.tokens.weight);
    assert_int_equal(
        tutti_ctx_set_backward_listener(
            tied.cx, &(tutti_backward_listener){&tied, NULL, note_order, note_ready, NULL, {0}}),
        TUTTI_OK);
    backward(&tied);
    backward(&apart);
    assert_int_equal(tied.order, 1);
    assert_int_equal(tied.ready, 1);
    assert_int_equal(tutti_tensor_grad_read(tied.tokens.weight, sum), TUTTI_OK);
    assert_int_equal(tutti_tensor_grad_read(apart.tokens.weight, of_tokens), TUTTI_OK);
    assert_int_equal(tutti_tensor_grad_read(apart.head.weight, of_head), TUTTI_OK);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        assert_float_equal(sum[i], of_tokens[i] + of_head[i], 1e-6f);
    language_free(&tied);
    language_free(&apart);
}

static void gradients_of_both_uses_are_added(void **state)
{
    (void)state;
    gradient_is_the_sum_of_both_uses(false);
    gradient_is_the_sum_of_both_uses(true);
}

static void it_is_updated_once(void **state)
{
    float before[TOKENS * WIDTH], gradient[TOKENS * WIDTH], after[TOKENS * WIDTH];
    tutti_optim *optim;
    language m;

    (void)state;
    language_init(&m, 1, false, true);
    assert_int_equal(tutti_sgd_new(&optim, &m.root, &(tutti_sgd_opts){.lr = 0.5f}), TUTTI_OK);
    backward(&m);
    assert_int_equal(tutti_tensor_read(m.tokens.weight, before), TUTTI_OK);
    assert_int_equal(tutti_tensor_grad_read(m.tokens.weight, gradient), TUTTI_OK);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(m.tokens.weight, after), TUTTI_OK);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        assert_float_equal(after[i], before[i] - 0.5f * gradient[i], 1e-6f);
    tutti_optim_free(optim);
    language_free(&m);
}

static void freezing_either_name_freezes_it(void **state)
{
    static const char *const names[] = {"head", "head.*", "tokens.weight"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        language m;

        language_init(&m, 1, false, true);
        assert_int_equal(tutti_module_freeze(&m.root, names[i]), TUTTI_OK);
        backward(&m);
        assert_null(tutti_tensor_grad(m.tokens.weight));
        assert_non_null(tutti_tensor_grad(m.hidden.weight));
        language_free(&m);
    }
}

static void wrong_ties_are_refused(void **state)
{
    tutti_tensor *first;
    language m;

    (void)state;
    language_init(&m, 1, false, false);
    first = m.tokens.weight;
    tutti_parameter_tie(NULL, first);
    tutti_parameter_tie(&m.head.weight, NULL);
    tutti_parameter_tie(&first, first);
    assert_int_equal(tutti_module_status(&m.root), TUTTI_OK);
    tutti_parameter_tie(&m.hidden.weight, m.tokens.weight);
    assert_int_equal(tutti_module_status(&m.root), TUTTI_ERR_ARG);
    says("hidden.weight is [4,4] but tokens.weight is [6,4]");
    language_free(&m);

    language_init(&m, 1, false, false);
    tutti_parameter_tie(&m.tokens.weight, m.head.weight);
    assert_int_equal(tutti_module_status(&m.root), TUTTI_ERR_ARG);
    says("tie the later one to the earlier one");
    language_free(&m);

    language_init(&m, 1, false, false);
    backward(&m);
    tutti_parameter_tie(&m.head.weight, m.tokens.weight);
    assert_int_equal(tutti_module_status(&m.root), TUTTI_ERR_STATE);
    says("before the first backward");
    language_free(&m);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static void assert_loads(const char *file, const char *digest)
{
    char got[33];
    language m;

    language_init(&m, 7, false, true);
    if (tutti_module_load(&m.root, file) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    tutti_module_digest(&m.root, got);
    assert_string_equal(got, digest);
    language_free(&m);
}

static void files_keep_it_once_and_say_the_other_name(void **state)
{
    tutti__safetensors *file;
    char digest[33];
    language m;

    (void)state;
    language_init(&m, 1, false, true);
    tutti_module_digest(&m.root, digest);
    assert_int_equal(tutti_module_save(&m.root, path), TUTTI_OK);
    assert_int_equal(tutti__safetensors_open(&file, path), TUTTI_OK);
    assert_int_equal(tutti__safetensors_count(file), 3);
    assert_null(tutti__safetensors_find(file, "head.weight"));
    assert_string_equal(tutti__safetensors_metadata(file, "head.weight"), "tokens.weight");
    tutti__safetensors_close(file);
    assert_loads(path, digest);
    assert_int_equal(tutti_module_save(&m.root, other_path), TUTTI_OK);
    assert_loads(other_path, digest);
    language_free(&m);
}

static void a_model_with_two_tensors_loads_both_from_either_file(void **state)
{
    float a[TOKENS * WIDTH], b[TOKENS * WIDTH];
    language tied, apart;

    (void)state;
    language_init(&tied, 1, false, true);
    assert_int_equal(tutti_module_save(&tied.root, path), TUTTI_OK);
    assert_int_equal(tutti_module_save(&tied.root, other_path), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(tied.tokens.weight, a), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        language_init(&apart, 7, false, false);
        if (tutti_module_load(&apart.root, i ? other_path : path) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        assert_int_equal(tutti_tensor_read(apart.head.weight, b), TUTTI_OK);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(tutti_tensor_read(apart.tokens.weight, b), TUTTI_OK);
        assert_memory_equal(a, b, sizeof a);
        language_free(&apart);
    }
    language_free(&tied);
}

/* With both tensors; with the names in `left_out` removed. */
static void write_file(language *m, const char *left_out)
{
    static float values[3][TOKENS * WIDTH];
    tutti__safetensors_source sources[4];
    float bias[WIDTH] = {0};
    size_t n = 0;

    for (size_t i = 0; i < tutti_module_n_state(&m->root); i++) {
        tutti_tensor *t = tutti_module_state(&m->root, i);
        void *p = tutti_shape_count(tutti_tensor_shape(t)) == WIDTH ? bias : values[i % 3];

        if (strcmp(tutti_tensor_name(t), left_out) == 0)
            continue;
        assert_int_equal(tutti_tensor_read(t, p), TUTTI_OK);
        sources[n++] = (tutti__safetensors_source){tutti_tensor_name(t),
                                                   {p, tutti_tensor_shape(t), TUTTI_F32}};
    }
    assert_int_equal(tutti__safetensors_write(path, sources, n, NULL, 0), TUTTI_OK);
}

static void files_with_both_names_or_one_are_loaded(void **state)
{
    char digest[33];
    language tied, apart;

    (void)state;
    language_init(&apart, 3, false, false);
    copy(apart.head.weight, apart.tokens.weight);
    write_file(&apart, "");
    language_init(&tied, 1, false, true);
    assert_int_equal(tutti_module_load(&tied.root, path), TUTTI_OK);
    tutti_module_digest(&tied.root, digest);
    write_file(&apart, "head.weight");
    assert_loads(path, digest);
    write_file(&apart, "tokens.weight");
    assert_loads(path, digest);
    language_free(&tied);
    language_free(&apart);
}

static void different_values_are_refused(void **state)
{
    language tied, apart;

    (void)state;
    language_init(&apart, 3, false, false);
    write_file(&apart, "");
    language_init(&tied, 1, false, true);
    assert_int_equal(tutti_module_load(&tied.root, path), TUTTI_ERR_FORMAT);
    says("different values for tokens.weight and head.weight");
    language_free(&tied);
    language_free(&apart);
}

static void one_name_selects_it(void **state)
{
    char said[1024];
    language tied, apart;

    (void)state;
    language_init(&apart, 3, false, false);
    write_file(&apart, "tokens.weight");
    language_init(&tied, 1, false, true);
    assert_int_equal(tutti_module_load_with(&tied.root, path, &(tutti_load_opts){.only = "head"},
                                            said, sizeof said),
                     TUTTI_OK);
    assert_non_null(strstr(said, "1 of 3 tensors"));
    language_free(&tied);
    language_free(&apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_listed_once_and_known_by_both_names),
        cmocka_unit_test(what_is_made_after_it_has_the_values_as_without),
        cmocka_unit_test(gradients_of_both_uses_are_added),
        cmocka_unit_test(it_is_updated_once),
        cmocka_unit_test(freezing_either_name_freezes_it),
        cmocka_unit_test(wrong_ties_are_refused),
        cmocka_unit_test_setup_teardown(files_keep_it_once_and_say_the_other_name, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_model_with_two_tensors_loads_both_from_either_file,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_with_both_names_or_one_are_loaded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(different_values_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_name_selects_it, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
