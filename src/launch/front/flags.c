/* flags.c -- the meaning of `tutti run`'s flags about the workers of this node.   SPDX-License-Identifier: MIT */
#include "launch/front/flags.h"
#include "launch/front/flag_text.h"
#include "train/machine/pin.h"

#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

typedef tutti__flag_text given;
typedef tutti__flag_texts texts;
#define BAD TUTTI__BAD_FLAG

/* The entries of CUDA_VISIBLE_DEVICES, up to its first -1; without it, the GPUs of this machine. */
static int count_gpus(void)
{
    const char *p = getenv("CUDA_VISIBLE_DEVICES");
    glob_t found;
    int n = 0;

    if (p) {
        for (; *p && strncmp(p, "-1", 2) != 0; p += *p == ',') {
            n++;
            p += strcspn(p, ",");
        }
    } else if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0) {
        n = (int)found.gl_pathc;
        globfree(&found);
    }
    return n;
}

static tutti_status read_n(const given *g, int *n_p)
{
    int64_t n;
    int gpus;

    *n_p = 1;
    if (!g->text)
        return TUTTI_OK;
    gpus = count_gpus();
    if (strcmp(g->text, "cpu") == 0 || strcmp(g->text, "auto") == 0) {
        *n_p = *g->text == 'a' && gpus > 0 ? gpus : tutti__cores();
        return TUTTI_OK;
    }
    if (strcmp(g->text, "gpu") == 0 && gpus > 0) {
        *n_p = gpus;
        return TUTTI_OK;
    }
    if (strcmp(g->text, "gpu") == 0)
        return tutti__fail(
            TUTTI_ERR_ARG, "%s is \"gpu\", but %s; `cpu` starts one worker per core", g->source,
            getenv("CUDA_VISIBLE_DEVICES") ? "CUDA_VISIBLE_DEVICES names no device"
                                           : "this machine has no visible device (/dev/nvidia0)");
    if (strcmp(g->text, "xpu") == 0)
        return BAD(g, "a number, auto, cpu or gpu: devices of this kind are not known to %s",
                   "Tutti");
    if (!tutti__parse_int64(g->text, &n) || n < 1 || n > TUTTI__MOST_WORKERS)
        return BAD(g, "a number of workers from 1 to %d, auto, cpu or gpu", TUTTI__MOST_WORKERS);
    *n_p = (int)n;
    return TUTTI_OK;
}

static tutti_status read_seconds(const given *g, double *seconds_p)
{
    double seconds;

    if (!g->text)
        return TUTTI_OK;
    if (!tutti__parse_double(g->text, &seconds) || !(seconds >= 0 && seconds <= 1e9))
        return BAD(g, "seconds from %d to 1e9", 0);
    *seconds_p = seconds > 0 ? seconds : -1; /* -1: at once */
    return TUTTI_OK;
}

/* "3" for all ranks, or "0:1,1:3". */
static tutti_status read_streams(const given *g, int n, tutti__streams **streams_p)
{
    const char *p = g->text;

    if (!p)
        return TUTTI_OK;
    *streams_p = calloc((size_t)n, sizeof **streams_p);
    if (!*streams_p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", n);
    if (p[0] >= '0' && p[0] <= '3' && !p[1]) {
        for (int i = 0; i < n; i++)
            (*streams_p)[i] = (tutti__streams)(p[0] - '0');
        return TUTTI_OK;
    }
    for (;;) {
        char *colon;
        unsigned long rank = strtoul(p, &colon, 10);

        if (!isdigit((unsigned char)*p) || *colon != ':' || colon[1] < '0' || colon[1] > '3' ||
            (colon[2] && colon[2] != ','))
            return BAD(g, "0, 1, 2 or 3 (%s), or RANK:WHICH,... as in 0:1,1:3",
                       "none, stdout, stderr, both");
        if (rank >= (unsigned long)n)
            return BAD(g, "local ranks from 0 to %d", n - 1);
        (*streams_p)[rank] = (tutti__streams)(colon[1] - '0');
        if (!colon[2])
            return TUTTI_OK;
        p = colon + 3;
    }
}

static tutti_status read_ranks(const given *g, int n, bool **shown_p)
{
    const char *p = g->text;

    if (!p || !*p)
        return TUTTI_OK;
    *shown_p = calloc((size_t)n, sizeof **shown_p);
    if (!*shown_p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", n);
    for (;;) {
        char *end;
        unsigned long rank = strtoul(p, &end, 10);

        if (!isdigit((unsigned char)*p) || (*end && *end != ',') || rank >= (unsigned long)n)
            return BAD(g, "local ranks from 0 to %d, as in 0,2", n - 1);
        (*shown_p)[rank] = true;
        if (!*end)
            return TUTTI_OK;
        p = end + 1;
    }
}

static int signal_number(const char *name, size_t bytes)
{
    if (bytes > 3 && strncmp(name, "SIG", 3) == 0) {
        name += 3;
        bytes -= 3;
    }
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);

        if (known && strlen(known) == bytes && strncmp(known, name, bytes) == 0)
            return i;
    }
    return 0;
}

