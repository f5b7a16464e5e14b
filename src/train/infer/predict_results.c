/* predict_results.c -- writes a model's output for each sample of a data set.   SPDX-License-Identifier: MIT */
#include "train/infer/predict_results.h"

#include "base/real.h"
#include "base/terminal.h"
#include "checkpoint/output.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The output: values are [n, width]. */
typedef struct answers {
    const tutti__inference_result *r;
    const char *kind; /* "logits", "probabilities"; "outputs" for numbers; NULL: predicted alone */
    float *values;
    int64_t *predicted; /* [n, n_predicted]: classes; NULL: numbers */
    size_t n, width, n_predicted;
} answers;

/* Over n values that are `stride` apart. */
static void softmax(float *row, size_t n, size_t stride)
{
    double top = (double)row[0], sum = 0;

    for (size_t k = 1; k < n; k++)
        if ((double)row[k * stride] > top)
            top = (double)row[k * stride];
    for (size_t k = 0; k < n; k++)
        sum += tutti__exp((double)row[k * stride] - top);
    for (size_t k = 0; k < n; k++)
        row[k * stride] = (float)(tutti__exp((double)row[k * stride] - top) / sum);
}

/* Logits of a sample to probabilities: of its classes, or of each label. */
static void make_probabilities(const tutti__train_task *task, float *row)
{
    for (size_t i = 0; i < task->positions; i++)
        softmax(row + i, task->classes, task->positions);
    for (size_t k = 0; k < task->numbers; k++)
        row[k] = (float)(1 / (1 + tutti__exp(-(double)row[k])));
}

static tutti_status make_answers(answers *a, const tutti__inference_result *r, const char *format)
{
    const tutti__train_task *task = r->task;
    const size_t bytes = r->data.count * r->width * sizeof *a->values;

    *a = (answers){.r = r,
                   .kind = r->masks                  ? NULL
                           : !task->kind->has_logits ? "outputs"
                           : format                  ? format
                                                     : "logits",
                   .n = r->data.count,
                   .width = r->width,
                   .n_predicted = tutti__task_predictions(task)};
    a->values = tutti__alloc(bytes);
    if (a->n_predicted > 0)
        a->predicted = tutti__alloc(a->n * a->n_predicted * sizeof *a->predicted);
    if (!a->values || (a->n_predicted > 0 && !a->predicted))
        return TUTTI_ERR_MEMORY;
    memcpy(a->values, r->outputs, bytes);
    for (size_t i = 0; r->masks && i < a->n * a->width; i++)
        a->predicted[i] = (int64_t)a->values[i];
    for (size_t i = 0; !r->masks && a->predicted && i < a->n; i++) {
        float *row = a->values + i * a->width;

        tutti__task_predict(task, row, a->predicted + i * a->n_predicted);
        if (strcmp(a->kind, "probabilities") == 0)
            make_probabilities(task, row);
    }
    return TUTTI_OK;
}

/* The shape of n samples' y. */
static tutti_shape shape_of_y(const answers *a)
{
    tutti_shape shape = TUTTI_SHAPE((int64_t)a->n);

    for (int i = 0; i < a->r->task->target.n && shape.n < TUTTI_MAX_DIMS; i++)
        shape.d[shape.n++] = a->r->task->target.d[i];
    return shape;
}

static tutti_status write_safetensors(const answers *a, const char *path)
{
    const tutti__train_task *task = a->r->task;
    const tutti_shape y = shape_of_y(a);
    const bool classes = task->positions > 0;
    tutti__safetensors_source sources[3];
    size_t n = 0;
    const tutti__safetensors_pair pairs[] = {{"format", "pt"},
                                             {"model", a->r->config->model},
                                             {"data", a->r->data.name},
                                             {"split", a->r->data.split}};

    if (a->kind)
        sources[n++] = (tutti__safetensors_source){
            a->kind, {a->values, tutti__task_output(task, (int64_t)a->n), TUTTI_F32}};
    sources[n++] = (tutti__safetensors_source){
        classes ? "label" : "targets",
        {a->r->y, y, classes || task->integers ? TUTTI_I64 : TUTTI_F32}};
    if (a->predicted)
        sources[n++] = (tutti__safetensors_source){"predicted", {a->predicted, y, TUTTI_I64}};
    return tutti__safetensors_write(path, sources, n, pairs, TUTTI__COUNT_OF(pairs));
}

/* 9 digits identify a float exactly. The sign of NaN has no meaning, and not all readers know "-nan". */
static void print_value(FILE *out, float value)
{
    if (isnan(value))
        fputs(",nan", out);
    else
        fprintf(out, ",%.9g", (double)value);
}

/* In quotes, in which a quote is doubled. */
static void print_text(FILE *out, const char *text)
{
    fputs(",\"", out);
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : (const char[]){*text, '\0'}, out);
    fputc('"', out);
}

