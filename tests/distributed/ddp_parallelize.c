/* ddp: layers divided among ranks compute what the whole ones do: losses, gradients, initial values, dropout; and plans of a
 * program's own.   SPDX-License-Identifier: MIT
 * timeout: 240
 * devices: strict cuda:long nccl:long */
#include "bodies.h"
#include "harness/device.h"
#include "nn/nn.h"
#include <tutti/tutti.h>

enum { BATCH = 2, TOKENS = 6, VOCAB = 31, STEPS = 2 };

static const int64_t text[BATCH * TOKENS] = {3, 30, 7, 7, 0, 29, 15, 16, 1, 2, 30, 3};
static const int64_t next[BATCH * TOKENS] = {30, 7, -100, 0, 29, 1, 16, 1, 2, 30, 3, 15};
static float image[BATCH * 3 * 8 * 8];

typedef struct subject {
    const char *model;
    int heads, kv_heads, hidden, ffn; /* ffn: of llama */
    float dropout, smoothing;
    bool recompute, lora, stored; /* stored: logits that the loss reads */
    bool tokens;                  /* norms by tokens */
    tutti_dtype autocast;
} subject;

typedef struct stand {
    tutti_ctx *cx;
    tutti_model *model;
    tutti_module *m;
    float loss;
} stand;

static bool is_text(const subject *s)
{
    return strcmp(s->model, "vit") != 0;
}

/* peers NULL: whole. */
static int stand_new(stand *t, const subject *s, const tutti_peers *peers)
{
    const tutti_llama_opts llama = {.kv_heads = s->kv_heads, .ffn_width = s->ffn};
    const tutti_model_opts opts = {.channels = is_text(s) ? TOKENS : 3,
                                   .height = is_text(s) ? 1 : 8,
                                   .width = is_text(s) ? 1 : 8,
                                   .classes = VOCAB,
                                   .dropout = (double)s->dropout,
                                   .layers = 2,
                                   .hidden = s->hidden,
                                   .heads = s->heads,
                                   .context = is_text(s) ? TOKENS : 0,
                                   .recompute = s->recompute,
                                   .llama = strcmp(s->model, "llama") == 0 ? &llama : NULL,
                                   .parallel = peers,
                                   .parallel_tokens = s->tokens};

    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &(tutti_ctx_opts){.threads = 1, .seed = 5}));
    CHECK_OK(tutti_model_new(&t->model, t->cx, s->model, &opts));
    t->m = tutti_model_module(t->model);
    if (s->lora)
        CHECK_OK(tutti_lora_apply(
            t->m, &(tutti_lora_opts){.rank = 2, .train = s->kv_heads ? "*norm*" : "*ln_*"}));
    return 0;
}

static void stand_free(stand *t)
{
    tutti_model_free(t->model);
    tutti_ctx_free(t->cx);
}

/* Loss and gradients of a batch. */
static int step(stand *t, const subject *s)
{
    const tutti_array x = is_text(s) ? (tutti_array){text, TUTTI_SHAPE(BATCH, TOKENS), TUTTI_I64}
                                     : (tutti_array){image, TUTTI_SHAPE(BATCH, 3, 8, 8), TUTTI_F32};
    const tutti_array y = {next, TUTTI_SHAPE(is_text(s) ? BATCH * TOKENS : BATCH), TUTTI_I64};
    tutti_tensor *logits, *loss;

    tutti_module_zero_grad(t->m);
    tutti_step_begin(t->cx, &(tutti_step_opts){.autocast = s->autocast});
    logits = tutti_model_forward(t->model, tutti_input(t->cx, x));
    if (is_text(s))
        logits = tutti_reshape(logits, TUTTI_SHAPE(-1, VOCAB));
    CHECK(!s->stored ||
          tutti_shape_equal(tutti_tensor_shape(logits), TUTTI_SHAPE(BATCH * TOKENS, VOCAB)));
    loss =
        tutti_cross_entropy_with(s->stored ? tutti_scale(logits, 2) : logits, tutti_input(t->cx, y),
                                 &(tutti_cross_entropy_opts){.label_smoothing = s->smoothing});
    t->loss = tutti_item(loss);
    CHECK_OK(tutti_tensor_status(loss));
    CHECK_OK(tutti_backward(loss));
    tutti_step_end(t->cx);
    return 0;
}

