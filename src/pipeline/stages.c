/* stages.c -- which blocks a rank has, and its part of the model.   SPDX-License-Identifier: MIT
 *
 * What a block costs is counted, not measured, so that all ranks cut alike: one sample goes through each block, which is made for that
 * alone and freed, so that nobody needs memory for the whole model. */
#include "pipeline/pipeline.h"

#include "comm/comm.h"
#include "tensor/op_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Floating-point operations that take as long as one byte to or from memory, on a core. */
#define FLOPS_OF_A_BYTE 10

/* ---- Cutting ---------------------------------------------------------------------------------------------- */

/* Whether the blocks fit into n stages of at most `most`, each with a block; then fills in cuts. The last stages get one block each if
 * there are no more. */
static bool fits(const double *costs, int n_blocks, int *cuts, int n, double most)
{
    int block = 0;

    for (int s = 0; s < n; s++) {
        double sum = 0;

        cuts[s] = block;
        do
            sum += costs[block++];
        while (block < n_blocks - (n - 1 - s) && sum + costs[block] <= most);
        if (sum > most)
            return false;
    }
    cuts[n] = block;
    return block == n_blocks;
}

void tutti__cut_evenly(const double *costs, int n_blocks, int *cuts, int n)
{
    double best = 0;

    for (int i = 0; i < n_blocks; i++)
        best += costs[i];
    (void)fits(costs, n_blocks, cuts, n, best);
    for (int first = 0; first < n_blocks; first++) { /* the largest stage is one of these */
        double sum = 0;

        for (int end = first; end < n_blocks; end++) {
            sum += costs[end];
            if (sum < best && fits(costs, n_blocks, cuts, n, sum))
                best = sum;
        }
    }
    (void)fits(costs, n_blocks, cuts, n, best);
}

static tutti_status cut_as_told(tutti_pipeline *p, const char *names)
{
    int s = 1;

    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
        const size_t length = strcspn(at, ",");
        int i = 0;

        while (i < p->n_blocks &&
               (strncmp(p->blocks[i].name, at, length) != 0 || p->blocks[i].name[length] != '\0'))
            i++;
        if (i == p->n_blocks)
            return tutti__fail(TUTTI_ERR_ARG,
                               "pipeline_cuts: the model has no block \"%.*s\"; its blocks are %s, "
                               "%s%s%s",
                               (int)(length < 100 ? length : 100), at, p->blocks[0].name,
                               p->n_blocks > 2 ? p->blocks[1].name : "",
                               p->n_blocks > 2 ? " ... " : "", p->blocks[p->n_blocks - 1].name);
        if (s < p->stages && i > p->cuts[s - 1])
            p->cuts[s] = i;
        else if (s < p->stages)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "pipeline_cuts: stage %d begins with %s, and the one before with %s; "
                "expected later blocks in each",
                s, p->blocks[i].name, p->blocks[p->cuts[s - 1]].name);
        s++;
    }
    if (s == p->stages)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "pipeline_cuts: \"%.100s\" makes %d stages, expected %d: the first block of "
                       "each but the first",
                       names, s, p->stages);
}

/* ---- What blocks cost --------------------------------------------------------------------------------------- */

/* Runs one block on an input of zeros, which becomes its output's shape. */
static tutti_status count(tutti_pipeline *p, tutti_model *model, int i, tutti_shape *shape_p,
                          tutti_dtype *dtype_p, double *cost_p)
{
    const size_t bytes = (size_t)tutti_shape_count(*shape_p) * tutti_dtype_size(*dtype_p);
    tutti_tensor *y;
    tutti_status status;
    void *zeros = tutti__alloc(bytes + 1);

    if (!zeros)
        return TUTTI_ERR_MEMORY;
    p->cx->profile = tutti__profile_new();
    tutti_step_begin(p->cx, &(tutti_step_opts){.eval = true});
    y = tutti__model_run(model, p->blocks, i, i + 1,
                         tutti_input(p->cx, (tutti_array){zeros, *shape_p, *dtype_p}));
    status = y ? tutti_tensor_status(y) : tutti__fail(TUTTI_ERR_ARG, "its forward returned NULL");
    if (status == TUTTI_OK) {
        *shape_p = tutti_tensor_shape(y);
        *dtype_p = tutti_tensor_dtype(y);
    }
    tutti_step_end(p->cx);
    for (size_t k = 0; p->cx->profile && k < tutti__profile_n_rows(p->cx->profile); k++) {
        const tutti__profile_row *row = tutti__profile_at(p->cx->profile, k);

        *cost_p += (double)row->calls * (row->flops + FLOPS_OF_A_BYTE * row->bytes);
    }
    tutti__profile_free(p->cx->profile);
    p->cx->profile = NULL;
    free(zeros);
    return status;
}

