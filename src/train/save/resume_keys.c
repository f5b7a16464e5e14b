/* resume_keys.c -- which keys of a checkpoint's run must be this run's.   SPDX-License-Identifier: MIT
 *
 * A resumed run has the same bits as an uninterrupted one, so changes of keys that alter the result are rejected. */
#include "train/save/resume.h"

#include <stdlib.h>
#include <string.h>

/* Keys that say how a step is divided among ranks. */
static bool is_layout(int key)
{
    return key == TUTTI__KEY_OF_zero || key == TUTTI__KEY_OF_zero_ranks ||
           key == TUTTI__KEY_OF_tensor || key == TUTTI__KEY_OF_tensor_parts ||
           key == TUTTI__KEY_OF_pipeline || key == TUTTI__KEY_OF_micro_batches ||
           key == TUTTI__KEY_OF_pipeline_schedule || key == TUTTI__KEY_OF_pipeline_chunks ||
           key == TUTTI__KEY_OF_pipeline_cuts || key == TUTTI__KEY_OF_sequence_parallel ||
           key == TUTTI__KEY_OF_shards; /* allowed, as another number of ranks is */
}

/* Of what a run shows, writes and looks at. */
static bool is_output(int key)
{
    switch (key) {
    case TUTTI__KEY_OF_guard:
    case TUTTI__KEY_OF_log_every:
    case TUTTI__KEY_OF_progress:
    case TUTTI__KEY_OF_eval_every:
    case TUTTI__KEY_OF_eval_steps:
    case TUTTI__KEY_OF_eval_samples:
    case TUTTI__KEY_OF_sample_tokens:
    case TUTTI__KEY_OF_tensorboard:
    case TUTTI__KEY_OF_histograms:
    case TUTTI__KEY_OF_wandb:
    case TUTTI__KEY_OF_prometheus:
    case TUTTI__KEY_OF_system_metrics:
    case TUTTI__KEY_OF_profile:
        return true;
    default:
        return false;
    }
}

/* Keys about paths, output, and distribution of work: the result is the same, at most to rounding. */
static bool is_free(int key, const tutti__train_config *config, const json_t *keys)
{
    if (is_layout(key) || is_output(key))
        return true;
    switch (key) {
    case TUTTI__KEY_OF_model_file:
    case TUTTI__KEY_OF_data_file:
    case TUTTI__KEY_OF_data_dir:
    case TUTTI__KEY_OF_tokenizer: /* state.json says which it was */
    case TUTTI__KEY_OF_workers:
    case TUTTI__KEY_OF_prefetch:
    case TUTTI__KEY_OF_device:
    case TUTTI__KEY_OF_offload:
    case TUTTI__KEY_OF_backend:
    case TUTTI__KEY_OF_recompute:
    case TUTTI__KEY_OF_find_unused:
    case TUTTI__KEY_OF_static_graph:
    case TUTTI__KEY_OF_threads:
    case TUTTI__KEY_OF_run_dir:
    case TUTTI__KEY_OF_checkpoint_every:
    case TUTTI__KEY_OF_checkpoint_background:
    case TUTTI__KEY_OF_checkpoint_failure:
    case TUTTI__KEY_OF_keep_checkpoints:
    case TUTTI__KEY_OF_checkpoint_best:
    case TUTTI__KEY_OF_early_stopping: /* the steps that it leaves are the same */
    case TUTTI__KEY_OF_min_delta:
    case TUTTI__KEY_OF_resume:
    case TUTTI__KEY_OF_init:
    case TUTTI__KEY_OF_init_only:
    case TUTTI__KEY_OF_init_partial:
    case TUTTI__KEY_OF_lora_init:
    case TUTTI__KEY_OF_deterministic:
    case TUTTI__KEY_OF_timeout_s:
        return true;
    case TUTTI__KEY_OF_grad_accumulation: /* of another number of ranks, for as many tokens */
        return config->tokens_per_step > 0;
    case TUTTI__KEY_OF_wire_bits:
        return config->shards == 0 || json_integer_value(json_object_get(keys, "shards")) == 0;
    case TUTTI__KEY_OF_bucket_mb:
    case TUTTI__KEY_OF_first_bucket_mb: /* PowerSGD's state is per bucket */
        return strcmp(config->comm_hook, "powersgd") != 0;
    case TUTTI__KEY_OF_epochs:
    case TUTTI__KEY_OF_max_steps: /* other schedules depend on the end from the first step on */
        return strcmp(config->schedule, "constant") == 0 ||
               strcmp(config->schedule, "restarts") == 0;
    default:
        return false;
    }
}