/* Element of the whole that is element k of this rank's part of it. */
static int64_t in_whole(const tutti__state *state, int64_t k)
{
    const tutti_shape shape = state->tensor->shape;
    const int dim = state->split.dim, count = state->split.count;
    int64_t inner = 1, each, chunk, here, at, part;

    if (count == 0)
        return k;
    for (int i = dim + 1; i < shape.n; i++)
        inner *= shape.d[i];
    each = state->split.whole / state->split.parts;
    chunk =
        (each + count * state->split.units - 1) / (count * state->split.units) * state->split.units;
    here = shape.d[dim] / state->split.parts;
    at = k / inner % shape.d[dim];
    part = at / here;
    at = part * each + state->split.index * chunk + at % here;
    return (k / inner / shape.d[dim] * state->split.whole + at) * inner + k % inner;
}

/* The part of t that is this rank's of `whole`, and equal to it: to the bit, or by `tolerance` of the largest. */
static int compare(const tutti_tensor *t, const float *part, const float *whole, int64_t n,
                   float tolerance)
{
    const tutti__state *state = tutti__state_of(t);
    float largest = 0;

    for (int64_t k = 0; k < n; k++)
        largest = fmaxf(largest, fabsf(whole[in_whole(state, k)]));
    for (int64_t k = 0; k < n; k++)
        if (!(fabsf(part[k] - whole[in_whole(state, k)]) <= tolerance * largest)) {
            printf("%s, element %lld: %g, expected %g\n", t->name, (long long)k, (double)part[k],
                   (double)whole[in_whole(state, k)]);
            return 1;
        }
    return 0;
}

static int compare_all(const stand *divided, const stand *whole, bool gradients, float tolerance)
{
    static _Thread_local float a[1 << 18], b[1 << 18];
    int n_divided = 0;

    CHECK(tutti_module_n_parameters(divided->m) == tutti_module_n_parameters(whole->m));
    CHECK(tutti_module_count(divided->m) == tutti_module_count(whole->m));
    for (size_t i = 0; i < tutti_module_n_parameters(divided->m); i++) {
        tutti_tensor *t = tutti_module_parameter(divided->m, i),
                     *w = tutti_module_parameter(whole->m, i);

        CHECK(strcmp(t->name, w->name) == 0 && tutti_shape_count(w->shape) <= 1 << 18);
        n_divided += tutti_parameter_ranks(t) > 1;
        if (gradients && !t->parameter->requires_grad)
            continue;
        CHECK_OK(gradients ? tutti_tensor_grad_read(t, a) : tutti_tensor_read(t, a));
        CHECK_OK(gradients ? tutti_tensor_grad_read(w, b) : tutti_tensor_read(w, b));
        CHECK_0(compare(t, a, b, tutti_shape_count(t->shape), tolerance));
    }
    CHECK(n_divided >= 12);
    return 0;
}

/* Of a norm of the first block: how many rows it makes. */
static void count_rows(tutti_module *m, tutti_tensor *x, tutti_tensor *y, void *arg)
{
    const tutti_shape shape = tutti_tensor_shape(y);

    (void)m;
    (void)x;
    *(int64_t *)arg = tutti_shape_count(shape) / shape.d[shape.n - 1];
}

static int rows_of_norm(stand *t, const subject *s, int64_t *rows)
{
    const char *name = s->kv_heads  ? "model.layers.0.input_layernorm"
                       : is_text(s) ? "transformer.h.0.ln_1"
                                    : "encoder.layers.encoder_layer_0.ln_1";
    tutti_module *norm = tutti_module_child(t->m, name);

    CHECK(norm);
    tutti_module_set_forward_hook(norm, count_rows, rows);
    return 0;
}

static int computes_the_same(tutti_group *group, void *arg)
{
    const subject *s = arg;
    const tutti_peers peers = tutti_group_peers(group);
    const float tolerance = s->autocast == TUTTI_BF16 ? 0.05f : 2e-5f;
    int64_t all = 0, own = 0, each;
    stand whole, divided;

    CHECK_0(stand_new(&whole, s, NULL));
    CHECK_0(stand_new(&divided, s, &peers));
    CHECK_0(compare_all(&divided, &whole, false, 0));
    CHECK_0(rows_of_norm(&whole, s, &all));
    CHECK_0(rows_of_norm(&divided, s, &own));
    for (int i = 0; i < STEPS; i++) {
        CHECK_0(step(&whole, s));
        CHECK_0(step(&divided, s));
        if (!(fabsf(whole.loss - divided.loss) <= tolerance * 0.1f * whole.loss)) {
            printf("loss %.9g, expected %.9g\n", (double)divided.loss, (double)whole.loss);
            return 1;
        }
        CHECK_0(compare_all(&divided, &whole, true, tolerance));
    }
    each = (all + peers.size - 1) / peers.size;
    if (s->tokens && peers.rank + 1 == peers.size)
        each = all - each * peers.rank;
    CHECK(all >= 12 && own == (s->tokens ? each : all));
    stand_free(&divided);
    stand_free(&whole);
    return 0;
}

