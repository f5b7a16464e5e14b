/* diff_files.c -- compares runs without records: tensors of checkpoints, figures of steps, results.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/weights.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

typedef struct tensor_pair {
    const tutti__weights *files[2];
    size_t at[2];
} tensor_pair;

static const tutti__safetensors_entry *entry_of(const tensor_pair *p, int side)
{
    return tutti__weights_at(p->files[side], p->at[side]);
}

/* Usually at the same place. False: there is none of this name. */
static bool find_tensor(tensor_pair *p, const char *name)
{
    const size_t n = tutti__weights_count(p->files[1]);

    for (size_t i = 0; i < n; i++) {
        p->at[1] = (p->at[0] + i) % n;
        if (strcmp(entry_of(p, 1)->name, name) == 0)
            return true;
    }
    return false;
}

static bool same_shape(const tutti__safetensors_entry *a, const tutti__safetensors_entry *b)
{
    return strcmp(a->dtype_text, b->dtype_text) == 0 && a->bytes == b->bytes &&
           a->shape.n == b->shape.n &&
           memcmp(a->shape.d, b->shape.d, (size_t)a->shape.n * sizeof *a->shape.d) == 0;
}

static void index_text(const tutti_shape *shape, size_t index, char text[120])
{
    size_t places[TUTTI_MAX_DIMS], used = 1;

    for (int i = shape->n; i-- > 0; index /= (size_t)shape->d[i])
        places[i] = index % (size_t)shape->d[i];
    snprintf(text, 120, "[");
    for (int i = 0; i < shape->n && used < 100; i++)
        used += (size_t)snprintf(text + used, 120 - used, "%s%zu", i ? ", " : "", places[i]);
    snprintf(text + used, 120 - used, "]");
}

/* What differs in two arrays of one shape; 0: nothing. */
static size_t count_elements(const tutti__safetensors_entry *e, const char *x, const char *y,
                             char detail[400])
{
    size_t elements = 1, different = 0, first = 0, size;
    char where[120], values[100] = "";

    for (int i = 0; i < e->shape.n; i++)
        elements *= (size_t)e->shape.d[i];
    size = elements ? (size_t)e->bytes / elements : 0;
    for (size_t i = 0; i < elements && size; i++)
        if (memcmp(x + i * size, y + i * size, size) != 0 && different++ == 0)
            first = i;
    if (different == 0)
        return 0;
    index_text(&e->shape, first, where);
    if (strcmp(e->dtype_text, "F32") == 0)
        snprintf(values, sizeof values, ": %.9g and %.9g", (double)((const float *)x)[first],
                 (double)((const float *)y)[first]);
    snprintf(detail, 400, "%zu of its %zu elements differ%s, the first at %s%s", different,
             elements, different == 1 ? "s" : "", where, values);
    return different;
}

static tutti_status read_both(const tensor_pair *p, char *data[2])
{
    for (int i = 0; i < 2; i++) {
        data[i] = tutti__alloc((size_t)entry_of(p, i)->bytes + 1);
        if (!data[i])
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(tutti__weights_read(p->files[i], p->at[i], data[i]));
    }
    return TUTTI_OK;
}

/* detail "": they are equal. */
static tutti_status compare_tensors(const tensor_pair *p, char detail[400])
{
    const tutti__safetensors_entry *a = entry_of(p, 0), *b = entry_of(p, 1);
    char *data[2] = {NULL, NULL};
    tutti_status status;

    detail[0] = '\0';
    if (!same_shape(a, b)) {
        snprintf(detail, 400, "its shapes or dtypes differ");
        return TUTTI_OK;
    }
    status = read_both(p, data);
    if (status == TUTTI_OK)
        count_elements(a, data[0], data[1], detail);
    free(data[0]);
    free(data[1]);
    return status;
}

static tutti_status compare_files(tensor_pair *p, const char *only, char name[600],
                                  char detail[400], uint64_t *tensors)
{
    const size_t n[2] = {tutti__weights_count(p->files[0]), tutti__weights_count(p->files[1])};
    size_t different = 0, common = 0;
    char found[400];

    for (p->at[0] = 0; p->at[0] < n[0]; p->at[0]++) {
        const char *is = entry_of(p, 0)->name;

        if (only && strcmp(only, is) != 0)
            continue;
        if (!find_tensor(p, is))
            snprintf(found, sizeof found, "only one of them has it");
        else {
            common++;
            TUTTI_TRY(compare_tensors(p, found));
        }
        if (*found && different++ == 0) {
            snprintf(name, 600, "%.599s", is);
            snprintf(detail, 400, "%s", found);
        }
    }
    *tensors += common;
    if (!only && different == 0 && n[1] > common) {
        snprintf(name, 600, "its list of tensors");
        snprintf(detail, 400, "one has %zu tensors more", n[1] - common);
    } else if (!only && different > 1) {
        const size_t used = strlen(detail);

        snprintf(detail + used, 400 - used, "; of %zu tensors %zu differ", n[0], different);
    }
    return TUTTI_OK;
}