static tutti_status read_signals(const given *g, tutti__run_line *line)
{
    static const int never[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGTSTP, SIGPIPE,
                                SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGABRT};
    const char *p = g->text;
    int n = 0;

    if (!p)
        return TUTTI_OK;
    line->opts.signals = line->signals;
    for (; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        int sig = signal_number(p, strcspn(p, ","));
        bool bad = sig == 0;

        for (size_t i = 0; i < TUTTI__COUNT_OF(never); i++)
            bad = bad || sig == never[i];
        if (bad)
            return BAD(g, "names of signals that can be handled, as in %s",
                       "SIGTERM,SIGINT,SIGUSR1");
        if (n < NSIG - 1)
            line->signals[n++] = sig;
    }
    return TUTTI_OK;
}

/* "apple,orange"; a double comma means a comma. */
static tutti_status read_filters(const given *g, int i, tutti__run_line *line)
{
    const char **words;
    char *text, *to;
    size_t n = 0;

    if (!g->text || !*g->text)
        return TUTTI_OK;
    line->filter_text[i] = text = to = malloc(strlen(g->text) + 2);
    line->filters[i] = words = calloc(strlen(g->text) + 2, sizeof *words);
    if (!text || !words)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", g->source);
    for (const char *p = g->text, *word = to;; p++) {
        if (*p && (*p != ',' || p[1] == ',')) {
            *to++ = *p;
            p += *p == ',';
            continue;
        }
        *to++ = '\0';
        if (*word)
            words[n++] = word;
        word = to;
        if (!*p)
            break;
    }
    line->opts.filters[i] = n > 0 ? words : NULL;
    return TUTTI_OK;
}

static void read_prefix(const texts *t, tutti__launch_opts *opts)
{
    const char *usual = getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");

    opts->prefix = t->of[TUTTI__FLAG_LOG_LINE_PREFIX_TEMPLATE].text;
    if (!opts->prefix && usual && *usual)
        opts->prefix = usual;
    if (t->of[TUTTI__FLAG_NO_PREFIX].text)
        opts->prefix = "";
}

static tutti_status read_binding(const given *g, tutti__run_line *line)
{
    static const char *const names[] = {"node", "socket", "exclusive", "core-complex"};
    size_t mode = 0;

    if (!g->text)
        return TUTTI_OK;
    while (mode < TUTTI__COUNT_OF(names) && strcmp(g->text, names[mode]) != 0)
        mode++;
    if (mode == TUTTI__COUNT_OF(names))
        return tutti__fail_choice(g->source, g->text, names, TUTTI__COUNT_OF(names));
    line->binding = calloc((size_t)line->opts.n, sizeof *line->binding);
    if (!line->binding)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", line->opts.n);
    line->opts.binding = line->binding;
    return tutti__numa_binding((tutti__numa_mode)mode, line->opts.n, line->binding);
}

static tutti_status read_chaos(const given *g, tutti__run_line *line)
{
    if (!g->text)
        return TUTTI_OK;
    TUTTI_TRY(tutti__chaos_read(g->text, &line->chaos));
    line->opts.chaos = &line->chaos;
    if (tutti__chaos_flips(&line->chaos, line->opts.n, line->flips, sizeof line->flips))
        line->opts.flips = line->flips;
    return tutti__chaos_check(&line->chaos, line->opts.n);
}

