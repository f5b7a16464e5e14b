/* footprint.c -- a run's first steps without memory.   SPDX-License-Identifier: MIT
 *
 *   open ── step 1 ─────── step 2 ─────── an evaluation ── a copy for a checkpoint
 *           buckets are    the optimizer  outputs
 *           laid out       has its state
 *
 * The peak is the largest sum, at one of these moments, of what is allocated and what the arenas have used so far: their pages
 * stay. */
#include "train/forecast/footprint.h"

#include "checkpoint/optim_block.h"
#include "checkpoint/snapshot.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "device/planned/planned.h"
#include "nn/nn.h"
#include "optim/ema.h"
#include "optim/optim.h"
#include "tensor/op_profile.h"
#include "tensor/tensor.h"
#include "train/config/config_optim.h"
#include "train/plan/plan.h"
#include "train/session/evaluate.h"

#include <stdlib.h>
#include <string.h>

/* What only a run uses of the program: threads, code and buffers of its files; and of a group of several processes. As measured on
 * x86-64; the rest is found here. */
#define FILES_BYTES ((size_t)1 << 20)
#define GROUP_BYTES ((size_t)2 << 20)

typedef struct forecast {
    tutti__train_config config;
    tutti__session session;
    tutti__train_plan plan;
    tutti__run_cursor at;
    const tutti__layout_of_ranks *layout;
    tutti__footprint *f;
    size_t begun;                        /* resident before the session */
    size_t laid_out, stepped, evaluated; /* the most that was allocated at these moments */
    size_t steady;                       /* what is allocated between steps */
    size_t in_steps,
        in_all;     /* what the arenas have used by the end of step 2, and of the evaluation */
    size_t outputs; /* of an evaluation, in host memory */
    size_t copy, weights; /* of a checkpoint, of model.safetensors */
    size_t gathered;      /* of the other ranks' state, meanwhile */
    size_t unused;        /* of what is allocated: pages that nothing touches */
    uint64_t skipped_steps;
} forecast;

static size_t resident(void)
{
    tutti__planned_drop();
    return tutti__resident_now().now;
}

/* The most that was allocated since the last call. */
static size_t most(void)
{
    const size_t bytes = tutti__planned_count().most;

    tutti__planned_mark();
    return bytes;
}

static size_t arenas(const tutti_ctx *cx)
{
    return cx->arena.most + cx->small.most + cx->memory.most;
}

/* ---- A step ------------------------------------------------------------------------------------------------------- */

/* The next full batch, if necessary of the next epoch; of a smaller data set, all of it. */
static tutti_status next(const forecast *p, tutti_batch *batch)
{
    tutti_loader *loader = p->session.data.train_loader;

    if (tutti_loader_next(loader, batch) ||
        (tutti_loader_status(loader) == TUTTI_OK && tutti_loader_next(loader, batch)))
        return TUTTI_OK;
    TUTTI_TRY(tutti_loader_status(loader));
    return tutti__fail(TUTTI_ERR_ARG, "data: there is not one batch of it for each rank");
}

/* This rank's part of the shards: of all ranks the same, as tutti__layout_check requires. */
static tutti_status shard_gradients(forecast *p)
{
    tutti__session *s = &p->session;
    const int end = s->shards / s->size;
    double rest;
    bool again;

    TUTTI_TRY(tutti_ddp_begin_step(s->ddp));
    for (int v = 0; v < end; v++) {
        tutti_batch batch;

        s->step.shard = v;
        TUTTI_TRY(tutti_ddp_begin_shard(s->ddp, v, v + 1 == end));
        if (!tutti__session_next_batch(s, 0, &batch))
            return tutti_loader_status(s->data.train_loader);
        TUTTI_TRY(tutti__session_accumulate(s, &batch, tutti__now_ns(), &rest));
    }
    return tutti_ddp_finish_step(s->ddp, &again);
}

static tutti_status gradients(forecast *p)
{
    tutti_batch batch;

    if (p->session.shards > 0)
        return shard_gradients(p);
    TUTTI_TRY(next(p, &batch));
    return tutti__session_gradients(&p->session, &batch, tutti__now_ns());
}

