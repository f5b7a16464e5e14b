/* Options structs of the whole library: each ends with reserved words, and a call with a non-zero one is rejected, as from a
 * newer program. The public headers are parsed, so that a new struct cannot be forgotten.
 * SPDX-License-Identifier: MIT */
#include "base/base.h"
#include <tutti/tutti.h>

#include <float.h>
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct world {
    tutti_ctx *cx;
    tutti_group *group;
    tutti_dataset *data;
    tutti_module root;
    tutti_linear fc;
    tutti_batch_norm2d norm;
    tutti_ddp *ddp;
} world;
static world w;

static int set_up(void **state)
{
    tutti_store *store;

    (void)state;
    TUTTI_TRY(tutti_store_memory_new(&store));
    TUTTI_TRY(tutti_group_init(&w.group, &(tutti_group_opts){.store = store, .world_size = 1}));
    tutti_store_free(store);
    TUTTI_TRY(tutti_ctx_new(&w.cx, (tutti_device){TUTTI_CPU, 0}, NULL));
    TUTTI_TRY(tutti_dataset_open(&w.data, "digits:train"));
    tutti_module_init(&w.root, w.cx);
    tutti_linear_init(&w.fc, &w.root, "fc", 3, 2);
    tutti_batch_norm2d_init(&w.norm, &w.root, "norm", 2);
    return tutti_ddp_new(&w.ddp, &w.root, w.group, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    tutti_ddp_free(w.ddp);
    tutti_module_destroy(&w.root);
    tutti_dataset_free(w.data);
    tutti_ctx_free(w.cx);
    tutti_group_free(w.group);
    return 0;
}

/* ---- Each struct, with its last reserved word set --------------------------------------------------------------- */

/* ROW(type, call that must be ARG, given `o`) */
static void add_nothing(void *self, tutti_array output, tutti_array target, double *sums)
{
    (void)self, (void)output, (void)target, (void)sums;
}

static tutti_status make_metric(const tutti_metric *o)
{
    tutti_metric list[2] = {*o};
    tutti_trainer *trainer;

    list[0].name = "m";
    list[0].add = add_nothing;
    return tutti_trainer_new(&trainer, 0, NULL, &(tutti_trainer_opts){.metrics = list});
}

#define ROW(type, call)                                                                            \
    static tutti_status with_##type(const tutti_##type *o)                                         \
    {                                                                                              \
        return call;                                                                               \
    }
static tutti_optim *optim;
static tutti_ema *ema;
static tutti_model *model;
static tutti_scaler *scaler;
static tutti_dataset *dataset;
static tutti_trainer *trainer;
static tutti_loader *loader;
static tutti_reducer *reducer;
static tutti_comm_hook hook;
static tutti_join *join;
static tutti_group *group;
static tutti_elastic *elastic;
static tutti_ddp *ddp;
static tutti_ctx *cx;
static double error;
static size_t indices[1];
static const float x[4] = {1, 2, 3, 4};
static const int64_t labels[1] = {0};

/* A step with one tensor, an image or logits, and its status. */
static tutti_status with_input(tutti_tensor *(*operation)(tutti_tensor *t, const void *o),
                               tutti_shape shape, const void *o)
{
    tutti_status status;

    tutti_step_begin(w.cx, NULL);
    status =
        tutti_tensor_status(operation(tutti_input(w.cx, (tutti_array){x, shape, TUTTI_F32}), o));
    tutti_step_end(w.cx);
    return status;
}

static tutti_tensor *pool(tutti_tensor *t, const void *o)
{
    return tutti_max_pool2d(t, *(const tutti_pool_opts *)o);
}

static tutti_tensor *convolve(tutti_tensor *t, const void *o)
{
    return tutti_functional_conv2d(t, t, NULL, *(const tutti_conv2d_opts *)o);
}

static void nothing(const tutti_op_args *p)
{
    (void)p;
}

/* With the name and function that it must have; the rest as given. */
static tutti_tensor *own(tutti_tensor *t, const void *o)
{
    tutti_op op = *(const tutti_op *)o;

    op.name = "own";
    op.forward = nothing;
    op.elementwise = true;
    return tutti_op_run(&op, &t, 1, NULL, 0);
}

static tutti_tensor *run_own(tutti_tensor *const *src, void *arg)
{
    return own(src[0], arg);
}

static tutti_tensor *unfold(tutti_tensor *t, const void *o)
{
    return tutti_unfold(t, *(const tutti_unfold_opts *)o);
}

static tutti_tensor *look_up(tutti_tensor *t, const void *o)
{
    return tutti_functional_embedding_with(t, t, o);
}

static tutti_tensor *multiply(tutti_tensor *t, const void *o)
{
    return tutti_matmul_with(t, t, o);
}

static tutti_tensor *attend(tutti_tensor *t, const void *o)
{
    return tutti_scaled_dot_product_attention(t, t, t, o);
}

static tutti_tensor *rotate(tutti_tensor *t, const void *o)
{
    return tutti_rope(t, 1, o);
}

static tutti_tensor *transpose(tutti_tensor *t, const void *o)
{
    return tutti_functional_conv_transpose2d(t, t, NULL, *(const tutti_conv_transpose_opts *)o);
}

static tutti_tensor *resize(tutti_tensor *t, const void *o)
{
    return tutti_interpolate(t, *(const tutti_interpolate_opts *)o);
}

static tutti_tensor *entropy(tutti_tensor *t, const void *o)
{
    tutti_array y = {labels, TUTTI_SHAPE(1), TUTTI_I64};

    return tutti_cross_entropy_with(t, tutti_input(w.cx, y), o);
}

static tutti_tensor *linear_entropy(tutti_tensor *t, const void *o)
{
    tutti_array y = {labels, TUTTI_SHAPE(1), TUTTI_I64};

    return tutti_linear_cross_entropy(t, t, NULL, tutti_input(w.cx, y), o);
}

/* LOSS(name, its call of t and t, given `o`) */
#define LOSS(name, call)                                                                           \
    static tutti_tensor *name(tutti_tensor *t, const void *o)                                      \
    {                                                                                              \
        return call;                                                                               \
    }
LOSS(nll, tutti_nll_loss(t, t, o))
LOSS(l1, tutti_l1_loss(t, t, o))
LOSS(smooth_l1, tutti_smooth_l1_loss(t, t, o))
LOSS(huber, tutti_huber_loss(t, t, o))
LOSS(divergence, tutti_kl_div(t, t, o))
LOSS(binary_entropy, tutti_binary_cross_entropy(t, t, o))
LOSS(poisson, tutti_poisson_nll_loss(t, t, o))
LOSS(gaussian, tutti_gaussian_nll_loss(t, t, t, o))
LOSS(hinge, tutti_hinge_embedding_loss(t, t, o))
LOSS(triplet, tutti_triplet_margin_loss(t, t, t, o))
#undef LOSS

static tutti_tensor *normalise(tutti_tensor *t, const void *o)
{
    return tutti_functional_batch_norm2d(t, o);
}

static tutti_tensor *recur(tutti_tensor *t, const void *o)
{
    return tutti_functional_lstm(t, o, NULL, NULL);
}

static tutti_status begin_step(const tutti_step_opts *o)
{
    tutti_status status;

    tutti_step_begin(w.cx, o);
    status = tutti_tensor_status(tutti_input(w.cx, (tutti_array){x, TUTTI_SHAPE(4), TUTTI_F32}));
    tutti_step_end(w.cx);
    return status;
}

static tutti_status keep_part(const tutti_elastic_part *o)
{
    tutti_status status = tutti_elastic_new(&elastic, &(tutti_elastic_opts){.shards = 1});

    if (status == TUTTI_OK)
        status = tutti_elastic_keep(elastic, o);
    tutti_elastic_free(elastic);
    return status;
}

/* A root module with this as its first error. */
static tutti_status init_conv2d(const tutti_conv2d_layer_opts *o)
{
    tutti_module root;
    tutti_conv2d conv;
    tutti_conv2d_layer_opts opts = *o;
    tutti_status status;

    opts.in = opts.out = opts.kernel = 1;
    tutti_module_init(&root, w.cx);
    tutti_conv2d_init(&conv, &root, "conv", &opts);
    status = tutti_module_status(&root);
    tutti_module_destroy(&root);
    return status;
}

static tutti_status init_linear(const tutti_linear_layer_opts *o)
{
    tutti_module root;
    tutti_linear linear;
    tutti_linear_layer_opts opts = *o;
    tutti_status status;

    opts.in = opts.out = 1;
    tutti_module_init(&root, w.cx);
    tutti_linear_init_with(&linear, &root, "linear", &opts);
    status = tutti_module_status(&root);
    tutti_module_destroy(&root);
    return status;
}

static tutti_status init_recurrent(const tutti_recurrent_layer_opts *o)
{
    tutti_module root;
    tutti_recurrent lstm;
    tutti_recurrent_layer_opts opts = *o;
    tutti_status status;

    opts.in = opts.hidden = 1;
    tutti_module_init(&root, w.cx);
    tutti_lstm_init(&lstm, &root, "lstm", &opts);
    status = tutti_module_status(&root);
    tutti_module_destroy(&root);
    return status;
}

static tutti_status set_peers(const tutti_peers *o)
{
    tutti_module root;
    tutti_status status;

    tutti_module_init(&root, w.cx);
    tutti_module_set_peers(&root, o);
    status = tutti_module_status(&root);
    tutti_module_destroy(&root);
    return status;
}

static tutti_status set_hook(const tutti_comm_hook *o)
{
    return tutti_comm_hook_bf16(&hook, o); /* as the one within */
}

static tutti_status save_position(const tutti_position *o)
{
    tutti_position position = *o;

    return tutti_checkpoint_save_with("/nowhere/ckpt", &w.root, NULL, NULL,
                                      &(tutti_checkpoint_opts){.position = &position});
}

static tutti_status set_state(const tutti_scaler_state *o)
{
    tutti_status status = tutti_scaler_new(&scaler, NULL);

    if (status == TUTTI_OK)
        status = tutti_scaler_state_set(scaler, o);
    tutti_scaler_free(scaler);
    return status;
}

static tutti_status make_mesh(const tutti_mesh_dimension *o)
{
    tutti_mesh_dimension all = *o;
    tutti_mesh *mesh;

    all.name = "data";
    return tutti_mesh_new(&mesh, w.group, &all, 1);
}

static tutti_status divide(const tutti_parallel_rule *o)
{
    tutti_parallel_rule rule = *o;
    tutti_module root;
    tutti_status status;

    rule.name = "fc";
    rule.how = TUTTI_PARALLEL_COLUMNS;
    tutti_module_init(&root, w.cx);
    status = tutti_parallelize(&root, w.group, &rule, 1);
    tutti_module_destroy(&root);
    return status;
}

static tutti_status make_store(const tutti_store_callbacks *o)
{
    tutti_store *store;

    return tutti_store_custom_new(&store, o, NULL);
}

static tutti_status add_group(const tutti_optim_group_opts *o)
{
    tutti_tensor *bias = w.fc.bias;
    tutti_status status = tutti_sgd_new(&optim, &w.root, &(tutti_sgd_opts){.lr = 0.1f});

    if (status == TUTTI_OK)
        status = tutti_optim_add_group(optim, &bias, 1, o);
    tutti_optim_free(optim);
    return status;
}

static tutti_status rate(const tutti_schedule *o)
{
    return isnan(tutti_schedule_lr(o, 0)) ? TUTTI_ERR_ARG : TUTTI_OK;
}

static tutti_status augment(const tutti_augment_opts *o)
{
    return tutti_loader_new(&loader, w.data, NULL,
                            &(tutti_loader_opts){.batch = 2, .augmentation = o});
}

static tutti_status sample(const tutti_sampler_opts *o)
{
    return tutti_sampler_length(o) == 0 ? tutti_sampler_indices(o, 0, indices) : TUTTI_OK;
}

static tutti_status open_own(const tutti_dataset_format *o)
{
    return tutti_dataset_open_with(&dataset, "digits:train", &(tutti_dataset_opts){.format = o});
}

static tutti_status make_fields(const tutti_field *o)
{
    tutti_field fields[] = {*o, {.name = "y", .dtype = TUTTI_I64, .data = labels}};

    fields[0].name = "x";
    fields[0].shape = TUTTI_SHAPE(4);
    fields[0].data = x;
    return tutti_dataset_new(
        &dataset, &(tutti_samples){.count = 1, .classes = 1, .fields = fields, .n_fields = 2});
}

static tutti_status make_llama(const tutti_llama_opts *o)
{
    return tutti_model_new(
        &model, w.cx, "llama",
        &(tutti_model_opts){.channels = 1, .height = 1, .width = 1, .classes = 1, .llama = o});
}

static tutti_status make_own(const tutti_model_kind *o)
{
    return tutti_model_new(
        &model, w.cx, "mlp",
        &(tutti_model_opts){.channels = 1, .height = 1, .width = 1, .classes = 1, .kind = o});
}

static tutti_status read_table(const tutti_pipeline_times *times, uint64_t reserved)
{
    tutti_pipeline_table *table;
    tutti_status status = tutti_pipeline_table_new(&table, TUTTI_PIPELINE_1F1B, 1, 1, 1);

    if (status != TUTTI_OK)
        return status;
    table->reserved[1] = reserved;
    status = tutti_pipeline_table_check(table, times, NULL);
    tutti_pipeline_table_free(table);
    return status;
}

static tutti_status make_pipeline(const tutti_model_kind *kind, const tutti_pipeline_opts *o)
{
    const tutti_model_opts opts = {
        .channels = 1, .height = 1, .width = 1, .classes = 1, .kind = kind};
    tutti_pipeline *pipeline;

    return tutti_pipeline_new(&pipeline, w.cx, w.group, kind ? kind->name : "mlp", &opts, o);
}

static const tutti_model_block *newer_block;

static bool get_block(const tutti_model_opts *opts, int i, tutti_model_block *block)
{
    (void)opts;
    *block = *newer_block;
    return i == 0;
}

static void init_nothing(tutti_module *m, const tutti_model_opts *opts)
{
    (void)m, (void)opts;
}

static tutti_tensor *pass_on(tutti_module *m, tutti_tensor *y)
{
    (void)m;
    return y;
}

static tutti_status make_blocks(const tutti_model_block *o)
{
    static const tutti_model_kind kind = {.name = "own",
                                          .bytes = sizeof(tutti_module),
                                          .init = init_nothing,
                                          .forward = pass_on,
                                          .block = get_block};

    newer_block = o;
    return make_pipeline(&kind, NULL);
}

ROW(mesh_dimension, make_mesh(o))
ROW(pipeline_table, read_table(NULL, o->reserved[1]))
ROW(pipeline_times, read_table(o, 0))
ROW(pipeline_opts, make_pipeline(NULL, o))
ROW(pipeline_step, tutti_pipeline_run(NULL, o))
ROW(model_block, make_blocks(o))
ROW(parallel_rule, divide(o))
ROW(sgd_opts, tutti_sgd_new(&optim, &w.root, o))
ROW(adam_opts, tutti_adamw_new(&optim, &w.root, o))
ROW(rmsprop_opts, tutti_rmsprop_new(&optim, &w.root, o))
ROW(adagrad_opts, tutti_adagrad_new(&optim, &w.root, o))
ROW(lamb_opts, tutti_lamb_new(&optim, &w.root, o))
ROW(muon_opts, tutti_muon_new(&optim, &w.root, o))
ROW(optim_group_opts, add_group(o))
ROW(schedule, rate(o))
ROW(ema_opts, tutti_ema_new(&ema, &w.root, o))
ROW(conv2d_layer_opts, init_conv2d(o))
ROW(linear_layer_opts, init_linear(o))
ROW(recurrent_layer_opts, init_recurrent(o))
ROW(lora_opts, tutti_lora_apply(&w.root, o))
ROW(load_opts, tutti_module_load_with(&w.root, "nowhere", o, NULL, 0))
ROW(checkpoint_opts, tutti_checkpoint_save_with("/nowhere/ckpt", &w.root, NULL, NULL, o))
ROW(position, save_position(o))
ROW(model_opts, tutti_model_new(&model, w.cx, "mlp", o))
ROW(llama_opts, make_llama(o))
ROW(scaler_opts, tutti_scaler_new(&scaler, o))
ROW(scaler_state, set_state(o))
ROW(sampler_opts, sample(o))
ROW(dataset_opts, tutti_dataset_open_with(&dataset, "digits:train", o))
ROW(dataset_format, open_own(o))
ROW(text_opts,
    tutti_dataset_open_with(&dataset, "shakespeare:train", &(tutti_dataset_opts){.text = o}))
ROW(table_opts,
    tutti_dataset_open_with(&dataset, "digits:train", &(tutti_dataset_opts){.table = o}))
ROW(field, make_fields(o))
ROW(model_kind, make_own(o))
ROW(loader_opts, tutti_loader_new(&loader, w.data, NULL, o))
ROW(augment_opts, augment(o))
ROW(ctx_opts, tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, o))
ROW(step_opts, begin_step(o))
ROW(pool_opts, with_input(pool, TUTTI_SHAPE(1, 1, 2, 2), o))
ROW(conv2d_opts, with_input(convolve, TUTTI_SHAPE(1, 1, 2, 2), o))
ROW(unfold_opts, with_input(unfold, TUTTI_SHAPE(1, 2, 2), o))
ROW(embedding_opts, with_input(look_up, TUTTI_SHAPE(2, 2), o))
ROW(matmul_opts, with_input(multiply, TUTTI_SHAPE(2, 2), o))
ROW(attention_opts, with_input(attend, TUTTI_SHAPE(2, 2), o))
ROW(rope_opts, with_input(rotate, TUTTI_SHAPE(1, 2, 2), o))
ROW(conv_transpose_opts, with_input(transpose, TUTTI_SHAPE(1, 1, 2, 2), o))
ROW(interpolate_opts, with_input(resize, TUTTI_SHAPE(1, 1, 2, 2), o))
ROW(cross_entropy_opts, with_input(entropy, TUTTI_SHAPE(1, 4), o))
ROW(linear_cross_entropy_opts, with_input(linear_entropy, TUTTI_SHAPE(1, 4), o))
ROW(nll_loss_opts, with_input(nll, TUTTI_SHAPE(1, 4), o))
ROW(loss_opts, with_input(l1, TUTTI_SHAPE(1, 4), o))
ROW(smooth_l1_loss_opts, with_input(smooth_l1, TUTTI_SHAPE(1, 4), o))
ROW(huber_loss_opts, with_input(huber, TUTTI_SHAPE(1, 4), o))
ROW(kl_div_opts, with_input(divergence, TUTTI_SHAPE(1, 4), o))
ROW(binary_cross_entropy_opts, with_input(binary_entropy, TUTTI_SHAPE(1, 4), o))
ROW(poisson_nll_loss_opts, with_input(poisson, TUTTI_SHAPE(1, 4), o))
ROW(gaussian_nll_loss_opts, with_input(gaussian, TUTTI_SHAPE(1, 4), o))
ROW(margin_loss_opts, with_input(hinge, TUTTI_SHAPE(1, 4), o))
ROW(triplet_margin_loss_opts, with_input(triplet, TUTTI_SHAPE(1, 4), o))
ROW(batch_norm2d_args, with_input(normalise, TUTTI_SHAPE(1, 1, 2, 2), o))
ROW(recurrent_args, with_input(recur, TUTTI_SHAPE(1, 1, 4), o))
ROW(peers, set_peers(o))
ROW(backward_listener, tutti_ctx_set_backward_listener(w.cx, o))
ROW(op, with_input(own, TUTTI_SHAPE(1, 4), o))
ROW(op_check_opts,
    tutti_op_check(run_own, NULL, &(tutti_array){x, TUTTI_SHAPE(1), TUTTI_F32}, 0, o))
