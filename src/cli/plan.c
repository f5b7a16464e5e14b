/* plan.c -- `tutti plan`: what a run would need, without starting it.   SPDX-License-Identifier: MIT */
#include "base/flag.h"
#include "checkpoint/output.h"
#include "cli/cli.h"
#include "cli/plan_scaling.h"
#include "train/config/agreement.h"
#include "train/config/config_read.h"
#include "train/forecast/outlook.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP[] =
    "Memory of a rank, bytes and time on the wire, and the time and efficiency of a step of 1, 2, "
    "4, ... ranks,\n"
    "without starting them; or which layouts fit a limit of memory. Memory is exact where it can "
    "be: the model's\n"
    "first steps are made with addresses instead of memory, and without arithmetic. Time is "
    "simulated: what one\n"
    "rank computes, and the rounds of the algorithms that the ranks would choose. For CPUs.\n"
    "\n"
    "usage: tutti plan [--ranks N] [--memory LIMIT] [--FLAG VALUE]... [--KEY VALUE]...\n"
    "\n"
    "  tutti plan --model resnet18 --data cifar10 --ranks 4\n"
    "  tutti plan --ranks 8 --ranks-per-host 2 --link-gbps 1.25 --link-us 30 --config "
    "runs/a/config.json\n"
    "  tutti plan --model gpt2 --data tokens --data-dir corpus --ranks 4 --memory 6G\n"
    "  tutti plan --model resnet18 --ranks 8,1024,16384 --ranks-per-host 8 --links cluster.json\n"
    "\n"
    "  --ranks N                ranks of the run, up to 16384 (default 1); steps of 1, 2, 4, ... N "
    "are compared\n"
    "  --ranks 8,64,1024        steps of these are compared; the rest is said of the last\n"
    "  --ranks-per-host N, --hosts H\n"
    "                           of them on one host, with the cores of this machine (default: "
    "all); "
    "or how many hosts\n"
    "  --memory LIMIT           bytes that a rank may take, with K, M or G of 1024, as in 4G: also "
    "shows the layouts\n"
    "                           that fit, cheapest first, and the flags for the first\n"
    "  --link-gbps X, --link-us Y\n"
    "                           between hosts: 1e9 bytes a second that a host sends, microseconds "
    "of an empty call\n"
    "                           (default: measured on this machine's loopback)\n"
    "  --local-gbps X, --local-us Y\n"
    "                           likewise between ranks of a host (default: measured between two "
    "threads)\n"
    "  --links FILE             instead of the four: what messages cost within hosts, between them "
    "and between\n"
    "                           switches, as for tutti simulate\n"
    "  --step-ms MS             time of a step's computation on one rank (default: measured if it "
    "takes seconds and\n"
    "                           fits this machine, else by its FLOPs)\n"
    "  --from RUN_DIR           instead: as a run has measured it, whose keys are the default\n"
    "  --spread PERCENT         ranks differ by so much in the time of a step, at random (standard "
    "deviation; 0):\n"
    "                           a step takes as long as its slowest rank's\n"
    "  --json FILE              the figures as a JSON object; -: to standard output, in place of "
    "the tables\n"
    "  -h, --help               this text\n"
    "\n"
    "All keys of tutti train --help describe the run: --model, --batch-size, --optimizer, --zero, "
    "--zero-ranks,\n"
    "--tensor, --pipeline, --micro-batches, --amp, --recompute, --shards, --bucket-mb, "
    "--lora-rank, --ema, "
    "--config, ...\n"
    "After a run summary.json has planned_memory and peak_memory: what was planned, and what "
    "rank 0 took.\n";

typedef struct asked {
    tutti__outlook_ask ask;
    tutti__scaling scaling;
    tutti__timeline timeline; /* of the layout with most ranks */
    const char *json, *ranks, *links, *from;
    int hosts;
    tutti__layout_of_ranks started; /* with those for which a step has no shard */
    double spread;                  /* percent */
    char config[4096];              /* an argument: that of a run's keys */
    char **with;                    /* arguments with it */
    char **keys;                    /* of the command line, without this command's own flags */
    int n_keys;
} asked;

/* ---- Flags ------------------------------------------------------------------------------------------------------------ */

typedef enum kind { COUNT, REAL, BYTES, TEXT } kind;

typedef struct flag_row {
    const char *name;
    kind kind;
    double least, most;
    size_t offset; /* in asked */
} flag_row;

