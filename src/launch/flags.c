/* flags.c -- reads the command line of `tutti run` by the table of flags.def.   SPDX-License-Identifier: MIT
 *
 * In two steps: first every flag's text, from the command line or else from PET_<NAME>; then the meaning of each. */
#include "launch/flags.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_id {
#define FLAG(id, name, letter, metavar, help) FLAG_##id,
#define ONLY(id, name, accepted, help, why)   FLAG_##id,
#define REFUSED(id, name, why)                FLAG_##id,
#include "launch/flags.def"
#undef FLAG
#undef ONLY
#undef REFUSED
    N_FLAGS
} flag_id;

typedef struct flag {
    const char *name;
    char letter;
    const char *metavar, *help;
    const char *accepted, *why; /* NULL: any value; else only these ("": none), and the reason */
} flag;

static const flag flags[N_FLAGS] = {
#define FLAG(id, name, letter, metavar, help) {name, letter, metavar, help, NULL, NULL},
#define ONLY(id, name, accepted, help, why)   {name, 0, "VALUE", help, accepted, why},
#define REFUSED(id, name, why)                {name, 0, "VALUE", "", "", why},
#include "launch/flags.def"
#undef FLAG
#undef ONLY
#undef REFUSED
};

/* A flag's text as it was given, and how to name it in messages. */
typedef struct given {
    const char *text; /* NULL: not given */
    char source[64];  /* "--tee", "PET_TEE" */
} given;

typedef struct texts {
    given of[N_FLAGS];
} texts;

#define BAD(g, expected, ...)                                                                      \
    tutti__fail(TUTTI_ERR_ARG, "%s is \"%s\", expected " expected, (g)->source, (g)->text,         \
                __VA_ARGS__)

/* ---- Texts ------------------------------------------------------------------------------------------ */

static bool takes_value(int id)
{
    return *flags[id].metavar != '\0';
}

