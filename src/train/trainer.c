/* trainer.c -- the public trainer: a training run of a program.   SPDX-License-Identifier: MIT */
#include "train/trainer.h"

#include "base/terminal.h"
#include "comm/comm.h"
#include "train/machine/signals.h"
#include "train/run/run.h"
#include "train/config/agreement.h"
#include "train/config/config_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ----------------------------------------------------------------------------------------------- */

static bool is_metric_name(const char *name)
{
    const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return name[0] >= 'a' && name[0] <= 'z' && !name[n] && n <= 31;
}

static bool is_in_table(tutti__metric_table table, const char *name)
{
    for (size_t i = 0; i < table.n; i++)
        if (strcmp(table.rows[i].name, name) == 0)
            return true;
    return false;
}

static tutti_status check_metric(const tutti_metric *own, size_t i)
{
    const tutti_metric *m = &own[i];

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_metric, m));
    if (!is_metric_name(m->name))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "trainer: metric %zu has the name \"%.60s\"; expected 1 to 31 of a-z, 0-9 "
            "and _, beginning with a letter",
            i, m->name);
    if (!m->add || m->n_sums < 0 || m->n_sums > TUTTI_MAX_METRIC_SUMS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "trainer: metric %s has add %s and %d sums; expected a function, and 1 "
                           "to %d sums (0: 1)",
                           m->name, m->add ? "given" : "NULL", m->n_sums, TUTTI_MAX_METRIC_SUMS);
    for (size_t k = 0; k < i; k++)
        if (strcmp(own[k].name, m->name) == 0)
            return tutti__fail(TUTTI_ERR_ARG, "trainer: two metrics have the name %s", m->name);
    if (is_in_table(tutti__eval_table, m->name) || is_in_table(tutti__summary_table, m->name) ||
        strcmp(m->name, "time") == 0 || strcmp(m->name, "confusion") == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "trainer: metric %s has the name of one that a run has already "
                           "(docs/metrics.md); choose another",
                           m->name);
    return TUTTI_OK;
}

static tutti_status check_metrics(const tutti_metric *own)
{
    for (size_t i = 0; own && own[i].name; i++) {
        if (i == TUTTI_MAX_METRICS)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "trainer: more than %d metrics; expected at most that many, then one "
                "without a name",
                TUTTI_MAX_METRICS);
        TUTTI_TRY(check_metric(own, i));
    }
    return TUTTI_OK;
}

static tutti_status check_opts(const tutti_trainer_opts *opts)
{
    TUTTI_TRY(check_metrics(opts->metrics));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_trainer_opts, opts));
    if (opts->test && !opts->train)
        return tutti__fail(TUTTI_ERR_ARG,
                           "trainer: test data without training data; expected both, "
                           "or train alone");
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_trainer_hooks, opts->hooks));
    if (opts->train && opts->format)
        return tutti__fail(TUTTI_ERR_ARG,
                           "trainer: train and format; expected one of them: format is "
                           "for data that --data names");
    return TUTTI_OK;
}

/* A program is one rank: a launcher starts several. */
static tutti_status refuse_ranks(const char *title, int argc, char *const *argv)
{
    static const char *const names[] = {"-n", "--nproc-per-node", "--nproc_per_node"};

    for (int i = 0; i < argc; i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(names); k++) {
            const size_t n = strlen(names[k]);
            const char *rest = argv[i] + n;

            if (strncmp(argv[i], names[k], n) != 0 ||
                (*rest && *rest != '=' && !(k == 0 && strspn(rest, "0123456789") == strlen(rest))))
                continue;
            rest += *rest == '=';
            if (!*rest && i + 1 < argc)
                rest = argv[i + 1];
            return tutti__fail(
                TUTTI_ERR_ARG,
                "%s: a program does not start ranks; tutti run does: tutti run -n %.20s "
                "./%.60s ...",
                names[k], *rest ? rest : "2", title);
        }
    return TUTTI_OK;
}

/* Whether --eval or --predict is one of the arguments; the first decides. Only for a program: the command has `tutti eval` and
 * `tutti predict`. */
static bool infers(const tutti_trainer *trainer, int argc, char *const *argv, bool *predicts_p)
{
    for (int i = 0; i < argc && trainer->parts.program; i++) {
        *predicts_p = strcmp(argv[i], "--predict") == 0 || strncmp(argv[i], "--predict=", 10) == 0;
        if (*predicts_p || strcmp(argv[i], "--eval") == 0 || strncmp(argv[i], "--eval=", 7) == 0)
            return true;
    }
    return false;
}