#define AT(member) offsetof(asked, member)
static const flag_row flags[] = {
    {"--ranks", TEXT, 0, 0, AT(ranks)},
    {"--ranks-per-host", COUNT, 1, TUTTI__SCALING_RANKS, AT(ask.layout.local_ranks)},
    {"--hosts", COUNT, 1, TUTTI__SCALING_RANKS, AT(hosts)},
    {"--memory", BYTES, 1, 1099511627776.0, AT(ask.limit)},
    {"--link-gbps", REAL, 1e-6, 1e6, AT(ask.wire.between.gbps)},
    {"--link-us", REAL, 1e-3, 1e9, AT(ask.wire.between.us)},
    {"--local-gbps", REAL, 1e-6, 1e6, AT(ask.wire.within.gbps)},
    {"--local-us", REAL, 1e-3, 1e9, AT(ask.wire.within.us)},
    {"--step-ms", REAL, 1e-6, 1e12, AT(ask.step_ms)},
    {"--links", TEXT, 0, 0, AT(links)},
    {"--from", TEXT, 0, 0, AT(from)},
    {"--spread", REAL, 0, 100, AT(spread)},
    {"--json", TEXT, 0, 0, AT(json)},
};

static tutti_status refuse(const flag_row *row, const char *text)
{
    static const char *const wanted[] = {"a whole number", "a number", "bytes, as in 512M or 4G"};

    return tutti__fail(TUTTI_ERR_ARG, "%s is \"%.60s\", expected %s from %g to %g", row->name, text,
                       wanted[row->kind], row->least, row->most);
}

static tutti_status store(asked *to, const flag_row *row, const char *text)
{
    char *at = (char *)to + row->offset;
    int64_t whole = 0;
    double value;

    switch (row->kind) {
    case COUNT:
        if (!tutti__parse_int64(text, &whole) || (double)whole < row->least ||
            (double)whole > row->most)
            return refuse(row, text);
        *(int *)(void *)at = (int)whole;
        break;
    case REAL:
        if (!tutti__parse_double(text, &value) || !(value >= row->least && value <= row->most))
            return refuse(row, text);
        *(double *)(void *)at = value;
        break;
    case BYTES:
        if (!tutti__parse_size(text, strlen(text), &whole))
            return refuse(row, text);
        *(size_t *)(void *)at = (size_t)whole;
        break;
    case TEXT:
        *(const char **)(void *)at = text;
        break;
    }
    return TUTTI_OK;
}

/* Takes this command's own flags out of argv; what is left are keys. */
static tutti_status take_flags(asked *to, int *argc, char **argv)
{
    int kept = 1;

    for (int i = 1; i < *argc; i++) {
        const int first = i;
        bool taken = false, missing = false;

        for (size_t k = 0; k < TUTTI__COUNT_OF(flags) && !taken; k++) {
            const char *text = tutti__flag_value(flags[k].name, *argc, argv, &i, &missing);

            if (missing)
                return tutti__fail(TUTTI_ERR_ARG, "%s needs a value", flags[k].name);
            taken = text != NULL;
            if (taken)
                TUTTI_TRY(store(to, &flags[k], text));
        }
        if (!taken)
            argv[kept++] = argv[first];
    }
    argv[kept] = NULL;
    *argc = kept;
    return TUTTI_OK;
}

static tutti_status check_flags(const asked *a)
{
    const tutti__wire *w = &a->ask.wire;

    if (a->links &&
        (w->within.gbps > 0 || w->within.us > 0 || w->between.gbps > 0 || w->between.us > 0))
        return tutti__fail(TUTTI_ERR_ARG, "--links has what --link-gbps, --link-us, --local-gbps "
                                          "and --local-us say: give one or the other");
    if (a->hosts > 0 && a->ask.layout.local_ranks > 0)
        return tutti__fail(TUTTI_ERR_ARG, "--hosts and --ranks-per-host say the same: give one");
    if (a->from && a->ask.step_ms > 0)
        return tutti__fail(TUTTI_ERR_ARG, "--from and --step-ms say the same: give one");
    if (a->json)
        TUTTI_TRY(tutti__output_check("--json", a->json));
    return a->json ? tutti__output_try(a->json) : TUTTI_OK;
}

/* A run's keys come before those of the command line. */
static tutti_status add_keys_of_run(asked *to, int *argc, char ***argv)
{
    char **with;

    if (!to->from)
        return TUTTI_OK;
    with = tutti__alloc(((size_t)*argc + 3) * sizeof(char *));
    if (!with)
        return TUTTI_ERR_MEMORY;
    snprintf(to->config, sizeof to->config, "--config=%s/config.json", to->from);
    with[0] = (*argv)[0];
    with[1] = to->config;
    memcpy(with + 2, *argv + 1, (size_t)*argc * sizeof(char *)); /* with the NULL */
    to->with = *argv = with;
    ++*argc;
    return TUTTI_OK;
}