/* The text's tokens are in the tables of some ranks only; of 31 rows and 100 or 96 features, ranks have different numbers. */
static const subject all[] = {
    {.model = "gpt2", .heads = 12, .hidden = 48},
    {.model = "gpt2", .heads = 12, .hidden = 48, .dropout = 0.3f, .smoothing = 0.1f},
    {.model = "gpt2", .heads = 12, .hidden = 48, .dropout = 0.3f, .recompute = true},
    {.model = "gpt2", .heads = 12, .hidden = 48, .lora = true},
    {.model = "gpt2", .heads = 12, .hidden = 48, .stored = true},
    {.model = "gpt2", .heads = 12, .hidden = 48, .autocast = TUTTI_BF16, .smoothing = 0.1f},
    {.model = "llama", .heads = 24, .kv_heads = 12, .hidden = 48, .ffn = 100, .dropout = 0.2f},
    {.model = "llama", .heads = 24, .kv_heads = 12, .hidden = 48, .ffn = 100, .lora = true},
    {.model = "vit", .heads = 12, .hidden = 48, .dropout = 0.2f},
    {.model = "gpt2",
     .heads = 12,
     .hidden = 48,
     .dropout = 0.3f,
     .smoothing = 0.1f,
     .tokens = true},
    {.model = "gpt2",
     .heads = 12,
     .hidden = 48,
     .dropout = 0.3f,
     .recompute = true,
     .tokens = true},
    {.model = "gpt2", .heads = 12, .hidden = 48, .lora = true, .stored = true, .tokens = true},
    {.model = "gpt2", .heads = 12, .hidden = 48, .autocast = TUTTI_BF16, .tokens = true},
    {.model = "llama",
     .heads = 24,
     .kv_heads = 12,
     .hidden = 48,
     .ffn = 100,
     .dropout = 0.2f,
     .tokens = true},
    {.model = "llama",
     .heads = 24,
     .kv_heads = 12,
     .hidden = 48,
     .ffn = 100,
     .lora = true,
     .tokens = true},
    {.model = "vit", .heads = 12, .hidden = 48, .dropout = 0.2f, .tokens = true},
    {.model = "vit", .heads = 12, .hidden = 48, .lora = true, .tokens = true}};

static void fill_image(void)
{
    for (size_t i = 0; i < sizeof image / sizeof *image; i++)
        image[i] = (float)(i * 37 % 101) / 50 - 1;
}

static void a_divided_model_computes_what_the_whole_does(void **state)
{
    const int most = test_on("cuda") ? 3 : 4; /* where a step takes much longer */

    (void)state;
    fill_image();
    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++)
        for (int n = 2; n <= most; n++)
            if (tutti_run_ranks_as_threads(n, computes_the_same, (void *)(uintptr_t)&all[i]) != 0)
                fail_msg("%s, row %zu, %d ranks", all[i].model, i, n);
    assert_int_equal(tutti_run_ranks_as_processes(3, computes_the_same, (void *)(uintptr_t)&all[1],
                                                  TUTTI_TRANSPORT_AUTO),
                     0);
}

/* ---- Sums of parts, with the same bits on any number of ranks ---------------------------------------------------- */

enum { PARTS = 4 };

/* Beside one rank that has all parts. */
static int computes_the_same_bits(tutti_group *group, void *arg)
{
    const subject *s = arg;
    const tutti_peers peers = tutti_group_peers_of_parts(group, PARTS);
    const tutti_peers alone = {.size = 1, .parts = PARTS};
    stand one, divided;

    CHECK_0(stand_new(&one, s, &alone));
    CHECK_0(stand_new(&divided, s, &peers));
    CHECK_0(compare_all(&divided, &one, false, 0));
    for (int i = 0; i < STEPS; i++) {
        CHECK_0(step(&one, s));
        CHECK_0(step(&divided, s));
        if (memcmp(&one.loss, &divided.loss, sizeof one.loss) != 0) {
            printf("loss %.9g, expected %.9g\n", (double)divided.loss, (double)one.loss);
            return 1;
        }
        CHECK_0(compare_all(&divided, &one, true, 0));
    }
    stand_free(&divided);
    stand_free(&one);
    return 0;
}

