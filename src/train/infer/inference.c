/* inference.c -- from a path of weights to predictions.   SPDX-License-Identifier: MIT
 *
 * Rank 0 reads the checkpoint, configuration and weights, and sends them to the others, so that other hosts need not see it. */
#include "train/infer/inference.h"

#include "checkpoint/module_load.h"
#include "checkpoint/output.h"
#include "checkpoint/weights.h"
#include "data/dataset.h"
#include "tensor/tensor.h"
#include "train/config/agreement.h"
#include "train/session/amp.h"
#include "train/session/evaluate.h"
#include "train/machine/signals.h"
#include "train/config/config_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>

typedef struct inference {
    tutti__session session;
    const tutti__inference *job;
    tutti__train_config *config;
    tutti__parts parts;
    tutti__tally tally;
    char weights[2048];
    double seconds;
    /* On rank 0: all rows, of `width` outputs and y_bytes of labels or targets. On each rank: the rows of one round, to send; on
     * rank 0 also those received. */
    size_t width, y_bytes;
    float *outputs, *sent_outputs, *got_outputs;
    char *y, *sent_y, *got_y;
    bool masks;         /* outputs are the predicted class of each pixel */
    int64_t *predicted; /* of one sample */
    tutti__inference_setup setup;
} inference;

/* ---- Weights ------------------------------------------------------------------------------------------------------ */

static const tutti_load_opts load_opts = {.finite = true};

/* Whether ranks have parts of the model (--tensor, --zero 3). */
static bool is_divided(const inference *in)
{
    return in->session.mesh || (in->config->zero == 3 && in->session.size > 1);
}

/* The file of the weights. */
static tutti_status find_weights(const inference *in, char average[4096], const char **path_p)
{
    TUTTI_TRY(tutti__inference_average(&in->setup, average));
    *path_p = average[0] ? average : in->job->path;
    return TUTTI_OK;
}

/* On rank 0, unless the model is divided; adapters from a file of their own on each rank that has some of them. */
static tutti_status load_weights(inference *in)
{
    const char *lora = in->config->lora_init, *path;
    char average[4096];

    if (in->session.rank != 0 && !is_divided(in))
        return TUTTI_OK;
    if (!is_divided(in)) {
        TUTTI_TRY(find_weights(in, average, &path));
        TUTTI_TRY(tutti_module_load_with(in->session.module, path, &load_opts, in->weights,
                                         sizeof in->weights));
    }
    return *lora ? tutti_lora_load(in->session.module, lora) : TUTTI_OK;
}

/* Each rank reads its stages from the file that rank 0 names. */
static tutti_status load_stages(inference *in)
{
    tutti__session *s = &in->session;
    const char *lora = in->config->lora_init, *found = "";
    char average[4096], path[4096] = "";
    tutti_status status;

    TUTTI_TRY(tutti__session_agree_pipeline(s));
    TUTTI_TRY(tutti__fail_together(s->group,
                                   s->rank == 0 ? find_weights(in, average, &found) : TUTTI_OK));
    snprintf(path, sizeof path, "%s", found);
    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(path, sizeof path, TUTTI_U8), 0, NULL));
    status = tutti_module_load_with(s->module, path, &load_opts, in->weights, sizeof in->weights);
    if (status == TUTTI_OK && *lora)
        status = tutti_lora_load(s->module, lora);
    snprintf(in->weights + strlen(in->weights), sizeof in->weights - strlen(in->weights),
             "; those of rank 0's stages");
    return tutti__fail_together(s->group, status);
}

/* Rank 0 reads tensor by tensor, and sends each rank what it has of it. */
static tutti_status load_parts(inference *in)
{
    tutti__session *s = &in->session;
    const char *path = "";
    char average[4096];

    if (s->pipeline)
        return load_stages(in);
    if (in->config->zero == 3)
        TUTTI_TRY(tutti__session_open_ddp(s));
    TUTTI_TRY(
        tutti__fail_together(s->group, s->rank == 0 ? find_weights(in, average, &path) : TUTTI_OK));
    return tutti__fail_together(s->group,
                                tutti__module_load_pieces(s->module, s->group, path, &load_opts,
                                                          in->config->lora_init[0] != '\0',
                                                          in->weights, sizeof in->weights));
}

