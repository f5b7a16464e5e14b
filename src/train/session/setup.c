/* setup.c -- sets a run up from its configuration, and frees it.   SPDX-License-Identifier: MIT
 *
 * Local work (files, data, memory) comes first, followed by an agreement, so that a missing folder gives one message and
 * not a hung group; collective work (DDP) comes after it. */
#include "comm/comm.h"
#include "data/loader.h"
#include "data/dataset.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/session/agree.h"
#include "train/session/amp.h"
#include "train/run/members.h"
#include "train/machine/pin.h"
#include "train/run/run.h"
#include "train/metrics/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRACE_EVENTS_A_BATCH 512 /* and the same for the step */

/* "digits:train", "cifar10:DIR/test" */
static tutti_status open_split(tutti__run *run, const char *split, tutti_dataset **opened_p,
                               const tutti_dataset **dataset_p)
{
    const tutti__train_config *c = run->config;
    const tutti_dataset_opts opts = {.image_size = (int)c->image_size,
                                     .format = run->parts->format};
    char spec[2 * TUTTI__CONFIG_TEXT + 64];

    snprintf(spec, sizeof spec, "%s:%s%s%s", c->data, c->data_dir, c->data_dir[0] ? "/" : "",
             split);
    TUTTI_TRY(tutti_dataset_open_with(opened_p, spec, &opts));
    *dataset_p = *opened_p;
    return TUTTI_OK;
}

static tutti_loader_opts loader_opts(const tutti__run *run, const tutti_dataset *data)
{
    const int channels = run->parts->model->channels;
    const tutti__train_config *c = run->config;

    return (tutti_loader_opts){.batch = (int)c->batch_size,
                               .shards = run->shards,
                               .workers = (int)c->workers,
                               .prefetch = (int)c->prefetch,
                               .seed = (uint64_t)c->seed,
                               .channels = tutti__dataset_has_images(data) ? channels : 0};
}

tutti_status tutti__run_open_test(tutti__run *run, const char *split)
{
    const tutti_trainer_opts *own = &run->parts->own;
    tutti_loader_opts opts;

    run->test_data = strcmp(split, "train") == 0 ? own->train : own->test;
    if (!own->train)
        TUTTI_TRY(open_split(run, split, &run->opened[1], &run->test_data));
    if (!run->test_data)
        return TUTTI_OK;
    opts = loader_opts(run, run->test_data);
    opts.no_padding = true;
    return tutti_loader_new(&run->test_loader, run->test_data, run->group, &opts);
}

static tutti_status check_alike(const tutti__run *run)
{
    const tutti_dataset *train = run->train_data, *test = run->test_data;
    const tutti_dataset_info a = tutti_dataset_describe(train), b = tutti_dataset_describe(test);
    char train_text[64], test_text[64];

    if (a.channels == b.channels && a.height == b.height && a.width == b.width &&
        a.classes == b.classes && a.targets == b.targets && a.dtype == b.dtype &&
        train->dims == test->dims)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "data: the training data are %s (%s) with %d %s, the test data %s (%s) with %d %s; both "
        "must be alike%s",
        tutti__dataset_text(train, 0, train_text), tutti_dtype_name(a.dtype), a.classes + a.targets,
        a.targets ? "targets" : "classes", tutti__dataset_text(test, 0, test_text),
        tutti_dtype_name(b.dtype), b.classes + b.targets, b.targets ? "targets" : "classes",
        a.classes == b.classes && run->parts->format && run->parts->format->read_random
            ? " (--image-size N makes all N x N)"
            : "");
}

static size_t describe_split(char *text, size_t size, const tutti_dataset *data, const char *split)
{
    tutti_dataset_info info;
    char samples[64];
    int n;

    if (!data)
        return (size_t)snprintf(text, size, "no %s data", split);
    info = tutti_dataset_describe(data);
    n = snprintf(text, size, "%zu %s %s", info.count, split,
                 tutti__dataset_text(data, info.count, samples));
    if (info.classes > 0)
        n += snprintf(text + n, size - (size_t)n, " in %d classes", info.classes);
    return (size_t)n;
}