/* And close to the model that is not divided. */
static int computes_the_same_by_parts(tutti_group *group, void *arg)
{
    const subject *s = arg;
    const tutti_peers alone = {.size = 1, .parts = PARTS};
    const float tolerance = s->autocast == TUTTI_BF16 ? 0.05f : 2e-5f;
    stand whole, parts;

    (void)group;
    CHECK_0(stand_new(&whole, s, NULL));
    CHECK_0(stand_new(&parts, s, &alone));
    CHECK_0(step(&whole, s));
    CHECK_0(step(&parts, s));
    CHECK(fabsf(whole.loss - parts.loss) <= tolerance * 0.1f * whole.loss);
    for (size_t i = 0; i < tutti_module_n_parameters(parts.m); i++) {
        static _Thread_local float a[1 << 18], b[1 << 18];
        tutti_tensor *t = tutti_module_parameter(parts.m, i),
                     *w = tutti_module_parameter(whole.m, i);

        if (!t->parameter->requires_grad)
            continue;
        CHECK_OK(tutti_tensor_grad_read(t, a));
        CHECK_OK(tutti_tensor_grad_read(w, b));
        CHECK_0(compare(t, a, b, tutti_shape_count(t->shape), tolerance));
    }
    stand_free(&parts);
    stand_free(&whole);
    return 0;
}

static void in_parts_the_bits_do_not_depend_on_the_number_of_ranks(void **state)
{
    (void)state;
    if (test_on("strict") || test_on("cuda")) /* sums of parts are made on the CPU only */
        skip();
    fill_image();
    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++) {
        if (all[i].lora && all[i].tokens)
            continue; /* refused */
        for (int n = 1; n <= 4; n *= 2)
            if (tutti_run_ranks_as_threads(
                    n, n == 1 ? computes_the_same_by_parts : computes_the_same_bits,
                    (void *)(uintptr_t)&all[i]) != 0)
                fail_msg("%s, row %zu, %d ranks", all[i].model, i, n);
    }
}

/* ---- A program's own model ----------------------------------------------------------------------------------------- */

typedef struct own {
    tutti_module base;
    tutti_linear up, down;
} own;

static void own_init(own *m)
{
    tutti_linear_init(&m->up, &m->base, "up", 5, 7);
    tutti_linear_init(&m->down, &m->base, "down", 7, 3);
}

static const tutti_parallel_rule own_plan[] = {{.name = "up", .how = TUTTI_PARALLEL_COLUMNS},
                                               {.name = "d?wn", .how = TUTTI_PARALLEL_ROWS}};

static int own_step(own *m, tutti_ctx *cx, float *loss)
{
    static const float x[10] = {1, -2, 3, 0.5f, 2, 4, -1, 0, 1, 0.25f};
    tutti_tensor *y;

    tutti_step_begin(cx, NULL);
    y = tutti_linear_forward(&m->up,
                             tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(2, 5), TUTTI_F32}));
    y = tutti_mean(tutti_square(tutti_linear_forward(&m->down, tutti_relu(y))));
    *loss = tutti_item(y);
    CHECK_OK(tutti_backward(y));
    tutti_step_end(cx);
    return 0;
}

/* With a mesh: data and tensor ranks, DDP over the former, norms over both; beside the whole, alone. */
static int trains(tutti_group *group, void *arg)
{
    tutti_mesh_dimension dimensions[] = {{.name = "data", .size = 2},
                                         {.name = "tensor", .size = 2}};
    float loss, expected, norm, whole_norm;
    tutti_ctx *cx, *other; /* DDP listens to the first */
    tutti_mesh *mesh;
    tutti_ddp *ddp;
    own m, whole;

    (void)arg;
    CHECK_OK(tutti_mesh_new(&mesh, group, dimensions, 2));
    CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK_OK(tutti_ctx_new(&other, test_device(), &(tutti_ctx_opts){.threads = 1}));
    tutti_module_init(&whole.base, other);
    own_init(&whole);
    tutti_module_init(&m.base, cx);
    CHECK_OK(tutti_parallelize(&m.base, tutti_mesh_group(mesh, "tensor"), own_plan, 2));
    own_init(&m);
    CHECK_OK(tutti_module_status(&m.base));
    CHECK(tutti_parameter_ranks(m.up.weight) == 2 && tutti_parameter_ranks(m.down.bias) == 1);
    CHECK(tutti_parameter_rank(m.down.weight) == tutti_mesh_rank(mesh, "tensor"));
    CHECK(m.up.weight->shape.d[0] == 4 - tutti_mesh_rank(mesh, "tensor"));
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, tutti_mesh_group(mesh, "data"), NULL));
    CHECK_0(own_step(&m, cx, &loss));
    CHECK_0(own_step(&whole, other, &expected));
    CHECK(fabsf(loss - expected) <= 1e-6f * expected);
    CHECK_OK(tutti_clip_grad_norm(&m.base, 1, &norm));
    CHECK_OK(tutti_clip_grad_norm(&whole.base, 1, &whole_norm));
    CHECK(fabsf(norm - whole_norm) <= 1e-6f * whole_norm);
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_module_destroy(&whole.base);
    tutti_mesh_free(mesh);
    tutti_ctx_free(cx);
    tutti_ctx_free(other);
    return 0;
}