static void print_names(const answers *a, const char *name, FILE *out)
{
    for (size_t k = 0; k < a->width; k++)
        fprintf(out, ",%s_%zu", name, k);
}

static void print_csv(const answers *a, FILE *out)
{
    const bool classes = a->r->task->positions > 0;
    const int64_t *labels = a->r->y;
    const char *const *names = classes ? a->r->data.class_names : NULL;

    fputs(classes ? "index,label,predicted" : "index", out);
    if (!classes)
        print_names(a, "target", out);
    if (!classes && a->predicted)
        print_names(a, "predicted", out);
    print_names(a,
                !a->predicted                    ? "output"
                : strcmp(a->kind, "logits") == 0 ? "logit"
                                                 : "probability",
                out);
    if (a->predicted && names)
        fputs(",label_name,predicted_name", out);
    for (size_t i = 0; i < a->n; i++) {
        fprintf(out, "\n%zu", i);
        if (classes)
            fprintf(out, ",%lld,%lld", (long long)labels[i], (long long)a->predicted[i]);
        for (size_t k = 0; !classes && k < a->width; k++)
            print_value(out, (float)tutti__task_number(a->r->task, a->r->y, i * a->width + k));
        for (size_t k = 0; !classes && k < a->n_predicted; k++)
            fprintf(out, ",%lld", (long long)a->predicted[i * a->width + k]);
        for (size_t k = 0; k < a->width; k++)
            print_value(out, a->values[i * a->width + k]);
        if (a->predicted && names) {
            print_text(out, names[labels[i]]);
            print_text(out, a->predicted[i] == TUTTI__NO_CLASS ? "" : names[a->predicted[i]]);
        }
    }
    fputc('\n', out);
}

static tutti_status write_csv(const answers *a, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out;
    tutti_status status;
    bool lacks;

    if (strcmp(path, "-") == 0) {
        print_csv(a, stdout);
        return tutti__flush_output();
    }
    out = open_memstream(&text, &bytes);
    if (out)
        print_csv(a, out);
    lacks = !out || ferror(out);
    if (out && fclose(out) != 0)
        lacks = true;
    if (lacks)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", path);
    else
        status = tutti__write_file(path, text, bytes);
    free(text);
    return status;
}

tutti_status tutti__predict_write(void *user, const tutti__inference_result *r)
{
    const tutti__inference_line *line = user;
    char accuracy[64] = "";
    tutti__eval_metrics scores;
    answers a;
    tutti_status status = make_answers(&a, r, line->format);

    if (status == TUTTI_OK)
        status = tutti__ends_in(line->out, ".safetensors") ? write_safetensors(&a, line->out)
                                                           : write_csv(&a, line->out);
    free(a.values);
    free(a.predicted);
    if (status == TUTTI_OK && strcmp(line->out, "-") != 0) {
        tutti__tally_scores(r->tally, &scores);
        if (isfinite(scores.val_accuracy))
            snprintf(accuracy, sizeof accuracy, "accuracy %.2f %%, ", 100 * scores.val_accuracy);
        tutti__print_line(stdout, "%s of %zu %.*s of %s:%s in %s: %sloss %.4f",
                          a.kind ? a.kind : "classes", a.n, (int)strlen(r->noun) - (a.n == 1),
                          r->noun, r->data.name, r->data.split, line->out, accuracy,
                          scores.val_loss);
    }
    return status;
}

/* Whether out is the weight file that `path` means, which a mistake would overwrite. */
static bool is_weights(const char *out, const char *path)
{
    tutti__weights_place place;

    return tutti__weights_find(&place, path) == TUTTI_OK && tutti__same_file(out, place.file);
}

tutti_status tutti__predict_check(const tutti__inference_line *line)
{
    static const char *const formats[] = {"logits", "probabilities"};

    if (!line->out ||
        (*line->out && strcmp(line->out, "-") != 0 && !tutti__ends_in(line->out, ".safetensors") &&
         !tutti__ends_in(line->out, ".csv")))
        return tutti__fail(TUTTI_ERR_ARG,
                           "--out is %s, expected a file that ends in .safetensors or .csv, or -",
                           line->out ? line->out : "not given");
    if (line->format && strcmp(line->format, formats[0]) != 0 &&
        strcmp(line->format, formats[1]) != 0)
        return tutti__fail_choice("--format", line->format, formats, TUTTI__COUNT_OF(formats));
    TUTTI_TRY(tutti__output_check("--out", line->out));
    if (line->path && is_weights(line->out, line->path))
        return tutti__fail(TUTTI_ERR_ARG, "--out %s is the file of the weights; name another",
                           line->out);
    return TUTTI_OK;
}
