/* open_session.c -- opens a session from its configuration, and frees it.   SPDX-License-Identifier: MIT
 *
 * Local work (files, data, memory) comes first, followed by an agreement, so that a missing folder gives one message and
 * not a hung group; collective work (DDP) comes after it. */
#include "train/session/session.h"

#include "comm/comm.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "device/planned/planned.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/machine/pin.h"
#include "train/config/agreement.h"
#include "train/config/config_language.h"
#include "train/session/amp.h"
#include "train/session/views.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "digits:train", "cifar10:DIR/test" */
static tutti_status open_split(tutti__session *s, const char *split, tutti_dataset **opened_p,
                               const tutti_dataset **dataset_p)
{
    const tutti__train_config *c = s->config;
    const tutti_table_opts table = {.target = c->target,
                                    .features = c->features,
                                    .task = tutti__task_of_table(c),
                                    .raw = !c->standardize,
                                    .test_fraction =
                                        c->test_fraction > 0 ? c->test_fraction : TUTTI_ZERO};
    const tutti_text_opts text = {.context = (int)c->context,
                                  .vocab = (int)c->vocab,
                                  .tokenizer = c->tokenizer[0] ? c->tokenizer : NULL};
    const tutti_dataset_opts opts = {.image_size = (int)c->image_size,
                                     .format = s->parts->format,
                                     .table = &table,
                                     .text = &text,
                                     .fit = s->data.fit};
    char spec[2 * TUTTI__CONFIG_TEXT + 64];

    snprintf(spec, sizeof spec, "%s:%s%s%s", c->data, c->data_dir, c->data_dir[0] ? "/" : "",
             split);
    TUTTI_TRY(tutti_dataset_open_with(opened_p, spec, &opts));
    *dataset_p = *opened_p;
    return TUTTI_OK;
}

static tutti_loader_opts loader_opts(const tutti__session *s, const tutti_dataset *data)
{
    const int channels = s->parts->model->channels;
    const tutti__train_config *c = s->config;

    return (tutti_loader_opts){.batch = (int)c->batch_size,
                               .shards = s->shards,
                               .workers = (int)c->workers,
                               .prefetch = (int)c->prefetch,
                               .seed = (uint64_t)c->seed,
                               .channels = tutti__dataset_has_images(data) ? channels : 0};
}

/* By the key eval_samples. */
static tutti_status take_part(tutti__session *s)
{
    const size_t n = (size_t)s->config->eval_samples;

    if (n == 0 || n >= tutti_dataset_describe(s->data.test).count)
        return TUTTI_OK;
    if (!s->data.opened[1])
        return tutti__fail(TUTTI_ERR_ARG,
                           "eval_samples: this program brings its test data; give it "
                           "as many as it is to evaluate, and leave eval_samples out");
    tutti__dataset_take_part(s->data.opened[1], n);
    return TUTTI_OK;
}

tutti_status tutti__session_open_test(tutti__session *s, const char *split)
{
    const tutti_trainer_opts *own = &s->parts->own;
    tutti_loader_opts opts;

    if (!s->data.test) {
        s->data.test = strcmp(split, "train") == 0 ? own->train : own->test;
        if (!own->train)
            TUTTI_TRY(open_split(s, split, &s->data.opened[1], &s->data.test));
    }
    if (!s->data.test)
        return TUTTI_OK;
    TUTTI_TRY(take_part(s));
    opts = loader_opts(s, s->data.test);
    opts.no_padding = true;
    opts.augmentation = &(tutti_augment_opts){.own = own->augment, .self = own->self};
    return tutti_loader_new(&s->data.test_loader, s->data.test, tutti__session_data_group(s),
                            &opts);
}

static bool same_fields(const tutti_dataset_info *a, const tutti_dataset_info *b)
{
    for (int i = 0; i < a->n_fields && i < b->n_fields; i++)
        if (!tutti_shape_equal(a->fields[i].shape, b->fields[i].shape) ||
            a->fields[i].dtype != b->fields[i].dtype)
            return false;
    return a->n_fields == b->n_fields;
}