/* With data of unequal size samples would be silently skipped, or ranks would take different numbers of steps. */
tutti_status tutti__run_same_data(const tutti__run *run)
{
    enum { SIZE = 512 };
    char here[SIZE] = "", there[SIZE];
    size_t n = 0;

    if (run->train_data) {
        n = describe_split(here, sizeof here, run->train_data, "training");
        n += (size_t)snprintf(here + n, sizeof here - n, ", ");
    }
    describe_split(here + n, sizeof here - n, run->test_data, "test");
    memcpy(there, here, sizeof there);
    TUTTI_TRY(tutti_broadcast(run->group, TUTTI_BUF(there, sizeof there, TUTTI_U8), 0, NULL));
    there[sizeof there - 1] = '\0';
    if (strcmp(here, there) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_MISMATCH,
                       "data: this rank has %s, and rank 0 has %s; give all ranks the same data; "
                       "each uses its share",
                       here, there);
}

static tutti_status open_data(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    tutti_loader_opts opts;

    run->train_data = run->parts->own.train;
    if (!run->train_data)
        TUTTI_TRY(open_split(run, "train", &run->opened[0], &run->train_data));
    if (c->eval_every > 0)
        TUTTI_TRY(tutti__run_open_test(run, "test"));
    if (run->test_data)
        TUTTI_TRY(check_alike(run));
    opts = loader_opts(run, run->train_data);
    opts.shuffle = true;
    opts.augment = c->augment;
    return tutti_loader_new(&run->train_loader, run->train_data, run->group, &opts);
}

/* Threads of kernels: as asked, else this rank's share of the cores that it may use. */
static int threads_of(const tutti__run *run)
{
    int share = tutti__cores() / run->cores.n;

    if (run->config->threads > 0)
        return (int)run->config->threads;
    if (strcmp(tutti__env_text(TUTTI__ENV_THREADS), "0") != 0)
        return 0;
    return share > 0 ? share : 1;
}

/* Binds this rank's threads to its share of the cores; after that share was determined. */
static tutti_status pin(const tutti__run *run)
{
    const char *text = tutti__env_text(TUTTI__ENV_PIN);

    if (strcmp(text, "off") == 0)
        return TUTTI_OK;
    if (strcmp(text, "auto") != 0)
        return tutti__fail(TUTTI_ERR_ARG, "TUTTI_PIN is \"%s\", expected auto or off", text);
    if (tutti__cpu_pin(run->cores.index, run->cores.n))
        tutti_log(TUTTI_LOG_DEBUG, "train", "bound to this rank's share of the cores");
    return TUTTI_OK;
}

