/* part.c -- what this rank writes of a checkpoint that is divided over ranks.   SPDX-License-Identifier: MIT */
#include "checkpoint/part.h"

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/json_text.h"
#include "checkpoint/weights_parts.h"
#include "comm/comm.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static size_t room_of(const tutti__whole *w)
{
    return (w->bytes + 63) / 64 * 64;
}

static void file_name(const tutti__part *part, int rank, char name[64])
{
    snprintf(name, 64, "%s-%05d-of-%05d.safetensors", part->stem, part->file_of[rank],
             part->n_files);
}

void tutti__part_free(tutti__part *part)
{
    tutti__pieces_free(&part->pieces);
    tutti__wholes_free(&part->wholes);
    free(part->file_of);
    free(part->sources);
    if (part->values)
        part->ops->host_free(part->device, part->values);
    *part = (tutti__part){.n = 0};
}

/* Numbers the files, and makes room for this rank's tensors. */
static tutti_status make_room(tutti__part *part)
{
    size_t bytes = 0;
    char *at;

    free(part->file_of);
    free(part->sources);
    part->file_of = tutti__alloc((size_t)part->n_ranks * sizeof *part->file_of);
    part->sources = tutti__alloc((part->wholes.n + 1) * sizeof *part->sources);
    part->n = 0;
    part->n_files = 0;
    if (!part->file_of || !part->sources)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < part->wholes.n; i++) {
        part->file_of[part->wholes.p[i].rank] = 1;
        bytes += part->wholes.p[i].rank == part->rank ? room_of(&part->wholes.p[i]) : 0;
    }
    for (int r = 0; r < part->n_ranks; r++)
        part->file_of[r] = part->file_of[r] ? ++part->n_files : 0;
    if (bytes > part->room || !part->values) {
        if (part->values)
            part->ops->host_free(part->device, part->values);
        part->values = part->ops->host_alloc(part->device, bytes + 1);
        part->room = part->values ? bytes : 0;
        if (!part->values)
            return TUTTI_ERR_MEMORY;
    }
    at = part->values;
    for (size_t i = 0; i < part->wholes.n; i++) {
        const tutti__whole *w = &part->wholes.p[i];

        if (w->rank != part->rank)
            continue;
        part->sources[part->n++] = (tutti__safetensors_source){w->name, {at, w->shape, w->dtype}};
        at += room_of(w);
    }
    return TUTTI_OK;
}

tutti_status tutti__part_plan(tutti__part *part, const char *stem, const tutti_module *m,
                              tutti_group *group, const bool *may, uint64_t *load)
{
    tutti_status status;

    snprintf(part->stem, sizeof part->stem, "%s", stem);
    part->n_ranks = tutti_group_size(group);
    part->rank = tutti_group_rank(group);
    part->ops = m->cx->device_ops;
    part->device = m->cx->device;
    status = tutti__wholes_assign(&part->wholes, may, load, part->n_ranks);
    if (status == TUTTI_OK)
        status = make_room(part);
    return tutti__group_agree(group, status);
}

static tutti_status gather_all(tutti__part *part, tutti__mover *mover)
{
    size_t k = 0;

    for (size_t i = 0; i < part->wholes.n; i++) {
        const bool own = part->wholes.p[i].rank == part->rank;

        TUTTI_TRY(tutti__whole_gather(&part->wholes, i, &part->pieces, mover,
                                      own ? (char *)(uintptr_t)part->sources[k++].array.p : NULL));
    }
    return TUTTI_OK;
}

tutti_status tutti__part_take(tutti__part *part, tutti__mover *mover)
{
    const tutti_status status = gather_all(part, mover);
    char why[1024];

    if (status == TUTTI_OK)
        return tutti__mover_wait(mover);
    snprintf(why, sizeof why, "%s", tutti_last_error());
    (void)!tutti__mover_wait(mover); /* sends read the pieces, which may go after this */
    return tutti__fail_again(status, why);
}

tutti_status tutti__part_digest(const tutti__part *part, tutti__mover *mover, char digest[33])
{
    tutti__wholes copied = {.n = part->wholes.n};
    tutti__pieces mine = {.n = 0};
    tutti_status status = TUTTI_OK;

    copied.p = tutti__alloc((copied.n + 1) * sizeof *copied.p);
    copied.held = tutti__alloc((copied.n + 1) * sizeof *copied.held);
    if (!copied.p || !copied.held)
        status = TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < copied.n && status == TUTTI_OK; i++) {
        const tutti__whole *w = &part->wholes.p[i];

        copied.held[i] = (tutti__held){w->rank, 0, 0, (size_t)tutti_shape_count(w->shape)};
        copied.p[i] = *w;
        copied.p[i].box = (tutti__parameter_split){.count = 0};
        copied.p[i].first = i;
        copied.p[i].n = 1;
    }
    for (size_t k = 0; k < part->n && status == TUTTI_OK; k++) {
        const tutti_array *a = &part->sources[k].array;

        status = tutti__pieces_add(
            &mine, &(tutti__tensor_piece){.name = part->sources[k].name,
                                          .dtype = a->dtype,
                                          .host = true,
                                          .shape = a->shape,
                                          .end = (size_t)tutti_shape_count(a->shape),
                                          .data = (char *)(uintptr_t)a->p});
    }
    if (status != TUTTI_OK)
        tutti_group_abort(mover->group, "%s", tutti_last_error());
    else
        status = tutti__wholes_digest(&copied, &mine, mover, digest);
    tutti__pieces_free(&mine);
    tutti__wholes_free(&copied);
    return status;
}