static tutti_status check_alike(const tutti__session *s)
{
    const tutti_dataset *train = s->data.train, *test = s->data.test;
    const tutti_dataset_info a = tutti_dataset_describe(train), b = tutti_dataset_describe(test);
    char train_text[64], test_text[64];

    if (a.channels == b.channels && a.height == b.height && a.width == b.width &&
        a.classes == b.classes && a.targets == b.targets && a.dtype == b.dtype &&
        same_fields(&a, &b))
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "data: the training data are %s (%s) with %d %s, the test data %s (%s) with %d %s; both "
        "must be alike%s",
        tutti__dataset_text(train, 0, train_text), tutti_dtype_name(a.dtype), a.classes + a.targets,
        a.targets ? "targets" : "classes", tutti__dataset_text(test, 0, test_text),
        tutti_dtype_name(b.dtype), b.classes + b.targets, b.targets ? "targets" : "classes",
        a.classes == b.classes && s->parts->format && s->parts->format->read_random
            ? " (--image-size N makes all N x N)"
            : "");
}

static size_t describe_split(char *text, size_t size, const tutti_dataset *data, const char *split)
{
    tutti_dataset_info info;
    const char *fit;
    char samples[64];
    int n;

    if (!data)
        return (size_t)snprintf(text, size, "no %s data", split);
    info = tutti_dataset_describe(data);
    fit = tutti_dataset_fitted(data);
    n = snprintf(text, size, "%zu %s %s", info.count, split,
                 tutti__dataset_text(data, info.count, samples));
    if (info.classes > 0)
        n += snprintf(text + n, size - (size_t)n, " in %d classes", info.classes);
    if (fit)
        n += snprintf(text + n, size - (size_t)n, ", columns, scale, tokenizer or text %08" PRIx32,
                      (uint32_t)tutti__hash64(fit, strlen(fit)));
    return (size_t)n;
}

/* With data of unequal size samples would be silently skipped, or ranks would take different numbers of steps. */
tutti_status tutti__session_same_data(const tutti__session *s)
{
    enum { SIZE = 512 };
    char here[SIZE] = "", there[SIZE];
    size_t n = 0;

    if (s->data.train) {
        n = describe_split(here, sizeof here, s->data.train, "training");
        n += (size_t)snprintf(here + n, sizeof here - n, ", ");
    }
    describe_split(here + n, sizeof here - n, s->data.test, "test");
    memcpy(there, here, sizeof there);
    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(there, sizeof there, TUTTI_U8), 0, NULL));
    there[sizeof there - 1] = '\0';
    if (strcmp(here, there) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_MISMATCH,
                       "data: this rank has %s, and rank 0 has %s; give all ranks the same data; "
                       "each uses its share",
                       here, there);
}

static tutti_augment_opts augment_opts(const tutti__session *s)
{
    const tutti__train_config *c = s->config;
    const char *const flips[] = {"auto", "off", "random", "alternate"};
    double strength[4];
    int flip = 0;

    while (strcmp(c->flip, flips[flip]) != 0)
        flip++;
    tutti__config_color_jitter(c, strength); /* valid: checked with the other keys */
    return (tutti_augment_opts){.own = s->parts->own.augment,
                                .self = s->parts->own.self,
                                .train = true,
                                .brightness = (float)strength[0],
                                .contrast = (float)strength[1],
                                .saturation = (float)strength[2],
                                .hue = (float)strength[3],
                                .random_erasing = (float)c->random_erasing,
                                .mixup = (float)c->mixup,
                                .cutmix = (float)c->cutmix,
                                .flip = (tutti_flip_mode)flip,
                                .crop_padding = c->crop_padding < 0    ? 0
                                                : c->crop_padding == 0 ? -1
                                                                       : (int)c->crop_padding,
                                .padding_mode = strcmp(c->padding_mode, "reflect") == 0
                                                    ? TUTTI_PAD_REFLECT
                                                    : TUTTI_PAD_CONSTANT};
}

tutti_status tutti__session_open_data(tutti__session *s)
{
    const tutti__train_config *c = s->config;
    const tutti_augment_opts augmentation = augment_opts(s);
    tutti_loader_opts opts;

    if (s->data.train_loader)
        return TUTTI_OK;
    if (!s->data.train)
        s->data.train = s->parts->own.train;
    if (!s->data.train)
        TUTTI_TRY(open_split(s, "train", &s->data.opened[0], &s->data.train));
    s->data.fit = tutti_dataset_fitted(s->data.train);
    if (c->eval_every > 0 || c->eval_steps > 0)
        TUTTI_TRY(tutti__session_open_test(s, "test"));
    if (s->data.test)
        TUTTI_TRY(check_alike(s));
    opts = loader_opts(s, s->data.train);
    opts.shuffle = true;
    opts.augment = c->augment;
    opts.augmentation = &augmentation;
    return tutti_loader_new(&s->data.train_loader, s->data.train, tutti__session_data_group(s),
                            &opts);
}

