/* footprint.c -- a run's first steps without memory.   SPDX-License-Identifier: MIT
 *
 *   open ── step 1 ─────── step 2 ─────── an evaluation ── a copy for a checkpoint
 *           buckets are    the optimizer  outputs
 *           laid out       has its state
 *
 * The peak is the largest sum, at one of these moments, of what is allocated and what the arenas have used so far: their pages
 * stay. */
#include "train/forecast/footprint.h"

#include "checkpoint/copies.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "device/planned/planned.h"
#include "nn/nn.h"
#include "optim/ema.h"
#include "optim/optim.h"
#include "reducer/reducer.h"
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
    size_t begun;                                 /* resident before the session */
    size_t laid_out, updated, stepped, evaluated; /* the most that was allocated at these moments */
    size_t steady;                                /* what is allocated between steps */
    size_t rested; /* and after an evaluation, of which some gathered parameters are left */
    size_t in_steps,
        in_all;     /* what the arenas have used by the end of step 2, and of the evaluation */
    size_t outputs; /* of an evaluation, in host memory */
    size_t copy, copy_off; /* of a checkpoint: rank 0's, and that of others */
    size_t gathered;       /* of state in shares, meanwhile */
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

/* The session's groups that are not another's; returns how many. The last is that of ranks that divide layers, if there is one. */
static int groups_of(const tutti__session *s, tutti_group *groups[3])
{
    static const char *const names[] = {"data", "tensor"};
    int n = 0;

    if (tutti_mesh_group(s->mesh, "tensor") != s->group)
        groups[n++] = s->group;
    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++) {
        tutti_group *group = tutti_mesh_group(s->mesh, names[i]);

        if (group && (i == 1 || group != s->group))
            groups[n++] = group;
    }
    return n;
}

static void forget_calls(const tutti__session *s)
{
    tutti_group *groups[3];

    for (int i = groups_of(s, groups); i-- > 0;) {
        tutti__planned_calls *calls = tutti__group_planned_calls(groups[i]);

        memset(calls->of, 0, sizeof calls->of);
    }
}

static void note_calls(const tutti__session *s, tutti__footprint *f)
{
    tutti_group *groups[3];
    const int n = groups_of(s, groups);

    for (int i = 0; i < n; i++) {
        const tutti__planned_calls *from = tutti__group_planned_calls(groups[i]);
        tutti__planned_calls *to = s->mesh && i + 1 == n ? &f->tensor_calls : &f->calls;

        for (size_t k = 0; k < TUTTI__COUNT_OF(from->of); k++) {
            to->of[k].name = from->of[k].name ? from->of[k].name : to->of[k].name;
            to->of[k].n += from->of[k].n;
            to->of[k].bytes += from->of[k].bytes;
        }
    }
}

static size_t group_memory(const tutti__session *s)
{
    tutti_group *groups[3];
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
    status = gradients(p);
    if (status == TUTTI_OK)
        status = update(p);
    note_calls(s, p->f);
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
    p->rested = tutti__planned_count().now;
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

/* What is allocated to write a checkpoint (train/save/writer.c), and for the final weights. */
static tutti_status copy_state(forecast *p)
{
    const tutti__session *s = &p->session;
    const size_t before = tutti__planned_count().now;
    tutti__footprint_parts parts = {.first = 0};
    tutti__copies whole = {.module = s->module, .optim = s->optim, .average = s->ema};
    tutti_status status = TUTTI_OK;

    if (tutti__session_is_divided(s))
        status = tutti__footprint_copies(s, &parts);
    memcpy(whole.divided, parts.divided, sizeof whole.divided);
    if (status == TUTTI_OK) /* what is not divided, which rank 0 has alone */
        status = tutti__copies_room(&whole, NULL);
    p->copy = tutti__planned_count().now - before + parts.first;
    p->copy_off = parts.others;
    p->weights =
        tutti__session_divides_model(s) ? parts.largest : tutti__alloc_takes(whole.model.bytes);
    if (s->zero && s->size == 1 &&
        s->shards == 0) /* kind by kind, and a bucket (ddp/zero_state.c) */
        p->gathered = (size_t)tutti__config_optim_states(&p->config) *
                          tutti__alloc_takes(s->module->root->n_flat * sizeof(float)) +
                      tutti__alloc_takes(p->f->largest_bucket);
    tutti__copies_free(&whole);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------------ */

static tutti_status need_all(const tutti_module *m)
{
    for (size_t i = 0; i < tutti_module_n_parameters(m); i++)
        TUTTI_TRY(tutti__tensor_need(tutti_module_parameter(m, i), true));
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
    TUTTI_TRY(tutti__group_plan(&s->group, s->size, p->layout->local_ranks));
    TUTTI_TRY(tutti__session_open_mesh(s));
    TUTTI_TRY(tutti__session_open_alone(s));
    if (c->init[0]) /* loads them all, before there are shares */
        TUTTI_TRY(need_all(s->module));
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
                 group = group_memory(s), buffers = buffer_bytes(s->module);
    const int stage = s->zero ? tutti_zero_get_stats(s->zero).stage : 0;
    const void *reduced = tutti__reducer_sums(tutti_ddp_reducer(s->ddp));
    const tutti__planned_bytes sums =
        reduced ? tutti__planned_backed(reduced) : (tutti__planned_bytes){0, 0};
    tutti__planned_bytes parameters = {flat, flat}, gradients = {flat, flat};
    tutti__footprint *f = p->f;
    size_t known;

    if (stage == 3)
        parameters = tutti__planned_backed(root->flat_parameters);
    if (stage >= 2 || !root->gradients_borrowed)
        gradients = tutti__planned_backed(root->flat_gradients);
    f->elements = tutti_module_count(s->module);
    f->parameters = parameters.most + buffers;
    f->gradients = gradients.most;
    f->average = s->ema ? flat : 0;
    f->communication = stage >= 2 ? group + sums.most : group > flat ? group - flat : 0;
    f->optimizer = tutti_optim_state_bytes(s->optim);
    known = parameters.now + buffers + gradients.now + f->optimizer + f->average +
            f->communication - (sums.most - sums.now);
    f->kernels = p->steady > known ? p->steady - known : 0;
    if (stage < 2 && root->gradients_borrowed) {
        f->gradients -= frozen;
        p->unused = frozen;
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
    const tutti_ctx *cx = p->session.cx;
    const size_t kept = own - p->unused;
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
        consider(&most, kept + p->rested + copy + gathered + last + cx->small.most + cx->arena.most,
                 "writing the results");
    return most;
}

static void find_peaks(const forecast *p, size_t own)
{
    const peak first = find_peak(p, own, p->copy, p->gathered, p->weights),
               other = find_peak(p, own, p->copy_off, 0, 0);
    tutti__footprint *f = p->f;

    f->peak = first.bytes;
    f->peak_when = first.when;
    f->peak_off = other.bytes;
    if (saves_between(p))
        f->checkpoint = p->copy + p->gathered;
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
    find_peaks(p, f->program + f->data);
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
