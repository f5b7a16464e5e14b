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
#include <sys/stat.h>

/* The output: values are [n, width]. */
typedef struct answers {
    const tutti__inference_result *r;
    const char *kind; /* "logits"; "outputs" for targets */
    float *values;
    int64_t *predicted; /* NULL: targets */
    size_t n, width;
} answers;

static void softmax(float *row, size_t n, size_t best)
{
    const double top = (double)row[best];
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += tutti__exp((double)row[k] - top);
    for (size_t k = 0; k < n; k++)
        row[k] = (float)(tutti__exp((double)row[k] - top) / sum);
}

static tutti_status make_answers(answers *a, const tutti__inference_result *r, const char *format)
{
    const bool is_class = r->data.classes > 0;

    *a = (answers){.r = r,
                   .kind = !is_class ? "outputs"
                           : format  ? format
                                     : "logits",
                   .n = r->data.count,
                   .width = r->width};
    a->values = tutti__alloc(a->n * a->width * sizeof *a->values);
    if (is_class)
        a->predicted = tutti__alloc(a->n * sizeof *a->predicted);
    if (!a->values || (is_class && !a->predicted))
        return TUTTI_ERR_MEMORY;
    memcpy(a->values, r->outputs, a->n * a->width * sizeof *a->values);
    for (size_t i = 0; is_class && i < a->n; i++) {
        float *row = a->values + i * a->width;
        size_t best = 0;

        for (size_t k = 1; k < a->width; k++)
            if (row[k] > row[best])
                best = k;
        a->predicted[i] = (int64_t)best;
        if (strcmp(a->kind, "probabilities") == 0)
            softmax(row, a->width, best);
    }
    return TUTTI_OK;
}

static tutti_status write_safetensors(const answers *a, const char *path)
{
    const tutti_shape column = TUTTI_SHAPE((int64_t)a->n),
                      table = TUTTI_SHAPE((int64_t)a->n, (int64_t)a->width);
    const tutti__safetensors_source sources[] = {
        {a->kind, {a->values, table, TUTTI_F32}},
        a->predicted ? (tutti__safetensors_source){"label", {a->r->y, column, TUTTI_I64}}
                     : (tutti__safetensors_source){"targets", {a->r->y, table, TUTTI_F32}},
        {"predicted", {a->predicted, column, TUTTI_I64}}};
    const tutti__safetensors_pair pairs[] = {{"format", "pt"},
                                             {"model", a->r->config->model},
                                             {"data", a->r->data.name},
                                             {"split", a->r->data.split}};

    return tutti__safetensors_write(path, sources, a->predicted ? 3 : 2, pairs,
                                    TUTTI__COUNT_OF(pairs));
}

/* 9 digits identify a float exactly. The sign of NaN has no meaning, and not all readers know "-nan". */
static void print_value(FILE *out, float value)
{
    if (isnan(value))
        fputs(",nan", out);
    else
        fprintf(out, ",%.9g", (double)value);
}

static void print_names(const answers *a, const char *name, FILE *out)
{
    for (size_t k = 0; k < a->width; k++)
        fprintf(out, ",%s_%zu", name, k);
}

static void print_csv(const answers *a, FILE *out)
{
    const int64_t *labels = a->r->y;
    const float *targets = a->r->y;

    fputs(a->predicted ? "index,label,predicted" : "index", out);
    if (!a->predicted)
        print_names(a, "target", out);
    print_names(a,
                !a->predicted                    ? "output"
                : strcmp(a->kind, "logits") == 0 ? "logit"
                                                 : "probability",
                out);
    for (size_t i = 0; i < a->n; i++) {
        fprintf(out, "\n%zu", i);
        if (a->predicted)
            fprintf(out, ",%lld,%lld", (long long)labels[i], (long long)a->predicted[i]);
        for (size_t k = 0; !a->predicted && k < a->width; k++)
            print_value(out, targets[i * a->width + k]);
        for (size_t k = 0; k < a->width; k++)
            print_value(out, a->values[i * a->width + k]);
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
    answers a;
    tutti_status status = make_answers(&a, r, line->format);

    if (status == TUTTI_OK)
        status = tutti__ends_in(line->out, ".safetensors") ? write_safetensors(&a, line->out)
                                                           : write_csv(&a, line->out);
    free(a.values);
    free(a.predicted);
    if (status == TUTTI_OK && strcmp(line->out, "-") != 0) {
        if (r->data.classes > 0)
            snprintf(accuracy, sizeof accuracy, "accuracy %.2f %%, ",
                     100 * tutti__tally_accuracy(r->tally));
        tutti__print_line(stdout, "%s of %zu %.*s of %s:%s in %s: %sloss %.4f", a.kind, a.n,
                          (int)strlen(r->noun) - (a.n == 1), r->noun, r->data.name, r->data.split,
                          line->out, accuracy, tutti__tally_loss(r->tally));
    }
    return status;
}

/* Whether out is the weight file that `path` means, which a mistake would overwrite. */
static bool is_weights(const char *out, const char *path)
{
    tutti__weights_place place;
    struct stat a, b;

    return stat(out, &a) == 0 && tutti__weights_find(&place, path) == TUTTI_OK &&
           stat(place.file, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
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