/* ---- Files ---------------------------------------------------------------------------------------------------- */

tutti_status tutti__part_write(const tutti__part *part, tutti__draft *draft, uint64_t step,
                               const tutti__safetensors_pair *metadata, size_t n_metadata,
                               uint64_t *header_p)
{
    tutti__safetensors_pair *pairs;
    tutti__headed to = {.draft = draft};
    char name[64], number[24];
    tutti_status status;

    *header_p = 0;
    if (part->file_of[part->rank] == 0)
        return TUTTI_OK;
    pairs = tutti__alloc((n_metadata + 2) * sizeof *pairs);
    if (!pairs)
        return TUTTI_ERR_MEMORY;
    snprintf(number, sizeof number, "%" PRIu64, step);
    pairs[0] = (tutti__safetensors_pair){"format", "pt"};
    pairs[1] = (tutti__safetensors_pair){"step", number};
    for (size_t i = 0; i < n_metadata; i++)
        pairs[2 + i] = metadata[i];
    file_name(part, part->rank, name);
    status = tutti__checkpoint_file(draft, name);
    if (status == TUTTI_OK)
        status = tutti__safetensors_put(tutti__headed_put, &to, part->sources, part->n, pairs,
                                        n_metadata + 2);
    *header_p = to.header;
    free(pairs);
    return status;
}

static json_t *index_json(const tutti__part *part, uint64_t step, const uint64_t *headers)
{
    json_t *map = json_object(), *digests = json_object();
    uint64_t bytes = 0;
    char name[64], digest[24];
    int failed = 0;

    for (size_t i = 0; i < part->wholes.n; i++) {
        file_name(part, part->wholes.p[i].rank, name);
        failed |= json_object_set_new(map, part->wholes.p[i].name, json_string(name));
        bytes += part->wholes.p[i].bytes;
    }
    for (int r = 0; r < part->n_ranks; r++) {
        if (part->file_of[r] == 0)
            continue;
        file_name(part, r, name);
        snprintf(digest, sizeof digest, "%016" PRIx64, headers[r]);
        failed |= json_object_set_new(digests, name, json_string(digest));
    }
    if (failed) {
        json_decref(map);
        json_decref(digests);
        return NULL;
    }
    return json_pack("{s:{s:I, s:I, s:o}, s:o}", "metadata", "total_size", (json_int_t)bytes,
                     "step", (json_int_t)step, TUTTI__PARTS_DIGESTS, digests, "weight_map", map);
}

tutti_status tutti__part_write_index(const tutti__part *part, tutti__draft *draft, uint64_t step,
                                     const uint64_t *headers, json_t *state)
{
    json_t *json = index_json(part, step, headers);
    char *text = tutti__json_text(json, JSON_INDENT(2)), name[64], digest[33];
    tutti_status status = text ? tutti__state_digest(json, digest) : TUTTI_OK;

    json_decref(json);
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the index of a checkpoint's files");
    snprintf(name, sizeof name, "%s" TUTTI__PARTS_INDEX, part->stem);
    if (status == TUTTI_OK)
        status = tutti__state_add_file(state, name, digest);
    if (status == TUTTI_OK)
        status = tutti__checkpoint_file(draft, name);
    if (status == TUTTI_OK)
        status = tutti__checkpoint_write(draft, text, strlen(text));
    free(text);
    return status;
}

tutti_status tutti__part_check(const tutti__part *part, const tutti__draft *draft,
                               const uint64_t *headers)
{
    char name[64], path[TUTTI__CHECKPOINT_PATH + 64];

    for (int r = 1; r < part->n_ranks; r++) {
        uint64_t header = 0;

        if (part->file_of[r] == 0)
            continue;
        file_name(part, r, name);
        snprintf(path, sizeof path, "%s/%s", draft->folder, name);
        if (tutti__safetensors_header(path, &header) != TUTTI_OK || header != headers[r])
            return tutti__fail(
                TUTTI_ERR_NOT_FOUND,
                "%s, which rank %d has written, is %s on rank 0's host; the run folder must be "
                "on a file system that all ranks share",
                path, r, header ? "another file" : "missing");
    }
    return TUTTI_OK;
}
