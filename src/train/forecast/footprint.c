/* footprint.c -- a run's first steps without memory.   SPDX-License-Identifier: MIT
 *
 *   open ── step 1 ─────── step 2 ─────── an evaluation ── a copy for a checkpoint
 *           buckets are    the optimizer  outputs
 *           laid out       has its state
 *
 * The peak is the largest sum, at one of these moments, of what is allocated and what the arenas have used so far: their pages
 * stay. Of a pipeline each stage is such a session, one after the other; what they would send each other is found before, by a forward of
 * the whole model. */
#include "train/forecast/footprint.h"

#include "checkpoint/copies.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "ddp/ddp.h"
#include "device/planned/planned.h"
#include "nn/nn.h"
#include "optim/ema.h"
#include "optim/optim.h"
#include "pipeline/pipeline.h"
#include "reducer/reducer.h"
#include "tensor/op_profile.h"
#include "tensor/tensor.h"
#include "train/config/config_optim.h"
#include "train/plan/plan.h"
#include "train/session/amp.h"
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
    tutti__footprint f;
    const tutti__boundary *after; /* of a pipeline's blocks */
    tutti__timeline *timeline;    /* of a step's calls; NULL: not wanted */
    tutti__holdings *holdings;
    size_t begun;                                 /* resident before the session */
    size_t laid_out, updated, stepped, evaluated; /* the most that was allocated at these moments */
    size_t steady;                                /* what is allocated between steps */
    size_t rested; /* and after an evaluation, of which some gathered parameters are left */
    size_t in_steps,
        in_all;     /* what the arenas have used by the end of step 2, and of the evaluation */
    size_t outputs; /* of an evaluation, in host memory */
    size_t batches; /* of a pipeline's step, in host memory */
    size_t at_end;  /* what arenas keep for the results */
    size_t room;    /* of a checkpoint, on rank 0: of what is not divided */
    size_t copy, copy_off; /* of a checkpoint: rank 0's, and that of others */
    size_t gathered;       /* of state in shares, meanwhile */
    size_t flat;           /* all parameters */
    size_t weights;        /* of model.safetensors, or of the digest of a divided model */
    size_t unused;         /* of what is allocated: pages that nothing touches */
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

