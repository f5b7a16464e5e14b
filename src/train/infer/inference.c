/* inference.c -- from a path of weights to predictions.   SPDX-License-Identifier: MIT
 *
 * Rank 0 reads the checkpoint, configuration and weights, and sends them to the others, so that other hosts need not see it. */
#include "train/infer/inference.h"

#include "checkpoint/output.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "data/dataset.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/config/agreement.h"
#include "train/machine/signals.h"
#include "train/config/config_read.h"
#include "train/config/hf_config.h"

#include <errno.h>
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
    char *fit; /* what the training data taught (tutti_dataset_fitted); NULL: nothing is known */
} inference;

/* ---- Which model, which data ------------------------------------------------------------------------------------- */

/* What the training data taught, from a checkpoint's state. */
static tutti_status find_fit(const json_t *state, char **fit_p)
{
    const json_t *fit = json_object_get(state, "data");

    *fit_p = fit ? json_dumps(fit, JSON_COMPACT) : NULL;
    return !fit || *fit_p ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory");
}

/* For weights in a run folder itself: its latest checkpoint has learned from the same data. */
static tutti_status find_fit_of_run(const char *run, char **fit_p)
{
    tutti__weights_place place;
    json_t *state;
    tutti_status status = tutti__weights_find(&place, run);

    if (status == TUTTI_ERR_NOT_FOUND || (status == TUTTI_OK && !place.folder[0]))
        return TUTTI_OK; /* it has no checkpoint */
    TUTTI_TRY(status);
    TUTTI_TRY(tutti__state_read(&state, place.folder));
    status = find_fit(state, fit_p);
    json_decref(state);
    return status;
}

/* The configuration with which the weights were trained, from the folder beside them; NULL: none, or none that can be read:
 * then `fault` is FILE: REASON, else "". */
static tutti_status find_keys(const char *path, bool no_data, json_t **keys_p, char **fit_p,
                              char fault[4600])
{
    tutti__weights_place place;
    json_error_t error;
    json_t *state;
    tutti_status status = TUTTI_OK;
    char file[4200];

    *keys_p = NULL;
    fault[0] = '\0';
    TUTTI_TRY(tutti__weights_find(&place, path));
    if (place.folder[0]) {
        TUTTI_TRY(tutti__state_read(&state, place.folder));
        *keys_p = json_incref(json_object_get(state, "config"));
        status = find_fit(state, fit_p);
        json_decref(state);
    } else if (place.run[0]) {
        snprintf(file, sizeof file, "%s/config.json", place.run);
        errno = 0;
        *keys_p = tutti__json_read(file, 0, &error);
        if (!*keys_p && errno == ENOMEM)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", file);
        if (!json_is_object(*keys_p))
            snprintf(fault, 4600, "%s: %s", file, *keys_p ? "it is not a JSON object" : error.text);
        status = find_fit_of_run(place.run, fit_p);
    } else if (place.hf[0]) {
        status = tutti__hf_keys(keys_p, place.hf);
        if (status == TUTTI_OK && *keys_p && !no_data)
            tutti__hf_limit_context(*keys_p);
    }
    return status;
}

/* Whether one of the flags is --KEY. */
static bool is_given(const tutti__inference *job, const char *key)
{
    for (int i = 0; i < job->argc; i++) {
        const char *p = job->argv[i];
        size_t k = 0;

        if (strncmp(p, "--", 2) != 0)
            continue;
        for (p += 2; key[k] && (p[k] == key[k] || (key[k] == '_' && p[k] == '-')); k++)
            ;
        if (!key[k] && (!p[k] || p[k] == '='))
            return true;
    }
    return false;
}

/* Keys of a checkpoint that name code. */
static const char *const PARTS[][2] = {{"model", "model_file"}, {"data", "data_file"}};

static const char *with_program(const tutti__inference *job)
{
    return job->rows ? "predict with that program (./PROGRAM --predict RUN --out FILE), or "
                     : "evaluate it with that program (./PROGRAM --eval RUN), or ";
}

/* Only their names are known. One of them is NULL: it is not the program's. */
static tutti_status fail_program(const tutti__inference *job, const char *model, const char *data)
{
    const bool is_model = model != NULL;

    if (model && data)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s was trained by a program with its own model, \"%.60s\", and its own data, "
            "\"%.60s\"; %sbuild both as shared objects (TUTTI_SHARED_MODEL, TUTTI_SHARED_DATA) and "
            "add --model ./FILE.so --data ./FILE.so",
            job->path, model, data, with_program(job));
    return tutti__fail(
        TUTTI_ERR_ARG,
        "%s was trained by a program with its own %s, \"%.60s\"; %sbuild the %s as a shared object "
        "(%s) "
        "and add --%s ./FILE.so",
        job->path, is_model ? "model" : "data", is_model ? model : data, with_program(job),
        is_model ? "model" : "data format", is_model ? "TUTTI_SHARED_MODEL" : "TUTTI_SHARED_DATA",
        is_model ? "model" : "data");
}

