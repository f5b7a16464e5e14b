/* inference_line.c -- flags of `tutti eval` and `tutti predict`, also as a program's --eval and --predict.
 * SPDX-License-Identifier: MIT */
#include "train/infer/inference_line.h"

#include "base/flag.h"
#include "checkpoint/output.h"
#include "train/output/counter.h"
#include "train/infer/eval_results.h"
#include "train/infer/predict_results.h"
#include "train/config/config_read.h"

#include <stdlib.h>
#include <string.h>

static const char *const KEYS[] = {
    TUTTI__MODEL_FLAGS, "--patch-size",    "--tokenizer", "--task",       "--loss",
    "--image-size",     "--data",          "--data-dir",  "--batch-size", "--workers",
    "--prefetch",       "--tta",           "--amp",       "--threads",    "--device",
    "--backend",        "--timeout-s",     "--target",    "--features",   "--standardize",
    "--no-standardize", "--test-fraction", "--tensor",    "--zero",       "--pipeline"};

enum { EVAL = 1, PREDICT = 2, PROGRAM = 4 }; /* PROGRAM: of a program alone */

/* The flags that are no keys. value: offset in tutti__inference_line; 0: it takes none. */
static const struct own_flag {
    const char *name;
    unsigned of;
    size_t value;
} OWN[] = {
    {"--split", EVAL | PREDICT, offsetof(tutti__inference_line, split)},
    {"--weights", EVAL | PREDICT, offsetof(tutti__inference_line, weights)},
    {"--json", EVAL, offsetof(tutti__inference_line, json)},
    {"--confusion", EVAL, 0},
    {"--out", PREDICT, offsetof(tutti__inference_line, out)},
    {"--format", PREDICT, offsetof(tutti__inference_line, format)},
    {"--eval", EVAL | PROGRAM, offsetof(tutti__inference_line, path)},
    {"--predict", PREDICT | PROGRAM, offsetof(tutti__inference_line, path)},
};

static bool applies(const tutti__inference_line *line, const struct own_flag *flag)
{
    return (flag->of & (line->predicts ? PREDICT : EVAL)) && (line->own || !(flag->of & PROGRAM));
}

/* NULL: none of this command's own. */
static const struct own_flag *find_own(const tutti__inference_line *line, const char *arg)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(OWN); i++)
        if (applies(line, &OWN[i]) && tutti__flag_is(arg, OWN[i].name))
            return &OWN[i];
    return NULL;
}

static tutti_status unknown(const tutti__inference_line *line, const char *arg)
{
    const char *names[TUTTI__COUNT_OF(KEYS) + TUTTI__COUNT_OF(OWN) + 2] = {"-n", "--help"};
    size_t n = 2;

    for (size_t i = 0; i < TUTTI__COUNT_OF(KEYS); i++)
        names[n++] = KEYS[i];
    for (size_t i = 0; i < TUTTI__COUNT_OF(OWN); i++)
        if (applies(line, &OWN[i]))
            names[n++] = OWN[i].name;
    if (line->own && (tutti__flag_is(arg, "--eval") || tutti__flag_is(arg, "--predict")))
        return tutti__fail(TUTTI_ERR_ARG, "--eval and --predict: expected one of them, not both");
    if (!line->own)
        return tutti__fail_unknown("flag", line->title, arg, names, n);
    return line->predicts ? tutti__fail_unknown("--predict flag", "tutti predict", arg, names, n)
                          : tutti__fail_unknown("--eval flag", "tutti eval", arg, names, n);
}

tutti_status tutti__inference_refuse(int argc, char *const *argv)
{
    for (int i = 0; i < argc; i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(OWN); k++)
            if (tutti__flag_is(argv[i], OWN[k].name))
                return tutti__fail(TUTTI_ERR_ARG, "%s goes with %s, which is not given",
                                   OWN[k].name,
                                   OWN[k].of == EVAL      ? "--eval PATH"
                                   : OWN[k].of == PREDICT ? "--predict PATH"
                                                          : "--eval PATH or --predict PATH");
    return TUTTI_OK;
}

static bool is_key(const char *arg)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(KEYS); i++)
        if (tutti__flag_is(arg, KEYS[i]))
            return true;
    return false;
}