ROW(gradient_check_opts, tutti_gradient_check(w.cx, NULL, NULL, NULL, 0, o, &error))
ROW(reducer_parameter, tutti_reducer_new(&reducer, w.group, o, 1, NULL))
ROW(reducer_opts, tutti_reducer_new(&reducer, w.group, NULL, 0, o))
ROW(comm_hook, set_hook(o))
ROW(powersgd_opts, tutti_comm_hook_powersgd(&hook, o))
ROW(ddp_opts, tutti_ddp_new(&ddp, &w.root, w.group, o))
ROW(join_opts, tutti_join_begin(&join, &w.ddp, 1, o))
ROW(group_opts, tutti_group_init(&group, o))
ROW(call, tutti_group_call(w.group, o, NULL))
ROW(store_callbacks, make_store(o))
ROW(elastic_opts, tutti_elastic_new(&elastic, o))
ROW(elastic_part, keep_part(o))
ROW(samples, tutti_dataset_new(&dataset, o))
ROW(trainer_hooks, tutti_trainer_new(&trainer, 0, NULL, &(tutti_trainer_opts){.hooks = o}))
ROW(trainer_opts, tutti_trainer_new(&trainer, 0, NULL, o))
ROW(metric, make_metric(o))
#undef ROW

/* clang-format off */
#define ROWS(ROW) \
    ROW(mesh_dimension) \
    ROW(pipeline_table) \
    ROW(pipeline_times) \
    ROW(pipeline_opts) \
    ROW(pipeline_step) \
    ROW(model_block) \
    ROW(parallel_rule) \
    ROW(sgd_opts) \
    ROW(adam_opts) \
    ROW(rmsprop_opts) \
    ROW(adagrad_opts) \
    ROW(lamb_opts) \
    ROW(muon_opts) \
    ROW(optim_group_opts) \
    ROW(schedule) \
    ROW(ema_opts) \
    ROW(conv2d_layer_opts) \
    ROW(linear_layer_opts) \
    ROW(recurrent_layer_opts) \
    ROW(lora_opts) \
    ROW(load_opts) \
    ROW(checkpoint_opts) \
    ROW(position) \
    ROW(model_opts) \
    ROW(llama_opts) \
    ROW(scaler_opts) \
    ROW(scaler_state) \
    ROW(sampler_opts) \
    ROW(dataset_opts) \
    ROW(dataset_format) \
    ROW(table_opts) \
    ROW(text_opts) \
    ROW(field) \
    ROW(model_kind) \
    ROW(loader_opts) \
    ROW(augment_opts) \
    ROW(ctx_opts) \
    ROW(step_opts) \
    ROW(pool_opts) \
    ROW(conv2d_opts) \
    ROW(unfold_opts) \
    ROW(embedding_opts) \
    ROW(matmul_opts) \
    ROW(attention_opts) \
    ROW(rope_opts) \
    ROW(conv_transpose_opts) \
    ROW(interpolate_opts) \
    ROW(cross_entropy_opts) \
    ROW(linear_cross_entropy_opts) \
    ROW(nll_loss_opts) \
    ROW(loss_opts) \
    ROW(smooth_l1_loss_opts) \
    ROW(huber_loss_opts) \
    ROW(kl_div_opts) \
    ROW(binary_cross_entropy_opts) \
    ROW(poisson_nll_loss_opts) \
    ROW(gaussian_nll_loss_opts) \
    ROW(margin_loss_opts) \
    ROW(triplet_margin_loss_opts) \
    ROW(batch_norm2d_args) \
    ROW(recurrent_args) \
    ROW(peers) \
    ROW(backward_listener) \
    ROW(op) \
    ROW(op_check_opts) \
    ROW(gradient_check_opts) \
    ROW(reducer_parameter) \
    ROW(reducer_opts) \
    ROW(comm_hook) \
    ROW(powersgd_opts) \
    ROW(ddp_opts) \
    ROW(join_opts) \
    ROW(group_opts) \
    ROW(call) \
    ROW(store_callbacks) \
    ROW(elastic_opts) \
    ROW(elastic_part) \
    ROW(samples) \
    ROW(trainer_hooks) \
    ROW(trainer_opts) \
    ROW(metric)