static char *text_of(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

    return text ? text : strdup("?");
}

/* The keys that differ: "lr, seed", and the values of both runs: "0.1, 0" and "0.5, 1". */
typedef struct differences {
    char names[400], before[400], now[400];
    int n;
    bool is_end; /* they are epochs or max_steps alone */
} differences;

enum { NAMED_KEYS = 5 };

static void append(char text[400], const char *name, const char *value)
{
    const size_t n = strlen(text);

    snprintf(text + n, 400 - n, "%s%s%s%.100s", n ? ", " : "", name, *name ? " " : "", value);
}

/* The name under which this run is given it. */
static const char *name_of(const tutti__train_config *config, int key)
{
    const bool micro = key == TUTTI__KEY_OF_grad_accumulation && config->micro_batches > 0;

    return tutti__key_table[micro ? TUTTI__KEY_OF_micro_batches : key].name;
}

static void add_difference(differences *d, const char *name, int key, const json_t *was,
                           const json_t *is)
{
    const bool is_end = key == TUTTI__KEY_OF_epochs || key == TUTTI__KEY_OF_max_steps;
    char *before = text_of(was), *now = text_of(is);

    d->is_end = is_end && (d->n == 0 || d->is_end);
    if (d->n++ < NAMED_KEYS) {
        append(d->names, "", name);
        append(d->before, name, before ? before : "?");
        append(d->now, name, now ? now : "?");
    }
    free(before);
    free(now);
}

static tutti_status refuse(const tutti__resume *r, const differences *d, const char *path)
{
    /* Of one key the name is said once. */
    const size_t skip = d->n == 1 ? strlen(d->names) + 1 : 0;
    char more[40] = "";

    if (d->n > NAMED_KEYS)
        snprintf(more, sizeof more, " and %d more", d->n - NAMED_KEYS);
    return tutti__fail(
        TUTTI_ERR_ARG,
        "%s%s: the run of %s has %s, and this one %s, %s%s; resume with the same value%s (--config "
        "with "
        "that run's config.json takes all of them), or begin a new run from its weights: --init "
        "%s",
        d->names, more, path, d->before + skip, d->now + skip,
        d->is_end ? "which changes the learning rate of all steps with schedule="
                  : "which would change the result",
        d->is_end ? r->session->config->schedule : "", tutti__s((uint64_t)d->n), path);
}

/* With a constant rate, a completed warm-up has no further effect; its default depends on `epochs` or `max_steps`, which may change, or is
 * reported itself. */
static bool is_over(int key, const tutti__resume *r, const json_t *was, const json_t *is,
                    const differences *d)
{
    const bool steps = key == TUTTI__KEY_OF_warmup_steps;
    const json_int_t at = json_integer_value(json_object_get(r->state, steps ? "step" : "epoch"));
    const double done = (double)(steps ? at : at - 1);

    if (key != TUTTI__KEY_OF_warmup_epochs && !steps)
        return false;
    return d->is_end || (strcmp(r->session->config->schedule, "constant") == 0 &&
                         done >= json_number_value(was) && done >= json_number_value(is));
}

tutti_status tutti__resume_check_keys(const tutti__resume *r, const json_t *keys, const char *path)
{
    char *text = tutti__config_json(r->session->config);
    json_t *mine = text ? json_loads(text, 0, NULL) : NULL;
    differences d = {.n = 0};

    for (int i = 0; mine && i < TUTTI__N_KEYS; i++) {
        const char *name = tutti__key_table[i].name;
        const json_t *was = json_object_get(keys, name), *is = json_object_get(mine, name);

        /* A key that the checkpoint lacks is newer than it. */
        if (was && !is_free(i, r->session->config, keys) && !json_equal(was, is) &&
            !is_over(i, r, was, is, &d))
            add_difference(&d, name_of(r->session->config, i), i, was, is);
    }
    json_decref(mine);
    free(text);
    if (!mine)
        return TUTTI_ERR_MEMORY;
    return d.n > 0 ? refuse(r, &d, path) : TUTTI_OK;
}