/* Sends rank 0's weights to all ranks, or what each has of them. */
static tutti_status share_weights(inference *in)
{
    tutti__session *s = &in->session;
    tutti_status status = TUTTI_OK;

    if (is_divided(in))
        return load_parts(in);
    for (size_t i = 0; s->size > 1 && i < tutti_module_n_state(s->module); i++) {
        tutti_tensor *t = tutti_module_state(s->module, i);
        size_t bytes = tutti__tensor_bytes(t);
        void *p = tutti__alloc(bytes);

        status = p ? tutti_tensor_read(t, p) : TUTTI_ERR_MEMORY;
        if (status == TUTTI_OK)
            status = tutti_broadcast(s->group, TUTTI_BUF(p, bytes, TUTTI_U8), 0, NULL);
        if (status == TUTTI_OK)
            status = tutti_tensor_write(t, p);
        free(p);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

/* ---- Rows --------------------------------------------------------------------------------------------------------- */

static tutti_status allocate_rows(inference *in)
{
    const tutti_dataset_info info = tutti_dataset_describe(in->session.data.test);
    const size_t batch = (size_t)in->config->batch_size;
    const size_t all = (size_t)tutti__session_data_size(&in->session) * batch;

    if (!in->job->rows)
        return TUTTI_OK;
    in->masks = in->session.task.positions > 1 && !in->job->logits;
    in->width = in->masks ? in->session.task.positions : tutti__task_width(&in->session.task);
    in->y_bytes = in->session.task.positions > 0
                      ? in->session.task.positions * sizeof(int64_t)
                      : in->session.task.numbers *
                            (in->session.task.integers ? sizeof(int64_t) : sizeof(float));
    in->predicted = tutti__alloc((in->session.task.positions + 1) * sizeof *in->predicted);
    in->sent_outputs = tutti__alloc(batch * in->width * sizeof(float));
    in->sent_y = tutti__alloc(batch * in->y_bytes);
    if (!in->sent_outputs || !in->sent_y || !in->predicted)
        return TUTTI_ERR_MEMORY;
    if (in->session.rank != 0)
        return TUTTI_OK;
    in->got_outputs = tutti__alloc(all * in->width * sizeof(float));
    in->got_y = tutti__alloc(all * in->y_bytes);
    in->outputs = tutti__alloc(info.count * in->width * sizeof(float));
    in->y = tutti__alloc(info.count * in->y_bytes);
    return in->got_outputs && in->got_y && in->outputs && in->y ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* Row i of rank r in a round is sample (round * batch + i) * ranks + r: the sampler assigns samples round robin. */
static void place_rows(inference *in, size_t round)
{
    const size_t count = tutti_dataset_describe(in->session.data.test).count;
    const size_t batch = (size_t)in->config->batch_size;
    const size_t size = (size_t)tutti__session_data_size(&in->session);

    for (size_t r = 0; r < size; r++)
        for (size_t i = 0; i < batch; i++) {
            const size_t sample = (round * batch + i) * size + r, row = r * batch + i;

            if (sample >= count)
                break;
            memcpy(in->y + sample * in->y_bytes, in->got_y + row * in->y_bytes, in->y_bytes);
            memcpy(in->outputs + sample * in->width, in->got_outputs + row * in->width,
                   in->width * sizeof(float));
        }
}

/* Of masks only the class of each pixel, unless the logits are asked for. */
static void keep_outputs(inference *in, const float *outputs, size_t n)
{
    const size_t each = tutti__task_width(&in->session.task);

    if (!in->masks) {
        memcpy(in->sent_outputs, outputs, n * in->width * sizeof(float));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        tutti__task_predict(&in->session.task, outputs + i * each, in->predicted);
        for (size_t k = 0; k < in->width; k++)
            in->sent_outputs[i * in->width + k] = (float)in->predicted[k];
    }
}

/* Of a pipeline the last stage has the n outputs; its first rank, which has the labels too, gets them. */
static tutti_status bring_outputs(inference *in, size_t n)
{
    tutti_group *stages = tutti_mesh_group(in->session.mesh, "pipeline");
    const int last = tutti_group_size(stages) - 1;

    if (tutti_group_rank(stages) == last)
        return tutti_send(stages, TUTTI_CONST_BUF(in->sent_outputs, n, TUTTI_F32), 0, 0, NULL);
    return tutti_group_rank(stages) == 0
               ? tutti_recv(stages, TUTTI_BUF(in->sent_outputs, n, TUTTI_F32), last, 0, NULL)
               : TUTTI_OK;
}

/* Sends all ranks' rows of this round to rank 0; for a smaller or missing batch the remaining rows are undefined. */
static tutti_status gather_rows(void *user, size_t round, const tutti_batch *batch,
                                const float *outputs)
{
    inference *in = user;
    tutti_group *group = tutti__session_data_group(&in->session);
    const size_t rows = (size_t)in->config->batch_size, size = (size_t)tutti_group_size(group);
    const size_t n = rows * in->width, bytes = rows * in->y_bytes;
    tutti_buf got_outputs = {0}, got_y = {0};

    if (tutti_mesh_rank(in->session.mesh, "tensor") > 0) /* another has the same */
        return TUTTI_OK;
    if (batch) {
        if (outputs) /* else another rank has the last stage */
            keep_outputs(in, outputs, batch->n);
        memcpy(in->sent_y, batch->y.p, batch->n * in->y_bytes);
    }
    if (in->session.pipeline)
        TUTTI_TRY(bring_outputs(in, n));
    if (tutti_mesh_rank(in->session.mesh, "pipeline") > 0)
        return TUTTI_OK;
    if (in->session.rank == 0) {
        got_outputs = TUTTI_BUF(in->got_outputs, n * size, TUTTI_F32);
        got_y = TUTTI_BUF(in->got_y, bytes * size, TUTTI_U8);
    }
    TUTTI_TRY(
        tutti_gather(group, TUTTI_CONST_BUF(in->sent_outputs, n, TUTTI_F32), got_outputs, 0, NULL));
    TUTTI_TRY(tutti_gather(group, TUTTI_CONST_BUF(in->sent_y, bytes, TUTTI_U8), got_y, 0, NULL));
    if (in->session.rank == 0)
        place_rows(in, round);
    return TUTTI_OK;
}

/* ---- The whole run ----------------------------------------------------------------------------------------------- */

/* Of a program's own data, and of most formats, there are two. */
static tutti_status check_split(const inference *in)
{
    const char *split = in->job->split;
    const tutti_dataset_format *format = in->parts.format;
    const bool test = strcmp(split, "test") == 0;

    if (!test && strcmp(split, "train") != 0 && !(format && format->any_split))
        return tutti__fail_choice("--split", split, (const char *const[]){"train", "test"}, 2);
    return test && in->job->own && in->job->own->train && !in->job->own->test
               ? tutti__fail(TUTTI_ERR_ARG, "this program has no test data; --split train "
                                            "evaluates its training data")
               : TUTTI_OK;
}

/* Flags that need classes. */
static tutti_status check_flags(const inference *in)
{
    const tutti__train_task *task = &in->session.task;
    const bool has = in->job->confusion ? task->positions > 0 && !task->kind->is_language_modeling
                                        : task->kind->has_logits;
    char text[512];

    if (task->kind->is_language_modeling && in->job->rows)
        return tutti__fail(TUTTI_ERR_ARG,
                           "predict: %s is a language model, whose output is a distribution over "
                           "%zu tokens at each position; for text: tutti generate",
                           tutti__printable(in->job->path, text, sizeof text), task->classes);
    if (in->job->rows && task->positions > 1 && !tutti__ends_in(in->job->output, ".safetensors"))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "--out is %s, and data=%s has masks: a class for each pixel is no row of "
            "a table; expected a file that ends in .safetensors",
            in->job->output, in->config->data);
    return !in->job->of_classes || has
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_ARG,
                             "%s: the samples of data=%s have no classes (task=%s); leave it out",
                             in->job->of_classes, in->config->data, task->kind->name);
}

/* Sends rank 0's `fit` to all ranks. */
static tutti_status share_fit(inference *in)
{
    const tutti__session *s = &in->session;
    int64_t bytes = s->rank == 0 && in->setup.fit ? (int64_t)strlen(in->setup.fit) + 1 : 0;
    tutti_status status;

    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(&bytes, 1, TUTTI_I64), 0, NULL));
    if (bytes == 0)
        return TUTTI_OK;
    if (s->rank != 0)
        in->setup.fit = tutti__alloc((size_t)bytes);
    status = in->setup.fit ? TUTTI_OK : TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__fail_together(s->group, status));
    return tutti_broadcast(s->group, TUTTI_BUF(in->setup.fit, (size_t)bytes, TUTTI_U8), 0, NULL);
}