/* clang-format on */

#define CHECK_ROW(type)                                                                            \
    static void type##_of_a_newer_program_are_refused(void **state)                                \
    {                                                                                              \
        tutti_##type o = {0};                                                                      \
                                                                                                   \
        (void)state;                                                                               \
        o.reserved[TUTTI__COUNT_OF(o.reserved) - 1] = 1;                                           \
        assert_int_equal(with_##type(&o), TUTTI_ERR_ARG);                                          \
        if (!strstr(tutti_last_error(), "tutti_" #type ": ") ||                                    \
            !strstr(tutti_last_error(), "newer Tutti"))                                            \
            fail_msg("\"%s\"", tutti_last_error());                                                \
    }
ROWS(CHECK_ROW)

/* ---- The headers ----------------------------------------------------------------------------------------------- */

/* Only filled in by the library, which does not read them. */
#define RESULTS                                                                                    \
    "bucket bucket_gradient bucket_info ddp_stats elastic_stats dataset_info dataset_source "      \
    "batch sample ctx_memory op_args pipeline_facts "                                              \
    "module trainer_step trainer_eval trainer_update trainer_result zero_stats "

static bool is_listed(const char *type)
{
    char word[64];

#define NAME(type) #type " "
    snprintf(word, sizeof word, " %.60s ", type);
    return strstr(" " ROWS(NAME) RESULTS, word) != NULL;
#undef NAME
}

/* A struct whose name says options ends with reserved words; one that does has a row above. */
static void check_header(const char *path)
{
    char line[256], before[256] = "", type[64];
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        /* fields that came later took some */
        bool reserved = strstr(before, "uint64_t reserved[") != NULL;

        if (sscanf(line, "} tutti_%63[a-z0-9_];", type) == 1) {
            const char *suffix = strrchr(type, '_');

            if (!reserved && suffix &&
                (strcmp(suffix, "_opts") == 0 || strcmp(suffix, "_args") == 0))
                fail_msg("%s: tutti_%s has no reserved words at its end", path, type);
            if (reserved && !is_listed(type))
                fail_msg("%s: tutti_%s has no row in this test", path, type);
        }
        memcpy(before, line, sizeof before);
    }
    fclose(file);
}

static void no_options_struct_is_forgotten(void **state)
{
    const char *source = getenv("SOURCE_DIR");
    char pattern[4096];
    glob_t files;

    (void)state;
    snprintf(pattern, sizeof pattern, "%s/include/tutti/*.h", source ? source : ".");
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        check_header(files.gl_pathv[i]);
    assert_true(files.gl_pathc >= 12);
    globfree(&files);
}

/* ---- Zero ------------------------------------------------------------------------------------------------------ */

static void zero_can_be_said(void **state)
{
    const float zero = TUTTI_ZERO;
    const double wide = TUTTI_ZERO;

    (void)state;
    /* negligible where it is not decoded */
    assert_true(zero == FLT_MIN && zero + 1e-30f == 1e-30f);
    assert_true(tutti__or(0, 3) == 3);
    assert_true(tutti__or(2, 3) == 2 && tutti__or(-2, 3) == -2);
    assert_true(isnan(tutti__or(NAN, 3)));
    assert_true(tutti__or(wide, 3) == 0 && tutti__or(-0.0, 3) == 3);
    assert_true(tutti__or((double)zero, 3) == 0);
}

int main(void)
{
#define TEST(type) cmocka_unit_test(type##_of_a_newer_program_are_refused),
    const struct CMUnitTest tests[] = {ROWS(TEST) cmocka_unit_test(no_options_struct_is_forgotten),
                                       cmocka_unit_test(zero_can_be_said)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
