/* tensorboard.c -- the key `tensorboard`: curves, histograms and the configuration.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"
#include "train/output/loggers/event_file.h"
#include "train/output/logger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct tensorboard {
    tutti__event_file file;
    uint64_t every;              /* steps between histograms; 0: none */
    tutti__histogram *histogram; /* NULL: none */
    float *flat;                 /* parameters, then gradients */
} tensorboard;

static bool is_on(const tutti__train_config *config)
{
    return config->tensorboard;
}

static void folder_of(const char *run_folder, char path[4096])
{
    snprintf(path, 4096, "%s/tensorboard", run_folder);
}

/* Not through a link, which may lead to files of other runs. */
static tutti_status forget(const char *run_folder)
{
    char path[4096];
    struct stat st;

    folder_of(run_folder, path);
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) ? tutti__event_file_remove_all(path)
                                                        : TUTTI_OK;
}

static tutti_status open_file(void *self, const tutti__logged_run *run)
{
    tensorboard *t = self;
    char path[4096];

    t->file.records.fd = -1;
    t->every = (uint64_t)run->config->histograms;
    if (t->every > 0 && !(t->histogram = tutti__alloc(sizeof *t->histogram)))
        return TUTTI_ERR_MEMORY;
    folder_of(run->folder, path);
    TUTTI_TRY(tutti__event_file_open(&t->file, path));
    if (run->step > 0)
        TUTTI_TRY(tutti__event_file_resumed(&t->file, run->step));
    return tutti__event_file_config(&t->file, run->config, run->name, run->step);
}

enum { MOST_POINTS = 64 };

/* The record's known fields with tags, as points; gpu: its number, which becomes part of the tags; -1: none. */
static tutti_status write_points(tensorboard *t, int64_t step, tutti__metric_table table,
                                 const void *record, int gpu)
{
    char texts[MOST_POINTS][64];
    const char *tags[MOST_POINTS];
    double values[MOST_POINTS];
    size_t n = 0;

    for (size_t i = 0; i < table.n; i++) {
        const double value = tutti__metric_number(&table.rows[i], record);

        if (!table.rows[i].tag || !isfinite(value))
            continue;
        tags[n] = table.rows[i].tag;
        if (gpu >= 0) {
            snprintf(texts[n], sizeof texts[n], "system/gpu%d_%s", gpu, tags[n]);
            tags[n] = texts[n];
        }
        values[n++] = value;
    }
    return tutti__event_file_scalars(&t->file, (uint64_t)step, tags, values, n);
}

static tutti_status write_step(void *self, const tutti__step_metrics *m,
                               const tutti__system_sample *sample)
{
    TUTTI_TRY(write_points(self, m->step, tutti__step_table, m, -1));
    if (!sample)
        return TUTTI_OK;
    TUTTI_TRY(write_points(self, m->step, tutti__system_table, &sample->machine, -1));
    for (int i = 0; i < (int)sample->n_gpus; i++)
        TUTTI_TRY(write_points(self, m->step, tutti__gpu_table, &sample->gpus[i], i));
    return TUTTI_OK;
}

static tutti_status write_eval(void *self, tutti__metric_table table, const tutti__eval_metrics *m)
{
    return write_points(self, m->step, table, m, -1);
}

static tutti_status write_sample(void *self, const tutti__sample_metrics *m)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    tutti_status status = TUTTI_ERR_MEMORY;

    if (!out)
        return tutti__fail(status, "no memory for a sample text");
    fputs("    ", out); /* Markdown's mark of a text as it is */
    for (const char *p = m->text; *p; p++)
        fprintf(out, *p == '\n' ? "%c    " : "%c", *p);
    if (fclose(out) == 0)
        status =
            tutti__event_file_text(&((tensorboard *)self)->file, (uint64_t)m->step, "sample", text);
    free(text);
    return status;
}

/* ---- Histograms ---- */

static tutti_status write_histogram(tensorboard *t, uint64_t step, const char *kind,
                                    const char *name, const float *values, size_t n)
{
    char tag[512];

    snprintf(tag, sizeof tag, "%s/%s", kind, name);
    tutti__histogram_make(t->histogram, values, n);
    return tutti__event_file_histogram(&t->file, step, tag, t->histogram);
}

/* Flat parameters and gradients, in host memory. */
static tutti_status read_flat(tensorboard *t, tutti_module *m, tutti_flat *flat_p)
{
    const size_t bytes = tutti_module_flat_size(m) * sizeof(float);
    tutti_stream *stream = m->cx->stream;
    tutti_flat flat;

    TUTTI_TRY(tutti_module_flat(m, &flat));
    if (!t->flat)
        t->flat = tutti__alloc(2 * bytes);
    if (!t->flat)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__copy_out(stream, t->flat, flat.parameters, bytes));
    TUTTI_TRY(tutti__copy_out(stream, t->flat + flat.n, flat.gradients, bytes));
    flat.parameters = t->flat;
    flat.gradients = t->flat + flat.n;
    *flat_p = flat;
    return tutti_stream_wait(stream);
}

static tutti_status write_tensors(void *self, tutti_module *m, uint64_t step, bool whole)
{
    tensorboard *t = self;
    tutti_flat flat;

    if (!t->histogram || step % t->every != 0)
        return TUTTI_OK;
    TUTTI_TRY(read_flat(t, m, &flat));
    for (size_t i = 0; i < tutti_module_n_parameters(m); i++) {
        const tutti_tensor *p = tutti_module_parameter(m, i);
        const size_t n = (size_t)tutti_shape_count(tutti_tensor_shape(p)), at = flat.offsets[i];
        const char *name = tutti_tensor_name(p);

        TUTTI_TRY(write_histogram(t, step, "parameters", name, flat.parameters + at, n));
        if (whole && tutti__has_gradient(p->parameter))
            TUTTI_TRY(write_histogram(t, step, "gradients", name, flat.gradients + at, n));
    }
    return TUTTI_OK;
}

/* ---- End ---- */

static tutti_status write_end(void *self, const tutti__summary *summary)
{
    tensorboard *t = self;

    return summary ? tutti__event_file_ended(&t->file, (uint64_t)summary->steps,
                                             strcmp(summary->status, "completed") == 0)
                   : TUTTI_OK;
}

static void close_file(void *self)
{
    tensorboard *t = self;

    tutti__event_file_close(&t->file);
    free(t->histogram);
    free(t->flat);
}

const tutti__logger tutti__tensorboard = {
    "tensorboard", sizeof(tensorboard), is_on,         forget,    open_file, write_step,
    write_eval,    write_sample,        write_tensors, write_end, close_file};