/* Threads of kernels: as asked, else this rank's share of the cores that it may use. */
static int threads_of(const tutti__session *s)
{
    int share = tutti__cores() / s->cores.n;

    if (s->config->threads > 0)
        return (int)s->config->threads;
    if (strcmp(tutti__env_text(TUTTI__ENV_THREADS), "0") != 0)
        return 0;
    return share > 0 ? share : 1;
}

/* Binds this rank's threads to its share of the cores; after that share was determined. */
static tutti_status pin(const tutti__session *s)
{
    const char *text = tutti__env_text(TUTTI__ENV_PIN);

    if (strcmp(text, "off") == 0 || tutti__session_is_planned(s))
        return TUTTI_OK;
    if (strcmp(text, "auto") != 0)
        return tutti__fail(TUTTI_ERR_ARG, "TUTTI_PIN is \"%s\", expected auto or off", text);
    if (tutti__cpu_pin(s->cores.index, s->cores.n))
        tutti_log(TUTTI_LOG_DEBUG, "train", "bound to this rank's share of the cores");
    return TUTTI_OK;
}

/* If there is a driver, and GPUs are not hidden, running on the CPU is probably not intended. */
static void warn_of_idle_gpu(const tutti__session *s)
{
    const tutti__device_ops *ops;
    tutti_status status;

    if (s->local_rank != 0 || getenv("CUDA_VISIBLE_DEVICES") || access("/dev/nvidiactl", F_OK) != 0)
        return;
    status = tutti__device_ops_of(TUTTI_CUDA, &ops);
    if (status == TUTTI_OK)
        status = ops->why();
    if (status != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "train",
                  "device auto uses the CPU, although NVIDIA's kernel driver is here "
                  "(/dev/nvidiactl): %s",
                  tutti_last_error());
}

/* A missing device is an error as a failed one: exit code 4. */
static tutti_status find_device(const tutti__session *s, tutti_device *device_p)
{
    tutti_status status;

    *device_p = (tutti_device){TUTTI__PLANNED, 0};
    if (tutti__session_is_planned(s))
        return TUTTI_OK;
    status = tutti_device_parse(device_p, s->config->device, s->local_rank);
    if (status == TUTTI_OK && device_p->kind == TUTTI_CPU && strcmp(s->config->device, "auto") == 0)
        warn_of_idle_gpu(s);
    return status == TUTTI_ERR_UNSUPPORTED ? tutti__fail(TUTTI_ERR_DEVICE, "%s", tutti_last_error())
                                           : status;
}

/* A program's own model may take anything. */
static tutti_status check_input(const tutti__session *s, const tutti_dataset *data)
{
    const tutti__train_config *c = s->config;
    const tutti_dataset_info info = tutti_dataset_describe(data);
    const bool tokens = tutti__dataset_has_tokens(data);
    const bool wanted = s->parts->model->sizes & TUTTI_MODEL_TOKENS;
    char text[64];

    if (!wanted && (c->vocab || (c->context && !tokens)))
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is not a language model; leave %s out",
                           c->vocab ? "vocab" : "context", c->model,
                           c->vocab ? "vocab" : "context");
    if (wanted && tokens && c->vocab && c->vocab < info.classes)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "vocab: it is %lld and data=%s have %d tokens; expected at least as many "
            "(0: the data's)",
            (long long)c->vocab, c->data, info.classes);
    if (tokens == wanted || (tokens && tutti__model_find(s->parts->model->name) != s->parts->model))
        return TUTTI_OK;
    if (!wanted)
        return tutti__fail(TUTTI_ERR_ARG,
                           "model: %s reads images or rows of numbers, and the samples of data=%s "
                           "are %s %s; use a language model (gpt2), or other data",
                           c->model, c->data, tutti_dtype_name(info.dtype),
                           tutti__dataset_text(data, 2, text));
    return tutti__fail(TUTTI_ERR_ARG,
                       "data: %s is a language model, which needs text, and the samples of data=%s "
                       "are %s %s; give --data text --data-dir FILE-OR-FOLDER, or --data tokens or "
                       "shakespeare, or use a model of such samples",
                       c->model, c->data, tutti_dtype_name(info.dtype),
                       tutti__dataset_text(data, 2, text));
}

