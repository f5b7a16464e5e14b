/* checkpoint_files.c -- writes and reads the files of a checkpoint.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_files.h"

#include "checkpoint/json_text.h"

#include <stdlib.h>
#include <string.h>

static tutti_status write_state(tutti__draft *draft, const tutti__snapshot *model, json_t *state)
{
    char digest[33], *text = NULL;
    tutti_status status;

    TUTTI_TRY(tutti__snapshot_digest(model, digest));
    if (json_object_set_new(state, "model_digest", json_string(digest)) == 0) {
        TUTTI_TRY(tutti__state_digest(state, digest));
        if (json_object_set_new(state, "digest", json_string(digest)) == 0)
            text = tutti__json_text(state, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    }
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    status = tutti__checkpoint_file(draft, "state.json");
    if (status == TUTTI_OK)
        status = tutti__checkpoint_write(draft, text, strlen(text));
    free(text);
    return status;
}

tutti_status tutti__checkpoint_write_files(tutti__draft *draft, const tutti_module *m,
                                           const tutti__snapshot *model,
                                           const tutti__optim_block *block, json_t *state)
{
    TUTTI_TRY(tutti__checkpoint_file(draft, "model.safetensors"));
    TUTTI_TRY(tutti__safetensors_put(tutti__checkpoint_write, draft, model->sources, model->n,
                                     model->pairs, model->n_pairs));
    if (block) {
        TUTTI_TRY(tutti__checkpoint_file(draft, "optimizer.safetensors"));
        TUTTI_TRY(tutti__optim_block_write(block, m, tutti__checkpoint_write, draft));
    }
    return write_state(draft, model, state);
}

tutti_status tutti__checkpoint_read_model(tutti__snapshot *model, tutti_module *m,
                                          const char *folder, const json_t *state)
{
    const char *expected = json_string_value(json_object_get(state, "model_digest"));
    char path[TUTTI__CHECKPOINT_PATH + 32], digest[33];

    if (!expected)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s/state.json is damaged: model_digest is missing",
                           folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (tutti__is_folder(path)) /* in which weights would be looked for */
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is a folder; expected a file", path);
    TUTTI_TRY(tutti__snapshot_new(model, m));
    TUTTI_TRY(tutti__snapshot_read(model, m, path));
    TUTTI_TRY(tutti__snapshot_digest(model, digest));
    if (strcmp(digest, expected) != 0)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: its contents have digest %s, and state.json says %.40s: damaged",
                           path, digest, expected);
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_read_optim(tutti__optim_block *block, const tutti_module *m,
                                          const char *folder)
{
    char path[TUTTI__CHECKPOINT_PATH + 32];

    snprintf(path, sizeof path, "%s/optimizer.safetensors", folder);
    return tutti__optim_block_read(block, m, path);
}

json_t *tutti__scaler_json(const tutti_scaler *scaler)
{
    const tutti_scaler_state s = tutti_scaler_state_get(scaler);

    if (!scaler)
        return json_null();
    return json_pack("{s:f, s:f, s:f, s:i, s:i}", "scale", (double)s.scale, "growth_factor",
                     (double)s.growth_factor, "backoff_factor", (double)s.backoff_factor,
                     "growth_interval", s.growth_interval, "growth_tracker", s.growth_tracker);
}

tutti_scaler_state tutti__scaler_of_json(const json_t *o)
{
    return (tutti_scaler_state){
        .scale = (float)json_number_value(json_object_get(o, "scale")),
        .growth_factor = (float)json_number_value(json_object_get(o, "growth_factor")),
        .backoff_factor = (float)json_number_value(json_object_get(o, "backoff_factor")),
        .growth_interval = (int)json_integer_value(json_object_get(o, "growth_interval")),
        .growth_tracker = (int)json_integer_value(json_object_get(o, "growth_tracker"))};
}