static tutti_status read_inference(tutti_trainer *trainer, bool predicts, int argc,
                                   char *const *argv)
{
    tutti__inference_line *line = &trainer->inference;

    line->title = trainer->title;
    line->own = &trainer->parts.own;
    line->predicts = predicts;
    trainer->arguments = tutti__alloc(((size_t)argc + 1) * sizeof *trainer->arguments);
    if (!trainer->arguments)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < argc; i++) {
        trainer->arguments[i] = strdup(argv[i]);
        if (!trainer->arguments[i])
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the arguments");
    }
    return tutti__inference_line_read(line, argc, trainer->arguments);
}

static tutti_status open(tutti_trainer *trainer, int argc, char *const *argv,
                         const tutti_trainer_opts *opts)
{
    bool predicts;

    trainer->parts.title = trainer->title;
    if (opts)
        trainer->parts.own = *opts;
    trainer->result = (tutti_trainer_result){.status = "",
                                             .world_size = 1,
                                             .train_loss = NAN,
                                             .val_loss = NAN,
                                             .val_accuracy = NAN,
                                             .images_per_s = NAN,
                                             .run_dir = trainer->config.run_dir};
    if (opts)
        TUTTI_TRY(check_opts(opts));
    trainer->wants_help = tutti__wants_help(argc, argv);
    if (trainer->wants_help)
        return TUTTI_OK;
    /* The command `tutti` has checked it already. The workers of a job share the environment: the process that started
     * them has checked it. */
    if (trainer->parts.program && !getenv("RANK"))
        TUTTI_TRY(tutti__env_check());
    if (infers(trainer, argc, argv, &predicts))
        return read_inference(trainer, predicts, argc, argv);
    if (trainer->parts.program)
        TUTTI_TRY(tutti__inference_refuse(argc, argv));
    return tutti__config_read(&trainer->config, &trainer->parts, argc, argv);
}

tutti_status tutti__trainer_new(tutti_trainer **trainer_p, const char *title, const char *program,
                                int argc, char *const *argv, const tutti_trainer_opts *opts)
{
    tutti_trainer *trainer = tutti__alloc(sizeof *trainer);
    tutti_status status;

    *trainer_p = NULL;
    if (!trainer)
        return TUTTI_ERR_MEMORY;
    tutti__open_standard_streams();
    tutti__printable(title, trainer->title, sizeof trainer->title);
    snprintf(trainer->program, sizeof trainer->program, "%s", program ? program : "");
    trainer->parts.program = program ? trainer->program : NULL;
    status = open(trainer, argc, argv, opts);
    if (status == TUTTI_OK)
        *trainer_p = trainer;
    else
        tutti_trainer_free(trainer);
    return status;
}

/* The program's name without its folders. */
static const char *title_of(int argc, char *const *argv)
{
    const char *path = argc > 0 && argv && argv[0] ? argv[0] : "program",
               *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

tutti_status tutti_trainer_new(tutti_trainer **trainer_p, int argc, char *const *argv,
                               const tutti_trainer_opts *opts)
{
    const char *title = title_of(argc, argv);
    tutti_trainer *trainer;

    TUTTI_TRY(TUTTI__NOT_NULL(trainer_p));
    *trainer_p = NULL;
    if (argc > 0)
        TUTTI_TRY(TUTTI__NOT_NULL(argv));
    for (int i = 0; i < argc; i++)
        if (!argv[i])
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_trainer_new: argv[%d] is NULL, and argc says %d arguments", i,
                               argc);
    if (argc < 1)
        return tutti__trainer_new(trainer_p, title, title, 0, NULL, opts);
    TUTTI_TRY(refuse_ranks(title, argc - 1, argv + 1));
    TUTTI_TRY(tutti__trainer_new(&trainer, title, argv[0], argc - 1, argv + 1, opts));
    if (tutti__config_lacks_ranks(&trainer->config)) {
        const long long ranks = trainer->config.world_size;

        tutti_trainer_free(trainer);
        return tutti__fail(
            TUTTI_ERR_ARG,
            "--config: this is the configuration of a run of %lld ranks; tutti run "
            "-n %lld ./%.60s ... repeats it, and with -n 1 one rank, whose steps take "
            "other samples",
            ranks, ranks, title);
    }
    *trainer_p = trainer;
    return TUTTI_OK;
}