/* The parts that a rank does without the others. */
static tutti_status open_alone(inference *in)
{
    int64_t count;

    TUTTI_TRY(check_split(in));
    in->session.data.fit = in->setup.fit;
    TUTTI_TRY(tutti__session_open_test(&in->session, in->job->split));
    count = (int64_t)tutti_dataset_describe(in->session.data.test).count;
    if (in->config->batch_size > count) /* no memory for more rows than there are */
        in->config->batch_size = count;
    TUTTI_TRY(tutti__session_open_model(&in->session));
    TUTTI_TRY(check_flags(in));
    TUTTI_TRY(
        tutti__tally_new(&in->tally, &in->session.task, in->parts.own.metrics, in->job->confusion));
    TUTTI_TRY(allocate_rows(in));
    return load_weights(in);
}

/* On rank 0, which alone needs them. */
static tutti_status open_files(inference *in)
{
    TUTTI_TRY(in->job->output ? tutti__output_try(in->job->output) : TUTTI_OK);
    return tutti__inference_choose(&in->setup);
}

static tutti_status check_layout(const inference *in)
{
    const long long zero = in->config->zero;

    return zero == 0 || zero == 3
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_ARG,
                             "zero: %lld divides gradients and an optimizer's state, which are not "
                             "needed here; use 3, which divides the weights, or 0",
                             zero);
}