/* Whether the program defines it, so that a checkpoint's name for it does not matter. */
static bool is_own(const tutti__inference *job, bool is_model)
{
    return job->own && (is_model ? (const void *)job->own->model : (const void *)job->own->train);
}

static bool is_known(const tutti__inference *job, bool is_model, const char *name)
{
    const tutti_dataset_format *format = job->own ? job->own->format : NULL;

    if (is_model)
        return tutti__model_find(name) != NULL;
    return tutti__format_find(name) || (format && strcmp(format->name, name) == 0);
}

/* Whether a flag or the program gives part i, so that the checkpoint's does not matter. */
static bool is_replaced(const tutti__inference *job, size_t i)
{
    return is_given(job, PARTS[i][0]) || is_given(job, PARTS[i][1]) || is_own(job, i == 0);
}

/* The name of part i if it is missing: a program brought it to the run. Else NULL. */
static const char *missing_part(const tutti__inference *job, const json_t *keys, size_t i)
{
    const char *name = json_string_value(json_object_get(keys, PARTS[i][0]));
    const char *file = json_string_value(json_object_get(keys, PARTS[i][1]));

    return name && !(file && *file) && !is_replaced(job, i) && !is_known(job, i == 0, name) ? name
                                                                                            : NULL;
}

/* Code is loaded because the user names it, never because a checkpoint does, which may come from anywhere. */
static tutti_status refuse_code(const tutti__inference *job, const json_t *keys)
{
    const char *model = missing_part(job, keys, 0),
               *data = job->no_data ? NULL : missing_part(job, keys, 1);
    const char *dir = json_string_value(json_object_get(keys, "data_dir"));

    for (size_t i = 0; i < TUTTI__COUNT_OF(PARTS); i++) {
        const char *file = json_string_value(json_object_get(keys, PARTS[i][1]));

        if (file && *file && !is_replaced(job, i) && !(job->no_data && i == 1))
            return tutti__fail(
                TUTTI_ERR_ARG,
                "%s was trained with the %s of a shared object, which is never loaded just because "
                "a checkpoint names it; if you trust it, add --%s %.400s%s%.400s",
                job->path, PARTS[i][0], PARTS[i][0], file,
                i == 1 && dir && *dir ? " --data-dir " : "", i == 1 && dir ? dir : "");
    }
    return model || data ? fail_program(job, model, data) : TUTTI_OK;
}

/* The keys of a checkpoint that say which model and data it was trained with. */
static const struct checkpoint_key {
    const char *name, *flag;
    enum { MODEL, MODEL_SIZE, TASK, DATA, DATA_PLACE } of;
} CHECKPOINT_KEYS[] = {{"model", "--model", MODEL},
                       {"layers", "--layers", MODEL_SIZE},
                       {"width", "--width", MODEL_SIZE},
                       {"heads", "--heads", MODEL_SIZE},
                       {"patch_size", "--patch-size", MODEL_SIZE},
                       {"lora_rank", "--lora-rank", MODEL_SIZE},
                       {"lora_alpha", "--lora-alpha", MODEL_SIZE},
                       {"lora_targets", "--lora-targets", MODEL_SIZE},
                       {"lora_train", "--lora-train", MODEL_SIZE},
                       {"kv_heads", "--kv-heads", MODEL_SIZE},
                       {"context", "--context", MODEL_SIZE},
                       {"vocab", "--vocab", MODEL_SIZE},
                       {"ffn_width", "--ffn-width", MODEL_SIZE},
                       {"rope_theta", "--rope-theta", MODEL_SIZE},
                       {"rope_scaling", "--rope-scaling", MODEL_SIZE},
                       {"norm_eps", "--norm-eps", MODEL_SIZE},
                       {"tie_embeddings", "--tie-embeddings", MODEL_SIZE},
                       {"task", "--task", TASK},
                       {"loss", "--loss", TASK},
                       {"data", "--data", DATA},
                       {"data_dir", "--data-dir", DATA_PLACE},
                       {"tokenizer", "--tokenizer", DATA_PLACE},
                       {"image_size", "--image-size", DATA_PLACE},
                       {"target", "--target", DATA_PLACE},
                       {"features", "--features", DATA_PLACE},
                       {"standardize", "--standardize", DATA_PLACE},
                       {"test_fraction", "--test-fraction", DATA_PLACE}};

