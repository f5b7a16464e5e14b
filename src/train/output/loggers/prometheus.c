/* prometheus.c -- the latest figures in a file for node_exporter's textfile collector.   SPDX-License-Identifier: MIT */
#include "train/output/loggers/prometheus.h"

#include "checkpoint/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Prints a label's value, or (quotes false) a help text, with backslashes, newlines and in a label also quotes escaped. */
static void print_escaped(FILE *out, const char *text, bool quotes)
{
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '\\' || (quotes && *text == '"'))
            fprintf(out, "\\%c", *text);
        else
            putc(*text, out);
}

static char *make_labels(const char *run, const tutti__train_config *config)
{
    const char *const labels[][2] = {
        {"run", run}, {"model", config->model}, {"data", config->data}};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    if (!out)
        return NULL;
    for (size_t i = 0; i < TUTTI__COUNT_OF(labels); i++) {
        fprintf(out, "%s%s=\"", i ? "," : "", labels[i][0]);
        print_escaped(out, tutti__is_utf8(labels[i][1]) ? labels[i][1] : "(not UTF-8)", true);
        putc('"', out);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static void print_head(FILE *out, const char *prefix, const char *name, const char *help)
{
    fprintf(out, "# HELP tutti_%s%s ", prefix, name);
    print_escaped(out, help, false);
    fprintf(out, "\n# TYPE tutti_%s%s gauge\n", prefix, name);
}

/* Prints one field of a record as a sample, unless it is not finite, hence unknown. */
static void print_sample(FILE *out, const char *prefix, const tutti__metric_row *row,
                         const char *labels, const void *record)
{
    char text[TUTTI__METRIC_TEXT_SIZE];

    if (!isfinite(tutti__metric_number(row, record)))
        return;
    tutti__metric_number_text(row, record, text);
    fprintf(out, "tutti_%s%s{%s} %s\n", prefix, row->name, labels, text);
}

static void print_record(FILE *out, const char *prefix, tutti__metric_table table,
                         const char *labels, const void *record)
{
    for (size_t i = 0; i < table.n && record; i++) {
        if (table.rows[i].type == TUTTI__METRIC_SOME &&
            !isfinite(tutti__metric_number(&table.rows[i], record)))
            continue;
        print_head(out, prefix, table.rows[i].name, table.rows[i].help);
        print_sample(out, prefix, &table.rows[i], labels, record);
    }
}

static void print_gpus(FILE *out, const char *labels, const tutti__system_sample *sample)
{
    for (size_t i = 0; i < tutti__gpu_table.n && sample->n_gpus > 0; i++) {
        print_head(out, "gpu_", tutti__gpu_table.rows[i].name, tutti__gpu_table.rows[i].help);
        for (size_t k = 0; k < sample->n_gpus; k++) {
            char *all = NULL;

            if (asprintf(&all, "%s,gpu=\"%zu\"", labels, k) < 0)
                return;
            print_sample(out, "gpu_", &tutti__gpu_table.rows[i], all, &sample->gpus[k]);
            free(all);
        }
    }
}

tutti_status tutti__prometheus_write(const char *path, const char *run,
                                     const tutti__train_config *config,
                                     const tutti__prometheus_figures *now)
{
    char *labels = make_labels(run, config), *text = NULL;
    size_t n = 0;
    FILE *out = labels ? open_memstream(&text, &n) : NULL;
    tutti_status status;

    if (!out) {
        free(labels);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", path);
    }
    print_head(out, "", "running", "1 while the run is going on, 0 when it has ended");
    fprintf(out, "tutti_running{%s} %d\n", labels, now->running);
    print_record(out, "train_", tutti__step_table, labels, now->step);
    print_record(out, "eval_", now->eval_table, labels, now->eval);
    if (now->system) {
        print_record(out, "system_", tutti__system_table, labels, &now->system->machine);
        print_gpus(out, labels, now->system);
    }
    status = fclose(out) == 0 ? tutti__write_file(path, text, n)
                              : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", path);
    free(text);
    free(labels);
    return status;
}

/* ---- The key `prometheus` ---- */

#define INTERVAL_NS ((uint64_t)1000000000) /* at least, between the files of two steps */

typedef struct prometheus {
    const tutti__logged_run *run;
    uint64_t next_ns;
    tutti__step_metrics step;
    tutti__eval_metrics eval;
    tutti__system_sample system;
    tutti__prometheus_figures now; /* of the above */
} prometheus;

static bool is_on(const tutti__train_config *config)
{
    return config->prometheus[0];
}

static tutti_status write_now(prometheus *p)
{
    p->next_ns = tutti__now_ns() + INTERVAL_NS;
    return tutti__prometheus_write(p->run->config->prometheus, p->run->name, p->run->config,
                                   &p->now);
}

static tutti_status open_first(void *self, const tutti__logged_run *run)
{
    prometheus *p = self;

    /* once more: now the run's own files are there, too */
    TUTTI_TRY(tutti__output_check("prometheus:", run->config->prometheus));
    p->run = run;
    p->now.running = true;
    return write_now(p);
}

static tutti_status write_step(void *self, const tutti__step_metrics *m,
                               const tutti__system_sample *sample)
{
    prometheus *p = self;

    p->step = *m;
    p->now.step = &p->step;
    if (sample) {
        p->system = *sample;
        p->now.system = &p->system;
    }
    return tutti__now_ns() >= p->next_ns ? write_now(p) : TUTTI_OK;
}

static tutti_status write_eval(void *self, tutti__metric_table table, const tutti__eval_metrics *m)
{
    prometheus *p = self;

    p->now.eval_table = table;
    p->eval = *m;
    p->now.eval = &p->eval;
    return write_now(p);
}

static tutti_status write_end(void *self, const tutti__summary *summary)
{
    prometheus *p = self;

    p->now.running = false;
    return summary ? write_now(p) : TUTTI_OK;
}

static void close_nothing(void *self)
{
    (void)self;
}

const tutti__logger tutti__prometheus = {"prometheus", sizeof(prometheus), is_on,        NULL,
                                         open_first,   write_step,         write_eval,   NULL,
                                         NULL,         write_end,          close_nothing};
