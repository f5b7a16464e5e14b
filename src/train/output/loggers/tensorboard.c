/* tensorboard.c -- the key `tensorboard`: curves, histograms and the configuration.   SPDX-License-Identifier: MIT */
#include "train/output/loggers/event_file.h"
#include "train/output/logger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct tensorboard {
    tutti__event_file file;
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

static tutti_status write_histogram(void *self, uint64_t step, const char *tag,
                                    const tutti__histogram *histogram)
{
    return tutti__event_file_histogram(&((tensorboard *)self)->file, step, tag, histogram);
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
}

const tutti__logger tutti__tensorboard = {
    "tensorboard", sizeof(tensorboard), is_on,           forget,    open_file, write_step,
    write_eval,    write_sample,        write_histogram, write_end, close_file};
