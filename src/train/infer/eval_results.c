/* eval_results.c -- accuracy and loss as tables and as JSON.   SPDX-License-Identifier: MIT */
#include "train/infer/eval_results.h"

#include "base/terminal.h"
#include "checkpoint/json_text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_CONFUSION = 20, NAME_BYTES = 24 };

/* A class's name, or its number. */
static const char *class_name(const tutti__inference_result *r, size_t i, char text[4 * NAME_BYTES])
{
    char number[24];

    snprintf(number, sizeof number, "%zu", i);
    return tutti__printable(r->data.class_names ? r->data.class_names[i] : number, text,
                            4 * NAME_BYTES);
}

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : NAN;
}

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

/* "97.50 %", or a dash for an undefined value. */
static const char *percent(double value, char text[16])
{
    if (isnan(value))
        snprintf(text, 16, "-");
    else
        snprintf(text, 16, "%.2f %%", 100 * value);
    return text;
}

static int name_width(const tutti__inference_result *r)
{
    char name[4 * NAME_BYTES];
    int width = 5;

    for (size_t i = 0; i < r->tally->classes; i++) {
        int n = (int)strlen(class_name(r, i, name));

        width = n > width ? n : width;
    }
    return width < NAME_BYTES ? width : NAME_BYTES;
}

static void print_classes(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const int width = name_width(r);

    printf("\n  %-*s  %8s  %8s  %10s  %10s\n", width, "class", r->noun, "correct", "recall",
           "precision");
    for (size_t i = 0; i < t->classes; i++) {
        char name[4 * NAME_BYTES], recall[16], precision[16];

        printf("  %-*.*s  %8lld  %8lld  %10s  %10s\n", width, width, class_name(r, i, name),
               (long long)t->labels[i], (long long)t->hits[i],
               percent(share(t->hits[i], t->labels[i]), recall),
               percent(share(t->hits[i], t->predicted[i]), precision));
    }
}

static void print_confusion(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const int width = name_width(r);
    char name[4 * NAME_BYTES];

    if (t->classes > SHOWN_CONFUSION) {
        printf("\n  %zu classes are too many for a confusion matrix; --json has it\n", t->classes);
        return;
    }
    printf("\n  %-*s  taken for\n  %-*s", width, "", width, "class");
    for (size_t k = 0; k < t->classes; k++)
        printf("  %6.6s", class_name(r, k, name));
    for (size_t i = 0; i < t->classes; i++) {
        printf("\n  %-*.*s", width, width, class_name(r, i, name));
        for (size_t k = 0; k < t->classes; k++)
            printf("  %6lld", (long long)t->confusion[i * t->classes + k]);
    }
    puts("");
}

static void print_tables(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const int64_t n = tutti__tally_samples(t), correct = tutti__tally_correct(t);

    tutti__print_line(stdout, "%s", r->weights);
    tutti__print_line(stdout, "%s on %s:%s, %lld %.*s, %d rank%s, %.0f %s/s", r->config->model,
                      r->data.name, r->data.split, (long long)n, (int)strlen(r->noun) - (n == 1),
                      r->noun, r->size, tutti__s((uint64_t)r->size), (double)n / r->seconds,
                      r->noun);
    if (t->classes == 0) {
        printf("loss %.4f\n", tutti__tally_loss(t));
        return;
    }
    printf("accuracy %.2f %% (%lld of %lld)", 100 * share(correct, n), (long long)correct,
           (long long)n);
    if (t->classes > 5)
        printf("  top-5 %.2f %%", 100 * share(tutti__tally_top5(t), n));
    printf("  loss %.4f\n", tutti__tally_loss(t));
    print_classes(r);
    if (t->confusion)
        print_confusion(r);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* JSON has no NaN. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* NULL where a member is missing for want of memory. */
static json_t *complete(json_t *value, int failed)
{
    if (!failed)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *classes_json(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    json_t *list = json_array();
    char name[4 * NAME_BYTES];
    int failed = 0;

    for (size_t i = 0; i < t->classes; i++)
        failed |= json_array_append_new(
            list, json_pack("{s:I, s:s, s:I, s:I, s:I, s:o, s:o}", "class", (json_int_t)i, "name",
                            class_name(r, i, name), "images", (json_int_t)t->labels[i], "predicted",
                            (json_int_t)t->predicted[i], "correct", (json_int_t)t->hits[i],
                            "recall", real(share(t->hits[i], t->labels[i])), "precision",
                            real(share(t->hits[i], t->predicted[i]))));
    return complete(list, failed);
}

static json_t *confusion_json(const tutti__tally *t)
{
    json_t *rows = json_array();
    int failed = 0;

    for (size_t i = 0; i < t->classes; i++) {
        json_t *row = json_array();

        for (size_t k = 0; k < t->classes; k++)
            failed |= json_array_append_new(row, json_integer(t->confusion[i * t->classes + k]));
        failed |= json_array_append_new(rows, row);
    }
    return complete(rows, failed);
}

static char *make_json(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const int64_t n = tutti__tally_samples(t);
    char weights[2048], *text;
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:f, s:f, s:o}", "weights",
        tutti__printable(r->weights, weights, sizeof weights), "model", r->config->model, "data",
        r->data.name, "split", r->data.split, "world_size", r->size, "images", (json_int_t)n,
        "correct", t->classes ? json_integer(tutti__tally_correct(t)) : json_null(), "accuracy",
        real(tutti__tally_accuracy(t)), "top5_accuracy",
        t->classes > 5 ? real(share(tutti__tally_top5(t), n)) : json_null(), "loss",
        real(tutti__tally_loss(t)), "seconds", r->seconds, "images_per_s", (double)n / r->seconds,
        "classes", classes_json(r));

    if (t->confusion && t->classes > 0)
        root = complete(root, json_object_set_new(root, "confusion", confusion_json(t)));
    text = tutti__json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(root);
    return text;
}

static tutti_status write_json(const tutti__inference_result *r, const char *path)
{
    char *text = make_json(r), *line = NULL;
    tutti_status status = TUTTI_OK;

    if (!text || asprintf(&line, "%s\n", text) < 0)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the results as JSON");
    else if (strcmp(path, "-") == 0)
        fputs(line, stdout);
    else
        status = tutti__write_file(path, line, strlen(line));
    free(text);
    free(line);
    return status;
}

tutti_status tutti__eval_show(void *user, const tutti__inference_result *r)
{
    const tutti__inference_line *line = user;

    if (!line->json || strcmp(line->json, "-") != 0)
        print_tables(r);
    return line->json ? write_json(r, line->json) : TUTTI_OK;
}