static void a_program_divides_its_own_layers(void **state)
{
    (void)state;
    run(trains, NULL, 4);
}

/* ---- A rank that fails ------------------------------------------------------------------------------------------------ */

/* In forward, between two layers: all ranks of its tensor group and, through DDP, of the others get its cause, although
 * it does not leave. */
static int fails_alone(tutti_group *world, void *arg)
{
    tutti_mesh_dimension dimensions[] = {{.name = "data", .size = 2},
                                         {.name = "tensor", .size = 2}};
    static const float x[10] = {1, -2, 3, 0.5f, 2, 4, -1, 0, 1, 0.25f};
    const bool with_ddp = *(const bool *)arg;
    tutti_ddp *ddp = NULL;
    tutti_mesh *mesh;
    tutti_tensor *y;
    tutti_ctx *cx;
    float ignored;
    own m;

    CHECK_OK(tutti_mesh_new(&mesh, world, dimensions, 2));
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_group_set_timeout(tutti_mesh_group(mesh, dimensions[i].name), 20000));
    CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    tutti_module_init(&m.base, cx);
    CHECK_OK(tutti_parallelize(&m.base, tutti_mesh_group(mesh, "tensor"), own_plan, 2));
    own_init(&m);
    if (with_ddp)
        CHECK_OK(tutti_ddp_new(&ddp, &m.base, tutti_mesh_group(mesh, "data"), NULL));
    CHECK_0(own_step(&m, cx, &ignored));
    tutti_step_begin(cx, NULL);
    y = tutti_linear_forward(&m.up,
                             tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(2, 5), TUTTI_F32}));
    if (tutti_group_rank(world) == 3 || (!with_ddp && tutti_group_rank(world) == 1))
        y = tutti_reshape(y, TUTTI_SHAPE(1001));
    y = tutti_mean(tutti_linear_forward(&m.down, y));
    if (with_ddp)
        CHECK(tutti_backward(y) != TUTTI_OK);
    else
        CHECK(tutti_tensor_status(y) != TUTTI_OK);
    CHECK_TEXT(tutti_last_error(), "1001");
    tutti_step_end(cx);
    CHECK_OK(tutti_barrier(world, NULL)); /* nobody learns of it from a rank that leaves */
    tutti_ddp_free(ddp);
    tutti_module_destroy(&m.base);
    tutti_mesh_free(mesh);
    tutti_ctx_free(cx);
    return 0;
}

static void a_rank_that_fails(void **state)
{
    (void)state;
    for (int with_ddp = 0; with_ddp < 2; with_ddp++)
        run(fails_alone, &(bool){with_ddp != 0}, 4);
}

/* ---- What is refused -------------------------------------------------------------------------------------------------- */

static int refuses_plan(tutti_ctx *cx, tutti_group *group, const tutti_parallel_rule *rules,
                        size_t n, const char *why)
{
    tutti_module root;
    tutti_linear a;

    tutti_module_init(&root, cx);
    if (tutti_parallelize(&root, group, rules, n) == TUTTI_OK)
        tutti_linear_init(&a, &root, "a", 4, 2);
    CHECK(!tutti_module_status(&root) ||
          tutti_status_scope(tutti_module_status(&root)) == TUTTI_SCOPE_CALL);
    CHECK_TEXT(tutti_last_error(), why);
    tutti_module_destroy(&root);
    return 0;
}