static tutti_status update(forecast *p)
{
    double norm;

    return tutti__session_update(&p->session, 0, false, &p->skipped_steps, &norm);
}

static double flops_of(const tutti__profile *profile)
{
    double flops = 0;

    for (size_t i = 0; i < tutti__profile_n_rows(profile); i++)
        flops +=
            tutti__profile_at(profile, i)->flops * (double)tutti__profile_at(profile, i)->calls;
    return flops;
}

/* The first step lays buckets out, while parameters are in two places, and the optimizer allocates its state. The second is as all
 * that follow: its calls and products are counted. */
static tutti_status take_steps(forecast *p)
{
    tutti__session *s = &p->session;
    tutti__planned_calls *calls = tutti__group_planned_calls(s->group);
    tutti__profile *profile;
    tutti_status status;

    TUTTI_TRY(gradients(p));
    p->laid_out = most();
    TUTTI_TRY(update(p));
    profile = tutti__profile_new();
    if (!profile)
        return TUTTI_ERR_MEMORY;
    s->cx->profile = profile;
    memset(calls->of, 0, sizeof calls->of);
    status = gradients(p);
    if (status == TUTTI_OK)
        status = update(p);
    p->f->calls = *calls;
    p->f->flops = flops_of(profile);
    s->cx->profile = NULL;
    tutti__profile_free(profile);
    p->stepped = most();
    p->steady = tutti__planned_count().now;
    p->in_steps = arenas(s->cx);
    return status;
}

/* ---- Around the steps --------------------------------------------------------------------------------------------- */

/* The outputs of as many samples as an evaluation computes at once, of zeros. */
static tutti_status compute_outputs(const forecast *p, tutti_array x)
{
    const tutti__session *s = &p->session;
    void *zeros = tutti__alloc((size_t)tutti_shape_count(x.shape) * tutti_dtype_size(x.dtype));
    tutti_tensor *output;
    const void *elements;
    tutti_status status = TUTTI_ERR_MEMORY;

    x.p = zeros;
    if (zeros) {
        tutti_step_begin(s->cx, &(tutti_step_opts){.eval = true});
        status = tutti__session_forward(s, x, &output);
        if (status == TUTTI_OK)
            status = tutti_tensor_status(output);
        if (status == TUTTI_OK) /* which stores lazy ones */
            status = tutti__tensor_row_major(output, &elements);
        tutti_step_end(s->cx);
    }
    free(zeros);
    return status;
}

/* The first batch of the test data fills the loader's memory. */
static tutti_status evaluate(forecast *p)
{
    const tutti__session *s = &p->session;
    const tutti_dataset *data = s->data.test;
    tutti_batch batch;
    size_t n;

    if (data) {
        n = tutti__evaluate_at_once(s);
        if (s->shards == 0 && !tutti_loader_next(s->data.test_loader, &batch))
            TUTTI_TRY(tutti_loader_status(s->data.test_loader));
        TUTTI_TRY(compute_outputs(
            p,
            tutti__dataset_array(data, 0, (int64_t)n,
                                 tutti__dataset_has_images(data) ? s->parts->model->channels : 0)));
        p->outputs = n * tutti__task_width(&s->task) * sizeof(float);
        p->evaluated = most();
    }
    p->in_all = arenas(s->cx);
    return TUTTI_OK;
}

/* Whether a run of this plan writes a checkpoint before its last step. */
static bool saves_between(const forecast *p)
{
    tutti__position at = tutti__position_begin();

    for (;;)
        switch (tutti__plan_next(&p->plan, &at)) {
        case TUTTI__DO_STEP:
            tutti__plan_begin_step(&p->plan, &at);
            tutti__plan_end_step(&p->plan, &at, tutti__plan_step_batches(&p->plan, &at.at));
            break;
        case TUTTI__DO_LINE:
            at.line.step = (int64_t)at.line_due;
            break;
        case TUTTI__DO_EVALUATE:
            at.evaluated = at.at.step;
            break;
        case TUTTI__DO_SAVE:
            return !tutti__plan_finishes(&p->plan, &at);
        case TUTTI__DO_AGREE:
        case TUTTI__DO_FINISH:
        case TUTTI__DO_END:
            return false;
        }
}

