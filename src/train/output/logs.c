/* logs.c -- writes metrics to metrics.jsonl and to the configured loggers.   SPDX-License-Identifier: MIT */
#include "train/output/logs.h"

#include "train/output/logger.h"

#include <stdlib.h>
#include <string.h>

static const tutti__logger *const loggers[] = {&tutti__tensorboard, &tutti__wandb,
                                               &tutti__prometheus};

#define SAMPLE_NS ((uint64_t)1000000000) /* least interval of samples of the machine */

struct tutti__logs_open {
    tutti__logged_run run;
    void *selves[TUTTI__COUNT_OF(loggers)]; /* NULL: off, or given up */
    tutti__system *system;
    uint64_t next_sample_ns;
    tutti__system_sample sample;
};

static bool failed(tutti_status status, const char *what)
{
    if (status != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "train", "%s: %s; training continues without it", what,
                  tutti_last_error());
    return status != TUTTI_OK;
}

static void close_logger(tutti__logs_open *s, size_t i)
{
    if (s->selves[i])
        loggers[i]->close(s->selves[i]);
    free(s->selves[i]);
    s->selves[i] = NULL;
}

/* Reports a failure once, and closes that logger. */
static void check(tutti__logs_open *s, size_t i, tutti_status status)
{
    if (failed(status, loggers[i]->name))
        close_logger(s, i);
}

#define EACH(s, call, ...)                                                                         \
    for (size_t i = 0; i < TUTTI__COUNT_OF(loggers); i++)                                          \
        if ((s)->selves[i] && loggers[i]->call)                                                    \
    check((s), i, loggers[i]->call((s)->selves[i], __VA_ARGS__))

/* ---- Begin ---- */

/* The last component of the run folder's path, resolved if it is ".". */
static void find_name(const char *folder, char name[TUTTI__CONFIG_TEXT])
{
    char *whole = realpath(folder, NULL);
    const char *path = whole ? whole : folder, *slash = strrchr(path, '/');

    snprintf(name, TUTTI__CONFIG_TEXT, "%s", slash && slash[1] ? slash + 1 : path);
    if (!tutti__is_utf8(name))
        snprintf(name, TUTTI__CONFIG_TEXT, "run");
    free(whole);
}

static void forget_earlier(const char *folder)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(loggers); i++)
        if (loggers[i]->forget)
            failed(loggers[i]->forget(folder), loggers[i]->name);
}

void tutti__logs_begin(tutti__logs *logs, tutti__run_folder *folder,
                       const tutti__train_config *config, const char *program,
                       const tutti__gpus *gpus, uint64_t step)
{
    bool any = config->system_metrics;
    tutti__logs_open *s;

    *logs = (tutti__logs){.folder = folder};
    if (step == 0)
        forget_earlier(folder->path);
    for (size_t i = 0; i < TUTTI__COUNT_OF(loggers); i++)
        any = any || loggers[i]->is_on(config);
    if (!any)
        return;
    s = tutti__alloc(sizeof *s);
    if (failed(s ? TUTTI_OK : TUTTI_ERR_MEMORY, "logs"))
        return;
    logs->open = s;
    s->run = (tutti__logged_run){
        .folder = folder->path, .program = program, .config = config, .step = step};
    find_name(folder->path, s->run.name);
    s->system = tutti__system_open(folder->path, gpus);
    failed(s->system ? TUTTI_OK : TUTTI_ERR_MEMORY, "system metrics");
    for (size_t i = 0; i < TUTTI__COUNT_OF(loggers); i++) {
        if (!loggers[i]->is_on(config))
            continue;
        s->selves[i] = tutti__alloc(loggers[i]->bytes);
        check(s, i, s->selves[i] ? loggers[i]->open(s->selves[i], &s->run) : TUTTI_ERR_MEMORY);
    }
}

/* ---- During the run ---- */

/* {"system": {..., "gpus": [{...}]}} */
static void write_system_line(tutti__run_folder *folder, const tutti__system_sample *sample)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    if (!out) {
        tutti__run_folder_text(folder, NULL, 0);
        return;
    }
    fputs("{\"system\": {", out);
    tutti__metrics_print(out, tutti__system_table, &sample->machine, ", ");
    fputs(", \"gpus\": [", out);
    for (size_t i = 0; i < sample->n_gpus; i++) {
        fputs(i ? ", {" : "{", out);
        tutti__metrics_print(out, tutti__gpu_table, &sample->gpus[i], ", ");
        fputs("}", out);
    }
    fputs("]}}\n", out);
    fclose(out);
    tutti__run_folder_text(folder, text, n);
    free(text);
}

/* NULL: the last sample is recent. */
static const tutti__system_sample *sample_system(tutti__logs *logs, int64_t step, double time_s)
{
    tutti__logs_open *s = logs->open;
    const uint64_t now = tutti__now_ns();

    if (!s->system || now < s->next_sample_ns)
        return NULL;
    s->next_sample_ns = now + SAMPLE_NS;
    tutti__system_read(s->system, &s->sample);
    s->sample.machine.step = step;
    s->sample.machine.time_s = time_s;
    if (s->run.config->system_metrics)
        write_system_line(logs->folder, &s->sample);
    return &s->sample;
}

void tutti__logs_step(tutti__logs *logs, const tutti__step_metrics *m)
{
    const tutti__system_sample *sample;

    if (logs->folder)
        tutti__run_folder_line(logs->folder, NULL, tutti__step_table, m);
    if (!logs->open)
        return;
    sample = sample_system(logs, m->step, m->time_s);
    EACH (logs->open, step, m, sample)
        ;
}

void tutti__logs_eval(tutti__logs *logs, const tutti__eval_metrics *m)
{
    const tutti__metric_table table =
        logs->folder && logs->folder->tables ? logs->folder->tables->eval : tutti__eval_table;

    if (logs->folder)
        tutti__run_folder_line(logs->folder, "eval", table, m);
    if (logs->open)
        EACH (logs->open, eval, table, m)
            ;
}

void tutti__logs_sample(tutti__logs *logs, const tutti__sample_metrics *m)
{
    if (logs->folder)
        tutti__run_folder_line(logs->folder, "sample", tutti__sample_table, m);
    if (logs->open)
        EACH (logs->open, sample, m)
            ;
}

void tutti__logs_histogram(tutti__logs *logs, uint64_t step, const char *tag,
                           const tutti__histogram *histogram)
{
    if (logs->open)
        EACH (logs->open, histogram, step, tag, histogram)
            ;
}

/* ---- End ---- */

static void close_all(tutti__logs *logs)
{
    tutti__logs_open *s = logs->open;

    *logs = (tutti__logs){.folder = NULL};
    if (!s)
        return;
    for (size_t i = 0; i < TUTTI__COUNT_OF(loggers); i++)
        close_logger(s, i);
    tutti__system_close(s->system);
    free(s);
}

void tutti__logs_end(tutti__logs *logs, const tutti__summary *summary)
{
    if (logs->open)
        EACH (logs->open, end, summary)
            ;
    close_all(logs);
}

void tutti__logs_leave(tutti__logs *logs, bool own)
{
    if (logs->open && own)
        EACH (logs->open, end, NULL)
            ;
    close_all(logs);
}