void tutti_trainer_free(tutti_trainer *trainer)
{
    if (!trainer)
        return;
    for (char **p = trainer->arguments; p && *p; p++)
        free(*p);
    free(trainer->arguments);
    free(trainer->inference.keys);
    free(trainer);
}

bool tutti__config_lacks_ranks(const tutti__train_config *config)
{
    return config->world_size >= 2 && config->shards == 0 && !getenv("LOCAL_RANK") &&
           !tutti__launcher_find().name;
}

/* ---- Its run -------------------------------------------------------------------------------------------------- */

/* This thread is in a run. */
static _Thread_local bool running;

static void print_help(const tutti_trainer *trainer)
{
    const char *title = trainer->title;

    printf(
        "Trains the program's model; with several ranks, data-parallel. Or evaluates it, or writes "
        "its predictions.\n\n"
        "usage: %s [--config FILE.json] [--KEY VALUE]...\n"
        "       %s --eval PATH [--split NAME] [--weights KIND] [--confusion] [--json FILE] "
        "[--KEY VALUE]...\n"
        "       %s --predict PATH --out FILE [--split NAME] [--weights KIND] [--format KIND] "
        "[--KEY VALUE]...\n\n"
        "  %s --epochs 3                     alone\n"
        "  tutti run -n 2 %s --epochs 3      two ranks on this machine; also under torchrun, srun, "
        "mpirun\n"
        "  %s --eval runs/mine               accuracy and loss of its weights\n\n"
        "  --eval PATH          does not train, but evaluates the weights of a run folder, a "
        "checkpoint or a file,\n"
        "                       with the output, --split, --confusion, --json and the keys of "
        "`tutti eval`\n"
        "                       (tutti eval --help)\n"
        "  --predict PATH       does not train, but writes the model's output for each sample to "
        "--out, with --format,\n"
        "                       --split and the keys of `tutti predict` (tutti predict --help); "
        "without classes: outputs\n"
        "                       and targets\n",
        title, title, title, title, title, title);
    tutti__config_help(stdout, &trainer->parts);
    fflush(stdout);
}

/* restore: set the previous signal handlers again at the end. */
static tutti_status run(tutti_trainer *trainer, bool restore)
{
    tutti_trainer_result *result = &trainer->result;
    tutti_status status;

    if (running) /* its group would wait for ranks that are in the outer run */
        return tutti__fail(TUTTI_ERR_STATE, "trainer: a run within a run; expected this thread's "
                                            "run to have ended first");
    if (trainer->has_run)
        return tutti__fail(TUTTI_ERR_STATE, "trainer: it has run; make another for another run");
    trainer->has_run = true;
    if (trainer->wants_help) {
        print_help(trainer);
        result->status = "completed";
        return TUTTI_OK;
    }
    tutti__signals_begin();
    running = true;
    status = trainer->inference.path ? tutti__inference_run(&trainer->inference, result)
                                     : tutti__train(&trainer->config, &trainer->parts, result);
    running = false;
    if (restore)
        tutti__signals_end();
    if (status != TUTTI_OK && result->exit_code == 0)
        result->exit_code = tutti_status_exit_code(status);
    return status;
}

tutti_status tutti__trainer_run(tutti_trainer *trainer)
{
    return run(trainer, false);
}

tutti_status tutti_trainer_run(tutti_trainer *trainer)
{
    TUTTI_TRY(TUTTI__NOT_NULL(trainer));
    return run(trainer, true);
}

tutti_trainer_result tutti_trainer_get_result(const tutti_trainer *trainer)
{
    return trainer ? trainer->result : (tutti_trainer_result){.status = "", .run_dir = ""};
}

int tutti_trainer_main(int argc, char *const *argv, const tutti_trainer_opts *opts)
{
    tutti_trainer *trainer;
    const tutti_status status = tutti_trainer_new(&trainer, argc, argv, opts);
    int code;

    if (status != TUTTI_OK)
        return tutti__report_usage(title_of(argc, argv), status);
    code = tutti__trainer_run(trainer) == TUTTI_OK || trainer->result.exit_code != 0
               ? trainer->result.exit_code
               : 1;
    tutti_trainer_free(trainer);
    return tutti__close_output(title_of(argc, argv), code);
}