/* Those that were not given: by the keys' file, as that of a run. */
static tutti_status settle(asked *to, const tutti__train_config *config)
{
    tutti__layout_of_ranks *l = &to->ask.layout;
    tutti__scaling *s = &to->scaling;
    char default_ranks[24];

    snprintf(default_ranks, sizeof default_ranks, "%lld",
             config->world_size > 0 ? (long long)config->world_size : 1);
    TUTTI_TRY(tutti__scaling_ranks(s, to->ranks ? to->ranks : default_ranks));
    s->spread = to->spread / 100;
    l->ranks = s->ranks[s->n - 1];
    if (to->hosts > 0 && l->ranks % to->hosts != 0)
        return tutti__fail(TUTTI_ERR_ARG, "--hosts: %d ranks are not equally many on each of %d",
                           l->ranks, to->hosts);
    if (l->local_ranks == 0)
        l->local_ranks = to->hosts > 0 ? l->ranks / to->hosts : l->ranks;
    to->started = *l;
    if (config->shards > 0)
        tutti__scaling_spares(s, l, config->shards);
    l->zero = (int)config->zero;
    l->zero_ranks = (int)config->zero_ranks;
    l->pipeline = (int)config->pipeline;
    l->tensor = (int)config->tensor;
    return to->from ? tutti__plan_from(to->from, config, l->ranks, &to->ask.step_ms) : TUTTI_OK;
}

/* ---- Results ------------------------------------------------------------------------------------------------------------ */

static void print_word(FILE *out, const char *word)
{
    if (*word && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "-_./=:,+@%")] == '\0') {
        fprintf(out, " %s", word);
        return;
    }
    fputs(" '", out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, out);
    fputs("'", out);
}

/* Whether these flags, " --a 1 --b 2", have the one of this argument. */
static bool has_flag(const char *changes, const char *arg)
{
    for (const char *next = strstr(changes, " --"); next; next = strstr(next + 1, " --")) {
        char flag[64];

        snprintf(flag, sizeof flag, "%.*s", (int)strcspn(next + 1, " "), next + 1);
        if (tutti__flag_is(arg, flag))
            return true;
    }
    return false;
}

/* For a shell: the keys as they were given, but for those that differ. */
static void print_command(FILE *out, const asked *a, const tutti__outlook *first,
                          const tutti__outlook *o)
{
    const tutti__layout_of_ranks *l = &a->started;
    const int hosts = l->ranks / l->local_ranks;
    char changes[128];

    tutti__outlook_flags(o, first, changes, sizeof changes);
    if (hosts == 1)
        fprintf(out, "the first: tutti train -n %d", l->ranks);
    else
        fprintf(out,
                "the first, on each host, K from 0 to %d, of which HOST is the first:\n"
                "tutti run --nnodes %d --node-rank K --master-addr HOST -n %d tutti train",
                hosts - 1, hosts, l->local_ranks);
    for (int i = 0; i < a->n_keys; i++) {
        if (!has_flag(changes, a->keys[i]))
            print_word(out, a->keys[i]);
        else if (!strchr(a->keys[i], '=') && i + 1 < a->n_keys &&
                 strncmp(a->keys[i + 1], "--", 2) != 0)
            i++; /* its value */
    }
    fprintf(out, "%s\n", changes);
}

static void print_fitting(FILE *out, const asked *a, const tutti__outlook *first,
                          const tutti__outlook *fitting, size_t n)
{
    char text[128], division[48];

    if (n == 0) {
        fprintf(out,
                "\nno layout of %d rank%s fits %.0f MiB: use more ranks, a smaller batch_size, "
                "or a smaller model\n",
                a->ask.layout.ranks, tutti__s((uint64_t)a->ask.layout.ranks),
                (double)a->ask.limit / 1048576);
        return;
    }
    snprintf(text, sizeof text, "layouts that fit %.0f MiB", (double)a->ask.limit / 1048576);
    fprintf(out, "\n%-58s %10s %11s\n", text, "MiB", "ms a step");
    for (size_t i = 0; i < n; i++) {
        const tutti__layout_of_ranks *l = &fitting[i].layout;
        int at = 0;

        division[0] = '\0';
        if (l->pipeline > 1)
            at = snprintf(division, sizeof division, ", pipeline %d", l->pipeline);
        if (l->tensor > 1)
            snprintf(division + at, sizeof division - (size_t)at, ", tensor %d", l->tensor);
        snprintf(text, sizeof text, "zero %d%s%s, batch_size %lld x %lld", fitting[i].layout.zero,
                 division, fitting[i].recompute ? ", recompute" : "",
                 (long long)fitting[i].batch_size, (long long)fitting[i].grad_accumulation);
        fprintf(out, "  %-58s %8.1f %11.2f\n", text, (double)fitting[i].f.peak / 1048576,
                1e3 * fitting[i].step_s);
    }
    print_command(out, a, first, &fitting[0]);
}