/* If there is a driver, and GPUs are not hidden, running on the CPU is probably not intended. */
static void warn_of_idle_gpu(const tutti__run *run)
{
    const tutti__device_ops *ops;
    tutti_status status;

    if (run->local_rank != 0 || getenv("CUDA_VISIBLE_DEVICES") ||
        access("/dev/nvidiactl", F_OK) != 0)
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
static tutti_status find_device(const tutti__run *run, tutti_device *device_p)
{
    const tutti_status status = tutti_device_parse(device_p, run->config->device, run->local_rank);

    if (status == TUTTI_OK && device_p->kind == TUTTI_CPU &&
        strcmp(run->config->device, "auto") == 0)
        warn_of_idle_gpu(run);
    return status == TUTTI_ERR_UNSUPPORTED ? tutti__fail(TUTTI_ERR_DEVICE, "%s", tutti_last_error())
                                           : status;
}

tutti_status tutti__run_open_model(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    const tutti_dataset *data = run->train_data ? run->train_data : run->test_data;
    const tutti_dataset_info info = tutti_dataset_describe(data);
    const tutti_model_kind *kind = run->parts->model;
    const int channels =
        kind->channels && tutti__dataset_has_images(data) ? kind->channels : info.channels;
    tutti_model_opts model_opts = {.channels = channels,
                                   .height = info.height,
                                   .width = info.width,
                                   .classes = info.classes ? info.classes : info.targets,
                                   .dropout = c->dropout,
                                   .kind = kind};
    tutti_ctx_opts ctx_opts = {.seed = (uint64_t)c->seed,
                               .threads = threads_of(run),
                               .nondeterministic = !c->deterministic};
    tutti_device device;

    TUTTI_TRY(find_device(run, &device));
    TUTTI_TRY(pin(run));
    TUTTI_TRY(tutti_ctx_new(&run->cx, device, &ctx_opts));
    TUTTI_TRY(tutti__loss_open(&run->loss, run->cx));
    if (run->train_loader)
        TUTTI_TRY(tutti__loader_copy_ahead(run->train_loader, run->cx));
    if (run->test_loader)
        TUTTI_TRY(tutti__loader_copy_ahead(run->test_loader, run->cx));
    TUTTI_TRY(tutti__amp_check(run));
    TUTTI_TRY(tutti_model_new(&run->model, run->cx, c->model, &model_opts));
    run->module = tutti_model_module(run->model);
    return tutti_module_status(run->module);
}

static tutti_status new_optimizer(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    /* A key of 0 means zero, not the default. */
    float lr = c->lr == 0 ? TUTTI_ZERO : (float)c->lr, decay = (float)c->weight_decay;
    tutti_adam_opts adam = {.lr = lr, .weight_decay = decay};

    if (strcmp(c->optimizer, "adam") == 0)
        return tutti_adam_new(&run->optim, run->module, &adam);
    if (strcmp(c->optimizer, "adamw") == 0)
        return tutti_adamw_new(&run->optim, run->module, &adam);
    return tutti_sgd_new(&run->optim, run->module,
                         &(tutti_sgd_opts){.lr = lr,
                                           .momentum = (float)c->momentum,
                                           .weight_decay = decay,
                                           .nesterov = c->nesterov});
}

static tutti_status open_optimizer(tutti__run *run)
{
    TUTTI_TRY(new_optimizer(run));
    return run->config->decay_biases ? TUTTI_OK : tutti_optim_no_decay(run->optim);
}

static tutti_status set_comm_hook(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    uint64_t warmup = run->schedule.warmup_steps;
    tutti_powersgd_opts powersgd = {
        .rank = (int)c->powersgd_rank, .start_step = c->powersgd_start, .seed = (uint64_t)c->seed};

    if (strcmp(c->comm_hook, "none") == 0)
        return TUTTI_OK;
    if (powersgd.start_step == 0) /* gradients change fastest in the warm-up */
        powersgd.start_step = warmup < 2 ? 2 : warmup > 1000 ? 1000 : (int64_t)warmup;
    if (strcmp(c->comm_hook, "powersgd") == 0)
        TUTTI_TRY(tutti_comm_hook_powersgd(&run->hook, &powersgd));
    else if (strcmp(c->comm_hook, "fp16") == 0)
        TUTTI_TRY(tutti_comm_hook_fp16(&run->hook, NULL));
    else
        TUTTI_TRY(tutti_comm_hook_bf16(&run->hook, NULL));
    return tutti_ddp_set_hook(run->ddp, &run->hook);
}

tutti_status tutti__run_open_optimizer(tutti__run *run)
{
    TUTTI_TRY(set_comm_hook(run));
    TUTTI_TRY(tutti__amp_open(run));
    return open_optimizer(run);
}

tutti_status tutti__run_open_trace(tutti__run *run)
{
    const size_t batches =
        (size_t)run->config->grad_accumulation * (size_t)(run->shards > 0 ? run->shards : 1);

    /* The syntax was checked with the configuration. */
    if (!tutti__config_profile(run->config, &run->profile_first, &run->profile_last) ||
        run->profile_first == 0)
        return TUTTI_OK;
    if ((uint64_t)run->profile_first > run->total_steps)
        return tutti__fail(TUTTI_ERR_ARG, "profile: %s begins after the last step, %llu",
                           run->config->profile, (unsigned long long)run->total_steps);
    run->recorder_capacity =
        (size_t)(run->profile_last - run->profile_first + 3) * (1 + batches) * TRACE_EVENTS_A_BATCH;
    run->recorder = tutti__recorder_new(run->recorder_capacity);
    if (!run->recorder)
        return TUTTI_ERR_MEMORY;
    run->cx->recorder = run->recorder; /* used by the tape and DDP */
    /* on other devices operations end after they return */
    if (tutti__on_host(tutti_ctx_stream(run->cx))) {
        run->profile = run->cx->profile = tutti__profile_new();
        if (!run->profile)
            return TUTTI_ERR_MEMORY;
    }
    tutti__loader_set_recorder(run->train_loader, run->recorder);
    return TUTTI_OK;
}

/* Bytes that the run's files will take, with some margin: the final weights, and checkpoints, of which there is one more than
 * kept while it is written. */
static uint64_t files_bytes(const tutti__run *run, bool anew)
{
    const tutti__train_config *c = run->config;
    const uint64_t states = strcmp(c->optimizer, "sgd") != 0 ? 2 : c->momentum > 0 ? 1 : 0;
    const uint64_t kept = !anew                     ? 0 /* they exist */
                          : c->keep_checkpoints < 2 ? 1
                                                    : (uint64_t)c->keep_checkpoints;
    uint64_t bytes = 256 * 1024, model = 0;

    for (size_t i = 0; i < tutti_module_n_state(run->module); i++)
        model += tutti__tensor_bytes(tutti_module_state(run->module, i)) + 200; /* for the header */
    bytes += model + (kept + 1) * (1 + states) * model;
    return bytes;
}

/* Whether no checkpoint is looked for. */
static bool starts_anew(const tutti__run *run)
{
    return strcmp(run->config->resume, "no") == 0 && !run->job.restarted && !run->job.requeued;
}

tutti_status tutti__run_open_files(tutti__run *run)
{
    bool named;

    TUTTI_TRY(tutti__resume_find_folder(run));
    named = run->config->run_dir[0];
    TUTTI_TRY(tutti__run_folder_open(&run->folder, run->config, &run->job));
    strcpy(run->token, run->folder.lock.token);
    TUTTI_TRY(tutti__resume_choose(run));
    if (!named && !run->resume.found && strcmp(run->config->resume, "auto") == 0)
        tutti_log(
            TUTTI_LOG_WARN, "train",
            "resume auto: without --run-dir it looks only in this job's own folder, %s, which "
            "is new, so training starts from the beginning; give --run-dir RUN to continue an "
            "earlier run",
            run->folder.path);
    return TUTTI_OK;
}

/* The other ranks read it too, unless a checkpoint is expected, so that a wrong file is reported. */
tutti_status tutti__run_load_init(tutti__run *run)
{
    const tutti__train_config *c = run->config;

    const tutti_load_opts opts = {.only = c->init_only, .partial = c->init_partial, .finite = true};
    char said[2048];
    tutti_status status;

    if (!c->init[0] || run->resume.found || (run->rank != 0 && !starts_anew(run)))
        return TUTTI_OK;
    status = tutti_module_load_with(run->module, c->init, &opts, said, sizeof said);
    if (status != TUTTI_OK)
        return tutti__fail(status, "init: %s%s", tutti_last_error(),
                           !opts.partial && strstr(tutti_last_error(), "of this model")
                               ? " (--init-partial loads what fits)"
                               : "");
    tutti__progress_say(&run->progress, "init: %s", said);
    return TUTTI_OK;
}

tutti_status tutti__run_open_alone(tutti__run *run)
{
    TUTTI_TRY(open_data(run));
    TUTTI_TRY(tutti__run_open_model(run));
    tutti__plan(run, &(tutti__position){.epoch = 1});
    return TUTTI_OK;
}

/* The local part. */
static tutti_status open_alone(tutti__run *run)
{
    TUTTI_TRY(tutti__run_open_alone(run));
    TUTTI_TRY(tutti__ledger_open(&run->ledger, run->size, (uint64_t)run->config->log_every));
    TUTTI_TRY(tutti__run_open_trace(run));
    if (run->rank == 0)
        TUTTI_TRY(tutti__run_open_files(run));
    return tutti__run_load_init(run);
}

tutti_ddp_opts tutti__run_ddp_opts(const tutti__run *run)
{
    const tutti__train_config *c = run->config;

    return (tutti_ddp_opts){.bucket_mb = c->bucket_mb,
                            .first_bucket_mb = c->first_bucket_mb,
                            .find_unused = c->find_unused,
                            .static_graph = c->static_graph,
                            /* the scaler checks itself, and skips such steps */
                            .nonfinite = tutti__amp_dtype(run) == TUTTI_F16 ? TUTTI_NONFINITE_IGNORE
                                                                            : TUTTI_NONFINITE_ERROR,
                            .shards = run->shards,
                            .wire_bits = run->shards > 0 ? atoi(c->wire_bits) : 0};
}

tutti_status tutti__run_open_ddp(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    const tutti_ddp_opts opts = tutti__run_ddp_opts(run);

    if (c->sync_bn)
        tutti_convert_sync_batch_norm(run->module, run->group);
    TUTTI_TRY(tutti_ddp_new(&run->ddp, run->module, run->group, &opts));
    return c->zero ? tutti_zero_new(&run->zero, run->ddp) : TUTTI_OK;
}

static tutti_status open_together(tutti__run *run)
{
    TUTTI_TRY(tutti_broadcast(
        run->group, TUTTI_BUF(run->config->run_dir, TUTTI__CONFIG_TEXT, TUTTI_U8), 0, NULL));
    TUTTI_TRY(
        tutti_broadcast(run->group, TUTTI_BUF(run->token, sizeof run->token, TUTTI_U8), 0, NULL));
    TUTTI_TRY(tutti__resume_share(run));
    if (run->resume.complete)
        return TUTTI_OK;
    return tutti__run_open_ddp(run);
}

tutti_status tutti__run_begin_folder(tutti__run *run)
{
    run->kept.begun_at = run->at.step;
    if (run->rank != 0)
        return TUTTI_OK;
    if (run->resume.found && run->resume.here) {
        tutti__run_count_lost(run);
        return tutti__run_folder_continue(&run->folder, run->config, run->at.step,
                                          files_bytes(run, false));
    }
    return tutti__run_folder_begin(&run->folder, run->config, files_bytes(run, true));
}

/* If rank 0 cannot read, it ends the group, because the others wait for its state. */
static tutti_status resume(tutti__run *run)
{
    tutti_status status = tutti__resume_apply(run);

    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_alone(run->group, status);
}

tutti_group_opts tutti__run_group_opts(const tutti__run *run)
{
    /* Rounded up: 0 would mean the default. */
    tutti_group_opts opts = {.timeout_ms = (int)ceil(run->config->timeout_s * 1000)};

    /* Valid: config.def lists the names. */
    tutti__backend_parse(run->config->backend, &opts.backend);
    return opts;
}

/* `tutti run` gives all ranks the same environment: if it is refused, one rank of a host prints why. What only another rank has
 * to say, the launcher prints. */
static bool is_to_say(tutti_status status)
{
    const tutti__launcher launcher = tutti__launcher_find();

    return status != TUTTI_ERR_ARG || launcher.first_on_host ||
           strcmp(launcher.name, "tutti run") != 0;
}

tutti_status tutti__run_open_group(tutti__run *run)
{
    const tutti_group_opts opts = tutti__run_group_opts(run);
    const tutti_status status = tutti_group_init(&run->group, &opts);

    if (status != TUTTI_OK) {
        if (is_to_say(status))
            tutti__say_error(0, 1);
        return status;
    }
    run->rank = tutti_group_rank(run->group);
    run->size = tutti_group_size(run->group);
    run->local_rank = tutti_group_local_rank(run->group);
    run->file_size = run->config->world_size;
    run->config->world_size = run->size;
    return TUTTI_OK;
}

tutti_status tutti__run_open(tutti__run *run)
{
    tutti_status status;

    run->start_ns = tutti__now_ns();
    run->folder.metrics = run->folder.lock.fd = -1;
    run->at.epoch = 1;
    run->at.val_loss = run->at.val_accuracy = run->at.shown_loss = run->shown_images_per_s = NAN;
    tutti__train_job_read(&run->job);
    run->shards = (int)run->config->shards;
    if (run->shards > 0)
        return tutti__members_open(run);
    TUTTI_TRY(tutti__run_open_group(run));
    tutti__progress_init(&run->progress, run->rank == 0 ? stdout : NULL, run->config->progress);
    TUTTI_TRY(tutti__fail_together(run->group, tutti__same_config(run->group, run->config)));
    TUTTI_TRY(tutti__core_share_find(run->group, &run->cores));
    TUTTI_TRY(tutti__fail_together(run->group, open_alone(run)));
    TUTTI_TRY(tutti__fail_together(run->group, tutti__run_same_data(run)));
    TUTTI_TRY(
        tutti__say_loss(run->group, tutti__gpus_open(&run->gpus, run->group, run->cx->device)));
    status = open_together(run);
    if (status != TUTTI_OK)
        tutti__error_file_write(tutti_status_scope(status) != TUTTI_SCOPE_GROUP,
                                tutti_last_error());
    /* A mismatch has the same message on all ranks. */
    if (status != TUTTI_OK && (status != TUTTI_ERR_MISMATCH || run->rank == 0))
        tutti__say_error(run->rank, status == TUTTI_ERR_MISMATCH ? 1 : run->size);
    if (status != TUTTI_OK || run->resume.complete)
        return status;
    TUTTI_TRY(tutti__fail_together(run->group, tutti__run_open_optimizer(run)));
    TUTTI_TRY(resume(run));
    TUTTI_TRY(tutti__fail_together(run->group, tutti__run_begin_folder(run)));
    if (run->rank == 0)
        tutti__logs_begin(&run->logs, &run->folder, run->config, run->parts->title, &run->gpus,
                          run->at.step);
    return TUTTI_OK;
}

void tutti__run_close(tutti__run *run)
{
    tutti__run_checkpoint_close(run); /* it uses the folder and the module */
    tutti__run_folder_close(&run->folder);
    tutti__resume_free(&run->resume);
    tutti__ledger_close(&run->ledger);
    tutti__gpus_close(&run->gpus);
    /* Waits for it, because it writes to run. Only a dead group leaves it in flight. */
    if (run->signal_work && tutti_work_wait(run->signal_work) != TUTTI_OK)
        run->stopping = true;
    run->signal_work = NULL; /* which whoever leaves the group asks for too */
    tutti_loader_free(run->train_loader);
    tutti_loader_free(run->test_loader);
    tutti_dataset_free(run->opened[0]);
    tutti_dataset_free(run->opened[1]);
    tutti_scaler_free(run->scaler);
    tutti_optim_free(run->optim);
    tutti_zero_free(run->zero);
    free(run->members);
    if (run->elastic) /* it owns DDP and the group */
        tutti_elastic_free(run->elastic);
    else
        tutti_ddp_free(run->ddp);
    tutti_model_free(run->model);
    tutti__loss_close(&run->loss);
    tutti_ctx_free(run->cx);
    if (!run->elastic)
        tutti_group_free(run->group);
    tutti__recorder_free(run->recorder);
    tutti__profile_free(run->profile);
}