static void divide_layers(tutti__session *s, tutti_model_opts *opts)
{
    s->tensor = s->config->tensor_parts > 0
                    ? tutti_group_peers_of_parts(tutti_mesh_group(s->mesh, "tensor"),
                                                 (int)s->config->tensor_parts)
                    : tutti_group_peers(tutti_mesh_group(s->mesh, "tensor"));
    opts->parallel = &s->tensor;
    opts->parallel_tokens = s->config->sequence_parallel;
}

tutti_status tutti__session_open_model(tutti__session *s)
{
    const tutti__train_config *c = s->config;
    const tutti_dataset *data = s->data.train ? s->data.train : s->data.test;
    const tutti_dataset_info info = tutti_dataset_describe(data);
    const tutti_model_kind *kind = s->parts->model;
    const int channels =
        kind->channels && tutti__dataset_has_images(data) ? kind->channels : info.channels;
    tutti_llama_opts llama;
    tutti_model_opts model_opts = tutti__config_model_opts(c, kind, &llama);
    tutti_ctx_opts ctx_opts = {.seed = (uint64_t)c->seed,
                               .threads = threads_of(s),
                               .nondeterministic = !c->deterministic,
                               .defers_parameters = c->zero == 3 && c->shards == 0};
    tutti_device device;

    TUTTI_TRY(check_input(s, data));
    TUTTI_TRY(tutti__task_find(&s->task, c, s->parts, data));
    TUTTI_TRY(tutti__views_check(s, data));
    model_opts.channels = channels;
    model_opts.height = info.height;
    model_opts.width = info.width;
    model_opts.classes = tutti__task_outputs(&s->task);
    TUTTI_TRY(find_device(s, &device));
    if (s->config->tensor_parts > 0 &&
        ((device.kind != TUTTI_CPU && !tutti__session_is_planned(s)) ||
         strcmp(s->config->device, "strict") == 0))
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "tensor_parts: sums of parts are made on the CPU only; use device=cpu or "
            "tensor_parts=0");
    if (tutti_mesh_size(s->mesh, "tensor") > 1 || (s->mesh && s->config->tensor_parts > 0))
        divide_layers(s, &model_opts);
    TUTTI_TRY(pin(s));
    TUTTI_TRY(tutti_ctx_new(&s->cx, device, &ctx_opts));
    TUTTI_TRY(tutti__loss_open(&s->loss, s->cx));
    if (s->data.train_loader)
        TUTTI_TRY(tutti__loader_copy_ahead(s->data.train_loader, s->cx));
    if (s->data.test_loader)
        TUTTI_TRY(tutti__loader_copy_ahead(s->data.test_loader, s->cx));
    TUTTI_TRY(tutti__amp_check(s->cx, s->config));
    TUTTI_TRY(tutti__session_check_offload(s));
    if (tutti_mesh_size(s->mesh, "pipeline") > 1)
        TUTTI_TRY(tutti__session_open_pipeline(s, &model_opts));
    else
        TUTTI_TRY(tutti_model_new(&s->model, s->cx, c->model, &model_opts));
    s->module = tutti_model_module(s->model);
    TUTTI_TRY(tutti_module_status(s->module));
    return tutti__config_adapt(c, s->module);
}

static tutti_status open_ema(tutti__session *s)
{
    const tutti_ema_opts opts = {.decay = (float)s->config->ema};

    return s->config->ema > 0 ? tutti_ema_new(&s->ema, s->module, &opts) : TUTTI_OK;
}

static tutti_status set_comm_hook(tutti__session *s, uint64_t warmup)
{
    const tutti__train_config *c = s->config;
    tutti_powersgd_opts powersgd = {
        .rank = (int)c->powersgd_rank, .start_step = c->powersgd_start, .seed = (uint64_t)c->seed};

    if (strcmp(c->comm_hook, "none") == 0 || c->zero > 0)
        return TUTTI_OK;
    if (powersgd.start_step == 0) /* gradients change fastest in the warm-up */
        powersgd.start_step = warmup < 2 ? 2 : warmup > 1000 ? 1000 : (int64_t)warmup;
    if (strcmp(c->comm_hook, "powersgd") == 0)
        TUTTI_TRY(tutti_comm_hook_powersgd(&s->hook, &powersgd));
    else if (strcmp(c->comm_hook, "fp16") == 0)
        TUTTI_TRY(tutti_comm_hook_fp16(&s->hook, NULL));
    else
        TUTTI_TRY(tutti_comm_hook_bf16(&s->hook, NULL));
    return tutti_ddp_set_hook(s->ddp, &s->hook);
}

