/* pipeline: stages of a model compute the bits of accumulation on one rank, whatever the schedule.   SPDX-License-Identifier: MIT
 * timeout: 240
 * devices: strict cuda:long nccl:long */
#include "distributed/ddp_bodies.h"
#include "device/flat.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

enum { MOST = 6 /* micro-batches */, SAMPLES = 4, STEPS = 2, CLASSES = 7, SIDE = 8, CONTEXT = 6 };

typedef struct setting {
    const char *model;
    int layers;
    double dropout;
    bool tokens, tied;
    tutti_pipeline_kind kind;
    int chunks, micro_batches;
    bool uneven, recompute;
    const char *cuts;
    int data; /* ranks with the same stages, for other samples; 0: one */
    int tensor; /* ranks among which layers are divided; 0: one. Also those of the model that accumulates */
    bool sequence;
    int zero;
    const char *table; /* actions of the test's own; NULL: the kind's */
} setting;

typedef struct batches {
    float images[MOST][SAMPLES * SIDE * SIDE * 3];
    int64_t tokens[MOST][SAMPLES * CONTEXT], labels[MOST][SAMPLES * CONTEXT];
    tutti_array x[MOST], y[MOST];
} batches;

static void batches_make(batches *b, const setting *s, int step, int share)
{
    for (int m = 0; m < s->micro_batches; m++) {
        const int64_t n = s->uneven && m == s->micro_batches - 1 ? 1
                          : s->uneven && m == 1                  ? SAMPLES - 1
                                                                 : SAMPLES;

        for (int i = 0; i < SAMPLES * SIDE * SIDE * 3; i++)
            b->images[m][i] = sinf((float)(i * 13 + (step * 16 + m + 7 * share) * 101));
        for (int i = 0; i < SAMPLES * CONTEXT; i++) {
            b->tokens[m][i] = (i * i + step + 3 * m + share) % CLASSES;
            b->labels[m][i] = (i + step + m) % CLASSES;
        }
        b->x[m] = s->tokens ? (tutti_array){b->tokens[m], TUTTI_SHAPE(n, CONTEXT), TUTTI_I64}
                            : (tutti_array){b->images[m], TUTTI_SHAPE(n, 3, SIDE, SIDE), TUTTI_F32};
        b->y[m] = (tutti_array){b->labels[m], s->tokens ? TUTTI_SHAPE(n * CONTEXT) : TUTTI_SHAPE(n),
                                TUTTI_I64};
    }
}

static tutti_tensor *loss_of(tutti_ctx *cx, const setting *s, const batches *b, int m,
                             tutti_tensor *output)
{
    if (s->tokens)
        output = tutti_reshape(output, TUTTI_SHAPE(-1, CLASSES));
    return tutti_cross_entropy(output, tutti_input(cx, b->y[m]));
}

static tutti_model_opts model_opts(const setting *s, tutti_llama_opts *llama)
{
    tutti_model_opts o = {.channels = s->tokens ? CONTEXT : 3,
                          .height = s->tokens ? 1 : SIDE,
                          .width = s->tokens ? 1 : SIDE,
                          .classes = CLASSES,
                          .dropout = s->dropout,
                          .layers = s->layers,
                          .recompute = s->recompute};

    if (s->layers) {
        o.hidden = 16;
        o.heads = 2;
    }
    if (s->tokens)
        o.context = CONTEXT;
    if (strcmp(s->model, "llama") == 0) {
        *llama =
            (tutti_llama_opts){.kv_heads = s->tensor ? s->tensor : 1, .tie_embeddings = s->tied};
        o.llama = llama;
    }
    return o;
}

/* ---- Accumulation, on one rank ---------------------------------------------------------------------------- */

static tutti_status accumulate(tutti_ctx *cx, tutti_model *model, tutti_ddp *ddp, const setting *s,
                               const batches *b)
{
    tutti_stream *stream = tutti_ctx_stream(cx);
    double total = 0;
    tutti_flat flat;

    for (int m = 0; m < s->micro_batches; m++) {
        const double n = (double)b->x[m].shape.d[0];
        tutti_status status;

        total += n;
        if (m + 1 < s->micro_batches)
            tutti_ddp_pause(ddp);
        else
            tutti_ddp_resume(ddp);
        tutti_step_begin(cx, NULL);
        status = tutti_backward(
            loss_of(cx, s, b, m, tutti_model_forward(model, tutti_input(cx, b->x[m]))));
        tutti_step_end(cx);
        TUTTI_TRY(status);
        TUTTI_TRY(tutti_module_flat(tutti_model_module(model), &flat));
        TUTTI_TRY(stream->ops->flat->scale(
            stream, flat.gradients, flat.n,
            (float)(m + 1 < s->micro_batches ? n / (double)b->x[m + 1].shape.d[0] : n / total)));
    }
    return TUTTI_OK;
}

