/* inference_config.c -- the configuration of `tutti eval`, `predict` and `generate`: the run's, and what flags change.
 * SPDX-License-Identifier: MIT */
#include "train/infer/inference_config.h"

#include "base/flag.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "data/dataset.h"
#include "data/text/tokenizer.h"
#include "nn/nn.h"
#include "train/config/config_read.h"
#include "train/config/hf_config.h"
#include "train/infer/run_tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

    if (status == TUTTI_ERR_NOT_FOUND || status == TUTTI_ERR_FORMAT ||
        (status == TUTTI_OK && !place.folder[0]))
        return TUTTI_OK; /* it has no whole checkpoint */
    TUTTI_TRY(status);
    TUTTI_TRY(tutti__state_read(&state, place.folder));
    status = find_fit(state, fit_p);
    json_decref(state);
    return status;
}

/* The configuration with which the weights were trained, from the folder beside them; NULL: none, or none that can be read:
 * then `fault` says why, else "". */
static tutti_status find_keys(const char *path, bool no_data, json_t **keys_p, char **fit_p,
                              char fault[TUTTI__HF_FAULT])
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
            snprintf(fault, TUTTI__HF_FAULT, "cannot read %s: %s", file,
                     *keys_p ? "it is not a JSON object" : error.text);
        status = find_fit_of_run(place.run, fit_p);
    } else if (place.hf[0]) {
        status = tutti__hf_keys(keys_p, place.hf, fault);
        if (status == TUTTI_OK && *keys_p)
            status = tutti__hf_check_sizes(*keys_p, place.hf, place.file);
        if (status == TUTTI_OK && *keys_p && !no_data)
            tutti__hf_limit_context(*keys_p);
    }
    return status;
}

/* Whether one of the flags is --KEY, or --no-KEY. */
static bool is_given(const tutti__inference *job, const char *key)
{
    for (int i = 0; i < job->argc; i++) {
        const char *p = job->argv[i];

        if (strncmp(p, "--", 2) != 0)
            continue;
        p += 2;
        if (strncmp(p, "no-", 3) == 0 || strncmp(p, "no_", 3) == 0)
            p += 3;
        if (tutti__flag_is(p, key))
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
                       {"tta", "--tta", TASK},
                       {"data", "--data", DATA},
                       {"data_dir", "--data-dir", DATA_PLACE},
                       {"tokenizer", "--tokenizer", DATA_PLACE},
                       {"image_size", "--image-size", DATA_PLACE},
                       {"target", "--target", DATA_PLACE},
                       {"features", "--features", DATA_PLACE},
                       {"standardize", "--standardize", DATA_PLACE},
                       {"test_fraction", "--test-fraction", DATA_PLACE}};

/* Whether a flag gives another model or data than the checkpoint's. */
static bool gives_another(const tutti__inference_setup *in, const json_t *keys, const char *name)
{
    const char *trained_with = json_string_value(json_object_get(keys, name));
    const char *given = strcmp(name, "model") == 0 ? in->config->model : in->config->data;

    return is_given(in->job, name) && !(trained_with && strcmp(given, trained_with) == 0);
}

/* Whether the checkpoint's key holds for this job: another data set is in another folder, and its images have other sizes; another
 * model has other layers. */
static bool holds(const tutti__inference_setup *in, const json_t *keys,
                  const struct checkpoint_key *key)
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
static tutti_status read_config(tutti__inference_setup *in, const json_t *keys)
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
    status = tutti__config_read(in->config, in->parts, n + job->argc, argv);
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
        TUTTI_ERR_ARG, "%s%s%s would name model and data; give %s%s%s", *fault ? fault : job->path,
        *fault ? ""
               : " has no configuration beside it (a checkpoint's state.json, a run's config.json)",
        *fault ? "; it" : ", which", model ? "" : "--model", model || data ? "" : " and ",
        data ? "" : "--data");
}

