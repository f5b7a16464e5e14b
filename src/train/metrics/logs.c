/* logs.c -- writes metrics to the configured files.   SPDX-License-Identifier: MIT */
#include "train/metrics/logs.h"

#include "checkpoint/output.h"
#include "nn/nn.h"
#include "train/metrics/event_file.h"
#include "train/metrics/prometheus.h"
#include "train/machine/system.h"
#include "train/metrics/wandb_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS                                                                                  \
    ((uint64_t)1000000000) /* least interval of machine samples, and of Prometheus files */

struct tutti__sinks {
    const tutti__train_config *config;
    char name[TUTTI__CONFIG_TEXT]; /* the run folder's name */
    tutti__event_file *events;     /* NULL: not configured, or given up */
    tutti__wandb_file *wandb;
    bool prometheus, metrics; /* whether configured; system objects in metrics.jsonl */
    tutti__histogram *histogram;
    float *flat; /* for histograms: parameters, then gradients */

    tutti__system *system;
    uint64_t next_sample_ns, next_prometheus_ns;
    tutti__system_sample sample;
    tutti__step_metrics step;
    tutti__eval_metrics eval;
    bool has_sample, has_step, has_eval; /* whether the above are valid */
};

/* ---- One by one: a failure is reported once, and that log closed ---- */

static bool failed(tutti_status status, const char *what)
{
    if (status != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "train", "%s: %s; training continues without it", what,
                  tutti_last_error());
    return status != TUTTI_OK;
}

static void close_events(tutti__sinks *s)
{
    if (s->events)
        tutti__event_file_close(s->events);
    free(s->events);
    s->events = NULL;
}

static void close_wandb(tutti__sinks *s)
{
    if (s->wandb)
        tutti__wandb_file_close(s->wandb);
    free(s->wandb);
    s->wandb = NULL;
}

static void check_events(tutti__sinks *s, tutti_status status)
{
    if (failed(status, "tensorboard"))
        close_events(s);
}

static void check_wandb(tutti__sinks *s, tutti_status status)
{
    if (failed(status, "wandb"))
        close_wandb(s);
}

static void write_prometheus(tutti__sinks *s, bool running)
{
    const tutti__prometheus now = {s->has_step ? &s->step : NULL, s->has_eval ? &s->eval : NULL,
                                   s->has_sample ? &s->sample : NULL, running};

    s->next_prometheus_ns = tutti__now_ns() + SECOND_NS;
    if (s->prometheus &&
        failed(tutti__prometheus_write(s->config->prometheus, s->name, s->config, &now),
               "prometheus"))
        s->prometheus = false;
}

/* ---- Begin ---- */

static tutti_status open_events(tutti__sinks *s, const char *run_dir, uint64_t step)
{
    char folder[4096];

    s->events = tutti__alloc(sizeof *s->events);
    if (!s->events)
        return TUTTI_ERR_MEMORY;
    s->events->records.fd = -1;
    if (s->config->histograms > 0 && !(s->histogram = tutti__alloc(sizeof *s->histogram)))
        return TUTTI_ERR_MEMORY;
    snprintf(folder, sizeof folder, "%s/tensorboard", run_dir);
    TUTTI_TRY(tutti__event_file_open(s->events, folder));
    if (step > 0)
        TUTTI_TRY(tutti__event_file_resumed(s->events, step));
    return tutti__event_file_config(s->events, s->config, s->name, step);
}

static tutti_status open_wandb(tutti__sinks *s, const char *run_dir, const char *program,
                               uint64_t step)
{
    char folder[4096];

    s->wandb = tutti__alloc(sizeof *s->wandb);
    if (!s->wandb)
        return TUTTI_ERR_MEMORY;
    s->wandb->records.fd = -1;
    snprintf(folder, sizeof folder, "%s/wandb", run_dir);
    return tutti__wandb_file_open(s->wandb, folder, s->name, program, s->config, step);
}

/* The last component of the run folder's path, resolved if it is ".". */
static void find_name(const char *run_dir, char name[TUTTI__CONFIG_TEXT])
{
    char *whole = realpath(run_dir, NULL);
    const char *path = whole ? whole : run_dir, *slash = strrchr(path, '/');

    snprintf(name, TUTTI__CONFIG_TEXT, "%s", slash && slash[1] ? slash + 1 : path);
    if (!tutti__is_utf8(name))
        snprintf(name, TUTTI__CONFIG_TEXT, "run");
    free(whole);
}

