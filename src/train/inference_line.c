/* inference_line.c -- flags of `tutti eval` and `tutti predict`, also as a program's --eval and --predict.
 * SPDX-License-Identifier: MIT */
#include "train/inference_line.h"

#include "base/flag.h"
#include "train/counter.h"
#include "train/eval_results.h"
#include "train/predict_results.h"

#include <stdlib.h>
#include <string.h>

static const char *const KEYS[] = {"--model",      "--image-size", "--data",     "--data-dir",
                                   "--batch-size", "--workers",    "--prefetch", "--threads",
                                   "--device",     "--backend",    "--timeout-s"};

/* Hyphens and underscores are the same. */
static bool is_flag(const char *arg, const char *name)
{
    size_t i = 0;

    for (; name[i] && (arg[i] == name[i] || (arg[i] == '_' && name[i] == '-')); i++)
        ;
    return !name[i] && (!arg[i] || arg[i] == '=');
}

/* The address of this flag's value, if it is one of the command's own; else NULL. */
static const char **find_own(tutti__inference_line *line, const char *own, const char *arg)
{
    const struct {
        const char *name;
        const char **value;
    } flags[] = {{"--split", &line->split}, {"--eval", &line->path}, {"--predict", &line->path},
                 {"--json", &line->json},   {"--out", &line->out},   {"--format", &line->format}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(flags); i++)
        if (is_flag(arg, flags[i].name) && (i == 0 || strstr(own, flags[i].name)))
            return flags[i].value;
    return NULL;
}

static tutti_status unknown(const char *title, const char *own, const char *arg)
{
    const char *names[TUTTI__COUNT_OF(KEYS) + 8] = {"--split", "-n", "--help"};
    static const char *const OWN[] = {"--json",   "--confusion", "--out",
                                      "--format", "--eval",      "--predict"};
    size_t n = 3;

    for (size_t i = 0; i < TUTTI__COUNT_OF(KEYS); i++)
        names[n++] = KEYS[i];
    for (size_t i = 0; i < TUTTI__COUNT_OF(OWN); i++)
        if (strstr(own, OWN[i]))
            names[n++] = OWN[i];
    if (strstr(own, "--eval"))
        return tutti__fail_unknown("--eval flag", "tutti eval", arg, names, n);
    if (strstr(own, "--predict"))
        return tutti__fail_unknown("--predict flag", "tutti predict", arg, names, n);
    return tutti__fail_unknown("flag", title, arg, names, n);
}

static bool is_key(const char *arg)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(KEYS); i++)
        if (is_flag(arg, KEYS[i]))
            return true;
    return false;
}

static tutti_status read_flag(tutti__inference_line *line, const char *own, int argc,
                              char *const *argv, int *i_p)
{
    char *arg = argv[*i_p], *equals = strchr(arg, '=');
    const char **value = find_own(line, own, arg);

    if (!value && !is_key(arg))
        return unknown(line->title, own, arg);
    if (!equals && (*i_p + 1 >= argc || strncmp(argv[*i_p + 1], "--", 2) == 0))
        return tutti__fail(TUTTI_ERR_ARG, "%.60s needs a value, as in %.60s VALUE", arg, arg);
    if (value)
        *value = equals ? equals + 1 : argv[++*i_p];
    else {
        line->keys[line->n_keys++] = arg;
        if (!equals)
            line->keys[line->n_keys++] = argv[++*i_p];
    }
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

tutti_status tutti__inference_line_read(tutti__inference_line *line, const char *own, int argc,
                                        char *const *argv)
{
    line->split = "test";
    line->keys = tutti__alloc(((size_t)argc + 1) * sizeof *line->keys);
    if (!line->keys)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < argc; i++) {
        if (strstr(own, "--confusion") && is_flag(argv[i], "--confusion") && !strchr(argv[i], '='))
            line->confusion = true;
        else if (argv[i][0] == '-' && argv[i][1])
            TUTTI_TRY(read_flag(line, own, argc, argv, &i));
        else if (line->path)
            return tutti__fail(TUTTI_ERR_ARG,
                               "one checkpoint or file, but there are \"%.200s\" and \"%.200s\"",
                               line->path, argv[i]);
        else
            line->path = argv[i];
    }
    if (!line->path)
        return tutti__fail(TUTTI_ERR_ARG,
                           "expected a checkpoint, a run folder or a file of weights");
    if (strstr(own, "--out"))
        TUTTI_TRY(tutti__predict_check(line));
    return check_keys(line);
}

tutti_status tutti__inference_run(tutti__inference_line *line, tutti_trainer_result *result)
{
    tutti__counter counter;
    const tutti__inference job = {.command = line->title,
                                  .own = line->own,
                                  .path = line->path,
                                  .split = line->split,
                                  .argc = line->n_keys,
                                  .argv = line->keys,
                                  .confusion = line->confusion,
                                  .of_classes = line->confusion ? "--confusion"
                                                : line->format  ? "--format"
                                                                : NULL,
                                  .rows = line->out != NULL,
                                  .tick = tutti__counter_begin(&counter, "evaluating", "images")};
    const tutti_status status =
        tutti__infer(&job, line->out ? tutti__predict_write : tutti__eval_show, line, result);

    tutti__counter_clear(&counter);
    return status;
}