static size_t arenas(const tutti__session *s)
{
    return s->cx->arena.most + s->cx->small.most + s->cx->memory.most +
           (s->pipeline ? tutti__pipeline_arenas(s->pipeline) : 0);
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

static size_t bytes_of(tutti_array a)
{
    return (size_t)tutti_shape_count(a.shape) * tutti_dtype_size(a.dtype);
}

static tutti_status gradients(forecast *p)
{
    tutti_batch batch;

    if (p->session.shards > 0)
        return shard_gradients(p);
    TUTTI_TRY(next(p, &batch));
    if (p->session.pipeline)
        p->batches = (size_t)p->config.grad_accumulation * (bytes_of(batch.x) + bytes_of(batch.y));
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

enum { MOST_GROUPS = 5 };

/* The session's groups, each once; returns how many. The last is that of ranks that divide layers, if there is one. */
static int groups_of(const tutti__session *s, tutti_group *groups[MOST_GROUPS])
{
    tutti_group *const all[] = {s->group, tutti_mesh_group(s->mesh, "data"),
                                tutti_mesh_group(s->mesh, "pipeline"), tutti__zero_parted(s->ddp)};
    tutti_group *tensor = tutti_mesh_group(s->mesh, "tensor");
    int n = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++) {
        bool there = !all[i] || all[i] == tensor;

        for (int k = 0; k < n; k++)
            there |= groups[k] == all[i];
        if (!there)
            groups[n++] = all[i];
    }
    if (tensor)
        groups[n++] = tensor;
    return n;
}

static void forget_calls(const tutti__session *s)
{
    tutti_group *groups[MOST_GROUPS];

    for (int i = groups_of(s, groups); i-- > 0;) {
        tutti__planned_calls *calls = tutti__group_planned_calls(groups[i]);

        memset(calls->of, 0, sizeof calls->of);
    }
}

static bool is_message(const tutti__planned_call *call)
{
    return call->name && (strcmp(call->name, "send") == 0 || strcmp(call->name, "recv") == 0);
}

static void note_calls(const tutti__session *s, tutti__footprint *f)
{
    tutti_group *groups[MOST_GROUPS], *const parted = tutti__zero_parted(s->ddp);
    const int n = groups_of(s, groups);

    for (int i = 0; i < n; i++) {
        const tutti__planned_calls *from = tutti__group_planned_calls(groups[i]);

        for (size_t k = 0; k < TUTTI__COUNT_OF(from->of); k++) {
            tutti__planned_call *to = s->pipeline && is_message(&from->of[k])
                                          ? &f->pipeline_calls.of[k]
                                      : groups[i] == parted   ? &f->shard_calls.of[k]
                                      : s->mesh && i + 1 == n ? &f->tensor_calls.of[k]
                                                              : &f->calls.of[k];

            to->name = from->of[k].name ? from->of[k].name : to->name;
            to->n += from->of[k].n;
            to->bytes += from->of[k].bytes;
        }
    }
}

static size_t group_memory(const tutti__session *s)
{
    tutti_group *groups[MOST_GROUPS];
    size_t bytes = 0;

    for (int i = groups_of(s, groups); i-- > 0;)
        bytes += tutti__group_planned_calls(groups[i])->memory;
    return bytes;
}

/* The first step lays buckets out, while parameters are in two places, and the optimizer allocates its state. The second is as all
 * that follow: its calls and products are counted. */
static tutti_status take_steps(forecast *p)
{
    tutti__session *s = &p->session;
    tutti__profile *profile;
    tutti_status status;

    TUTTI_TRY(gradients(p));
    p->laid_out = most();
    TUTTI_TRY(update(p));
    p->updated = most();
    profile = tutti__profile_new();
    if (!profile)
        return TUTTI_ERR_MEMORY;
    s->cx->profile = profile;
    forget_calls(s);
    if (p->timeline)
        tutti__timeline_begin(p->timeline, s->group, s->mesh, tutti__zero_parted(s->ddp), profile);
    status = gradients(p);
    if (p->timeline)
        tutti__timeline_update(p->timeline);
    if (status == TUTTI_OK)
        status = update(p);
    if (p->timeline && status == TUTTI_OK)
        status = tutti__timeline_end(p->timeline);
    note_calls(s, &p->f);
    p->f.flops = flops_of(profile);
    s->cx->profile = NULL;
    tutti__profile_free(profile);
    p->stepped = most();
    p->steady = tutti__planned_count().now;
    p->in_steps = arenas(s);
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
        status = s->pipeline ? tutti_pipeline_forward(s->pipeline, x, &output)
                             : tutti__session_forward(s, x, &output);
        if (status == TUTTI_OK && output)
            status = tutti_tensor_status(output);
        if (status == TUTTI_OK && output) /* which stores lazy ones */
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
        if (!s->pipeline || tutti_pipeline_is_last(s->pipeline))
            p->outputs = n * tutti__task_width(&s->task) * sizeof(float);
        p->evaluated = most();
    }
    p->rested = tutti__planned_count().now;
    p->in_all = arenas(s);
    p->at_end = p->in_all - s->cx->memory.most;
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
        case TUTTI__DO_GUARD:
            at.guarded = at.at.step;
            at.guard_at = UINT64_MAX; /* before checkpoints only */
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

/* All of the optimizer's state, kind by kind (ddp/zero_state.c). */
static size_t state_bytes(const forecast *p)
{
    return (size_t)tutti__config_optim_states(&p->config) * tutti__alloc_takes(p->flat);
}

/* What is allocated to write what is not divided of a checkpoint (train/save/writer.c), and for the final weights; what is divided is
 * divided when all stages are known. */
static tutti_status copy_state(forecast *p)
{
    const tutti__session *s = &p->session;
    const size_t before = tutti__planned_count().now;
    tutti__footprint_parts parts = {.bytes = NULL};
    tutti__copies whole = {.module = s->module, .optim = s->optim, .average = s->ema};
    tutti_status status = TUTTI_OK;

    p->flat = s->module->root->n_flat * sizeof(float);
    if (tutti__session_is_divided(s))
        status = tutti__holdings_list(p->holdings, s);
    if (s->pipeline)
        return status;
    if (status == TUTTI_OK && tutti__session_is_divided(s))
        status = tutti__holdings_divide(p->holdings, &parts);
    memcpy(whole.divided, parts.divided, sizeof whole.divided);
    free(parts.bytes);
    if (status == TUTTI_OK) /* which rank 0 has alone */
        status = tutti__copies_room(&whole, NULL);
    p->room = tutti__planned_count().now - before;
    p->weights = tutti__alloc_takes(whole.model.bytes);
    if (s->zero && s->size == 1) /* else it is written in parts */
        p->gathered = state_bytes(p);
    tutti__copies_free(&whole);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------------ */

static tutti_status need_all(const tutti_module *m)
{
    for (size_t i = 0; i < tutti_module_n_parameters(m); i++)
        TUTTI_TRY(tutti__tensor_need(tutti_module_parameter(m, i), true, TUTTI_F32));
    return TUTTI_OK;
}

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
    TUTTI_TRY(tutti__group_plan(&s->group, s->rank, s->size, p->layout->local_ranks));
    TUTTI_TRY(tutti__session_open_mesh(s));
    TUTTI_TRY(tutti__session_open_alone(s));
    if (s->pipeline && p->after)
        TUTTI_TRY(tutti__pipeline_plan(s->pipeline, p->after));
    if (c->init[0] && c->zero != 3) /* else tensor by tensor, when there are shares */
        TUTTI_TRY(need_all(s->module));
    p->plan = tutti__plan_of(c, tutti_dataset_describe(s->data.train).count,
                             tutti__session_shares(s), s->data.test != NULL, &p->at);
    s->step.batches = tutti__plan_batches(&p->plan, 0);
    p->f.samples = c->batch_size * c->grad_accumulation * tutti__session_shares(s);
    p->f.threads = tutti_ctx_threads(s->cx);
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

static void note_buckets(forecast *p)
{
    const tutti_reducer *reducer = tutti_ddp_reducer(p->session.ddp);

    p->f.n_buckets = reducer ? tutti_reducer_n_buckets(reducer) : 0;
    for (size_t b = 0; b < p->f.n_buckets; b++) {
        const size_t bytes = tutti_reducer_bucket(reducer, b).bytes;

        p->f.bucket_bytes += bytes;
        if (bytes > p->f.largest_bucket)
            p->f.largest_bucket = bytes;
    }
}

/* What is allocated, by what it is for; the rest is the kernels'. */
static void note_parts(forecast *p)
{
    const tutti__session *s = &p->session;
    const struct tutti_root *root = s->module->root;
    const size_t flat = root->n_flat * sizeof(float), frozen = frozen_bytes(root),
                 group = group_memory(s), buffers = buffer_bytes(s->module);
    const int stage = s->zero ? tutti_zero_get_stats(s->zero).stage : 0;
    const void *reduced = tutti__reducer_sums(tutti_ddp_reducer(s->ddp));
    const tutti__planned_bytes sums =
        reduced ? tutti__planned_backed(reduced) : (tutti__planned_bytes){0, 0};
    tutti__planned_bytes parameters = {flat, flat}, gradients = {flat, flat};
    tutti__footprint *f = &p->f;
    size_t known;

    if (stage == 3)
        parameters = tutti__planned_backed(root->flat_parameters);
    if (stage >= 2 || !root->gradients_borrowed)
        gradients = tutti__planned_backed(root->flat_gradients);
    f->elements = tutti_module_count(s->module);
    f->parameters = parameters.most + buffers;
    f->gradients = gradients.most;
    f->average = s->ema ? s->ema->n * sizeof(float) : 0;
    f->communication = stage >= 2 ? group + sums.most : group > flat ? group - flat : 0;
    if (s->shards > 0 &&
        stage <
            2) { /* half of it is for shards that begin late (reducer/exact.c): never one worker's */
        p->unused = s->size == 1 ? group / 2 : 0;
        f->communication = group - p->unused;
    }
    f->optimizer = tutti_optim_state_bytes(s->optim);
    known = parameters.now + buffers + gradients.now + f->optimizer + f->average +
            f->communication - (sums.most - sums.now) + p->unused;
    f->kernels = p->steady > known ? p->steady - known : 0;
    if (stage < 2 && root->gradients_borrowed) {
        f->gradients -= frozen;
        p->unused += frozen;
    }
    if (stage == 0) {
        f->optimizer -= (size_t)tutti__config_optim_states(&p->config) * frozen;
        p->unused += (size_t)tutti__config_optim_states(&p->config) * frozen;
    }
    f->activations = p->in_steps;
}

typedef struct peak {
    size_t bytes;
    const char *when;
} peak;

static void consider(peak *most, size_t bytes, const char *when)
{
    if (bytes > most->bytes)
        *most = (peak){bytes, when};
}

/* Of a rank that copies so much of a checkpoint. last: for what it writes at the end. */
static peak find_peak(const forecast *p, size_t own, size_t copy, size_t gathered, size_t last)
{
    const size_t kept = own + p->batches - p->unused;
    peak most = {0, ""};

    consider(&most, kept + p->laid_out + p->in_steps, "the first step");
    consider(&most, kept + p->updated + p->in_steps, "the first step");
    consider(&most, kept + p->stepped + p->in_steps, "a step");
    if (p->evaluated)
        consider(&most, kept + p->evaluated + p->in_all + p->outputs, "an evaluation");
    if (copy > 0 && saves_between(p)) {
        if (gathered)
            consider(&most, kept + p->rested + p->in_all + copy + gathered,
                     "a checkpoint, for which states are gathered");
        consider(&most, kept + p->stepped + copy + p->in_steps, "a step, after a checkpoint");
        if (p->evaluated)
            consider(&most, kept + p->evaluated + copy + p->in_all + p->outputs,
                     "an evaluation, after a checkpoint");
    }
    if (copy > 0) /* the steps' memory is given back before (train/save/saving.c) */
        consider(&most, kept + p->rested + copy + gathered + last + p->at_end,
                 "writing the results");
    return most;
}

/* Of the ranks with its stages, first to end - 1. */
static void find_peaks(forecast *p, const tutti__footprint_parts *parts, int first, int end)
{
    const size_t own = p->f.program + p->f.data;
    const bool has_rank_0 = first == 0;
    peak rank_0, other;

    p->copy = p->room + tutti__footprint_copied(parts, 0, 1);
    p->copy_off = tutti__footprint_copied(parts, has_rank_0 ? 1 : first, end);
    if (tutti__session_divides_model(&p->session))
        p->weights = parts->largest;
    rank_0 = find_peak(p, own, p->copy, p->gathered, p->weights);
    other = find_peak(p, own, p->copy_off, 0, 0);
    p->f.peak = rank_0.bytes;
    p->f.peak_when = rank_0.when;
    p->f.peak_off = other.bytes;
    p->f.stage_peak[0] = has_rank_0 && rank_0.bytes > other.bytes ? rank_0.bytes : other.bytes;
    if (saves_between(p))
        p->f.checkpoint = p->copy + p->gathered;
    if (p->session.shards > 0 && p->session.zero && p->session.size > 1)
        p->f.peak_regroup = own + p->batches - p->unused + p->rested + p->in_all + state_bytes(p);
}

static tutti_status look_ahead(forecast *p)
{
    tutti__footprint *f = &p->f;
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
    return TUTTI_OK;
}

/* What goes from block to block. */
static tutti_status look_at_blocks(forecast *p, tutti__boundary **after_p)
{
    tutti_batch batch;

    TUTTI_TRY(open_session(p));
    TUTTI_TRY(next(p, &batch));
    p->f.elements = tutti_module_count(tutti__whole_of(p->session.module));
    return tutti__plan_boundaries(after_p, p->session.pipeline, batch.x,
                                  tutti__amp_dtype(&p->session));
}

/* Runs look on a planned session of its own. after_p: as look_at_blocks; NULL: look_ahead. */
static tutti_status in_session(forecast *p, tutti__boundary **after_p)
{
    char message[2048];
    tutti_status status;

    tutti__planned_begin();
    status = after_p ? look_at_blocks(p, after_p) : look_ahead(p);
    snprintf(message, sizeof message, "%s", tutti_last_error());
    tutti__session_close(&p->session);
    tutti__planned_end();
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, message);
}

typedef struct asked {
    const tutti__train_config *config;
    const tutti__parts *parts;
    const tutti__layout_of_ranks *layout;
    const tutti__session_data *data;
    tutti__holdings *holdings;
    tutti__timeline *timeline;
} asked;

static void forecast_of(forecast *p, const asked *a, int rank, const tutti__boundary *after)
{
    *p = (forecast){.config = *a->config,
                    .layout = a->layout,
                    .f = {.peak_when = ""},
                    .at = {.epoch = 1},
                    .after = after,
                    .timeline = rank == 0 ? a->timeline : NULL,
                    .holdings = a->holdings};
    p->session.config = &p->config;
    p->session.parts = a->parts;
    p->session.rank = rank;
    if (a->data) {
        p->session.data.train = a->data->train;
        p->session.data.test = a->data->test;
    }
}

/* The first rank's figures, with what is the most of others. */
static void take_together(tutti__footprint *f, const forecast *all, int n)
{
    const tutti__planned_call *most = all[0].f.pipeline_calls.of;
    double flops = 0;

    *f = all[0].f;
    for (int i = 0; i < n; i++) {
        const tutti__footprint *its = &all[i].f;

        f->stage_peak[i] = its->stage_peak[0];
        f->stage_flops[i] = its->flops;
        flops += its->flops / n;
        if (i > 0 && its->stage_peak[0] > f->peak_off)
            f->peak_off = its->stage_peak[0];
        for (size_t k = 0; k < TUTTI__PLANNED_CALLS; k++)
            if (its->pipeline_calls.of[k].bytes > most[k].bytes) {
                f->pipeline_calls = its->pipeline_calls;
                most = its->pipeline_calls.of;
            }
    }
    f->flops = flops;
}

/* One after the other, as if this were the first rank of each stage. */
static tutti_status look_at_stages(forecast *all, int n, const asked *a, tutti__footprint *f)
{
    const int each = a->layout->ranks / n;
    tutti__footprint_parts parts = {.bytes = NULL};
    tutti__boundary *after = NULL;
    int64_t elements = 0;
    tutti_status status = TUTTI_OK;

    if (n > 1) {
        forecast_of(&all[0], a, 0, NULL);
        status = in_session(&all[0], &after);
        elements = all[0].f.elements;
    }
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        forecast_of(&all[i], a, i * each, after);
        status = in_session(&all[i], NULL);
    }
    if (status == TUTTI_OK && all[0].holdings->of[0][0].n > 0)
        status = tutti__holdings_divide(a->holdings, &parts);
    for (int i = 0; i < n && status == TUTTI_OK; i++)
        find_peaks(&all[i], &parts, i * each, (i + 1) * each);
    if (status == TUTTI_OK)
        take_together(f, all, n);
    if (n > 1)
        f->elements = elements;
    free(parts.bytes);
    free(after);
    return status;
}

tutti_status tutti__footprint_find(tutti__footprint *f, const tutti__train_config *config,
                                   const tutti__parts *parts, const tutti__layout_of_ranks *layout,
                                   const tutti__session_data *data, tutti__timeline *timeline)
{
    const int n = layout->pipeline;
    forecast *all = tutti__alloc((size_t)n * sizeof *all);
    tutti__holdings holdings = {.ranks = 0};
    const asked a = {config, parts, layout, data, &holdings, timeline};
    tutti_status status = all ? tutti__holdings_new(&holdings, layout->ranks) : TUTTI_ERR_MEMORY;

    *f = (tutti__footprint){.peak_when = ""};
    if (status == TUTTI_OK)
        status = look_at_stages(all, n, &a, f);
    tutti__holdings_free(&holdings);
    free(all);
    return status;
}