static int refuses(tutti_group *group, void *arg)
{
    const tutti_parallel_rule nameless = {.how = TUTTI_PARALLEL_ROWS}, undecided = {.name = "a"},
                              parts = {.name = "a", .how = TUTTI_PARALLEL_ROWS, .parts = 3},
                              thin = {.name = "a", .how = TUTTI_PARALLEL_COLUMNS},
                              thirds = {.name = "a", .how = TUTTI_PARALLEL_COLUMNS, .parts = 3};
    const tutti_peers peers = tutti_group_peers(group);
    const tutti_model_opts opts = {
        .channels = 1, .height = 8, .width = 8, .classes = 10, .parallel = &peers};
    const subject heads = {.model = "gpt2", .heads = 4, .hidden = 48},
                  kv = {.model = "llama", .heads = 6, .kv_heads = 2, .hidden = 48};
    tutti_model *model;
    tutti_ctx *cx;
    tutti_module root;
    tutti_linear a;

    (void)arg;
    CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK_0(refuses_plan(cx, group, &nameless, 1, "rule 0 names no layers"));
    CHECK_0(refuses_plan(cx, group, &undecided, 1, "rule \"a\" does not say how"));
    CHECK_0(refuses_plan(cx, group, &parts, 1, "rule \"a\" has 3 parts"));
    CHECK_0(refuses_plan(cx, group, &thin, 1,
                         "a.weight is [2,4]: its dimension 0 cannot be divided among 3 ranks"));
    CHECK_0(refuses_plan(cx, group, &thirds, 1,
                         "a.weight is [2,4], whose dimension 0 does not have 3 equal parts"));
    tutti_module_init(&root, cx);
    tutti_linear_init(&a, &root, "a", 6, 6);
    CHECK(tutti_parallelize(&root, group, &thin, 1) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "the module has parameters already");
    tutti_module_destroy(&root);
    CHECK(tutti_model_new(&model, cx, "mlp", &opts) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "model mlp has no plan");
    CHECK_TEXT(tutti_last_error(), "vit, vit_b_16, gpt2");
    for (int i = 0; i < 2; i++) {
        const subject *s = i ? &kv : &heads;
        const tutti_llama_opts llama = {.kv_heads = s->kv_heads};
        tutti_model_opts o = {.channels = TOKENS,
                              .height = 1,
                              .width = 1,
                              .classes = VOCAB,
                              .hidden = s->hidden,
                              .heads = s->heads,
                              .context = TOKENS,
                              .llama = i ? &llama : NULL,
                              .parallel = &peers};

        CHECK(tutti_model_new(&model, cx, s->model, &o) == TUTTI_ERR_ARG);
        CHECK_TEXT(tutti_last_error(),
                   i ? "kv_heads: llama: a layer has 2" : "heads: gpt2: a layer has 4");
    }
    tutti_ctx_free(cx);
    return 0;
}

static void what_cannot_be_divided_is_refused_by_name(void **state)
{
    (void)state;
    run(refuses, NULL, 3);
}

/* A model's own kind, one of whose rules names nothing. */
static void init_kind(tutti_module *m, const tutti_model_opts *opts)
{
    (void)opts;
    own_init((own *)m);
}

static tutti_tensor *forward_kind(tutti_module *m, tutti_tensor *x)
{
    own *o = (own *)m;

    return tutti_linear_forward(&o->down, tutti_relu(tutti_linear_forward(&o->up, x)));
}

static int misses(tutti_group *group, void *arg)
{
    static const tutti_parallel_rule plan[] = {{.name = "up", .how = TUTTI_PARALLEL_COLUMNS},
                                               {.name = "layer.*", .how = TUTTI_PARALLEL_ROWS}};
    const tutti_model_kind kind = {.name = "own",
                                   .bytes = sizeof(own),
                                   .init = init_kind,
                                   .forward = forward_kind,
                                   .plan = plan,
                                   .n_plan = 2};
    const tutti_peers peers = tutti_group_peers(group);
    const tutti_model_opts opts = {
        .channels = 1, .height = 1, .width = 5, .classes = 3, .kind = &kind, .parallel = &peers};
    tutti_model *model;
    tutti_ctx *cx;

    (void)arg;
    CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    CHECK(tutti_model_new(&model, cx, "own", &opts) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "rule \"layer.*\" names no parameter of this model");
    tutti_ctx_free(cx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_divided_model_computes_what_the_whole_does),
        cmocka_unit_test(in_parts_the_bits_do_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(a_program_divides_its_own_layers),
        cmocka_unit_test(a_rank_that_fails),
        cmocka_unit_test(what_cannot_be_divided_is_refused_by_name),
        TEST(run_two, misses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