/* Whether a flag gives another model or data than the checkpoint's. */
static bool gives_another(const inference *in, const json_t *keys, const char *name)
{
    const char *trained_with = json_string_value(json_object_get(keys, name));
    const char *given = strcmp(name, "model") == 0 ? in->config->model : in->config->data;

    return is_given(in->job, name) && !(trained_with && strcmp(given, trained_with) == 0);
}

/* Whether the checkpoint's key holds for this job: another data set is in another folder, and its images have other sizes; another
 * model has other layers. */
static bool holds(const inference *in, const json_t *keys, const struct checkpoint_key *key)
{
    if (is_given(in->job, key->name))
        return false;
    switch (key->of) {
    case MODEL:
        return !is_own(in->job, true);
    case MODEL_SIZE:
        return !gives_another(in, keys, "model");
    case TASK: /* of other data it is found anew */
        return !gives_another(in, keys, "data");
    case DATA:
        return !is_own(in->job, false);
    default:
        return !is_own(in->job, false) && !gives_another(in, keys, "data");
    }
}

/* Reads the checkpoint's keys, then the given ones, which override them. */
static tutti_status read_config(inference *in, const json_t *keys)
{
    enum { N = TUTTI__COUNT_OF(CHECKPOINT_KEYS) };
    const tutti__inference *job = in->job;
    char **argv = tutti__alloc(((size_t)job->argc + 2 * N + 1) * sizeof *argv), numbers[N][24];
    tutti_status status;
    int n = 0;

    if (!argv)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < N; i++) {
        const json_t *key = json_object_get(keys, CHECKPOINT_KEYS[i].name);
        const char *value = json_is_number(key)    ? numbers[i]
                            : json_is_boolean(key) ? (json_is_true(key) ? "true" : "false")
                                                   : json_string_value(key);

        if (json_is_integer(key))
            snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)json_integer_value(key));
        else if (json_is_real(key))
            snprintf(numbers[i], sizeof numbers[i], "%.15g", json_real_value(key));
        if (!value || !*value || !holds(in, keys, &CHECKPOINT_KEYS[i]) ||
            (job->no_data && CHECKPOINT_KEYS[i].of == DATA && !is_known(job, false, value)))
            continue;
        argv[n++] = (char *)(uintptr_t)CHECKPOINT_KEYS[i].flag;
        argv[n++] = (char *)(uintptr_t)value;
    }
    memcpy(argv + n, job->argv, (size_t)job->argc * sizeof *argv);
    status = tutti__config_read(in->config, &in->parts, n + job->argc, argv);
    free(argv);
    return status;
}

/* Without a configuration, the program or a flag must name the model and the data. */
static tutti_status need_names(const tutti__inference *job, const char *fault)
{
    const bool model = is_own(job, true) || is_given(job, "model");
    const bool data = job->no_data || is_own(job, false) || (job->own && job->own->format) ||
                      is_given(job, "data");

    if (model && data)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG, "%s%s%s would name model and data; give %s%s%s",
        *fault ? "cannot read " : job->path,
        *fault ? fault
               : " has no configuration beside it (a checkpoint's state.json, a run's config.json)",
        *fault ? "; it" : ", which", model ? "" : "--model", model || data ? "" : " and ",
        data ? "" : "--data");
}

/* On rank 0. */
static tutti_status choose_config(inference *in)
{
    json_t *keys = NULL;
    char fault[4600];
    tutti_status status = find_keys(in->job->path, in->job->no_data, &keys, &in->fit, fault);

    if (status == TUTTI_OK && !json_is_object(keys))
        status = need_names(in->job, fault);
    if (status == TUTTI_OK)
        status = refuse_code(in->job, keys);
    if (status == TUTTI_OK)
        status = read_config(in, keys);
    if (is_own(in->job, false) || gives_another(in, keys, "data")) { /* of other data */
        free(in->fit);
        in->fit = NULL;
    }
    json_decref(keys);
    return status;
}

tutti_status tutti__inference_choose(const tutti__inference *job, tutti__train_config *config,
                                     tutti__parts *parts, char **fit_p)
{
    inference *in = tutti__alloc(sizeof *in);
    tutti_status status;

    if (!in)
        return TUTTI_ERR_MEMORY;
    in->job = job;
    in->config = config;
    in->parts = *parts;
    status = choose_config(in);
    *parts = in->parts;
    *fit_p = in->fit;
    free(in);
    return status;
}

/* ---- Weights ------------------------------------------------------------------------------------------------------ */

