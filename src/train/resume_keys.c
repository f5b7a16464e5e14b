/* resume_keys.c -- which keys of a checkpoint's run must be this run's.   SPDX-License-Identifier: MIT
 *
 * A resumed run has the same bits as an uninterrupted one, so changes of keys that alter the result are rejected. */
#include "train/resume.h"
#include "train/run.h"

#include <stdlib.h>
#include <string.h>

/* Keys about paths, output, and distribution of work: the result is the same, at most to rounding. */
static bool is_free(int key, const tutti__train_config *config, const json_t *keys)
{
    switch (key) {
    case TUTTI__KEY_OF_model_file:
    case TUTTI__KEY_OF_data_file:
    case TUTTI__KEY_OF_data_dir:
    case TUTTI__KEY_OF_workers:
    case TUTTI__KEY_OF_prefetch:
    case TUTTI__KEY_OF_device:
    case TUTTI__KEY_OF_backend:
    case TUTTI__KEY_OF_find_unused:
    case TUTTI__KEY_OF_static_graph:
    case TUTTI__KEY_OF_zero:
    case TUTTI__KEY_OF_threads:
    case TUTTI__KEY_OF_run_dir:
    case TUTTI__KEY_OF_checkpoint_every:
    case TUTTI__KEY_OF_checkpoint_background:
    case TUTTI__KEY_OF_checkpoint_failure:
    case TUTTI__KEY_OF_keep_checkpoints:
    case TUTTI__KEY_OF_resume:
    case TUTTI__KEY_OF_init:
    case TUTTI__KEY_OF_init_only:
    case TUTTI__KEY_OF_init_partial:
    case TUTTI__KEY_OF_log_every:
    case TUTTI__KEY_OF_progress:
    case TUTTI__KEY_OF_eval_every:
    case TUTTI__KEY_OF_tensorboard:
    case TUTTI__KEY_OF_histograms:
    case TUTTI__KEY_OF_wandb:
    case TUTTI__KEY_OF_prometheus:
    case TUTTI__KEY_OF_system_metrics:
    case TUTTI__KEY_OF_profile:
    case TUTTI__KEY_OF_deterministic:
    case TUTTI__KEY_OF_timeout_s:
    case TUTTI__KEY_OF_shards: /* allowed, as another number of ranks is */
        return true;
    case TUTTI__KEY_OF_wire_bits:
        return config->shards == 0 || json_integer_value(json_object_get(keys, "shards")) == 0;
    case TUTTI__KEY_OF_bucket_mb:
    case TUTTI__KEY_OF_first_bucket_mb: /* PowerSGD's state is per bucket */
        return strcmp(config->comm_hook, "powersgd") != 0;
    case TUTTI__KEY_OF_epochs:
    case TUTTI__KEY_OF_max_steps: /* other schedules depend on the end from the first step on */
        return strcmp(config->schedule, "constant") == 0;
    default:
        return false;
    }
}

static char *text_of(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

    return text ? text : strdup("?");
}

static tutti_status refuse(const tutti__run *run, int key, const json_t *was, const json_t *is,
                           const char *path)
{
    const bool is_end = key == TUTTI__KEY_OF_epochs || key == TUTTI__KEY_OF_max_steps;
    char *before = text_of(was), *now = text_of(is);
    tutti_status status = tutti__fail(
        TUTTI_ERR_ARG,
        "%s: the run of %s has %s, and this one %s, %s%s; resume with the same value (--config "
        "with "
        "that run's config.json takes all of them), or begin a new run from its weights: --init "
        "%s/model.safetensors",
        tutti__key_table[key].name, path, before ? before : "?", now ? now : "?",
        is_end ? "which changes the learning rate of all steps with schedule="
               : "which would change the result",
        is_end ? run->config->schedule : "", path);

    free(before);
    free(now);
    return status;
}

/* With a constant rate, a completed warm-up has no further effect; its default depends on `epochs`, which may change. */
static bool is_over(int key, const tutti__run *run, const json_t *was, const json_t *is)
{
    const double done = (double)json_integer_value(json_object_get(run->resume.state, "epoch")) - 1;

    return key == TUTTI__KEY_OF_warmup_epochs && strcmp(run->config->schedule, "constant") == 0 &&
           done >= json_number_value(was) && done >= json_number_value(is);
}

tutti_status tutti__resume_check_keys(const tutti__run *run, const json_t *keys, const char *path)
{
    char *text = tutti__config_json(run->config);
    json_t *mine = text ? json_loads(text, 0, NULL) : NULL;
    tutti_status status = mine ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (int i = 0; i < TUTTI__N_KEYS && status == TUTTI_OK; i++) {
        const char *name = tutti__key_table[i].name;
        const json_t *was = json_object_get(keys, name), *is = json_object_get(mine, name);

        /* A key that the checkpoint lacks is newer than it. */
        if (was && !is_free(i, run->config, keys) && !json_equal(was, is) &&
            !is_over(i, run, was, is))
            status = refuse(run, i, was, is, path);
    }
    json_decref(mine);
    free(text);
    return status;
}