static bool is_name(const char *name, const char *text, size_t bytes)
{
    if (strlen(name) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if ((text[i] == '_' ? '-' : text[i]) != name[i])
            return false;
    return true;
}

static tutti_status unknown_flag(const char *text, size_t bytes)
{
    const char *names[N_FLAGS], *nearest;
    char name[64];

    for (int i = 0; i < N_FLAGS; i++)
        names[i] = flags[i].name;
    snprintf(name, sizeof name, "%.*s", (int)bytes, text);
    nearest = tutti__nearest(name, names, N_FLAGS);
    if (nearest)
        return tutti__fail(TUTTI_ERR_ARG, "there is no flag --%s; did you mean --%s?", name,
                           nearest);
    return tutti__fail(
        TUTTI_ERR_ARG,
        "there is no flag --%s; see tutti run --help (flags of the program come after it)", name);
}

/* Is the text one of the words between '|'? */
static bool is_listed(const char *list, const char *text)
{
    for (const char *p = list; *p; p += *p == '|') {
        size_t bytes = strcspn(p, "|");

        if (strlen(text) == bytes && strncmp(p, text, bytes) == 0)
            return true;
        p += bytes;
    }
    return false;
}

static tutti_status set_text(texts *t, int id, const char *source, const char *text)
{
    const flag *f = &flags[id];

    snprintf(t->of[id].source, sizeof t->of[id].source, "%s", source);
    t->of[id].text = text;
    if (!f->accepted || is_listed(f->accepted, text))
        return TUTTI_OK;
    if (!*f->accepted)
        return tutti__fail(TUTTI_ERR_ARG, "%s is not in this version: %s", source, f->why);
    return tutti__fail(TUTTI_ERR_ARG, "%s %s is not in this version, only %s: %s", source, text,
                       f->accepted, f->why);
}

/* --name, --name VALUE, --name=VALUE. *next_p counts the arguments used. */
static tutti_status read_long(texts *t, char **argv, int *next_p)
{
    const char *name = argv[*next_p] + 2, *equals = strchr(name, '=');
    size_t bytes = equals ? (size_t)(equals - name) : strlen(name);
    char source[64];
    int id;

    for (id = 0; id < N_FLAGS && !is_name(flags[id].name, name, bytes); id++)
        continue;
    if (is_name("nproc", name, bytes))
        id = FLAG_NPROC_PER_NODE;
    if (id == N_FLAGS)
        return unknown_flag(name, bytes);
    snprintf(source, sizeof source, "--%s", flags[id].name);
    if (!takes_value(id) && equals)
        return tutti__fail(TUTTI_ERR_ARG, "%s takes no value, \"%s\" was given", source,
                           equals + 1);
    if (takes_value(id) && !equals && !argv[*next_p + 1])
        return tutti__fail(TUTTI_ERR_ARG, "%s needs a value (%s)", source, flags[id].metavar);
    *next_p += 1;
    if (!takes_value(id))
        return set_text(t, id, source, "1");
    return set_text(t, id, source, equals ? equals + 1 : argv[(*next_p)++]);
}

/* -n VALUE, -nVALUE. */
static tutti_status read_short(texts *t, char **argv, int *next_p)
{
    const char *arg = argv[*next_p];
    char source[3] = {'-', arg[1], '\0'};
    int id;

    for (id = 0; id < N_FLAGS && flags[id].letter != arg[1]; id++)
        continue;
    if (id == N_FLAGS || (!takes_value(id) && arg[2]))
        return tutti__fail(TUTTI_ERR_ARG, "there is no flag %s; see tutti run --help", arg);
    if (takes_value(id) && !arg[2] && !argv[*next_p + 1])
        return tutti__fail(TUTTI_ERR_ARG, "%s needs a value (%s)", source, flags[id].metavar);
    *next_p += 1;
    if (!takes_value(id))
        return set_text(t, id, source, "1");
    return set_text(t, id, source, arg[2] ? arg + 2 : argv[(*next_p)++]);
}

static tutti_status read_environment(texts *t)
{
    for (int i = 0; i < N_FLAGS; i++) {
        char name[64] = "PET_";
        const char *text;
        size_t n = 4;

        for (const char *p = flags[i].name; *p; p++)
            name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        name[n] = '\0';
        text = getenv(name);
        if (t->of[i].text || !text || !*text || i == FLAG_HELP || i == FLAG_ENV)
            continue;
        if (!takes_value(i)) {
            if (strcmp(text, "0") == 0)
                continue;
            if (strcmp(text, "1") != 0)
                return tutti__fail(TUTTI_ERR_ARG, "%s is \"%s\", expected 0 or 1", name, text);
        }
        TUTTI_TRY(set_text(t, i, name, text));
    }
    return TUTTI_OK;
}

/* *next_p: where the program stands. */
static tutti_status read_texts(texts *t, int argc, char **argv, int *next_p)
{
    int next = 1;

    while (next < argc && argv[next][0] == '-' && argv[next][1]) {
        if (strcmp(argv[next], "--") == 0) {
            next++;
            break;
        }
        if (argv[next][1] == '-')
            TUTTI_TRY(read_long(t, argv, &next));
        else
            TUTTI_TRY(read_short(t, argv, &next));
    }
    *next_p = next;
    if (t->of[FLAG_HELP].text || t->of[FLAG_ENV].text)
        return TUTTI_OK;
    return read_environment(t);
}

/* ---- Meanings --------------------------------------------------------------------------------------- */

static tutti_status read_n(const given *g, int *n_p)
{
    int64_t n;

    *n_p = 1;
    if (!g->text)
        return TUTTI_OK;
    if (strcmp(g->text, "auto") == 0 || strcmp(g->text, "cpu") == 0) {
        *n_p = tutti__cores();
        return TUTTI_OK;
    }
    if (strcmp(g->text, "gpu") == 0 || strcmp(g->text, "xpu") == 0)
        return BAD(g, "a number, auto or cpu: there is no support for %ss yet", "GPU");
    if (!tutti__parse_int64(g->text, &n) || n < 1 || n > 65536)
        return BAD(g, "a number of workers from 1 to %d, auto or cpu", 65536);
    *n_p = (int)n;
    return TUTTI_OK;
}

static tutti_status read_port(const given *g, int *port_p)
{
    int64_t port;

    if (!g->text)
        return TUTTI_OK;
    if (!tutti__parse_int64(g->text, &port) || port < 0 || port > 65535)
        return BAD(g, "a port from 1 to %d, or 0 for a free one", 65535);
    *port_p = (int)port;
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

static tutti_status read_shutdown_timeout(const texts *t, double *seconds_p)
{
    given g = t->of[FLAG_SHUTDOWN_TIMEOUT];
    const char *text = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");

    if (!g.text && text && *text)
        g = (given){text, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"};
    return read_seconds(&g, seconds_p);
}

/* exec's argv is not const, though nobody writes to it. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* The worker's command line: PROGRAM ARGS, or python3 -u [-m] PROGRAM ARGS. */
static tutti_status read_program(const texts *t, tutti__run_line *line, int argc, char **argv)
{
    const char *chosen = getenv("PYTHON_EXEC");
    bool module = t->of[FLAG_MODULE].text, no_python = t->of[FLAG_NO_PYTHON].text;
    size_t n = 0, bytes;

    if (argc == 0 || !*argv[0])
        return tutti__fail(TUTTI_ERR_ARG,
                           "no program was given; usage: tutti run [FLAGS] PROGRAM [ARGUMENTS]");
    if (module && no_python)
        return tutti__fail(TUTTI_ERR_ARG, "--module and --no-python exclude each other");
    line->argv = calloc((size_t)argc + 4, sizeof *line->argv);
    if (!line->argv)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the command line");
    bytes = strlen(argv[0]);
    if (module || (!no_python && bytes > 3 && strcmp(argv[0] + bytes - 3, ".py") == 0)) {
        line->argv[n++] = chosen && *chosen ? text(chosen) : text("python3");
        line->argv[n++] = text("-u");
    }
    if (module)
        line->argv[n++] = text("-m");
    memcpy(line->argv + n, argv, (size_t)argc * sizeof *argv);
    line->opts.argv = line->argv;
    line->opts.program = line->argv[0];
    return TUTTI_OK;
}

static tutti_status check_files(const texts *t, const tutti__launch_opts *opts)
{
    const given *redirects = &t->of[FLAG_REDIRECTS], *id = &t->of[FLAG_RDZV_ID];

    if (redirects->text && strcmp(redirects->text, "0") != 0 && !opts->log_dir)
        return tutti__fail(TUTTI_ERR_ARG, "%s needs --log-dir: where are the files to be?",
                           redirects->source);
    if (id->text && (strchr(id->text, '/') || strlen(id->text) > 100 || !*id->text ||
                     strcmp(id->text, ".") == 0 || strcmp(id->text, "..") == 0))
        return BAD(id, "a name of at most %d characters without '/'", 100);
    return TUTTI_OK;
}

tutti_status tutti__run_line_read(tutti__run_line *line, int argc, char **argv)
{
    texts t = {0};
    tutti__launch_opts *opts = &line->opts;
    double unused;
    int next;

    TUTTI_TRY(read_texts(&t, argc, argv, &next));
    line->help = t.of[FLAG_HELP].text;
    line->env = t.of[FLAG_ENV].text;
    if (line->help || line->env)
        return TUTTI_OK;
    opts->master_addr = t.of[FLAG_MASTER_ADDR].text;
    opts->id = t.of[FLAG_RDZV_ID].text;
    opts->role = t.of[FLAG_ROLE].text;
    opts->log_dir = t.of[FLAG_LOG_DIR].text;
    TUTTI_TRY(read_n(&t.of[FLAG_NPROC_PER_NODE], &opts->n));
    TUTTI_TRY(read_port(&t.of[FLAG_MASTER_PORT], &opts->master_port));
    TUTTI_TRY(read_shutdown_timeout(&t, &opts->shutdown_timeout_s));
    TUTTI_TRY(read_seconds(&t.of[FLAG_MONITOR_INTERVAL], &unused));
    TUTTI_TRY(read_streams(&t.of[FLAG_REDIRECTS], opts->n, &line->redirect));
    TUTTI_TRY(read_streams(&t.of[FLAG_TEE], opts->n, &line->tee));
    TUTTI_TRY(read_ranks(&t.of[FLAG_LOCAL_RANKS_FILTER], opts->n, &line->shown));
    TUTTI_TRY(read_signals(&t.of[FLAG_SIGNALS_TO_HANDLE], line));
    TUTTI_TRY(check_files(&t, opts));
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
    *line = (tutti__run_line){0};
}

/* ---- Help ------------------------------------------------------------------------------------------- */

/* In lines of at most 100 columns, indented by `column` after the first. */
static void print_wrapped(FILE *file, const char *text, int column)
{
    int left = 100 - column;

    while (*text) {
        int n = (int)strlen(text);

        if (n > left)
            for (n = left; n > 0 && text[n] != ' '; n--)
                continue;
        if (n == 0)
            n = (int)strlen(text);
        fprintf(file, "%.*s\n", n, text);
        text += n;
        text += strspn(text, " ");
        if (*text)
            fprintf(file, "%*s", column, "");
    }
}

void tutti__run_print_help(FILE *file)
{
    fputs("usage: tutti run [FLAGS] PROGRAM [ARGUMENTS]\n\n"
          "Starts PROGRAM as N workers on this machine, each with the environment that torchrun "
          "gives (RANK,\n"
          "WORLD_SIZE, MASTER_ADDR, ...), shows their output, each line with its rank, and ends "
          "with the exit code\n"
          "of the worker that failed first (128 + n for a signal), or 0. The first failure stops "
          "the others; no\n"
          "process is left behind, theirs included. Rank 0 reads standard input. A PROGRAM ending "
          "in .py is run by\n"
          "python3. Each flag NAME can also be set in the environment as PET_NAME.\n\n",
          file);
    for (int i = 0; i < N_FLAGS; i++) {
        char left[64], letter[4] = "";

        if (flags[i].accepted)
            continue;
        if (flags[i].letter)
            snprintf(letter, sizeof letter, "-%c,", flags[i].letter);
        snprintf(left, sizeof left, "%3s --%s %s", letter, flags[i].name, flags[i].metavar);
        fprintf(file, "  %-31s ", left);
        print_wrapped(file, flags[i].help, 34);
    }
    fputs("\nOf torchrun's flags these are accepted with one value only in this version:\n", file);
    for (int i = 0; i < N_FLAGS; i++)
        if (flags[i].accepted && *flags[i].accepted)
            fprintf(file, "      --%-26s %s (%s)\n", flags[i].name, flags[i].accepted,
                    flags[i].help);
    fputs("\nand these are refused:\n", file);
    for (int i = 0; i < N_FLAGS; i++)
        if (flags[i].accepted && !*flags[i].accepted)
            fprintf(file, "      --%-26s %s\n", flags[i].name, flags[i].why);
}
