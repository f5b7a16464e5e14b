/* worker_environment.c -- the variables that a worker gets.   SPDX-License-Identifier: MIT */
#include "launch/process/worker_environment.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

static const char *const variable_names[] = {
#define VARIABLE(name, format, value, help) #name,
#include "launch/process/worker_env.def"
#undef VARIABLE
};

static bool is_ours(const char *entry)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(variable_names); i++) {
        size_t n = strlen(variable_names[i]);

        if (strncmp(entry, variable_names[i], n) == 0 && entry[n] == '=')
            return true;
    }
    return false;
}

void tutti__worker_environment_free(tutti__worker_environment *e)
{
    for (size_t i = 0; i < e->n_own; i++)
        free(e->list[i]);
    free(e->list);
}

static bool add(tutti__worker_environment *e, const char *format, ...) TUTTI_PRINTF(2, 3);
static bool add(tutti__worker_environment *e, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vasprintf(&e->list[e->n_own], format, args);
    va_end(args);
    if (n < 0)
        e->list[e->n_own] = NULL;
    else
        e->n_own++;
    return n >= 0;
}

/* "SIGTERM,SIGINT", as torchrun writes it. */
static void list_signals(const int *signals, char *text, size_t bytes)
{
    size_t n = 0;

    *text = '\0';
    for (int i = 0; signals[i] && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%sSIG%s", n ? "," : "",
                              sigabbrev_np(signals[i]));
}

/* The worker's device among those that this process may use: the one at its place in the list, if there is a list. */
static bool add_device(tutti__worker_environment *e, int local_rank)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (!visible)
        return add(e, "CUDA_VISIBLE_DEVICES=%d", local_rank);
    for (int i = 0; i < local_rank; i++)
        visible = strchr(visible, ',') ? strchr(visible, ',') + 1 : "";
    return add(e, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(visible, ","), visible);
}

/* TUTTI_CHAOS_FLIP: a replacement flips other bits than the process before it. */
static void write_flips(const tutti__job *job, int start, char *text, size_t bytes)
{
    if (job->opts.flips)
        snprintf(text, bytes, "%s:%d:%d", job->opts.flips, start, job->flip_counter);
    else
        snprintf(text, bytes, "%s", tutti__env_text(TUTTI__ENV_CHAOS_FLIP));
}

bool tutti__worker_environment_make(tutti__worker_environment *e, const tutti__job *job, int rank,
                                    int start, const char *error_file, int agent_fd)
{
    const int local_rank = rank - job->round.first_rank;
    const tutti__round *round = &job->round;
    const char *nccl = getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    bool one_device = job->opts.virtual_local_rank, added = true;
    char signals[512], flips[160];
    size_t n = 0;

    while (environ[n])
        n++;
    *e = (tutti__worker_environment){
        calloc(n + TUTTI__COUNT_OF(variable_names) + 2, sizeof *e->list), 0};
    if (!e->list)
        return false;
    nccl = nccl && *nccl ? nccl : "1";
    list_signals(job->signals, signals, sizeof signals);
    write_flips(job, start, flips, sizeof flips);
#define VARIABLE(name, format, value, help) added = added && add(e, "%s=" format, #name, value);
#include "launch/process/worker_env.def"
#undef VARIABLE
    added = added && (!one_device || add_device(e, local_rank));
    n = e->n_own;
    for (size_t i = 0; environ[i]; i++)
        if (!is_ours(environ[i]) &&
            !(one_device && strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) == 0))
            e->list[n++] = environ[i];
    return added;
}

void tutti__worker_environment_print(FILE *file)
{
#define VARIABLE(name, format, value, help) fprintf(file, "| `%s` | %s |\n", #name, help);
#include "launch/process/worker_env.def"
#undef VARIABLE
}