static tutti_status open_all(inference *in)
{
    tutti__session *s = &in->session;

    TUTTI_TRY(tutti__config_read_each(in->config, &in->parts, in->job->argc, in->job->argv));
    TUTTI_TRY(tutti__session_open_group(s));
    TUTTI_TRY(tutti__fail_together(s->group, check_layout(in)));
    TUTTI_TRY(tutti__fail_together(s->group, s->rank == 0 ? open_files(in) : TUTTI_OK));
    TUTTI_TRY(
        tutti_broadcast(s->group, TUTTI_BUF(in->config, sizeof *in->config, TUTTI_U8), 0, NULL));
    TUTTI_TRY(share_fit(in));
    TUTTI_TRY(tutti__fail_together(s->group, tutti__session_open_mesh(s)));
    TUTTI_TRY(tutti__fail_together(s->group, tutti__parts_find(&in->parts, in->config)));
    TUTTI_TRY(tutti__core_share_find(s->group, &s->cores));
    TUTTI_TRY(tutti__fail_together(s->group, open_alone(in)));
    TUTTI_TRY(tutti__fail_together(s->group, tutti__session_same_data(s)));
    return share_weights(in);
}

/* A rank that fails alone, during the work, ends the group. */
static tutti_status evaluate(inference *in)
{
    const tutti__inference *job = in->job;
    tutti__tick tick = job->tick;
    const uint64_t begin_ns = tutti__now_ns();
    tutti_status status;

    tutti__signals_watch("");
    status = tutti__evaluate(
        &in->session,
        &(tutti__evaluation){.tally = &in->tally,
                             .tick = in->session.rank == 0 && tick.call ? &tick : NULL,
                             .rows = job->rows ? gather_rows : NULL,
                             .user = in,
                             .autocast = tutti__amp_dtype(&in->session)});
    in->seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_alone(in->session.group, status);
}

/* Figures and predictions that mean less than they seem to: a warning with rows, in which NaN can be seen, and else a failure,
 * because a script would take the other figures for those of a model that works. The figures were written. */