static tutti_status count_all(tutti_pipeline *p, const char *name, const tutti_model_opts *opts,
                              double *costs)
{
    tutti__profile *profile = p->cx->profile;
    tutti_model_opts whole = *opts;
    tutti_shape shape = TUTTI_SHAPE(1, opts->channels, opts->height, opts->width);
    tutti_dtype dtype = TUTTI_F32;
    tutti_status status = TUTTI_OK;

    whole.parallel = NULL; /* its ranks need not count together */
    if (tutti__model_reads_tokens(name, opts)) {
        shape = TUTTI_SHAPE(1, opts->channels);
        dtype = TUTTI_I64;
    }
    for (int i = 0; i < p->n_blocks && status == TUTTI_OK; i++) {
        tutti_model *model;

        status = tutti__model_new_part(&model, p->cx, name, &whole, p->blocks[i].state, true);
        if (status != TUTTI_OK)
            break;
        status = count(p, model, i, &shape, &dtype, &costs[i]);
        tutti_model_free(model);
        if (status != TUTTI_OK)
            status = tutti__fail(status, "pipeline: block %s, alone, for one sample: %s",
                                 p->blocks[i].name, tutti_last_error());
    }
    p->cx->profile = profile;
    return status;
}

static tutti_status cut_by_cost(tutti_pipeline *p, const char *name, const tutti_model_opts *opts)
{
    double *costs = tutti__alloc((size_t)p->n_blocks * sizeof *costs);
    tutti_status status;

    if (!costs)
        return TUTTI_ERR_MEMORY;
    status = count_all(p, name, opts, costs);
    if (status == TUTTI_OK)
        tutti__cut_evenly(costs, p->n_blocks, p->cuts, p->stages);
    free(costs);
    return status;
}

/* ---- This rank's part ------------------------------------------------------------------------------------------ */

/* The patterns of a stage's parameters and buffers. */
static char *state_of(const tutti_pipeline *p, int first, int end)
{
    char *text = tutti__alloc((size_t)(end - first) * sizeof p->blocks->state + 1);

    for (int i = first; text && i < end; i++) {
        if (i > first)
            strcat(text, ",");
        strcat(text, p->blocks[i].state);
    }
    return text;
}

static tutti_status make_model(tutti_pipeline *p, const char *name, const tutti_model_opts *opts)
{
    tutti_status status;

    p->state = tutti__alloc((size_t)(p->n_blocks + 1) * sizeof p->blocks->state);
    status = p->state ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (int c = 0; c < p->chunks && status == TUTTI_OK; c++) {
        char *state = state_of(p, p->chunk[c].first, p->chunk[c].end);

        if (!state)
            status = TUTTI_ERR_MEMORY;
        else
            strcat(strcat(p->state, c ? "," : ""), state);
        free(state);
    }
    if (status == TUTTI_OK)
        status = tutti__model_new_part(&p->model, p->cx, name, opts, p->state, false);
    if (status == TUTTI_OK)
        p->module = tutti_model_module(p->model);
    return status;
}

/* What tells which names the other stages have, and how parameters are numbered: the whole model, whose parameters get no memory. */
static tutti_status make_whole(tutti_pipeline *p, const char *name, const tutti_model_opts *opts)
{
    const bool defers = p->cx->defers_parameters;
    tutti_status status;

    p->cx->defers_parameters = true;
    status = tutti__model_new_part(&p->whole, p->cx, name, opts, NULL, true);
    p->cx->defers_parameters = defers;
    if (status == TUTTI_OK)
        p->module->root->whole = tutti_model_module(p->whole);
    return status;
}

