/* checkpoint_files.c -- writes and reads the files of a checkpoint.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_files.h"

#include "checkpoint/json_text.h"
#include "checkpoint/weights_parts.h"

#include <stdlib.h>
#include <string.h>

/* Adds a snapshot's digest. */
static tutti_status add_digest(json_t *state, const char *name, const tutti__snapshot *snapshot)
{
    char digest[33];

    TUTTI_TRY(tutti__snapshot_digest(snapshot, digest));
    return json_object_set_new(state, name, json_string(digest)) == 0
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
}

tutti_status tutti__checkpoint_write_state(tutti__draft *draft,
                                           const tutti__checkpoint_parts *parts)
{
    json_t *state = parts->state;
    char digest[33], *text = NULL;
    tutti_status status = TUTTI_OK;

    if (parts->model)
        status = add_digest(state, "model_digest", parts->model);
    if (status == TUTTI_OK && parts->ema)
        status = add_digest(state, "ema_digest", parts->ema);
    TUTTI_TRY(status);
    TUTTI_TRY(tutti__state_digest(state, digest));
    if (json_object_set_new(state, "digest", json_string(digest)) == 0)
        text = tutti__json_text(state, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    status = tutti__checkpoint_file(draft, "state.json");
    if (status == TUTTI_OK)
        status = tutti__checkpoint_write(draft, text, strlen(text));
    free(text);
    return status;
}

tutti_status tutti__state_add_file(json_t *state, const char *name, const char *digest)
{
    json_t *files = json_object_get(state, TUTTI__STATE_FILES);

    if (!files && json_object_set_new(state, TUTTI__STATE_FILES, json_object()) == 0)
        files = json_object_get(state, TUTTI__STATE_FILES);
    return json_object_set_new(files, name, json_string(digest)) == 0
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
}

tutti_status tutti__headed_put(void *headed, const void *p, size_t bytes)
{
    tutti__headed *to = headed;

    if (!to->begun)
        to->header = tutti__hash64(p, bytes);
    to->begun = true;
    return tutti__checkpoint_write(to->draft, p, bytes);
}

static tutti_status write_snapshot(tutti__draft *draft, const char *name,
                                   const tutti__snapshot *snapshot, uint64_t *header_p)
{
    tutti__headed to = {.draft = draft};

    TUTTI_TRY(tutti__checkpoint_file(draft, name));
    TUTTI_TRY(tutti__safetensors_put(tutti__headed_put, &to, snapshot->sources, snapshot->n,
                                     snapshot->notes.pairs, snapshot->notes.n));
    *header_p = to.header;
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_write_files(tutti__draft *draft,
                                           const tutti__checkpoint_parts *parts,
                                           uint64_t headers[3])
{
    tutti__headed to = {.draft = draft};

    if (parts->model)
        TUTTI_TRY(write_snapshot(draft, "model.safetensors", parts->model, &headers[0]));
    if (parts->block) {
        TUTTI_TRY(tutti__checkpoint_file(draft, "optimizer.safetensors"));
        TUTTI_TRY(
            tutti__optim_block_write(parts->block, parts->m, parts->step, tutti__headed_put, &to));
        headers[1] = to.header;
    }
    return parts->ema ? write_snapshot(draft, "ema.safetensors", parts->ema, &headers[2])
                      : TUTTI_OK;
}

/* FOLDER/name.safetensors, or its parts, whose digest `state` has as `key`. */
static tutti_status read_snapshot(tutti__snapshot *model, tutti_module *m, const char *folder,
                                  const char *name, const json_t *state, const char *key)
{
    const char *expected = json_string_value(json_object_get(state, key));
    char path[TUTTI__CHECKPOINT_PATH], digest[33];

    if (!expected)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s/state.json is damaged: %s is missing", folder,
                           key);
    (void)tutti__tensor_files_path(folder, name, path);
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

tutti_status tutti__checkpoint_read_model(tutti__snapshot *model, tutti_module *m,
                                          const char *folder, const json_t *state)
{
    return read_snapshot(model, m, folder, "model", state, "model_digest");
}

tutti_status tutti__checkpoint_read_ema(tutti__snapshot *ema, tutti_module *m, const char *folder,
                                        const json_t *state, uint64_t *updates_p)
{
    const json_t *o = json_object_get(state, "ema"), *updates = json_object_get(o, "updates");

    *updates_p = 0;
    if (!o || json_is_null(o))
        return TUTTI_OK;
    if (!json_is_integer(updates) || json_integer_value(updates) < 0)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s/state.json is damaged: ema has no number of updates", folder);
    *updates_p = (uint64_t)json_integer_value(updates);
    return read_snapshot(ema, m, folder, "ema", state, "ema_digest");
}

json_t *tutti__ema_json(const tutti_ema *ema)
{
    return ema ? json_pack("{s:I}", "updates", (json_int_t)tutti_ema_updates(ema)) : json_null();
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