void tutti__logs_begin(tutti__logs *logs, tutti__run_folder *folder,
                       const tutti__train_config *config, const char *program,
                       const tutti__gpus *gpus, uint64_t step)
{
    const bool wandb = strcmp(config->wandb, "offline") == 0;
    tutti__sinks *s;

    *logs = (tutti__logs){.folder = folder};
    if (!config->tensorboard && !wandb && !config->prometheus[0] && !config->system_metrics)
        return;
    s = tutti__alloc(sizeof *s);
    if (failed(s ? TUTTI_OK : TUTTI_ERR_MEMORY, "logs"))
        return;
    logs->sinks = s;
    s->config = config;
    /* once more: now the run's own files are there, too */
    s->prometheus = config->prometheus[0] &&
                    !failed(tutti__output_check("prometheus:", config->prometheus), "prometheus");
    s->metrics = config->system_metrics;
    find_name(folder->path, s->name);
    s->system = tutti__system_open(folder->path, gpus);
    failed(s->system ? TUTTI_OK : TUTTI_ERR_MEMORY, "system metrics");
    if (config->tensorboard)
        check_events(s, open_events(s, folder->path, step));
    if (wandb)
        check_wandb(s, open_wandb(s, folder->path, program, step));
    write_prometheus(s, true);
}

/* ---- During the run ---- */

/* The record's known fields with tags, as points. */
static size_t points_of(tutti__metric_table table, const void *record, const char **tags,
                        double *values, size_t n)
{
    for (size_t i = 0; i < table.n; i++) {
        const double value = tutti__metric_number(&table.rows[i], record);

        if (!table.rows[i].tag || !isfinite(value))
            continue;
        tags[n] = table.rows[i].tag;
        values[n++] = value;
    }
    return n;
}

enum { MOST_POINTS = 64 };

static tutti_status write_points(tutti__sinks *s, int64_t step, tutti__metric_table table,
                                 const void *record)
{
    const char *tags[MOST_POINTS];
    double values[MOST_POINTS];
    const size_t n = points_of(table, record, tags, values, 0);

    return tutti__event_file_scalars(s->events, (uint64_t)step, tags, values, n);
}

/* Writes points with the GPU's number in the tags. */
static tutti_status write_gpu_points(tutti__sinks *s, int gpu)
{
    char texts[MOST_POINTS][64];
    const char *tags[MOST_POINTS];
    double values[MOST_POINTS];
    const size_t n = points_of(tutti__gpu_table, &s->sample.gpus[gpu], tags, values, 0);

    for (size_t i = 0; i < n; i++) {
        snprintf(texts[i], sizeof texts[i], "system/gpu%d_%s", gpu, tags[i]);
        tags[i] = texts[i];
    }
    return tutti__event_file_scalars(s->events, (uint64_t)s->sample.machine.step, tags, values, n);
}

static tutti_status write_system_points(tutti__sinks *s)
{
    TUTTI_TRY(write_points(s, s->sample.machine.step, tutti__system_table, &s->sample.machine));
    for (int i = 0; i < (int)s->sample.n_gpus; i++)
        TUTTI_TRY(write_gpu_points(s, i));
    return TUTTI_OK;
}

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

/* Samples the machine for all logs, if the last sample is old enough. */
static void sample_system(tutti__logs *logs, int64_t step, double time_s)
{
    tutti__sinks *s = logs->sinks;
    const uint64_t now = tutti__now_ns();

    if (!s->system || now < s->next_sample_ns)
        return;
    s->next_sample_ns = now + SECOND_NS;
    tutti__system_read(s->system, &s->sample);
    s->sample.machine.step = step;
    s->sample.machine.time_s = time_s;
    s->has_sample = true;
    if (s->metrics)
        write_system_line(logs->folder, &s->sample);
    if (s->events)
        check_events(s, write_system_points(s));
    if (s->wandb)
        check_wandb(s, tutti__wandb_file_system(s->wandb, &s->sample));
}

void tutti__logs_step(tutti__logs *logs, const tutti__step_metrics *m)
{
    tutti__sinks *s = logs->sinks;

    if (logs->folder)
        tutti__run_folder_line(logs->folder, NULL, tutti__step_table, m);
    if (!s)
        return;
    s->step = *m;
    s->has_step = true;
    if (s->events)
        check_events(s, write_points(s, m->step, tutti__step_table, m));
    if (s->wandb)
        check_wandb(s, tutti__wandb_file_add(s->wandb, (uint64_t)m->step, tutti__step_table, m));
    sample_system(logs, m->step, m->time_s);
    if (tutti__now_ns() >= s->next_prometheus_ns)
        write_prometheus(s, true);
}