static tutti_status list_parameters(tutti_pipeline *p, tutti__own_stage *chunk)
{
    const size_t n = tutti_module_n_parameters(p->module);
    char *state = state_of(p, chunk->first, chunk->end);

    free(chunk->parameters);
    chunk->n = 0;
    chunk->parameters = tutti__alloc((n + 1) * sizeof(tutti_tensor *));
    for (size_t i = 0; state && chunk->parameters && i < n; i++) {
        tutti_tensor *t = tutti_module_parameter(p->module, i);

        if (tutti__tensor_selected(t, state))
            chunk->parameters[chunk->n++] = t;
    }
    free(state);
    if (!state || !chunk->parameters)
        return TUTTI_ERR_MEMORY;
    if (chunk->n > 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "pipeline: stage %d (%s) has no parameters; expected cuts with some in each "
                       "stage",
                       chunk->stage, tutti_pipeline_stage(p, chunk->stage));
}

tutti_status tutti__pipeline_list(tutti_pipeline *p)
{
    const size_t n = tutti_module_n_parameters(p->module);

    for (int c = 0; c < p->chunks && p->listed != n + 1; c++)
        TUTTI_TRY(list_parameters(p, &p->chunk[c]));
    p->listed = n + 1;
    return TUTTI_OK;
}

const char *tutti_pipeline_stage(const tutti_pipeline *p, int s)
{
    static _Thread_local char text[112];

    text[0] = '\0';
    if (p && s >= 0 && s < p->stages && p->cuts[s + 1] - p->cuts[s] > 1)
        snprintf(text, sizeof text, "%s to %s", p->blocks[p->cuts[s]].name,
                 p->blocks[p->cuts[s + 1] - 1].name);
    else if (p && s >= 0 && s < p->stages)
        snprintf(text, sizeof text, "%s", p->blocks[p->cuts[s]].name);
    return text;
}

tutti_status tutti__pipeline_open(tutti_pipeline *p, const char *model,
                                  const tutti_model_opts *opts, const char *cuts)
{
    TUTTI_TRY(tutti__model_blocks(model, opts, &p->blocks, &p->n_blocks));
    if (p->n_blocks < p->stages)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "pipeline: model %s has %d blocks, and %d ranks with %d stages each make "
            "%d; expected at most as many stages as blocks",
            model, p->n_blocks, p->ranks, p->chunks, p->stages);
    p->cuts = tutti__alloc((size_t)(p->stages + 1) * sizeof *p->cuts);
    p->chunk = tutti__alloc((size_t)p->chunks * sizeof *p->chunk);
    if (!p->cuts || !p->chunk)
        return TUTTI_ERR_MEMORY;
    p->cuts[p->stages] = p->n_blocks;
    TUTTI_TRY(cuts && *cuts ? cut_as_told(p, cuts) : cut_by_cost(p, model, opts));
    for (int c = 0; c < p->chunks; c++) {
        const int stage = tutti__stage_of(p, c);

        p->chunk[c].stage = stage;
        p->chunk[c].first = p->cuts[stage];
        p->chunk[c].end = p->cuts[stage + 1];
    }
    TUTTI_TRY(make_model(p, model, opts));
    TUTTI_TRY(tutti__pipeline_list(p));
    TUTTI_TRY(make_whole(p, model, opts));
    return tutti__shared_find(p);
}

void tutti__pipeline_close(tutti_pipeline *p)
{
    for (int c = 0; p->chunk && c < p->chunks; c++) {
        free(p->chunk[c].parameters);
        tutti__message_free(p->cx, &p->chunk[c].eval);
    }
    tutti_model_free(p->model);
    tutti_model_free(p->whole);
    free(p->chunk);
    free(p->cuts);
    free(p->blocks);
    free(p->state);
}