static tutti_status read_shutdown_timeout(const texts *t, double *seconds_p)
{
    given g = t->of[TUTTI__FLAG_SHUTDOWN_TIMEOUT];
    const char *text = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");

    if (!g.text && text && *text)
        g = (given){text, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"};
    return read_seconds(&g, seconds_p);
}

/* exec's argv is not const, although nothing writes to it. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* The worker's command line: PROGRAM ARGS, or python3 -u [-m] PROGRAM ARGS. */
static tutti_status read_program(const texts *t, tutti__run_line *line, int argc, char **argv)
{
    const char *chosen = getenv("PYTHON_EXEC");
    bool module = t->of[TUTTI__FLAG_MODULE].text, no_python = t->of[TUTTI__FLAG_NO_PYTHON].text;
    bool path = t->of[TUTTI__FLAG_RUN_PATH].text; /* overrides both, as in torchrun */
    size_t n = 0, bytes;

    if (argc == 0 || !*argv[0])
        return tutti__fail(TUTTI_ERR_ARG,
                           "no program was given; usage: tutti run [FLAGS] PROGRAM [ARGUMENTS]");
    if (module && no_python && !path)
        return tutti__fail(TUTTI_ERR_ARG, "--module and --no-python exclude each other");
    line->argv = calloc((size_t)argc + 4, sizeof *line->argv);
    if (!line->argv)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the command line");
    bytes = strlen(argv[0]);
    if (path || module || (!no_python && bytes > 3 && strcmp(argv[0] + bytes - 3, ".py") == 0)) {
        line->argv[n++] = chosen && *chosen ? text(chosen) : text("python3");
        line->argv[n++] = text("-u");
    }
    if (module && !path)
        line->argv[n++] = text("-m");
    memcpy(line->argv + n, argv, (size_t)argc * sizeof *argv);
    line->opts.argv = line->argv;
    line->opts.program = line->argv[0];
    line->opts.script = n > 0 && !(module && !path) ? argv[0] : NULL;
    return TUTTI_OK;
}

static tutti_status read_log_dir(const given *g, const char **dir_p)
{
    if (g->text && !*g->text)
        return BAD(g, "a %s", "folder");
    *dir_p = g->text;
    return TUTTI_OK;
}

static tutti_status check_id(const given *id)
{
    if (id->text && (strchr(id->text, '/') || strlen(id->text) > 100 || !*id->text ||
                     strcmp(id->text, ".") == 0 || strcmp(id->text, "..") == 0 ||
                     strcmp(id->text, "latest") == 0))
        return BAD(id, "a name of at most %d characters without '/', and not the link `latest`",
                   100);
    return TUTTI_OK;
}

tutti_status tutti__run_line_read(tutti__run_line *line, int argc, char **argv)
{
    texts t = {0};
    tutti__launch_opts *opts = &line->opts;
    double unused;
    int next;

    TUTTI_TRY(tutti__flag_texts_read(&t, argc, argv, &next));
    line->help = t.of[TUTTI__FLAG_HELP].text;
    line->env = t.of[TUTTI__FLAG_ENV].text;
    if (line->help || line->env)
        return TUTTI_OK;
    opts->id = t.of[TUTTI__FLAG_RDZV_ID].text;
    opts->role = t.of[TUTTI__FLAG_ROLE].text;
    TUTTI_TRY(read_log_dir(&t.of[TUTTI__FLAG_LOG_DIR], &opts->log_dir));
    TUTTI_TRY(read_n(&t.of[TUTTI__FLAG_NPROC_PER_NODE], &opts->n));
    TUTTI_TRY(tutti__flags_read_nodes(&t, opts, &line->names));
    TUTTI_TRY(
        tutti__flag_read_count(&t.of[TUTTI__FLAG_MAX_RESTARTS], 0, 1000000, &opts->max_restarts));
    TUTTI_TRY(read_shutdown_timeout(&t, &opts->shutdown_timeout_s));
    TUTTI_TRY(read_seconds(&t.of[TUTTI__FLAG_MONITOR_INTERVAL], &unused));
    TUTTI_TRY(read_streams(&t.of[TUTTI__FLAG_REDIRECTS], opts->n, &line->redirect));
    TUTTI_TRY(read_streams(&t.of[TUTTI__FLAG_TEE], opts->n, &line->tee));
    TUTTI_TRY(read_ranks(&t.of[TUTTI__FLAG_LOCAL_RANKS_FILTER], opts->n, &line->shown));
    TUTTI_TRY(read_signals(&t.of[TUTTI__FLAG_SIGNALS_TO_HANDLE], line));
    TUTTI_TRY(read_filters(&t.of[TUTTI__FLAG_DUPLICATE_STDOUT_FILTERS], 0, line));
    TUTTI_TRY(read_filters(&t.of[TUTTI__FLAG_DUPLICATE_STDERR_FILTERS], 1, line));
    TUTTI_TRY(read_binding(&t.of[TUTTI__FLAG_NUMA_BINDING], line));
    TUTTI_TRY(read_chaos(&t.of[TUTTI__FLAG_CHAOS], line));
    TUTTI_TRY(check_id(&t.of[TUTTI__FLAG_RDZV_ID]));
    read_prefix(&t, opts);
    opts->virtual_local_rank = t.of[TUTTI__FLAG_VIRTUAL_LOCAL_RANK].text;
    opts->redirect = line->redirect;
    opts->tee = line->tee;
    opts->shown = line->shown;
    return read_program(&t, line, argc - next, argv + next);
}

void tutti__run_line_free(tutti__run_line *line)
{
    free(line->argv);
    free(line->redirect);
    free(line->tee);
    free(line->shown);
    free(line->binding);
    for (int i = 0; i < 2; i++) {
        free(line->filter_text[i]);
        free(line->filters[i]);
    }
    *line = (tutti__run_line){0};
}