/* What rank 0 allocates to write a checkpoint (train/save/writer.c), with ZeRO's state from the other ranks; and for the final weights. */
static tutti_status copy_state(forecast *p)
{
    const tutti__session *s = &p->session;
    const size_t before = tutti__planned_count().now;
    tutti__snapshot model = {.n = 0}, ema = {.n = 0};
    tutti__optim_block block = {0};
    tutti_status status = tutti__snapshot_new(&model, s->module);

    if (status == TUTTI_OK)
        status = tutti__optim_block_new(&block, s->optim, s->module);
    if (status == TUTTI_OK && s->ema)
        status = tutti__snapshot_new(&ema, s->module);
    p->copy = tutti__planned_count().now - before;
    p->weights = tutti__alloc_takes(model.bytes);
    if (s->zero && s->shards == 0) /* all of it, kind by kind, and a bucket of it (ddp/zero.c) */
        p->gathered = (size_t)tutti__config_optim_states(&p->config) *
                          tutti__alloc_takes(s->module->root->n_flat * sizeof(float)) +
                      tutti__alloc_takes(p->f->largest_bucket);
    tutti__snapshot_free(&model);
    tutti__snapshot_free(&ema);
    tutti__optim_block_free(&block);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------------ */

/* As the ranks of a run open one. */
static tutti_status open_session(forecast *p)
{
    tutti__session *s = &p->session;
    tutti__train_config *c = &p->config;

    strcpy(c->device, TUTTI__PLANNED_DEVICE);
    s->forward_agreed = true; /* the caller reports failures */
    s->size = p->layout->ranks;
    s->shards = (int)c->shards;
    s->cores = (tutti__core_share){.index = 0, .n = p->layout->local_ranks};
    c->world_size = s->size;
    TUTTI_TRY(tutti__group_plan(&s->group, s->size, p->layout->local_ranks));
    TUTTI_TRY(tutti__session_open_alone(s));
    p->plan = tutti__plan_of(c, tutti_dataset_describe(s->data.train).count,
                             tutti__session_shares(s), s->data.test != NULL, &p->at);
    s->step.batches = tutti__plan_batches(&p->plan, 0);
    p->f->samples = c->batch_size * c->grad_accumulation * tutti__session_shares(s);
    p->f->threads = tutti_ctx_threads(s->cx);
    TUTTI_TRY(tutti__session_open_ddp(s));
    return tutti__session_open_optimizer(s, p->plan.schedule.warmup_steps);
}

/* Pages of parameters that are not trained stay unused in the gradients and in the optimizer's state. */
static size_t frozen_bytes(const struct tutti_root *root)
{
    size_t bytes = 0;

    for (size_t i = 0; i < root->parameters.n; i++)
        if (!root->parameters.p[i]->parameter.requires_grad)
            bytes += tutti__tensor_bytes(root->parameters.p[i]->tensor);
    return bytes;
}

static size_t buffer_bytes(const tutti_module *m)
{
    size_t bytes = 0;

    for (size_t i = 0; i < tutti_module_n_buffers(m); i++)
        bytes += tutti__tensor_bytes(tutti_module_buffer(m, i));
    return bytes;
}

static void note_buckets(const forecast *p)
{
    const tutti_reducer *reducer = tutti_ddp_reducer(p->session.ddp);

    p->f->n_buckets = tutti_reducer_n_buckets(reducer);
    for (size_t b = 0; b < p->f->n_buckets; b++) {
        const size_t bytes = tutti_reducer_bucket(reducer, b).bytes;

        p->f->bucket_bytes += bytes;
        if (bytes > p->f->largest_bucket)
            p->f->largest_bucket = bytes;
    }
}

/* What is allocated, by what it is for; the rest is the kernels'. */
static void note_parts(forecast *p)
{
    const tutti__session *s = &p->session;
    const struct tutti_root *root = s->module->root;
    const size_t flat = root->n_flat * sizeof(float), frozen = frozen_bytes(root),
                 group = tutti__group_planned_calls(s->group)->memory;
    const size_t state = tutti_optim_state_bytes(s->optim);
    tutti__footprint *f = p->f;
    size_t known;

    f->elements = tutti_module_count(s->module);
    f->parameters = flat + buffer_bytes(s->module);
    f->gradients = flat;
    f->average = s->ema ? flat : 0;
    f->communication = group > flat ? group - flat : 0;
    f->optimizer = state;
    known = f->parameters + flat + state + f->average + f->communication;
    f->kernels = p->steady > known ? p->steady - known : 0;
    f->gradients -= frozen;
    p->unused = frozen;
    if (!s->zero) {
        f->optimizer -= (size_t)tutti__config_optim_states(&p->config) * frozen;
        p->unused += (size_t)tutti__config_optim_states(&p->config) * frozen;
    }
    f->activations = p->in_steps;
}

static void consider(tutti__footprint *f, size_t bytes, const char *when)
{
    if (bytes <= f->peak)
        return;
    f->peak = bytes;
    f->peak_when = when;
}

/* Without a checkpoint, then with one. */
static void find_peak(const forecast *p, size_t own)
{
    tutti__footprint *f = p->f;
    const tutti_ctx *cx = p->session.cx;
    const size_t unused = p->unused;
    consider(f, own + p->laid_out + p->in_steps - unused, "the first step");
    consider(f, own + p->stepped + p->in_steps - unused, "a step");
    if (p->evaluated)
        consider(f, own + p->evaluated + p->in_all + p->outputs - unused, "an evaluation");
    f->peak_off = f->peak;
    if (saves_between(p)) {
        f->checkpoint = p->copy + p->gathered;
        if (p->gathered)
            consider(f, own + p->steady + p->in_all + p->copy + p->gathered - unused,
                     "a checkpoint, for which states are gathered");
        consider(f, own + p->steady + p->copy + p->in_steps - unused, "a step, after a checkpoint");
        if (p->evaluated)
            consider(f, own + p->evaluated + p->copy + p->in_all + p->outputs - unused,
                     "an evaluation, after a checkpoint");
    }
    /* the steps' memory is given back before (train/save/saving.c) */
    consider(f,
             own + p->steady + p->copy + p->gathered + p->weights + cx->small.most +
                 cx->arena.most - unused,
             "writing the results");
}

static tutti_status look_ahead(forecast *p)
{
    tutti__footprint *f = p->f;
    size_t end;

    p->begun = resident();
    TUTTI_TRY(open_session(p));
    TUTTI_TRY(take_steps(p));
    TUTTI_TRY(evaluate(p));
    note_buckets(p);
    note_parts(p);
    TUTTI_TRY(copy_state(p));
    end = resident();
    f->program = p->begun + FILES_BYTES + (p->session.size > 1 ? GROUP_BYTES : 0);
    f->data = end > p->begun ? end - p->begun : 0;
    find_peak(p, f->program + f->data);
    return TUTTI_OK;
}

tutti_status tutti__footprint_find(tutti__footprint *f, const tutti__train_config *config,
                                   const tutti__parts *parts, const tutti__layout_of_ranks *layout,
                                   const tutti__session_data *data)
{
    forecast *p = tutti__alloc(sizeof *p);
    char message[2048];
    tutti_status status;

    *f = (tutti__footprint){.peak_when = ""};
    if (!p)
        return TUTTI_ERR_MEMORY;
    p->config = *config;
    p->session.config = &p->config;
    p->session.parts = parts;
    p->layout = layout;
    if (data) {
        p->session.data.train = data->train;
        p->session.data.test = data->test;
    }
    p->at = (tutti__run_cursor){.epoch = 1};
    p->f = f;
    tutti__planned_begin();
    status = look_ahead(p);
    snprintf(message, sizeof message, "%s", tutti_last_error());
    tutti__session_close(&p->session);
    tutti__planned_end();
    free(p);
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, message);
}
