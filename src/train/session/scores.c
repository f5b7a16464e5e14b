/* scores.c -- the results of an evaluation for people.   SPDX-License-Identifier: MIT */
#include "train/session/scores.h"
#include "checkpoint/json_text.h"

#include <math.h>
#include <string.h>

static const struct shown {
    const char *key, *name; /* of metrics.def */
    bool percent;
} SHOWN[] = {{"val_perplexity", "perplexity", false},
             {"val_accuracy", "accuracy", true},
             {"val_top5_accuracy", "top-5", true},
             {"val_f1", "F1", false},
             {"val_iou", "IoU", false},
             {"val_mae", "MAE", false},
             {"val_rmse", "RMSE", false},
             {"val_r2", "R2", false}};

void tutti__scores_each(const tutti__eval_metrics *scores, const tutti_metric *own,
                        void (*show)(void *user, const char *name, const char *value), void *user)
{
    char text[32];

    for (size_t i = 0; i < TUTTI__COUNT_OF(SHOWN); i++) {
        const double value = tutti__eval_by_name(scores, SHOWN[i].key);

        snprintf(text, sizeof text, SHOWN[i].percent ? "%.2f %%" : "%.4g",
                 SHOWN[i].percent ? 100 * value : value);
        if (isfinite(value))
            show(user, SHOWN[i].name, text);
    }
    for (size_t i = 0; own && own[i].name; i++) {
        snprintf(text, sizeof text, "%.4g", scores->own[i]);
        if (isfinite(scores->own[i]))
            show(user, own[i].name, text);
    }
}

json_t *tutti__confusion_counts_json(const tutti__tally *t)
{
    const size_t classes = t->task->classes;
    json_t *rows = json_array();
    bool failed = false;

    for (size_t i = 0; i < classes; i++) {
        json_t *row = json_array();

        for (size_t k = 0; k < classes; k++)
            failed |= json_array_append_new(row, json_integer(t->confusion[i * classes + k])) != 0;
        failed |= json_array_append_new(rows, row) != 0;
    }
    return tutti__json_complete(rows, failed);
}

json_t *tutti__confusion_json(const tutti__tally *t, const char *const *class_names)
{
    json_t *names = json_array();
    char number[24], name[256];
    bool failed = false;

    for (size_t i = 0; i < t->task->classes; i++) {
        snprintf(number, sizeof number, "%zu", i);
        tutti__printable(class_names ? class_names[i] : number, name, sizeof name);
        failed |= json_array_append_new(names, json_string(name)) != 0;
    }
    return json_pack("{s:o, s:o}", "classes", tutti__json_complete(names, failed), "counts",
                     tutti__confusion_counts_json(t));
}

static void append(void *user, const char *name, const char *value)
{
    char *text = user;
    const size_t n = strlen(text);

    snprintf(text + n, TUTTI__SCORES_TEXT - n, "  %s%s %s", n ? "" : "test ", name, value);
}

void tutti__scores_text(const tutti__eval_metrics *scores, const tutti_metric *own,
                        char text[TUTTI__SCORES_TEXT])
{
    text[0] = '\0';
    tutti__scores_each(scores, own, append, text);
}
