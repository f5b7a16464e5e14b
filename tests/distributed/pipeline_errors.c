/* pipeline: what cannot be a pipeline is refused on all ranks with one message, and a rank that fails or dies ends the step of all, with
 * the stage and the micro-batch that others wait for.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "distributed/ddp_bodies.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

#include <unistd.h>

enum { SIDE = 6, CLASSES = 5, N = 3, MICRO_BATCHES = 4 };

static const tutti_model_opts OPTS = {
    .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};

/* ---- Refused by tutti_pipeline_new ------------------------------------------------------------------------ */

typedef struct refusal {
    const char *model;
    tutti_pipeline_opts opts;
    const tutti_model_kind *kind;
    int ranks;
    const char *why;
    int only; /* 1 + the rank that has these cuts; others have none; 0: all */
} refusal;

static int is_refused(tutti_group *group, void *arg)
{
    const refusal *r = arg;
    tutti_model_opts o = OPTS;
    tutti_pipeline_opts opts = r->opts;
    tutti_ctx *cx;
    tutti_pipeline *p;
    int64_t one = 1;

    o.kind = r->kind;
    if (r->only && tutti_group_rank(group) != r->only - 1)
        opts.cuts = NULL;
    CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK(tutti_pipeline_new(&p, cx, group, r->model, &o, &opts) != TUTTI_OK && !p);
    CHECK_TEXT(tutti_last_error(), r->why);
    CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&one, 1, TUTTI_I64), TUTTI_SUM, NULL));
    tutti_ctx_free(cx);
    return 0;
}

/* A model whose second block has no parameters. */
typedef struct hollow {
    tutti_module base;
    tutti_linear fc;
} hollow;

static void hollow_init(tutti_module *m, const tutti_model_opts *opts)
{
    tutti_linear_init(&((hollow *)m)->fc, m, "fc", opts->height * opts->width, opts->classes);
}

static tutti_tensor *hollow_first(tutti_module *m, tutti_tensor *x, int i)
{
    (void)i;
    return tutti_linear_forward(&((hollow *)m)->fc, tutti_flatten(x));
}

static tutti_tensor *hollow_second(tutti_module *m, tutti_tensor *x, int i)
{
    (void)m;
    (void)i;
    return tutti_relu(x);
}

static tutti_tensor *hollow_forward(tutti_module *m, tutti_tensor *x)
{
    return hollow_second(m, hollow_first(m, x, 0), 1);
}

static bool hollow_block(const tutti_model_opts *opts, int i, tutti_model_block *block)
{
    (void)opts;
    *block = i == 0
                 ? (tutti_model_block){.name = "fc", .state = "fc", .forward = hollow_first}
                 : (tutti_model_block){.name = "relu", .state = "none", .forward = hollow_second};
    return i < 2;
}

static const tutti_model_kind HOLLOW = {.name = "hollow",
                                        .bytes = sizeof(hollow),
                                        .init = hollow_init,
                                        .forward = hollow_forward,
                                        .block = hollow_block};

static void what_cannot_be_one(void **state)
{
    static const refusal rows[] = {
        {.model = "mlp", .ranks = 3, .why = "model mlp has 2 blocks, and 3 ranks with 1 stages"},
        {.model = "mlp",
         .ranks = 2,
         .opts = {.kind = TUTTI_PIPELINE_INTERLEAVED},
         .why = "2 ranks with 2 stages each make 4"},
        {.model = "mlp",
         .ranks = 1,
         .opts = {.kind = TUTTI_PIPELINE_INTERLEAVED},
         .why = "2 stages of one rank; expected 1"},
        {.model = "mlp", .ranks = 2, .opts = {.chunks = 2}, .why = "or an interleaved schedule"},
        {.model = "mlp",
         .ranks = 2,
         .opts = {.cuts = "fc3"},
         .why = "no block \"fc3\"; its blocks are fc1, fc2"},
        {.model = "mlp", .ranks = 2, .opts = {.cuts = "fc1"}, .why = "stage 1 begins with fc1"},
        {.model = "mini_resnet",
         .ranks = 3,
         .opts = {.cuts = "layers.2"},
         .why = "makes 2 stages, expected 3"},
        {.model = "unet", .ranks = 2, .why = "model unet is no list of blocks"},
        {.model = "nothing", .ranks = 2, .why = "there is no model 'nothing'"},
        {.model = "hollow", .kind = &HOLLOW, .ranks = 2, .why = "stage 1 (relu) has no parameters"},
        {.model = "mini_resnet",
         .ranks = 2,
         .opts = {.cuts = "fc"},
         .only = 2,
         .why = "pipelines differ between ranks: stage 0 is stem to"},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++)
        if (tutti_run_ranks_as_threads(rows[i].ranks, is_refused, (void *)(uintptr_t)&rows[i]) != 0)
            fail_msg("row %zu: %s", i, rows[i].why);
}