/* Whether text is the names of an array, separated by commas. */
static bool names_are(const json_t *array, const char *text)
{
    const size_t n = json_array_size(array);

    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        const size_t length = name ? strlen(name) : 0;

        if (strncmp(text, name ? name : "", length) != 0 || text[length] != (i + 1 < n ? ',' : 0))
            return false;
        text += length + 1;
    }
    return true;
}

/* The columns and the scale of a run's table are those of its training. */
static tutti_status check_columns(const tutti__inference_setup *in)
{
    const tutti__train_config *c = in->config;
    json_t *fit = in->fit ? json_loads(in->fit, 0, NULL) : NULL;
    const json_t *targets = json_object_get(fit, "targets"),
                 *features = json_object_get(fit, "features");
    const bool standardizes = json_array_size(json_object_get(fit, "mean")) > 0;
    const char *other = NULL;

    if (is_given(in->job, "target") && targets && !names_are(targets, c->target))
        other = "target";
    else if (is_given(in->job, "features") && features && !names_are(features, c->features))
        other = "features";
    else if (is_given(in->job, "standardize") && targets && c->standardize != standardizes)
        other = "standardize";
    json_decref(fit);
    return other ? tutti__fail(TUTTI_ERR_ARG,
                               "%s: %s was trained with other columns, or another scale, which it "
                               "keeps (the checkpoint's state.json, \"data\"); leave --%s out",
                               other, in->job->path, other)
                 : TUTTI_OK;
}

/* Of text that is not the run's own data, or of a folder of Hugging Face: the tokenizer beside the weights, if there is one. */
static tutti_status take_tokenizer_beside(const tutti__inference_setup *in)
{
    tutti__train_config *c = in->config;
    tutti__weights_place place;
    tutti_tokenizer *t;
    const char *folder;

    TUTTI_TRY(tutti__weights_find(&place, in->job->path));
    folder = place.hf[0] ? place.hf : place.run;
    if (!*folder || strcmp(c->data, "text") != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tokenizer_beside(&t, folder));
    if (t && strlen(folder) < sizeof c->tokenizer)
        strcpy(c->tokenizer, folder);
    tutti_tokenizer_free(t);
    return TUTTI_OK;
}

/* The tokenizer of the training text, wherever it is now: the run has a copy. */
static tutti_status find_tokenizer(const tutti__inference_setup *in)
{
    tutti__train_config *c = in->config;
    tutti_tokenizer *t;

    if (is_given(in->job, "tokenizer") || in->job->no_data)
        return TUTTI_OK;
    if (!c->tokenizer[0])
        return take_tokenizer_beside(in);
    if (!in->fit)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tokenizer_for_run(&t, in->job->path, in->fit, NULL, c->tokenizer));
    if (t->path[0] && strlen(t->path) < sizeof c->tokenizer)
        strcpy(c->tokenizer, t->path);
    tutti_tokenizer_free(t);
    return TUTTI_OK;
}

tutti_status tutti__inference_choose(tutti__inference_setup *in)
{
    json_t *keys = NULL;
    char fault[TUTTI__HF_FAULT];
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
    if (status == TUTTI_OK)
        status = check_columns(in);
    if (status == TUTTI_OK)
        status = find_tokenizer(in);
    in->averages = json_number_value(json_object_get(keys, "ema")) > 0;
    json_decref(keys);
    return status;
}

tutti_status tutti__inference_average(const tutti__inference_setup *in, char average[4096])
{
    const char *path = in->job->path, *wanted = in->job->weights;

    average[0] = '\0';
    if ((wanted && strcmp(wanted, "ema") != 0) || tutti__weights_find_ema(path, average))
        return TUTTI_OK;
    average[0] = '\0';
    if (in->averages && tutti__is_folder(path))
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "%s has no ema.safetensors, although its run averages weights (--ema): "
                           "was it removed? --weights model takes the weights themselves",
                           path);
    return !wanted ? TUTTI_OK
                   : tutti__fail(TUTTI_ERR_NOT_FOUND,
                                 "--weights ema: %s has no ema.safetensors; expected a checkpoint, "
                                 "or a run folder, of a run with --ema",
                                 path);
}