static tutti_status write_json(asked *a, const tutti__outlook *first, const tutti__outlook *fitting,
                               size_t n, const tutti__train_config *config)
{
    json_t *root = tutti__outlook_json(first, config), *list = json_array();
    json_t *rows = a->scaling.rows ? tutti__scaling_json(&a->scaling) : NULL;
    tutti_status status = TUTTI_OK;
    char *text;
    FILE *out;

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, tutti__outlook_json(&fitting[i], config));
    if (a->ask.limit > 0)
        json_object_set(root, "fitting", list);
    json_decref(list);
    if (rows)
        json_object_set_new(root, "scaling", rows);
    text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    out = !text ? NULL : strcmp(a->json, "-") == 0 ? stdout : fopen(a->json, "w");
    if (!text)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the JSON object");
    else if (!out)
        status = tutti__fail(TUTTI_ERR_IO, "--json: cannot write %s", a->json);
    else
        fprintf(out, "%s\n", text);
    if (out && out != stdout && fclose(out) != 0)
        status = tutti__fail(TUTTI_ERR_DISK, "--json: %s is not complete", a->json);
    free(text);
    return status;
}

/* Of the layout with most ranks, and of others beside it. */
static tutti_status find(asked *a, tutti__outlook *first, tutti_trainer *trainer)
{
    const tutti__train_config *c = &trainer->config;
    tutti__scaling *s = &a->scaling;
    const bool several = a->ask.layout.ranks > 1;

    if (!a->links)
        TUTTI_TRY(tutti__wire_measure(&a->ask.wire, &a->ask.layout));
    TUTTI_TRY(tutti__scaling_links(s, &a->ask.wire, a->links));
    a->ask.timeline = several ? &a->timeline : NULL;
    TUTTI_TRY(tutti__outlook_find(first, c, &trainer->parts, &a->ask, 0));
    if (a->from)
        first->compute_from = "as the run measured it";
    s->timeline = a->ask.timeline;
    a->ask.timeline = NULL;
    if (!several)
        return TUTTI_OK;
    return tutti__scaling_find(s, first, c, &trainer->parts, &a->ask);
}

static tutti_status plan(asked *a, tutti_trainer *trainer)
{
    const tutti__train_config *c = &trainer->config;
    const bool tables = !a->json || strcmp(a->json, "-") != 0;
    tutti__outlook *fitting = NULL;
    tutti__outlook first = {.layout = a->ask.layout,
                            .recompute = c->recompute,
                            .batch_size = c->batch_size,
                            .grad_accumulation = c->grad_accumulation};
    size_t n = 0;
    tutti_status status;

    if (strncmp(c->device, "cuda", 4) == 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "device: %s is not planned for: plan knows the CPU's kernels; leave "
                           "device out",
                           c->device);
    if (strcmp(c->offload, "none") != 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "offload: it moves memory from a GPU to the host, and plan is for CPUs, "
                           "where all is in host memory; leave offload out");
    TUTTI_TRY(tutti__layout_check(&a->ask.layout, c->shards));
    TUTTI_TRY(find(a, &first, trainer));
    fitting = tutti__alloc(TUTTI__OUTLOOKS * sizeof *fitting);
    status = fitting ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK && a->ask.limit > 0)
        status = tutti__outlook_fitting(fitting, &n, c, &trainer->parts, &a->ask, &first);
    if (status == TUTTI_OK && tables) {
        if (a->started.ranks > first.layout.ranks)
            printf("of %d ranks %d compute, one for each shard; the others are spares\n\n",
                   a->started.ranks, first.layout.ranks);
        tutti__outlook_print(stdout, &first, c, &a->ask.wire);
        if (a->scaling.rows)
            tutti__scaling_print(stdout, &a->scaling, c);
        if (a->ask.limit > 0)
            print_fitting(stdout, a, &first, fitting, n);
    }
    if (status == TUTTI_OK && a->json)
        status = write_json(a, &first, fitting, n, c);
    free(fitting);
    return status;
}

static tutti_status run(asked *a, int argc, char **argv)
{
    tutti_trainer *trainer = NULL;
    tutti_status status;

    TUTTI_TRY(take_flags(a, &argc, argv));
    TUTTI_TRY(check_flags(a));
    TUTTI_TRY(add_keys_of_run(a, &argc, &argv));
    TUTTI_TRY(tutti__trainer_new(&trainer, "tutti plan", NULL, argc - 1, argv + 1, NULL));
    a->keys = argv + 1;
    a->n_keys = argc - 1;
    status = settle(a, &trainer->config);
    if (status == TUTTI_OK)
        status = plan(a, trainer);
    tutti_trainer_free(trainer);
    return status;
}

int tutti__cli_plan(int argc, char **argv)
{
    asked a = {.json = NULL};
    tutti_status status;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    status = run(&a, argc, argv);
    tutti__scaling_free(&a.scaling);
    tutti__timeline_free(&a.timeline);
    free(a.with);
    return status == TUTTI_OK ? 0 : tutti__report_usage("tutti plan", status);
}