tutti_status tutti__diff_tensors(const char *a, const char *b, const char *only, bool *equal_p,
                                 char name[600], char detail[400], uint64_t *tensors_p)
{
    tutti__weights *files[2] = {NULL, NULL};
    tutti_status status = tutti__weights_open(&files[0], a);

    name[0] = detail[0] = '\0';
    if (status == TUTTI_OK)
        status = tutti__weights_open(&files[1], b);
    if (status == TUTTI_OK) {
        tensor_pair p = {.files = {files[0], files[1]}};

        status = compare_files(&p, only, name, detail, tensors_p);
    }
    *equal_p = status == TUTTI_OK && !*detail;
    for (int i = 0; i < 2; i++)
        if (files[i])
            tutti__weights_close(files[i]);
    return status;
}

/* ---- Checkpoints ----------------------------------------------------------------------------------------------- */

/* The path of a checkpoint's weights FILE, or of the index of its parts. False: it has neither. */
static bool find_file(const tutti__diff_run *run, uint64_t step, const char *file,
                      char path[PATH_MAX + 64])
{
    char folder[PATH_MAX], name[64];

    snprintf(folder, sizeof folder, "%s/checkpoints/step-%08llu", run->path,
             (unsigned long long)step);
    snprintf(name, sizeof name, "%s", file);
    if (!tutti__folder_holds(folder, name))
        snprintf(name, sizeof name, "%s.index.json", file);
    snprintf(path, PATH_MAX + 64, "%s/%s", folder, tutti__folder_holds(folder, name) ? name : file);
    return tutti__folder_holds(folder, name);
}

/* One file of the checkpoints of a step; gap: why it was left out. */
static tutti_status compare_checkpoint_file(const tutti__diff_run run[2], uint64_t step,
                                            const char *file, tutti__diff_finding *f,
                                            uint64_t *tensors, char gap[1024])
{
    char paths[2][PATH_MAX + 64], name[600], detail[400];
    const bool is_model = strcmp(file, "model.safetensors") == 0;
    bool has[2], equal;
    tutti_status status;

    for (int i = 0; i < 2; i++)
        has[i] = find_file(&run[i], step, file, paths[i]);
    if (!has[0] || !has[1]) { /* not every optimizer has a state */
        if (is_model || has[0] != has[1])
            snprintf(gap, 1024, "there is no %.900s", paths[has[0] ? 1 : 0]);
        return TUTTI_OK;
    }
    status = tutti__diff_tensors(paths[0], paths[1], NULL, &equal, name, detail, tensors);
    if (status != TUTTI_OK && status != TUTTI_ERR_MEMORY) {
        snprintf(gap, 1024, "%.1000s", tutti_last_error());
        return TUTTI_OK;
    }
    if (status != TUTTI_OK || equal)
        return status;
    f->source = TUTTI__DIFF_CHECKPOINT;
    f->step = step;
    f->shard = -1;
    f->phase = is_model ? TUTTI__DIFF_PARAMETER : TUTTI__DIFF_STATE;
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->detail, sizeof f->detail, "%s", detail);
    f->a = (tutti__diff_side){.run = &run[0], .rank = -1};
    f->b = (tutti__diff_side){.run = &run[1], .rank = -1};
    return TUTTI_OK;
}

tutti_status tutti__diff_checkpoint(const tutti__diff_run run[2], uint64_t step,
                                    tutti__diff_finding *finding, uint64_t *tensors_p,
                                    char gap[1024])
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};

    *gap = '\0';
    for (size_t i = 0; i < 2 && finding->source == TUTTI__DIFF_EQUAL && !*gap; i++)
        TUTTI_TRY(compare_checkpoint_file(run, step, files[i], finding, tensors_p, gap));
    return TUTTI_OK;
}

bool tutti__diff_has_checkpoint(const tutti__diff_run *run, uint64_t step)
{
    for (size_t i = 0; i < run->n_checkpoints; i++)
        if (run->checkpoints[i] == step)
            return true;
    return false;
}

static tutti_status compare_checkpoints(tutti__diff_result *result)
{
    const tutti__diff_run *a = &result->run[0];
    tutti__diff_finding *f = &result->first;
    char gap[1024];

    for (size_t i = a->n_checkpoints; i-- > 0;) {
        const uint64_t before = result->tensors;

        if (!tutti__diff_has_checkpoint(&result->run[1], a->checkpoints[i]) ||
            (f->knows_equal && a->checkpoints[i] <= f->equal_step))
            continue;
        TUTTI_TRY(tutti__diff_checkpoint(result->run, a->checkpoints[i], f, &result->tensors, gap));
        result->checkpoints += result->tensors > before;
        if (*gap)
            tutti__diff_note("checkpoints of step %llu were not compared%s: %s",
                             (unsigned long long)a->checkpoints[i],
                             result->tensors > before ? " whole" : "", gap);
        if (f->source != TUTTI__DIFF_EQUAL)
            return TUTTI_OK;
        if (*gap)
            continue;
        f->knows_equal = true;
        f->equal_step = a->checkpoints[i];
    }
    return TUTTI_OK;
}

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