/* ---- The pipeline -------------------------------------------------------------------------------------------- */

typedef struct running {
    tutti_ctx *cx;
    const setting *s;
    const batches *b;
    int computed;
} running;

static tutti_tensor *loss(void *self, int m, tutti_tensor *output)
{
    const running *r = self;

    return loss_of(r->cx, r->s, r->b, m, output);
}

static tutti_status computed(void *self, int m, tutti_tensor *loss)
{
    running *r = self;

    (void)m;
    r->computed++;
    return isfinite(tutti_item(loss)) ? TUTTI_OK : TUTTI_ERR_STATE;
}

static int same(const tutti_module *part, const tutti_module *whole)
{
    tutti_tensor *t;

    CHECK(tutti_module_n_state(part) > 0);
    for (size_t i = 0; (t = tutti_module_state(part, i)) != NULL; i++) {
        tutti_tensor *u = tutti_module_find(whole, tutti_tensor_name(t));
        const size_t bytes = tutti__tensor_bytes(t);
        char *a = malloc(bytes), *b = malloc(bytes);
        int differ;

        CHECK(u && a && b);
        CHECK_OK(tutti_tensor_read(t, a));
        CHECK_OK(tutti_tensor_read(u, b));
        differ = memcmp(a, b, bytes);
        free(a);
        free(b);
        if (differ)
            fprintf(stderr, "%s differs\n", tutti_tensor_name(t));
        CHECK(!differ);
    }
    return 0;
}

/* Pipelines side by side, each for its samples. */
typedef struct layout {
    tutti_mesh *mesh;
    tutti_group *pipeline, *data; /* data NULL: one */
    tutti_peers tensor;           /* size 0: layers are whole */
    int share;
} layout;

/* With zero 3 where all parameters are gathered, in turn. */
static int same_as(tutti_pipeline *p, tutti_ddp *ddp, tutti_optim *optim, const layout *l,
                   const tutti_module *whole)
{
    const tutti_module *part = tutti_model_module(tutti_pipeline_model(p));

    if (tutti_zero_get_stats(tutti_ddp_zero(ddp)).stage < 3)
        return same(part, whole);
    for (int k = 0; k < tutti_group_size(l->data); k++) {
        CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(ddp), optim, k));
        if (k == l->share)
            CHECK_0(same(part, whole));
    }
    return 0;
}

static int evaluate(tutti_ctx *cx, tutti_pipeline *p, tutti_ctx *whole_cx, tutti_model *whole,
                    const batches *b)
{
    tutti_tensor *y, *z;
    float a[SAMPLES * CONTEXT * CLASSES], c[SAMPLES * CONTEXT * CLASSES];

    tutti_step_begin(whole_cx, &(tutti_step_opts){.eval = true});
    z = tutti_model_forward(whole, tutti_input(whole_cx, b->x[0]));
    CHECK_OK(tutti_tensor_read(z, c));
    tutti_step_begin(cx, &(tutti_step_opts){.eval = true});
    CHECK_OK(tutti_pipeline_forward(p, b->x[0], &y));
    CHECK((y != NULL) == tutti_pipeline_is_last(p));
    if (y) {
        CHECK_OK(tutti_tensor_read(y, a));
        CHECK(memcmp(a, c, tutti__tensor_bytes(y)) == 0);
    }
    CHECK(tutti_pipeline_forward(p, b->x[0], &y) == TUTTI_ERR_STATE);
    tutti_step_end(cx);
    tutti_step_end(whole_cx);
    return 0;
}

static int layout_make(layout *l, tutti_group *world, const setting *s)
{
    const tutti_mesh_dimension dimensions[] = {{.name = "pipeline"},
                                               {.name = "data", .size = s->data ? s->data : 1},
                                               {.name = "tensor", .size = s->tensor}};

    *l = (layout){.pipeline = world};
    if (s->data < 2 && s->tensor < 2)
        return 0;
    CHECK_OK(tutti_mesh_new(&l->mesh, world, dimensions, s->tensor ? 3 : 2));
    l->pipeline = tutti_mesh_group(l->mesh, "pipeline");
    if (s->data > 1)
        l->data = tutti_mesh_group(l->mesh, "data");
    l->share = tutti_mesh_rank(l->mesh, "data");
    if (s->tensor)
        l->tensor = tutti_group_peers(tutti_mesh_group(l->mesh, "tensor"));
    return 0;
}

