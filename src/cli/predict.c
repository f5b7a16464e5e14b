/* predict.c -- `tutti predict`: a model's output for each sample of a data set.   SPDX-License-Identifier: MIT */
#include "base/real.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "cli/cli.h"
#include "cli/inference_command.h"
#include "train/signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char HELP[] =
    "Writes a model's predictions for all samples of a data set, in the data set's order.\n"
    "\n"
    "usage: tutti predict PATH --out FILE [-n N] [--FLAG VALUE]...\n"
    "\n"
    "  tutti predict runs/mine --out logits.safetensors\n"
    "  tutti predict runs/mine --out - --format probabilities | head\n"
    "\n" TUTTI__INFERENCE_HELP
    "  --out FILE               .safetensors: tensors logits (or probabilities) F32 [N, classes], "
    "label and\n"
    "                           predicted I64 [N]; .csv, or - for standard output: one line per\n"
    "                           sample: index, label, predicted, and one column per class\n"
    "  --format KIND            logits or probabilities (default logits)\n"
    "  -h, --help               this text\n";

/* The output: values are [n, classes]. */
typedef struct answers {
    const tutti__inference_result *r;
    const char *kind; /* "logits" */
    float *values;
    int64_t *predicted;
    size_t n, classes;
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

static tutti_status make_answers(answers *a, const tutti__inference_result *r, const char *kind)
{
    *a = (answers){.r = r, .kind = kind, .n = r->data.count, .classes = (size_t)r->data.classes};
    a->values = tutti__alloc(a->n * a->classes * sizeof *a->values);
    a->predicted = tutti__alloc(a->n * sizeof *a->predicted);
    if (!a->values || !a->predicted)
        return TUTTI_ERR_MEMORY;
    memcpy(a->values, r->logits, a->n * a->classes * sizeof *a->values);
    for (size_t i = 0; i < a->n; i++) {
        float *row = a->values + i * a->classes;
        size_t best = 0;

        for (size_t k = 1; k < a->classes; k++)
            if (row[k] > row[best])
                best = k;
        a->predicted[i] = (int64_t)best;
        if (strcmp(kind, "probabilities") == 0)
            softmax(row, a->classes, best);
    }
    return TUTTI_OK;
}

static tutti_status write_safetensors(const answers *a, const char *path)
{
    const int64_t n = (int64_t)a->n;
    const tutti__safetensors_source sources[] = {
        {a->kind, {a->values, TUTTI_SHAPE(n, (int64_t)a->classes), TUTTI_F32}},
        {"label", {a->r->labels, TUTTI_SHAPE(n), TUTTI_I64}},
        {"predicted", {a->predicted, TUTTI_SHAPE(n), TUTTI_I64}}};
    const tutti__safetensors_pair pairs[] = {{"format", "pt"},
                                             {"model", a->r->config->model},
                                             {"data", a->r->data.name},
                                             {"split", a->r->data.split}};

    return tutti__safetensors_write(path, sources, TUTTI__COUNT_OF(sources), pairs,
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

static void print_csv(const answers *a, FILE *out)
{
    fputs("index,label,predicted", out);
    for (size_t k = 0; k < a->classes; k++)
        fprintf(out, ",%s_%zu", strcmp(a->kind, "logits") == 0 ? "logit" : "probability", k);
    for (size_t i = 0; i < a->n; i++) {
        fprintf(out, "\n%zu,%lld,%lld", i, (long long)a->r->labels[i], (long long)a->predicted[i]);
        for (size_t k = 0; k < a->classes; k++)
            print_value(out, a->values[i * a->classes + k]);
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
        return TUTTI_OK;
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

static tutti_status deliver(void *user, const tutti__inference_result *r)
{
    const tutti__inference_line *line = user;
    const tutti__tally *t = r->tally;
    char shown[1024];
    answers a;
    tutti_status status = make_answers(&a, r, line->format ? line->format : "logits");

    if (status == TUTTI_OK)
        status = tutti__ends_in(line->out, ".safetensors") ? write_safetensors(&a, line->out)
                                                           : write_csv(&a, line->out);
    free(a.values);
    free(a.predicted);
    if (status == TUTTI_OK && strcmp(line->out, "-") != 0)
        printf("%s of %zu image%s of %s:%s in %s: accuracy %.2f %%, loss %.4f\n", a.kind, a.n,
               tutti__s(a.n), r->data.name, r->data.split,
               tutti__printable(line->out, shown, sizeof shown),
               100 * (double)tutti__tally_correct(t) / (double)tutti__tally_samples(t),
               tutti__tally_loss(t));
    return status;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static int predict(void *user)
{
    tutti_trainer_result result = {.status = ""};

    tutti__signals_begin();
    (void)!tutti__inference_run(user, true, deliver, user, &result);
    return result.exit_code;
}

/* Whether out is the weight file that `path` means, or its run's final weights, which a mistake would overwrite. */
static bool is_weights(const char *out, const char *path)
{
    char last[4096 + 32];
    tutti__weights_place place;
    struct stat a, b;

    if (stat(out, &a) != 0 || tutti__weights_find(&place, path) != TUTTI_OK)
        return false;
    snprintf(last, sizeof last, "%s/model.safetensors", place.run);
    return (stat(place.file, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) ||
           (place.run[0] && stat(last, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

static tutti_status check(const tutti__inference_line *line)
{
    if (!line->out || (strcmp(line->out, "-") != 0 && !tutti__ends_in(line->out, ".safetensors") &&
                       !tutti__ends_in(line->out, ".csv")))
        return tutti__fail(TUTTI_ERR_ARG,
                           "--out is %s, expected a file that ends in .safetensors or .csv, or -",
                           line->out ? line->out : "not given");
    if (line->format && strcmp(line->format, "logits") != 0 &&
        strcmp(line->format, "probabilities") != 0)
        return tutti__fail(TUTTI_ERR_ARG, "--format is \"%.40s\", expected logits or probabilities",
                           line->format);
    if (line->path && is_weights(line->out, line->path))
        return tutti__fail(TUTTI_ERR_ARG, "--out %s is the file of the weights; name another",
                           line->out);
    return TUTTI_OK;
}

int tutti__cli_predict(int argc, char **argv)
{
    tutti__inference_line line = {.title = "tutti predict"};

    return tutti__inference_command(
        &(tutti__inference_command_opts){&line, HELP, "--out --format", check, predict}, argc,
        argv);
}
