/* ddp: a model whose parameters and optimizer state are larger than a rank may be trains with ZeRO-3.   SPDX-License-Identifier: MIT
 * timeout: 120
 *
 * The limit is on private writable memory (RLIMIT_DATA): what the process has at the start, and 9.5 bytes a parameter. A replica with AdamW
 * takes 12: 4 for the parameter, 8 for its state; its gradients are in shared memory, which does not count. With zero 3 on 4 ranks
 * it is 1 and 2, and 4 for gradients, whose addresses count though most have no memory; and a few buckets. */
#include "distributed/ddp_trainer.h"

#include <sys/resource.h>
#include <unistd.h>

enum { RANKS = 4, TOKENS = 16, WIDTH = 512, VOCABULARY = 4096 };

/* Bytes of private writable memory. */
static size_t data_bytes(void)
{
    unsigned long pages[6] = {0};
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%lu %lu %lu %lu %lu %lu", &pages[0], &pages[1], &pages[2], &pages[3],
                     &pages[4], &pages[5]) != 6)
        pages[5] = 0;
    if (f)
        fclose(f);
    return pages[5] * (size_t)sysconf(_SC_PAGESIZE);
}

static int set_limit(size_t bytes)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_DATA, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    return 0;
}

static tutti_status step(trainer *t, float *norm_p)
{
    static const int64_t tokens[TOKENS + 1] = {1, 2,  3,  4,  5,  6,  7,  8,
                                               9, 10, 11, 12, 13, 14, 15, 16};
    tutti_tensor *logits;
    tutti_status status;

    tutti_optim_zero_grad(t->optim);
    tutti_step_begin(t->cx, NULL);
    logits = tutti_model_forward(
        t->model, tutti_input(t->cx, (tutti_array){tokens, TUTTI_SHAPE(1, TOKENS), TUTTI_I64}));
    status = tutti_backward(tutti_cross_entropy(
        tutti_reshape(logits, TUTTI_SHAPE(TOKENS, VOCABULARY)),
        tutti_input(t->cx, (tutti_array){tokens + 1, TUTTI_SHAPE(TOKENS), TUTTI_I64})));
    tutti_step_end(t->cx);
    if (status == TUTTI_OK)
        status = tutti_clip_grad_norm(t->module, 1, norm_p);
    return status == TUTTI_OK ? tutti_optim_step(t->optim) : status;
}

/* norm_p: of the last step's gradients. */
static tutti_status train(trainer *t, tutti_group *group, int layers, int width, double bucket_mb,
                          int zero, float *norm_p)
{
    const tutti_model_opts opts = {.channels = TOKENS,
                                   .height = 1,
                                   .width = 1,
                                   .classes = VOCABULARY,
                                   .layers = layers,
                                   .hidden = width,
                                   .heads = 8,
                                   .context = TOKENS};

    TUTTI_TRY(tutti_model_new(&t->model, t->cx, "gpt2", &opts));
    t->module = tutti_model_module(t->model);
    TUTTI_TRY(tutti_ddp_new(&t->ddp, t->module, group,
                            &(tutti_ddp_opts){.bucket_mb = bucket_mb, .zero = zero}));
    TUTTI_TRY(tutti_adamw_new(&t->optim, t->module, &(tutti_adam_opts){.lr = 1e-3f}));
    for (int i = 0; i < 3; i++)
        TUTTI_TRY(step(t, norm_p));
    return TUTTI_OK;
}

static int a_model_larger_than_a_rank(tutti_group *group, void *arg)
{
    const int zero = *(const int *)arg;
    const size_t n = (size_t)VOCABULARY * WIDTH + 9 * (size_t)(12 * WIDTH + 13) * WIDTH;
    trainer t = {0};
    float norm;
    tutti_status status;

    CHECK_OK(tutti_ctx_new(&t.cx, test_device(),
                           &(tutti_ctx_opts){.threads = 1, .defers_parameters = zero == 3}));
    CHECK_0(set_limit(data_bytes() + n * 19 / 2));
    status = train(&t, group, 9, WIDTH, 4, zero, &norm);
    if (zero == 3) {
        CHECK_OK(status);
        CHECK((size_t)tutti_module_count(t.module) > n);
    } else {
        CHECK(status == TUTTI_ERR_MEMORY);
        CHECK_TEXT(tutti_last_error(), "no memory for");
    }
    CHECK_0(set_limit(RLIM_INFINITY));
    trainer_free(&t);
    return 0;
}

static tutti_status evaluate(const trainer *t)
{
    static const int64_t tokens[TOKENS] = {0};
    tutti_status status;

    tutti_step_begin(t->cx, &(tutti_step_opts){.eval = true});
    status = tutti_tensor_status(tutti_model_forward(
        t->model, tutti_input(t->cx, (tutti_array){tokens, TUTTI_SHAPE(1, TOKENS), TUTTI_I64})));
    tutti_step_end(t->cx);
    return status;
}

/* It cannot gather the weights that an operation reads: all learn that from it, and none waits. */
static int one_without_memory_tells_all(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    trainer t = {0};
    float norm;
    tutti_status status;

    (void)arg;
    CHECK_OK(tutti_ctx_new(&t.cx, test_device(),
                           &(tutti_ctx_opts){.threads = 1, .defers_parameters = true}));
    CHECK_OK(train(&t, group, 2, 128, 1, 3, &norm));
    if (rank == 1)
        CHECK_0(set_limit(1));
    status = evaluate(&t);
    CHECK_0(set_limit(RLIM_INFINITY));
    CHECK(status == (rank == 1 ? TUTTI_ERR_MEMORY : TUTTI_ERR_ABORTED));
    CHECK_TEXT(tutti_last_error(), "no memory for");
    CHECK(rank == 1 || strstr(tutti_last_error(), "rank 1"));
    CHECK_OK(tutti_meet(group, "all know")); /* before the one ends */
    trainer_free(&t);
    return 0;
}

/* Pages with old bytes are used again, in whole large pages. The last update depends on all before. */
static int used_pages_change_no_bit(tutti_group *group, void *arg)
{
    float norms[4] = {0};

    (void)arg;
    for (int zero = 0; zero <= 3; zero++) {
        trainer t = {0};

        CHECK_OK(tutti_ctx_new(&t.cx, test_device(),
                               &(tutti_ctx_opts){.threads = 1, .defers_parameters = zero == 3}));
        CHECK_OK(train(&t, group, 2, 520, 10, zero, &norms[zero]));
        CHECK(norms[zero] > 0 && norms[zero] == norms[0]);
        trainer_free(&t);
    }
    return 0;
}

static void use_pages_again(void **state)
{
    (void)state;
    assert_int_equal(
        tutti_run_ranks_as_processes(2, used_pages_change_no_bit, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

static void lack_memory(void **state)
{
    (void)state;
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    assert_int_equal(
        tutti_run_ranks_as_processes(3, one_without_memory_tells_all, NULL, TUTTI_TRANSPORT_AUTO),
        0);
#endif
}

static void train_larger(void **state)
{
    (void)state;
#if !defined __SANITIZE_ADDRESS__ &&                                                               \
    !defined __SANITIZE_THREAD__ /* they need addresses for themselves */
    for (int zero = 0; zero <= 3; zero += 3)
        assert_int_equal(tutti_run_ranks_as_processes(RANKS, a_model_larger_than_a_rank, &zero,
                                                      TUTTI_TRANSPORT_AUTO),
                         0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(use_pages_again),
                                       cmocka_unit_test(lack_memory),
                                       cmocka_unit_test(train_larger)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