static int trains_alike(tutti_group *world, void *arg)
{
    const setting *s = arg;
    const tutti_ctx_opts cx_opts = {.threads = 1, .seed = 3};
    const tutti_adam_opts adam = {.lr = 0.01f, .weight_decay = 0.1f};
    tutti_pipeline_opts opts = {.kind = s->kind, .chunks = s->chunks, .cuts = s->cuts};
    tutti_pipeline_table *table = NULL;
    tutti_llama_opts llama;
    tutti_model_opts o = model_opts(s, &llama);
    batches *b = malloc(sizeof *b);
    running r = {.s = s, .b = b};
    tutti_ctx *whole_cx;
    tutti_model *whole;
    tutti_pipeline *p;
    tutti_ddp *ddp = NULL, *whole_ddp = NULL;
    tutti_optim *optim, *whole_optim;
    layout l;
    tutti_pipeline_step step = {.x = b->x, .loss = loss, .computed = computed, .self = &r};

    step.micro_batches = s->micro_batches;
    if (s->table)
        CHECK_OK(tutti_pipeline_table_read(&table, s->table));
    opts.table = table;
    CHECK_0(layout_make(&l, world, s));
    if (s->tensor)
        o.parallel = &l.tensor;
    o.parallel_tokens = s->sequence;
    CHECK_OK(tutti_ctx_new(&whole_cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(&whole, whole_cx, s->model, &o));
    if (l.data)
        CHECK_OK(tutti_ddp_new(&whole_ddp, tutti_model_module(whole), l.data, NULL));
    CHECK_OK(tutti_adamw_new(&whole_optim, tutti_model_module(whole), &adam));
    CHECK_OK(tutti_ctx_new(&r.cx, test_device(), &cx_opts));
    CHECK_OK(tutti_pipeline_new(&p, r.cx, l.pipeline, s->model, &o, &opts));
    if (l.data)
        CHECK_OK(tutti_ddp_new(
            &ddp, tutti_model_module(tutti_pipeline_model(p)), l.data,
            &(tutti_ddp_opts){.bucket_mb = 1e-3, .first_bucket_mb = 1e-3, .zero = s->zero}));
    tutti_pipeline_set_ddp(p, ddp);
    CHECK_OK(tutti_adamw_new(&optim, tutti_model_module(tutti_pipeline_model(p)), &adam));
    CHECK_0(same_as(p, ddp, optim, &l, tutti_model_module(whole)));
    batches_make(b, s, 0, l.share);
    CHECK_0(evaluate(r.cx, p, whole_cx, whole, b)); /* before there was a step */
    for (int k = 0; k < STEPS; k++) {
        batches_make(b, s, k, l.share);
        tutti_optim_zero_grad(whole_optim);
        CHECK_OK(accumulate(whole_cx, whole, whole_ddp, s, b));
        CHECK_OK(tutti_optim_step(whole_optim));
        tutti_optim_zero_grad(optim);
        CHECK_OK(tutti_pipeline_run(p, &step));
        CHECK_OK(tutti_optim_step(optim));
        CHECK(tutti_ctx_step(r.cx) == tutti_ctx_step(whole_cx));
        CHECK_0(same_as(p, ddp, optim, &l, tutti_model_module(whole)));
        CHECK_0(evaluate(r.cx, p, whole_cx, whole, b));
    }
    CHECK(r.computed == (tutti_pipeline_is_last(p) ? STEPS * s->micro_batches : 0));
    tutti_optim_free(optim);
    tutti_ddp_free(ddp);
    tutti_pipeline_free(p);
    tutti_ctx_free(r.cx);
    tutti_optim_free(whole_optim);
    tutti_ddp_free(whole_ddp);
    tutti_model_free(whole);
    tutti_ctx_free(whole_cx);
    tutti_mesh_free(l.mesh);
    tutti_pipeline_table_free(table);
    free(b);
    return 0;
}

static const tutti_pipeline_kind KINDS[] = {TUTTI_PIPELINE_1F1B, TUTTI_PIPELINE_GPIPE,
                                            TUTTI_PIPELINE_INTERLEAVED, TUTTI_PIPELINE_ZERO_BUBBLE};

/* Schedules and cuts are the same on every device, of which others than the CPU are slow here: those test what is theirs, streams and copies. */
static bool slow_device(void)
{
    return test_on("cuda") || test_on("strict");
}

/* From KINDS[k] to the next that is tested: on slow devices only the first and the last. */
static size_t after(size_t k)
{
    return k + (slow_device() ? TUTTI__COUNT_OF(KINDS) - 1 : 1);
}

/* All schedules on 1, 2 and 4 ranks; on slow devices on 2. */
static void everywhere(setting s, int most_stages)
{
    const bool slow = slow_device();

    for (int ranks = 1 + slow; ranks <= (slow ? 2 : 4); ranks *= 2)
        for (size_t k = 0; k < TUTTI__COUNT_OF(KINDS); k = after(k)) {
            s.kind = KINDS[k];
            s.chunks = KINDS[k] == TUTTI_PIPELINE_INTERLEAVED ? 2 : 1;
            if (s.chunks * ranks > most_stages || (s.chunks > 1 && ranks == 1))
                continue;
            if (tutti_run_ranks_as_threads(ranks, trains_alike, &s) != 0)
                fail_msg("%s on %d ranks, schedule %d", s.model, ranks, (int)s.kind);
        }
}

static void gpt2(void **state)
{
    (void)state;
    everywhere((setting){.model = "gpt2",
                         .layers = 6,
                         .dropout = 0.1,
                         .tokens = true,
                         .micro_batches = 5,
                         .uneven = true},
               8);
}

static void llama(void **state)
{
    (void)state;
    everywhere(
        (setting){
            .model = "llama", .layers = 6, .dropout = 0.1, .tokens = true, .micro_batches = 6},
        8);
    everywhere((setting){.model = "llama",
                         .layers = 2,
                         .tied = true,
                         .tokens = true,
                         .micro_batches = 4,
                         .recompute = true},
               4);
}

static void vit(void **state)
{
    (void)state;
    if (slow_device())
        skip();
    everywhere((setting){.model = "vit", .layers = 4, .dropout = 0.1, .micro_batches = 3}, 6);
}

static void mini_resnet(void **state)
{
    (void)state;
    if (slow_device()) /* whose convolutions are plain loops */
        skip();
    everywhere(
        (setting){.model = "mini_resnet", .dropout = 0.1, .micro_batches = 4, .uneven = true}, 8);
}

static void mlp(void **state)
{
    (void)state;
    everywhere((setting){.model = "mlp", .dropout = 0.2, .micro_batches = 1}, 2);
    everywhere((setting){.model = "mlp", .dropout = 0.2, .micro_batches = 6}, 2);
}

/* Pipelines of two ranks, side by side on two. Buffers are the first data rank's, which evaluations of others need. */
static void with_data_parallel(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero += zero == 0 ? 1 : 2) /* 2: e2e/train_pipeline */
        for (size_t k = 0; k < TUTTI__COUNT_OF(KINDS); k = after(k)) {
            setting s = {.model = "gpt2",
                         .layers = 4,
                         .dropout = 0.1,
                         .tokens = true,
                         .kind = KINDS[k],
                         .chunks = KINDS[k] == TUTTI_PIPELINE_INTERLEAVED ? 2 : 1,
                         .micro_batches = 4,
                         .uneven = true,
                         .data = 2,
                         .zero = zero};

            if (tutti_run_ranks_as_threads(4, trains_alike, &s) != 0)
                fail_msg("schedule %d, zero %d", (int)s.kind, zero);
        }
}