/* ---- Failures in a step -------------------------------------------------------------------------------------- */

typedef enum end { BAD_LABEL, DIES, NO_LOSS, EMPTY, OTHER_SHAPE } end;

typedef struct failing {
    tutti_ctx *cx;
    end how;
    int rank;
    int64_t y[N];
} failing;

static tutti_tensor *loss(void *self, int m, tutti_tensor *output)
{
    failing *f = self;
    const int64_t n = tutti_tensor_shape(output).d[0];

    if (f->how == DIES && m == 2)
        _exit(0);
    if (f->how == NO_LOSS)
        return NULL;
    f->y[1] = f->how == BAD_LABEL && m == 2 ? CLASSES : 1;
    return tutti_cross_entropy(output,
                               tutti_input(f->cx, (tutti_array){f->y, TUTTI_SHAPE(n), TUTTI_I64}));
}

static int fails(tutti_group *group, void *arg)
{
    static _Thread_local float x[4 * N * SIDE * SIDE];
    static const char *const why[] = {
        [BAD_LABEL] = "5",
        [DIES] = "rank 1",
        [NO_LOSS] = "returned NULL",
        [EMPTY] = "no samples",
        [OTHER_SHAPE] = " of micro-batch 2, and made [3,256,2,2] before; only the "
                        "number of samples may change"};
    failing f = {.how = *(const end *)arg, .rank = tutti_group_rank(group)};
    const bool shape = f.how == OTHER_SHAPE; /* images of another size */
    tutti_array arrays[MICRO_BATCHES];
    tutti_pipeline_step step = {
        .micro_batches = MICRO_BATCHES, .x = arrays, .loss = loss, .self = &f};
    tutti_pipeline *p;

    for (int m = 0; m < MICRO_BATCHES; m++)
        arrays[m] = (tutti_array){x, TUTTI_SHAPE(m == 2 && f.how == EMPTY ? 0 : N, 1, SIDE, SIDE),
                                  TUTTI_F32};
    if (shape)
        arrays[2].shape = TUTTI_SHAPE(N, 1, 2 * SIDE, 2 * SIDE);
    CHECK_OK(tutti_ctx_new(&f.cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK_OK(tutti_pipeline_new(&p, f.cx, group, shape ? "mini_resnet" : "mlp", &OPTS, NULL));
    CHECK(tutti_pipeline_run(p, &step) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), why[f.how]);
    if (f.rank == 0 && f.how != EMPTY &&
        !shape) { /* it waits for gradients, or sends activations */
        CHECK_TEXT(tutti_last_error(), "pipeline: stage 0 (rank 0) ");
        CHECK_TEXT(tutti_last_error(), " of micro-batch ");
        CHECK_TEXT(tutti_last_error(), " stage 1 (rank 1): ");
    }
    tutti_pipeline_free(p);
    tutti_ctx_free(f.cx);
    return 0;
}

static void a_rank_that_fails(void **state)
{
    (void)state;
    for (end how = BAD_LABEL; how <= OTHER_SHAPE; how++)
        if (how != DIES)
            assert_int_equal(tutti_run_ranks_as_threads(2, fails, &how), 0);
}

static void a_rank_that_dies(void **state)
{
    end how = DIES;
    int results[2];

    (void)state;
    (void)tutti_run_ranks(2, fails, &how,
                          &(tutti_ranks_opts){.processes = true, .results = results});
    assert_int_equal(results[0], 0);
}

/* ---- A failure in one of two pipelines --------------------------------------------------------------------------- */

/* Pipelines of two ranks, side by side on two, whose gradients DDP averages. */
static int fails_beside_another(tutti_group *world, void *arg)
{
    const tutti_mesh_dimension dimensions[] = {{.name = "pipeline"}, {.name = "data", .size = 2}};
    static _Thread_local float x[N * SIDE * SIDE];
    failing f = {.how = EMPTY};
    tutti_array arrays[MICRO_BATCHES];
    tutti_pipeline_step step = {
        .micro_batches = MICRO_BATCHES, .x = arrays, .loss = loss, .self = &f};
    tutti_mesh *mesh;
    tutti_pipeline *p;
    const bool uneven = *(const bool *)arg;
    tutti_ddp *ddp;

    for (int m = 0; m < MICRO_BATCHES; m++)
        arrays[m] = (tutti_array){x, TUTTI_SHAPE(N, 1, SIDE, SIDE), TUTTI_F32};
    CHECK_OK(tutti_mesh_new(&mesh, world, dimensions, 2));
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_group_set_timeout(tutti_mesh_group(mesh, dimensions[i].name), 20000));
    CHECK_OK(tutti_ctx_new(&f.cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK_OK(tutti_pipeline_new(&p, f.cx, tutti_mesh_group(mesh, "pipeline"), "mlp", &OPTS, NULL));
    CHECK_OK(tutti_ddp_new(&ddp, tutti_model_module(tutti_pipeline_model(p)),
                           tutti_mesh_group(mesh, "data"), NULL));
    tutti_pipeline_set_ddp(p, ddp);
    CHECK_OK(tutti_pipeline_run(p, &step));
    if (tutti_mesh_rank(mesh, "data") == 1 && uneven)
        arrays[MICRO_BATCHES - 1].shape.d[0] = N - 1;
    else if (tutti_mesh_rank(mesh, "data") == 1)
        f.how = BAD_LABEL;
    CHECK(tutti_pipeline_run(p, &step) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), uneven ? " has 4 micro-batches of 12 samples, the last one of 3"
                                          : "the label of row 1 is 5");
    if (uneven)
        CHECK_TEXT(tutti_last_error(), ", has 4, 11 and 2; expected the same numbers");
    CHECK_OK(tutti_barrier(world, NULL)); /* nobody learns of it from a rank that leaves */
    tutti_ddp_free(ddp);
    tutti_pipeline_free(p);
    tutti_ctx_free(f.cx);
    tutti_mesh_free(mesh);
    return 0;
}

static void a_rank_that_fails_beside_another(void **state)
{
    (void)state;
    for (int uneven = 0; uneven < 2; uneven++)
        assert_int_equal(tutti_run_ranks_as_threads(4, fails_beside_another, &(bool){uneven != 0}),
                         0);
}

/* ---- A rank that hangs ------------------------------------------------------------------------------------------ */

static tutti_tensor *slow_loss(void *self, int m, tutti_tensor *output)
{
    if (m == 1)
        sleep(3);
    return loss(self, m, output);
}

static int hangs(tutti_group *group, void *arg)
{
    static _Thread_local float x[N * SIDE * SIDE];
    const bool first = tutti_group_rank(group) == 0;
    failing f = {.how = EMPTY};
    tutti_array arrays[MICRO_BATCHES];
    tutti_pipeline_step step = {
        .micro_batches = MICRO_BATCHES, .x = arrays, .loss = slow_loss, .self = &f};
    tutti_pipeline *p;

    (void)arg;
    for (int m = 0; m < MICRO_BATCHES; m++)
        arrays[m] = (tutti_array){x, TUTTI_SHAPE(N, 1, SIDE, SIDE), TUTTI_F32};
    CHECK_OK(tutti_ctx_new(&f.cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK_OK(tutti_pipeline_new(&p, f.cx, group, "mlp", &OPTS, NULL));
    CHECK_OK(tutti_group_set_timeout(group, 500));
    CHECK(tutti_pipeline_run(p, &step) != TUTTI_OK);
    if (first)
        CHECK_TEXT(tutti_last_error(), "pipeline: stage 0 (rank 0) waits for the gradients of "
                                       "micro-batch 1 from stage 1 (rank 1): ");
    tutti_pipeline_free(p);
    tutti_ctx_free(f.cx);
    return 0;
}

static void a_rank_that_hangs(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, hangs, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_one), cmocka_unit_test(a_rank_that_fails),
        cmocka_unit_test(a_rank_that_dies),   cmocka_unit_test(a_rank_that_fails_beside_another),
        cmocka_unit_test(a_rank_that_hangs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