static tutti_status add_eval_to_wandb(tutti__wandb_file *file, const tutti__eval_metrics *m)
{
    TUTTI_TRY(tutti__wandb_file_add(file, (uint64_t)m->step, tutti__eval_table, m));
    return tutti__wandb_file_flush(file);
}

void tutti__logs_eval(tutti__logs *logs, const tutti__eval_metrics *m)
{
    tutti__sinks *s = logs->sinks;

    if (logs->folder)
        tutti__run_folder_line(logs->folder, "eval", tutti__eval_table, m);
    if (!s)
        return;
    s->eval = *m;
    s->has_eval = true;
    if (s->events)
        check_events(s, write_points(s, m->step, tutti__eval_table, m));
    if (s->wandb)
        check_wandb(s, add_eval_to_wandb(s->wandb, m));
    write_prometheus(s, true);
}

static tutti_status write_histogram(tutti__sinks *s, uint64_t step, const char *kind,
                                    const char *name, const float *values, size_t n)
{
    char tag[512];

    snprintf(tag, sizeof tag, "%s/%s", kind, name);
    tutti__histogram_make(s->histogram, values, n);
    return tutti__event_file_histogram(s->events, step, tag, s->histogram);
}

/* Flat parameters and gradients, in host memory. */
static tutti_status read_flat(tutti__sinks *s, tutti_module *m, tutti_flat *flat_p)
{
    const size_t bytes = tutti_module_flat_size(m) * sizeof(float);
    tutti_stream *stream = m->cx->stream;
    tutti_flat flat;

    TUTTI_TRY(tutti_module_flat(m, &flat));
    if (!s->flat)
        s->flat = tutti__alloc(2 * bytes);
    if (!s->flat)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__copy_out(stream, s->flat, flat.parameters, bytes));
    TUTTI_TRY(tutti__copy_out(stream, s->flat + flat.n, flat.gradients, bytes));
    flat.parameters = s->flat;
    flat.gradients = s->flat + flat.n;
    *flat_p = flat;
    return tutti_stream_wait(stream);
}

void tutti__logs_tensors(tutti__logs *logs, tutti_module *m, uint64_t step, bool whole)
{
    tutti__sinks *s = logs->sinks;
    tutti_status status = TUTTI_OK;
    tutti_flat flat = {.n = 0};

    if (!s || !s->events || !s->histogram || step % (uint64_t)s->config->histograms != 0)
        return;
    status = read_flat(s, m, &flat);
    for (size_t i = 0; i < tutti_module_n_parameters(m) && status == TUTTI_OK; i++) {
        const tutti_tensor *p = tutti_module_parameter(m, i);
        const size_t n = (size_t)tutti_shape_count(tutti_tensor_shape(p));
        const char *name = tutti_tensor_name(p);

        status = write_histogram(s, step, "parameters", name, flat.parameters + flat.offsets[i], n);
        if (whole && tutti__has_gradient(p->parameter) && status == TUTTI_OK)
            status =
                write_histogram(s, step, "gradients", name, flat.gradients + flat.offsets[i], n);
    }
    check_events(s, status);
}

/* ---- End ---- */

void tutti__logs_end(tutti__logs *logs, const tutti__summary *summary)
{
    tutti__sinks *s = logs->sinks;
    const bool success = strcmp(summary->status, "completed") == 0;

    if (s) {
        write_prometheus(s, false);
        if (s->events)
            check_events(s, tutti__event_file_ended(s->events, (uint64_t)summary->steps, success));
        if (s->wandb)
            check_wandb(s, tutti__wandb_file_end(s->wandb, summary));
        close_wandb(s);
    }
    tutti__logs_leave(logs, true);
}

void tutti__logs_leave(tutti__logs *logs, bool own)
{
    tutti__sinks *s = logs->sinks;

    logs->folder = NULL;
    logs->sinks = NULL;
    if (!s)
        return;
    if (s->wandb && own)
        check_wandb(s, tutti__wandb_file_flush(s->wandb));
    close_events(s);
    close_wandb(s);
    tutti__system_close(s->system);
    free(s->histogram);
    free(s->flat);
    free(s);
}
