/* lr_find.c -- the learning-rate range test: its end, its suggestion, its file.   SPDX-License-Identifier: MIT */
#include "train/run/lr_find.h"

#include "checkpoint/json_text.h"

#include <stdlib.h>
#include <string.h>

#define KEEP 0.9 /* of the running mean */

enum {
    AROUND = 5, /* steps on each side */
    FEWEST = 20
};

bool tutti__lr_find_add(tutti__lr_find *find, double lr, double loss)
{
    double mean;

    if (find->n == TUTTI__LR_FIND_STEPS)
        return true;
    find->lr[find->n] = lr;
    find->loss[find->n++] = loss;
    if (!isfinite(loss))
        return true;
    find->mean = KEEP * find->mean + (1 - KEEP) * loss;
    find->weight = KEEP * find->weight + (1 - KEEP);
    mean = find->mean / find->weight;
    if (find->n == 1 || mean < find->best)
        find->best = mean;
    return mean > 4 * find->best && find->best >= 0;
}

/* The least-squares line through steps [first, end): its slope a step, and the mean. */
static double slope(const double *loss, size_t first, size_t end, double *mean_p)
{
    const double middle = ((double)first + (double)end - 1) / 2, n = (double)(end - first);
    double mean = 0, up = 0, down = 0;

    for (size_t i = first; i < end; i++)
        mean += loss[i] / n;
    for (size_t i = first; i < end; i++) {
        const double x = (double)i - middle;

        up += x * (loss[i] - mean);
        down += x * x;
    }
    *mean_p = mean;
    return down > 0 ? up / down : 0;
}

double tutti__lr_find_suggest(const tutti__lr_find *find, double smoothed[TUTTI__LR_FIND_STEPS])
{
    double slopes[TUTTI__LR_FIND_STEPS], steepest = 0, suggested = NAN;
    size_t n = find->n, lowest = 0;

    if (n > 0 && !isfinite(find->loss[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++) {
        const size_t first = i > AROUND ? i - AROUND : 0,
                     end = i + AROUND + 1 < n ? i + AROUND + 1 : n;

        slopes[i] = slope(find->loss, first, end, &smoothed[i]);
        if (smoothed[i] < smoothed[lowest])
            lowest = i;
    }
    if (n < find->n)
        smoothed[n] = NAN;
    for (size_t i = AROUND; i <= lowest && n >= FEWEST && i + AROUND < n; i++)
        if (slopes[i] < steepest) {
            steepest = slopes[i];
            suggested = find->lr[i];
        }
    return suggested;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *list(const double *values, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(array, number(values[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* One digit after the first, as a person would write it. */
static double rounded(double value)
{
    char text[32];

    snprintf(text, sizeof text, "%.2g", value);
    return strtod(text, NULL);
}

tutti_status tutti__lr_find_write(const tutti__lr_find *find, const tutti__run_folder *folder,
                                  double *suggested_p)
{
    double smoothed[TUTTI__LR_FIND_STEPS];
    const double best = tutti__lr_find_suggest(find, smoothed);
    json_t *json = json_object();
    char path[4096], *text;
    bool failed;
    tutti_status status = TUTTI_ERR_MEMORY;

    *suggested_p = isfinite(best) ? rounded(best) : best;
    failed = json_object_set_new(json, "suggested_lr", number(*suggested_p)) != 0;
    failed |= json_object_set_new(json, "lr", list(find->lr, find->n)) != 0;
    failed |= json_object_set_new(json, "loss", list(find->loss, find->n)) != 0;
    failed |= json_object_set_new(json, "smoothed_loss", list(smoothed, find->n)) != 0;
    text = failed ? NULL : tutti__json_text(json, JSON_REAL_PRECISION(9));
    json_decref(json);
    if (text && snprintf(path, sizeof path, "%s/lr_find.json", folder->path) < (int)sizeof path)
        status = tutti__write_file(path, text, strlen(text));
    else
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for lr_find.json");
    free(text);
    return status;
}