tutti_status tutti__session_open_optimizer(tutti__session *s, uint64_t warmup_steps)
{
    TUTTI_TRY(set_comm_hook(s, warmup_steps));
    TUTTI_TRY(tutti__amp_open(s));
    TUTTI_TRY(tutti__session_new_optim(s));
    return open_ema(s);
}

/* grad_accumulation, from the tokens of a step. The configuration may be that of a run with another number of ranks. */
static tutti_status divide_tokens(tutti__session *s)
{
    const tutti_dataset_info info = tutti_dataset_describe(s->data.train);
    tutti__train_config *c = s->config;
    const int shares = tutti__session_shares(s);
    int64_t each, less;
    char lower[32] = "";

    if (c->tokens_per_step == 0)
        return TUTTI_OK;
    if (!tutti__dataset_has_tokens(s->data.train))
        return tutti__fail(TUTTI_ERR_ARG,
                           "tokens_per_step: the samples of data=%s are not tokens; use "
                           "grad_accumulation",
                           c->data);
    each = shares * c->batch_size * info.fields[0].shape.d[0];
    c->grad_accumulation = c->tokens_per_step / each;
    less = c->grad_accumulation * each;
    if (less == c->tokens_per_step)
        return TUTTI_OK;
    if (less > 0)
        snprintf(lower, sizeof lower, "%lld or ", (long long)less);
    return tutti__fail(TUTTI_ERR_ARG,
                       "tokens_per_step: %lld is no multiple of the %lld tokens of a batch of all "
                       "%s, %d x batch_size %lld x context %lld; use %s%lld",
                       (long long)c->tokens_per_step, (long long)each,
                       s->shards > 0 ? "shards" : "ranks", shares, (long long)c->batch_size,
                       (long long)info.fields[0].shape.d[0], lower, (long long)(less + each));
}

static bool trains(const tutti_module *m)
{
    const tutti_tensor *t;
    bool any = false;

    for (size_t i = 0; !any && (t = tutti_module_parameter(m, i)) != NULL; i++)
        any = t->parameter->requires_grad;
    return any;
}

tutti_status tutti__session_check_frozen(const tutti__session *s)
{
    int64_t any = trains(s->module);

    if (s->pipeline)
        TUTTI_TRY(tutti_all_reduce(tutti_mesh_group(s->mesh, "pipeline"),
                                   TUTTI_BUF(&any, 1, TUTTI_I64), TUTTI_MAX, NULL));
    return any ? TUTTI_OK
               : tutti__fail(
                     TUTTI_ERR_ARG,
                     "freeze=%s: that is every parameter of the model, and nothing would be "
                     "trained; expected patterns that leave some",
                     s->config->freeze);
}

tutti_status tutti__session_open_alone(tutti__session *s)
{
    TUTTI_TRY(tutti__session_open_data(s));
    TUTTI_TRY(divide_tokens(s));
    TUTTI_TRY(tutti__session_open_model(s));
    TUTTI_TRY(tutti__loss_weights_find(&s->loss_weights, &s->task, s->config, s->data.train));
    if (s->config->freeze[0]) {
        TUTTI_TRY(tutti_module_freeze(s->module, s->config->freeze));
        if (!s->pipeline)
            TUTTI_TRY(tutti__session_check_frozen(s));
    }
    /* of a part of a model the products are not known */
    tutti__text_figures_set(&s->text, &s->task, s->module,
                            strcmp(s->config->amp, "off") == 0 && !s->pipeline &&
                                !tutti__session_is_planned(s));
    return TUTTI_OK;
}

/* What comm_hook means with zero. */
static tutti_dtype reduce_dtype(const tutti__train_config *c)
{
    return strcmp(c->comm_hook, "bf16") == 0   ? TUTTI_BF16
           : strcmp(c->comm_hook, "fp16") == 0 ? TUTTI_F16
                                               : TUTTI_F32;
}

tutti_ddp_opts tutti__session_ddp_opts(const tutti__session *s)
{
    const tutti__train_config *c = s->config;

    return (tutti_ddp_opts){.bucket_mb = c->bucket_mb,
                            .first_bucket_mb = c->first_bucket_mb,
                            .find_unused = c->find_unused,
                            .static_graph = c->static_graph,
                            /* the scaler checks itself, and skips such steps */
                            .nonfinite = tutti__amp_dtype(s) == TUTTI_F16 || c->lr_find ||
                                                 tutti__session_is_planned(s)
                                             ? TUTTI_NONFINITE_IGNORE
                                             : TUTTI_NONFINITE_ERROR,
                            .shards = s->shards,
                            .zero = (int)c->zero,
                            .shard_copies = (int)c->shard_copies,
                            .zero_ranks = (int)c->zero_ranks,
                            .offload_parameters = strcmp(c->offload, "parameters") == 0,
                            .reduce_dtype = c->zero > 0 ? reduce_dtype(c) : TUTTI_F32,
                            .wire_bits = s->shards > 0 ? atoi(c->wire_bits) : 0};
}