/* A flag that is given twice has its last value, but a path is what the command is about. */
static tutti_status set_path(tutti__inference_line *line, const char *path)
{
    if (line->path)
        return tutti__fail(TUTTI_ERR_ARG,
                           "one checkpoint or file, but there are \"%.200s\" and \"%.200s\"",
                           line->path, path);
    line->path = path;
    return TUTTI_OK;
}

/* --no-standardize, or --standardize without a value, as tutti train reads them. */
static bool takes_no_value(const char *arg, const char *next)
{
    return tutti__flag_is(arg, "--no-standardize") ||
           (tutti__flag_is(arg, "--standardize") && (!next || next[0] == '-'));
}

static tutti_status read_flag(tutti__inference_line *line, int argc, char *const *argv, int *i_p)
{
    char *arg = argv[*i_p], *equals = strchr(arg, '=');
    const struct own_flag *own = find_own(line, arg);
    const char *value;

    if (!own && !is_key(arg))
        return unknown(line, arg);
    if (own && !own->value) {
        line->confusion = true;
        return equals ? tutti__fail_value(own->name, equals + 1) : TUTTI_OK;
    }
    if (!own && !equals && takes_no_value(arg, *i_p + 1 < argc ? argv[*i_p + 1] : NULL)) {
        line->keys[line->n_keys++] = arg;
        return TUTTI_OK;
    }
    if (!equals && (*i_p + 1 >= argc || strncmp(argv[*i_p + 1], "--", 2) == 0))
        return tutti__fail(TUTTI_ERR_ARG, "%.60s needs a value, as in %.60s VALUE", arg, arg);
    value = equals ? equals + 1 : argv[++*i_p];
    if (own && own->value == offsetof(tutti__inference_line, path))
        return set_path(line, value);
    if (own) {
        memcpy((char *)line + own->value, &value, sizeof value);
        return TUTTI_OK;
    }
    line->keys[line->n_keys++] = arg;
    if (!equals)
        line->keys[line->n_keys++] = argv[*i_p];
    return TUTTI_OK;
}

/* Reports errors in keys before anything starts. */
static tutti_status check_keys(const tutti__inference_line *line)
{
    tutti__train_config *config = tutti__alloc(sizeof *config);
    tutti__parts parts = {.title = line->title};
    tutti_status status;

    if (!config)
        return TUTTI_ERR_MEMORY;
    if (line->own)
        parts.own = *line->own;
    status = tutti__config_read_each(config, &parts, line->n_keys, line->keys);
    free(config);
    return status;
}

tutti_status tutti__inference_line_read(tutti__inference_line *line, int argc, char *const *argv)
{
    line->split = "test";
    line->keys = tutti__alloc(((size_t)argc + 1) * sizeof *line->keys);
    if (!line->keys)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < argc; i++)
        TUTTI_TRY(argv[i][0] == '-' && argv[i][1] ? read_flag(line, argc, argv, &i)
                                                  : set_path(line, argv[i]));
    if (!line->path)
        return tutti__fail(TUTTI_ERR_ARG,
                           "expected a checkpoint, a run folder or a file of weights");
    if (line->weights && strcmp(line->weights, "ema") != 0 && strcmp(line->weights, "model") != 0)
        return tutti__fail_choice("--weights", line->weights, (const char *const[]){"ema", "model"},
                                  2);
    if (line->predicts)
        TUTTI_TRY(tutti__predict_check(line));
    if (line->json)
        TUTTI_TRY(tutti__output_check("--json", line->json));
    return check_keys(line);
}

tutti_status tutti__inference_run(tutti__inference_line *line, tutti_trainer_result *result)
{
    tutti__counter counter;
    const tutti__inference job = {.command = line->title,
                                  .own = line->own,
                                  .path = line->path,
                                  .split = line->split,
                                  .weights = line->weights,
                                  .argc = line->n_keys,
                                  .argv = line->keys,
                                  .confusion = line->confusion,
                                  .of_classes = line->confusion ? "--confusion"
                                                : line->format  ? "--format"
                                                                : NULL,
                                  .logits = line->format != NULL,
                                  .output = line->predicts ? line->out : line->json,
                                  .rows = line->predicts,
                                  .tick = tutti__counter_begin(&counter, "evaluating", "images")};
    const tutti_status status =
        tutti__infer(&job, line->predicts ? tutti__predict_write : tutti__eval_show, line, result);

    tutti__counter_clear(&counter);
    return status;
}