/* Of a run with an average of its weights that is used, because its own evaluations were of that. */
static tutti_status load_weights(inference *in)
{
    static const tutti_load_opts opts = {.finite = true};
    const char *wanted = in->job->weights;
    char average[4096];
    bool found;

    if (in->session.rank != 0)
        return TUTTI_OK;
    found =
        (!wanted || strcmp(wanted, "ema") == 0) && tutti__weights_find_ema(in->job->path, average);
    if (wanted && strcmp(wanted, "ema") == 0 && !found)
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "--weights ema: %s has no ema.safetensors; expected a checkpoint, or a "
                           "run folder, of a run with --ema",
                           in->job->path);
    TUTTI_TRY(tutti_module_load_with(in->session.module, found ? average : in->job->path, &opts,
                                     in->weights, sizeof in->weights));
    return in->config->lora_init[0] ? tutti_lora_load(in->session.module, in->config->lora_init)
                                    : TUTTI_OK;
}

/* Sends rank 0's weights to all ranks. */
static tutti_status share_weights(inference *in)
{
    tutti__session *s = &in->session;
    tutti_status status = TUTTI_OK;

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
    const size_t batch = (size_t)in->config->batch_size, all = (size_t)in->session.size * batch;

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
    const size_t batch = (size_t)in->config->batch_size, size = (size_t)in->session.size;

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

/* Sends all ranks' rows of this round to rank 0; for a smaller or missing batch the remaining rows are undefined. */
static tutti_status gather_rows(void *user, size_t round, const tutti_batch *batch,
                                const float *outputs)
{
    inference *in = user;
    const size_t rows = (size_t)in->config->batch_size, size = (size_t)in->session.size;
    const size_t n = rows * in->width, bytes = rows * in->y_bytes;
    tutti_buf got_outputs = {0}, got_y = {0};

    if (batch) {
        keep_outputs(in, outputs, batch->n);
        memcpy(in->sent_y, batch->y.p, batch->n * in->y_bytes);
    }
    if (in->session.rank == 0) {
        got_outputs = TUTTI_BUF(in->got_outputs, n * size, TUTTI_F32);
        got_y = TUTTI_BUF(in->got_y, bytes * size, TUTTI_U8);
    }
    TUTTI_TRY(tutti_gather(in->session.group, TUTTI_CONST_BUF(in->sent_outputs, n, TUTTI_F32),
                           got_outputs, 0, NULL));
    TUTTI_TRY(tutti_gather(in->session.group, TUTTI_CONST_BUF(in->sent_y, bytes, TUTTI_U8), got_y,
                           0, NULL));
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
    return test && is_own(in->job, false) && !in->job->own->test
               ? tutti__fail(TUTTI_ERR_ARG, "this program has no test data; --split train "
                                            "evaluates its training data")
               : TUTTI_OK;
}

/* Flags that need classes. */
static tutti_status check_flags(const inference *in)
{
    const tutti__train_task *task = &in->session.task;
    char text[512];
    const bool has =
        in->job->confusion ? task->positions > 0 && !task->kind->is_text : task->kind->has_logits;

    if (task->kind->is_text && in->job->rows)
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
    int64_t bytes = s->rank == 0 && in->fit ? (int64_t)strlen(in->fit) + 1 : 0;
    tutti_status status;

    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(&bytes, 1, TUTTI_I64), 0, NULL));
    if (bytes == 0)
        return TUTTI_OK;
    if (s->rank != 0)
        in->fit = tutti__alloc((size_t)bytes);
    status = in->fit ? TUTTI_OK : TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__fail_together(s->group, status));
    return tutti_broadcast(s->group, TUTTI_BUF(in->fit, (size_t)bytes, TUTTI_U8), 0, NULL);
}

/* The parts that a rank does without the others. */
static tutti_status open_alone(inference *in)
{
    int64_t count;

    TUTTI_TRY(check_split(in));
    in->session.data.fit = in->fit;
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
    return choose_config(in);
}

static tutti_status open_all(inference *in)
{
    tutti__session *s = &in->session;

    TUTTI_TRY(tutti__config_read_each(in->config, &in->parts, in->job->argc, in->job->argv));
    TUTTI_TRY(tutti__session_open_group(s));
    TUTTI_TRY(tutti__fail_together(s->group, s->rank == 0 ? open_files(in) : TUTTI_OK));
    TUTTI_TRY(
        tutti_broadcast(s->group, TUTTI_BUF(in->config, sizeof *in->config, TUTTI_U8), 0, NULL));
    TUTTI_TRY(share_fit(in));
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
                             .user = in});
    in->seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_alone(in->session.group, status);
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
    return tutti__fail_together(in->session.group,
                                in->session.rank == 0 ? done(user, &result) : TUTTI_OK);
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
    void *const memory[] = {in->outputs, in->sent_outputs, in->got_outputs, in->y,  in->sent_y,
                            in->got_y,   in->predicted,    in->config,      in->fit};

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