/* What follows from the weights and the data alone; the means since the line before, which a restart or another log_every moves. */
static const char *const figures[] = {"lr", "val_loss", "val_accuracy", "loss", "grad_norm"};
enum { MEANS = 3 };

static void take_figure(tutti__diff_result *result, json_int_t step, const char *figure,
                        const json_t *x, const json_t *y)
{
    tutti__diff_finding *f = &result->first;

    f->source = TUTTI__DIFF_METRICS;
    f->step = (uint64_t)step;
    f->shard = -1;
    f->phase = strcmp(figure, "lr") == 0 ? TUTTI__DIFF_RATE : TUTTI__DIFF_LOSS;
    snprintf(f->name, sizeof f->name, "%s", figure);
    f->detail[0] = '\0';
    f->a = (tutti__diff_side){.run = &result->run[0], .rank = -1};
    f->b = (tutti__diff_side){.run = &result->run[1], .rank = -1};
    snprintf(f->a.digest, sizeof f->a.digest, "%.9g", json_number_value(x));
    snprintf(f->b.digest, sizeof f->b.digest, "%.9g", json_number_value(y));
}

/* Whether they have a figure of this step in common. */
static bool compare_line(tutti__diff_result *result, json_int_t step, const json_t *a,
                         const json_t *b)
{
    const json_t *before = json_object_get(a, "before");
    const bool alike = before && json_equal(before, json_object_get(b, "before")) &&
                       json_integer_value(before) >= 0;
    bool common = false;

    for (size_t k = 0; k < (alike ? TUTTI__COUNT_OF(figures) : MEANS); k++) {
        const json_t *x = json_object_get(a, figures[k]), *y = json_object_get(b, figures[k]);

        if (!json_is_number(x) || !json_is_number(y))
            continue;
        common = true;
        if (!json_equal(x, y)) {
            take_figure(result, step, figures[k], x, y);
            break;
        }
    }
    return common;
}

/* Differences that are earlier than what is known already, but not before a checkpoint in which both are equal. */
static void compare_metrics(tutti__diff_result *result)
{
    tutti__diff_finding *f = &result->first;
    const char *key;
    json_t *line;

    json_object_foreach(result->run[0].metrics, key, line)
    {
        const json_t *other = json_object_get(result->run[1].metrics, key);
        const json_int_t step = json_integer_value(json_object_get(line, "step"));

        if (other && (f->source == TUTTI__DIFF_EQUAL || (uint64_t)step < f->step) &&
            (!f->knows_equal || (uint64_t)step > f->equal_step))
            result->lines += compare_line(result, step, line, other);
    }
}

/* ---- Results ------------------------------------------------------------------------------------------------------ */

/* Which of the final weights differ, if the runs still have them. */
static void find_final(const tutti__diff_run run[2], tutti__diff_finding *f)
{
    char paths[2][PATH_MAX];
    uint64_t tensors = 0;
    bool equal;

    for (int i = 0; i < 2; i++)
        if (snprintf(paths[i], PATH_MAX, "%s/model.safetensors", run[i].path) >= PATH_MAX)
            return;
    if (tutti__diff_tensors(paths[0], paths[1], NULL, &equal, f->name, f->detail, &tensors) !=
        TUTTI_OK)
        f->name[0] = f->detail[0] = '\0';
}

static void compare_results(tutti__diff_result *result)
{
    const json_t *a = result->run[0].summary, *b = result->run[1].summary;
    const json_t *x = json_object_get(a, "parameter_digest");
    const json_t *y = json_object_get(b, "parameter_digest");
    const json_t *steps = json_object_get(a, "steps");
    tutti__diff_finding *f = &result->first;

    if (!json_is_string(x) || !json_is_string(y) || !steps ||
        !json_equal(steps, json_object_get(b, "steps")))
        return;
    result->same_end = json_equal(x, y);
    if (result->same_end || f->source != TUTTI__DIFF_EQUAL)
        return;
    f->source = TUTTI__DIFF_SUMMARY;
    f->has_gap = true;
    f->step = (uint64_t)json_integer_value(steps);
    f->shard = -1;
    f->phase = TUTTI__DIFF_PARAMETER;
    f->a = (tutti__diff_side){.run = &result->run[0], .rank = -1};
    f->b = (tutti__diff_side){.run = &result->run[1], .rank = -1};
    snprintf(f->a.digest, sizeof f->a.digest, "%.39s", json_string_value(x));
    snprintf(f->b.digest, sizeof f->b.digest, "%.39s", json_string_value(y));
    find_final(result->run, f);
}

tutti_status tutti__diff_files(tutti__diff_result *result)
{
    tutti__diff_finding *f = &result->first;

    if (f->source == TUTTI__DIFF_EQUAL && result->tolerance == 0) {
        TUTTI_TRY(compare_checkpoints(result));
        compare_metrics(result);
        f->has_gap = f->source != TUTTI__DIFF_EQUAL;
    }
    if (result->tolerance == 0)
        compare_results(result);
    return TUTTI_OK;
}