tutti_status tutti__session_open_ddp(tutti__session *s)
{
    const tutti__train_config *c = s->config;
    tutti_ddp_opts opts = tutti__session_ddp_opts(s);
    tutti_group *group = tutti__session_data_group(s);

    if (s->pipeline && !trains(s->module)) { /* it has no state to divide */
        opts.zero = opts.zero_ranks = 0;
        opts.reduce_dtype = TUTTI_F32;
    }
    if (s->pipeline)
        TUTTI_TRY(tutti__session_agree_pipeline(s));
    if (c->sync_bn)
        tutti_convert_sync_batch_norm(s->module, group);
    TUTTI_TRY(tutti_ddp_new(&s->ddp, s->module, group, &opts));
    tutti_pipeline_set_ddp(s->pipeline, s->ddp);
    s->zero = tutti_ddp_zero(s->ddp);
    return TUTTI_OK;
}

tutti_group_opts tutti__session_group_opts(const tutti__session *s)
{
    /* Rounded up: 0 would mean the default. */
    tutti_group_opts opts = {.timeout_ms = (int)ceil(s->config->timeout_s * 1000)};

    /* Valid: config.def lists the names. */
    tutti__backend_parse(s->config->backend, &opts.backend);
    return opts;
}

/* `tutti run` gives all ranks the same environment: if it is refused, one rank of a host prints why. What only another rank has
 * to say, the launcher prints. */
static bool is_to_report(tutti_status status)
{
    const tutti__launcher launcher = tutti__launcher_find();

    return status != TUTTI_ERR_ARG || launcher.first_on_host ||
           strcmp(launcher.name, "tutti run") != 0;
}

tutti_status tutti__session_open_group(tutti__session *s)
{
    const tutti_group_opts opts = tutti__session_group_opts(s);
    const tutti_status status = tutti_group_init(&s->group, &opts);

    if (status != TUTTI_OK) {
        if (is_to_report(status))
            tutti__report_error(0, 1);
        return status;
    }
    s->rank = tutti_group_rank(s->group);
    s->size = tutti_group_size(s->group);
    s->local_rank = tutti_group_local_rank(s->group);
    s->config->world_size = s->size;
    return TUTTI_OK;
}

void tutti__session_close(tutti__session *s)
{
    /* Waits for it, because it writes to the session. Only a dead group leaves it in flight. */
    if (s->stop.work && tutti_work_wait(s->stop.work) != TUTTI_OK)
        s->stop.stopping = true;
    s->stop.work = NULL; /* which whoever leaves the group asks for too */
    tutti_loader_free(s->data.train_loader);
    tutti_loader_free(s->data.test_loader);
    tutti_dataset_free(s->data.opened[0]);
    tutti_dataset_free(s->data.opened[1]);
    tutti_scaler_free(s->scaler);
    tutti_ema_free(s->ema);
    tutti_optim_free(s->optim);
    if (s->elastic) /* it owns DDP and the group */
        tutti_elastic_free(s->elastic);
    else
        tutti_ddp_free(s->ddp);
    if (s->pipeline)
        tutti_pipeline_free(s->pipeline);
    else
        tutti_model_free(s->model);
    tutti__loss_close(&s->loss);
    tutti_ctx_free(s->cx);
    free(s->loss_weights.value);
    tutti_mesh_free(s->mesh);
    if (!s->elastic)
        tutti_group_free(s->group);
}

void tutti__session_outcome(const tutti__session *s, tutti_status status,
                            tutti_trainer_result *result)
{
    const bool interrupted = status == TUTTI_OK && s->stop.stopping;

    if (status == TUTTI_ERR_MISMATCH && s->shards > 0)
        status = TUTTI_ERR_ARG; /* exit code 2: a replacement would differ in the same way */
    result->status = status != TUTTI_OK ? "failed" : interrupted ? "interrupted" : "completed";
    result->exit_code = interrupted ? 128 + (int)s->stop.signal : tutti_status_exit_code(status);
    if (s->size > 0) { /* else there was no group */
        result->rank = s->rank;
        result->world_size = s->size;
    }
}