/* Of two stages and two parts of each layer: as accumulation with layers divided alike. */
static void with_divided_layers(void **state)
{
    static const setting models[] = {
        {.model = "gpt2", .layers = 4, .dropout = 0.1, .tokens = true, .uneven = true},
        {.model = "llama", .layers = 4, .tokens = true, .tied = true, .recompute = true},
        {.model = "vit", .layers = 4, .dropout = 0.1, .uneven = true}};

    (void)state;
    for (size_t i = 0; i < (slow_device() ? 1 : TUTTI__COUNT_OF(models)); i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(KINDS); k = after(k))
            for (int sequence = slow_device(); sequence < 2; sequence++) {
                setting s = models[i];

                s.kind = KINDS[k];
                s.chunks = KINDS[k] == TUTTI_PIPELINE_INTERLEAVED ? 2 : 1;
                s.micro_batches = 5;
                s.tensor = 2;
                s.sequence = sequence;
                if (tutti_run_ranks_as_threads(4, trains_alike, &s) != 0)
                    fail_msg("%s, schedule %d, sequence %d", s.model, (int)s.kind, sequence);
            }
}

static void with_all(void **state)
{
    (void)state;
    if (slow_device()) /* eight ranks take long there */
        skip();
    for (int zero = 0; zero < 2; zero++) {
        setting s = {.model = "gpt2",
                     .layers = 3,
                     .dropout = 0.1,
                     .tokens = true,
                     .micro_batches = 3,
                     .uneven = true,
                     .data = 2,
                     .tensor = 2,
                     .sequence = true,
                     .zero = zero};

        assert_int_equal(tutti_run_ranks_as_threads(8, trains_alike, &s), 0);
    }
}

