/* open_pipeline.c -- the stages of a rank, by the configuration.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"
#include "pipeline/pipeline.h"
#include "train/session/session.h"

#include <string.h>

tutti_pipeline_kind tutti__pipeline_kind_of(const tutti__train_config *c)
{
    return strcmp(c->pipeline_schedule, "gpipe") == 0         ? TUTTI_PIPELINE_GPIPE
           : strcmp(c->pipeline_schedule, "interleaved") == 0 ? TUTTI_PIPELINE_INTERLEAVED
           : strcmp(c->pipeline_schedule, "zero_bubble") == 0 ? TUTTI_PIPELINE_ZERO_BUBBLE
                                                              : TUTTI_PIPELINE_1F1B;
}

tutti_status tutti__session_open_pipeline(tutti__session *s, const tutti_model_opts *model_opts)
{
    const tutti__train_config *c = s->config;
    const tutti_pipeline_opts opts = {.kind = tutti__pipeline_kind_of(c),
                                      .chunks = (int)c->pipeline_chunks,
                                      .cuts = c->pipeline_cuts};

    TUTTI_TRY(tutti__pipeline_new_alone(&s->pipeline, s->cx, tutti_mesh_group(s->mesh, "pipeline"),
                                        c->model, model_opts, &opts));
    s->model = tutti_pipeline_model(s->pipeline);
    return TUTTI_OK;
}

tutti_status tutti__session_agree_pipeline(tutti__session *s)
{
    tutti_group *group = tutti_mesh_group(s->mesh, "pipeline");

    TUTTI_TRY(tutti__pipeline_agree(s->pipeline, group, TUTTI_OK));
    s->n_parameters =
        tutti_module_count(s->module) - tutti__pipeline_counted_elsewhere(s->pipeline);
    TUTTI_TRY(tutti_all_reduce(group, TUTTI_BUF(&s->n_parameters, 1, TUTTI_I64), TUTTI_SUM, NULL));
    s->module->root->norm_peers[1] = tutti_group_peers(group);
    return TUTTI_OK;
}

int64_t tutti__session_n_parameters(const tutti__session *s)
{
    return s->pipeline ? s->n_parameters : tutti_module_count(s->module);
}
