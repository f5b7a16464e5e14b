/* eval_results.c -- accuracy and loss as tables and as JSON.   SPDX-License-Identifier: MIT */
#include "train/infer/eval_results.h"

#include "base/terminal.h"
#include "checkpoint/json_text.h"
#include "train/session/scores.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_CONFUSION = 20, NAME_BYTES = 24 };

/* The name of a class, label or output, or its number. */
static const char *class_name(const tutti__inference_result *r, size_t i, char text[4 * NAME_BYTES])
{
    /* Of integers taken for labels the names are those of their values; of very many outputs there is one row. */
    const bool named = r->data.class_names && (r->data.classes > 0) == (r->task->positions > 0) &&
                       (r->tally->outputs == 0 || r->tally->outputs == r->task->numbers);
    char number[24];

    snprintf(number, sizeof number, "%zu", i);
    return tutti__printable(named ? r->data.class_names[i] : number, text, 4 * NAME_BYTES);
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

static int name_width(const tutti__inference_result *r, size_t n_names)
{
    char name[4 * NAME_BYTES];
    int width = 6;

    for (size_t i = 0; i < n_names; i++) {
        int n = (int)strlen(class_name(r, i, name));

        width = n > width ? n : width;
    }
    return width < NAME_BYTES ? width : NAME_BYTES;
}

/* "0.9750" */
static const char *fraction(double value, char text[16])
{
    if (isnan(value))
        snprintf(text, 16, "-");
    else
        snprintf(text, 16, "%.4f", value);
    return text;
}

/* What the classes of a task are counted in. */
static const char *counted_in(const tutti__inference_result *r)
{
    return tutti__task_noun(r->task, r->noun);
}

static void print_classes(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const bool masks = r->task->positions > 1;
    const int width = name_width(r, r->task->classes);

    printf("\n  %-*s  %8s  %8s  %10s  %10s  %6s\n", width,
           r->task->positions > 0 ? "class" : "label", counted_in(r), "correct", "recall",
           "precision", masks ? "IoU" : "F1");
    for (size_t i = 0; i < r->task->classes; i++) {
        char name[4 * NAME_BYTES], recall[16], precision[16], last[16];

        printf("  %-*.*s  %8lld  %8lld  %10s  %10s  %6s\n", width, width, class_name(r, i, name),
               (long long)t->labels[i], (long long)t->hits[i],
               percent(share(t->hits[i], t->labels[i]), recall),
               percent(share(t->hits[i], t->predicted[i]), precision),
               fraction(masks ? tutti__tally_iou(t, i) : tutti__tally_f1(t, i), last));
    }
}

/* Of a regression with several outputs. */
static void print_outputs(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const size_t n = t->outputs <= SHOWN_CONFUSION ? t->outputs : SHOWN_CONFUSION;
    const int width = name_width(r, n);
    char r2[16], name[4 * NAME_BYTES];

    if (t->outputs < 2)
        return;
    printf("\n  %-*s  %10s  %10s  %8s\n", width, "output", "MAE", "RMSE", "R2");
    for (size_t k = 0; k < n; k++)
        printf("  %-*.*s  %10.4g  %10.4g  %8s\n", width, width, class_name(r, k, name),
               tutti__tally_mae(t, k), tutti__tally_rmse(t, k),
               fraction(tutti__tally_r2(t, k), r2));
    if (n < t->outputs)
        printf("  and %zu more; --json has them\n", t->outputs - n);
}

static void print_confusion(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const int width = name_width(r, r->task->classes);
    const size_t classes = r->task->classes;
    char name[4 * NAME_BYTES];

    if (classes > SHOWN_CONFUSION) {
        printf("\n  %zu classes are too many for a confusion matrix; --json has it\n", classes);
        return;
    }
    printf("\n  %-*s  taken for\n  %-*s", width, "", width, "class");
    for (size_t k = 0; k < classes; k++)
        printf("  %6.6s", class_name(r, k, name));
    for (size_t i = 0; i < classes; i++) {
        printf("\n  %-*.*s", width, width, class_name(r, i, name));
        for (size_t k = 0; k < classes; k++)
            printf("  %6lld", (long long)t->confusion[i * classes + k]);
    }
    puts("");
}

static void print_score(void *user, const char *name, const char *value)
{
    const tutti__tally *t = user;

    printf("%s %s", name, value);
    if (strcmp(name, "accuracy") == 0)
        printf(" (%lld of %lld%s%s)", (long long)tutti__tally_correct(t),
               (long long)tutti__tally_counted(t), t->task->positions > 1 ? " " : "",
               t->task->positions > 1 ? tutti__task_noun(t->task, "") : "");
    printf("  ");
}

static void print_scores(const tutti__inference_result *r)
{
    tutti__eval_metrics scores;

    tutti__tally_scores(r->tally, &scores);
    tutti__scores_each(&scores, r->own, print_score, (void *)(uintptr_t)r->tally);
    printf("loss %.4f\n", scores.val_loss);
}

/* Samples a second; of a language model, tokens. */
static double rate_of(const tutti__inference_result *r)
{
    const bool of_tokens = r->task->kind->is_language_modeling;

    return (double)tutti__tally_samples(r->tally) * (of_tokens ? (double)r->task->positions : 1) /
           r->seconds;
}

static void print_tables(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const int64_t n = tutti__tally_samples(t);
    const char *rate_noun = r->task->kind->is_language_modeling ? "tokens" : r->noun;
    static const char *const views[] = {"", "2 views of each (tta 1), ",
                                        "6 views of each (tta 2), "};

    tutti__print_line(stdout, "%s", r->weights);
    tutti__print_line(stdout, "%s on %s:%s, %lld %.*s, %s%d rank%s, %.0f %s/s", r->config->model,
                      r->data.name, r->data.split, (long long)n, (int)strlen(r->noun) - (n == 1),
                      r->noun, views[r->config->tta], r->size, tutti__s((uint64_t)r->size),
                      rate_of(r), rate_noun);
    print_scores(r);
    if (r->task->kind->is_language_modeling) /* a row for each token would be a page, or a book */
        return;
    if (r->task->classes > 0)
        print_classes(r);
    else
        print_outputs(r);
    if (t->confusion)
        print_confusion(r);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* JSON has no NaN. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *classes_json(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const bool masks = r->task->positions > 1;
    json_t *list = json_array();
    char name[4 * NAME_BYTES];
    int failed = 0;

    for (size_t i = 0; i < r->task->classes && !r->task->kind->is_language_modeling; i++)
        failed |= json_array_append_new(
            list,
            json_pack("{s:I, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "class", (json_int_t)i, "name",
                      class_name(r, i, name), masks ? "pixels" : "images", (json_int_t)t->labels[i],
                      "predicted", (json_int_t)t->predicted[i], "correct", (json_int_t)t->hits[i],
                      "recall", real(share(t->hits[i], t->labels[i])), "precision",
                      real(share(t->hits[i], t->predicted[i])), masks ? "iou" : "f1",
                      real(masks ? tutti__tally_iou(t, i) : tutti__tally_f1(t, i))));
    return tutti__json_complete(list, failed);
}

static json_t *outputs_json(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    json_t *list = json_array();
    char name[4 * NAME_BYTES];
    int failed = 0;

    for (size_t k = 0; k < t->outputs; k++)
        failed |= json_array_append_new(
            list, json_pack("{s:I, s:s, s:o, s:o, s:o}", "output", (json_int_t)k, "name",
                            class_name(r, k, name), "mae", real(tutti__tally_mae(t, k)), "rmse",
                            real(tutti__tally_rmse(t, k)), "r2", real(tutti__tally_r2(t, k))));
    return tutti__json_complete(list, failed);
}

/* The figures of the task, and the program's: under their names in metrics.jsonl, without val_. */
static int add_scores(json_t *root, const tutti__inference_result *r)
{
    tutti__eval_metrics scores;
    int failed = 0;

    tutti__tally_scores(r->tally, &scores);
    for (size_t i = 0; i < tutti__eval_table.n; i++) {
        const tutti__metric_row *row = &tutti__eval_table.rows[i];
        const double value = tutti__metric_number(row, &scores);

        if (row->type == TUTTI__METRIC_SOME && isfinite(value))
            failed |= json_object_set_new(root, row->name + strlen("val_"), json_real(value));
    }
    for (size_t i = 0; r->own && r->own[i].name; i++)
        failed |= json_object_set_new(root, r->own[i].name, real(scores.own[i]));
    return failed;
}

static char *make_json(const tutti__inference_result *r)
{
    const tutti__tally *t = r->tally;
    const int64_t n = tutti__tally_samples(t), correct = tutti__tally_correct(t);
    const bool counts = r->task->classes > 0;
    char weights[2048], *text;
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:f, s:f, s:o}",
                  "weights", tutti__printable(r->weights, weights, sizeof weights), "model",
                  r->config->model, "data", r->data.name, "split", r->data.split, "task",
                  r->task->kind->name, "world_size", r->size, "tta", (int)r->config->tta, "images",
                  (json_int_t)n, "correct", counts ? json_integer(correct) : json_null(),
                  "accuracy", counts ? real(share(correct, tutti__tally_counted(t))) : json_null(),
                  "top5_accuracy", json_null(), "loss", real(tutti__tally_loss(t)), "seconds",
                  r->seconds, "images_per_s", (double)n / r->seconds, "classes", classes_json(r));
    int failed = add_scores(root, r);

    if (r->task->kind->is_language_modeling)
        failed |= json_object_set_new(root, "tokens_per_s", json_real(rate_of(r)));
    if (t->outputs > 0)
        failed |= json_object_set_new(root, "outputs", outputs_json(r));
    if (t->confusion)
        failed |= json_object_set_new(root, "confusion", tutti__confusion_counts_json(t));
    root = tutti__json_complete(root, failed);
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