static tutti_status count_calls(void *arg, tutti_group *group, tutti_tensor *const *buffers,
                                size_t n)
{
    (void)group;
    (void)buffers;
    *(int *)arg += n > 0;
    return TUTTI_OK;
}

/* Of two stages a rank, at the last micro-batch of one of them. */
static int shares_buffers(tutti_group *world, void *arg)
{
    const setting s = {.model = "mini_resnet", .micro_batches = 4, .data = 2};
    const tutti_model_opts o = model_opts(&s, NULL);
    batches *b = malloc(sizeof *b);
    running r = {.s = &s, .b = b};
    tutti_pipeline_step step = {
        .x = b->x, .micro_batches = 4, .loss = loss, .computed = computed, .self = &r};
    tutti_pipeline *p;
    tutti_ddp *ddp;
    int calls = 0;
    layout l;

    (void)arg;
    CHECK_0(layout_make(&l, world, &s));
    CHECK_OK(tutti_ctx_new(&r.cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK_OK(tutti_pipeline_new(&p, r.cx, l.pipeline, s.model, &o,
                                &(tutti_pipeline_opts){.kind = TUTTI_PIPELINE_INTERLEAVED}));
    CHECK_OK(
        tutti_ddp_new(&ddp, tutti_model_module(tutti_pipeline_model(p)), l.data,
                      &(tutti_ddp_opts){.buffer_hook = count_calls, .buffer_hook_arg = &calls}));
    tutti_pipeline_set_ddp(p, ddp);
    calls = 0;
    batches_make(b, &s, 0, l.share);
    for (int k = 0; k < STEPS; k++)
        CHECK_OK(tutti_pipeline_run(p, &step));
    CHECK(calls == STEPS);
    tutti_ddp_free(ddp);
    tutti_pipeline_free(p);
    tutti_ctx_free(r.cx);
    tutti_mesh_free(l.mesh);
    free(b);
    return 0;
}

static void buffers_once_a_step(void **state)
{
    (void)state;
    if (test_on("strict"))
        skip();
    assert_int_equal(tutti_run_ranks_as_threads(4, shares_buffers, NULL), 0);
}

/* Two stages a rank, all forwards before all backwards; and gradients of weights at the end. */
static void tables_of_a_program(void **state)
{
    static const char *const tables[] = {
        "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1",
        "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1"};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(tables); i++) {
        setting s = {.model = "gpt2",
                     .layers = 4,
                     .dropout = 0.1,
                     .tokens = true,
                     .micro_batches = 2,
                     .table = tables[i]};

        assert_int_equal(tutti_run_ranks_as_threads(2, trains_alike, &s), 0);
    }
}

static void as_processes(void **state)
{
    setting s = {.model = "gpt2",
                 .layers = 4,
                 .dropout = 0.1,
                 .tokens = true,
                 .kind = TUTTI_PIPELINE_1F1B,
                 .micro_batches = 4,
                 .cuts = "h.1"};

    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(2, trains_alike, &s, TUTTI_TRANSPORT_AUTO), 0);
    assert_int_equal(tutti_run_ranks_as_processes(2, trains_alike, &s, TUTTI_TRANSPORT_TCP), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp),
        cmocka_unit_test(llama),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(vit),
        cmocka_unit_test(mini_resnet),
        cmocka_unit_test(with_data_parallel),
        cmocka_unit_test(with_divided_layers),
        cmocka_unit_test(with_all),
        cmocka_unit_test(buffers_once_a_step),
        cmocka_unit_test(tables_of_a_program),
        cmocka_unit_test(as_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