static tutti_status check_finite(const inference *in)
{
    const int64_t unknown = tutti__tally_unknown(&in->tally);
    const bool classes = in->session.task.kind->has_logits;
    char text[256];

    if (unknown > 0)
        snprintf(text, sizeof text,
                 "outputs of %lld of %lld samples are NaN%s%s; look for very large numbers in the "
                 "data and the weights",
                 (long long)unknown, (long long)tutti__tally_samples(&in->tally),
                 classes ? ", and count as wrong" : "",
                 classes && in->job->rows ? ": their predicted class is -1" : "");
    else if (!isfinite(tutti__tally_loss(&in->tally)))
        snprintf(text, sizeof text,
                 "the loss is not finite: look for numbers that are infinite, NaN or very large "
                 "among outputs and targets");
    else
        return TUTTI_OK;
    if (!in->job->rows)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s", text);
    tutti_log(TUTTI_LOG_WARN, "predict", "%s", text);
    return TUTTI_OK;
}

static tutti_status deliver_here(const inference *in, const tutti__inference_result *result,
                                 tutti_status (*done)(void *user,
                                                      const tutti__inference_result *result),
                                 void *user)
{
    TUTTI_TRY(done(user, result));
    return check_finite(in);
}

static tutti_status deliver(inference *in,
                            tutti_status (*done)(void *user, const tutti__inference_result *result),
                            void *user)
{
    tutti__inference_result result = {.config = in->config,
                                      .data = tutti_dataset_describe(in->session.data.test),
                                      .noun = tutti__dataset_noun(in->session.data.test),
                                      .tally = &in->tally,
                                      .task = &in->session.task,
                                      .own = in->parts.own.metrics,
                                      .masks = in->masks,
                                      .weights = in->weights,
                                      .rank = in->session.rank,
                                      .size = in->session.size,
                                      .seconds = in->seconds,
                                      .width = in->width,
                                      .outputs = in->outputs,
                                      .y = in->y};

    result.data.split = in->job->split; /* a program need not set it */
    return tutti__fail_together(in->session.group, in->session.rank == 0
                                                       ? deliver_here(in, &result, done, user)
                                                       : TUTTI_OK);
}

/* The figures for a program. */
static void fill_in(const inference *in, tutti_trainer_result *result)
{
    tutti__eval_metrics scores;

    result->val_loss = tutti__tally_loss(&in->tally);
    tutti__tally_scores(&in->tally, &scores);
    result->val_accuracy = scores.val_accuracy;
    result->seconds = in->seconds;
    result->images_per_s = (double)tutti__tally_samples(&in->tally) / in->seconds;
    result->parameters = tutti_module_count(in->session.module);
}

static void close_all(inference *in)
{
    void *const memory[] = {in->outputs,   in->sent_outputs, in->got_outputs,
                            in->y,         in->sent_y,       in->got_y,
                            in->predicted, in->config,       in->setup.fit};

    tutti__tally_free(&in->tally);
    tutti__session_close(&in->session);
    for (size_t i = 0; i < TUTTI__COUNT_OF(memory); i++)
        free(memory[i]);
}

tutti_status tutti__infer(const tutti__inference *job,
                          tutti_status (*done)(void *user, const tutti__inference_result *result),
                          void *user, tutti_trainer_result *result)
{
    inference *in = tutti__alloc(sizeof *in);
    tutti_status status = TUTTI_ERR_MEMORY;
    char message[2048];

    result->status = "failed";
    result->exit_code = tutti_status_exit_code(status);
    tutti__report_as(job->command);
    if (in)
        in->config = in->session.config = tutti__alloc(sizeof *in->config);
    if (!in || !in->config) {
        free(in);
        return tutti__report_no_memory();
    }
    in->job = job;
    in->parts.title = job->command;
    if (job->own)
        in->parts.own = *job->own;
    in->session.parts = &in->parts;
    in->setup = (tutti__inference_setup){.job = job, .config = in->config, .parts = &in->parts};
    status = open_all(in);
    if (status == TUTTI_OK)
        status = evaluate(in);
    if (status == TUTTI_OK && !in->session.stop.stopping)
        status = deliver(in, done, user);
    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (status == TUTTI_OK && !in->session.stop.stopping)
        fill_in(in, result);
    close_all(in);
    tutti__session_outcome(&in->session, status, result);
    free(in);
    tutti__report_as(NULL); /* the name may be the program's memory */
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, message);
}
