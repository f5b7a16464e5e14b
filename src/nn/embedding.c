/* embedding.c -- a table of vectors, nn.Embedding.   SPDX-License-Identifier: MIT */
#include "nn/language.h"

static tutti_tensor *forward(tutti_module *m, tutti_tensor *indices)
{
    return tutti__parallel_rows(((tutti_embedding *)m)->weight, indices);
}

bool tutti__is_embedding(const tutti_module *m)
{
    return m->forward == forward;
}

void tutti__embedding_init_normal(tutti_embedding *m, tutti_module *parent, const char *name,
                                  int64_t n, int64_t width, float std)
{
    *m = (tutti_embedding){0};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = forward;
    if (n < 1 || width < 1) {
        tutti__module_fail(&m->base, TUTTI_ERR_ARG,
                           "%s: embedding of %lld vectors of %lld numbers, expected at least 1",
                           tutti__module_path(&m->base), (long long)n, (long long)width);
        return;
    }
    m->weight =
        tutti_parameter_new(&m->base, "weight", TUTTI_SHAPE(n, width), TUTTI_INIT_NORMAL, std);
}

void tutti_embedding_init(tutti_embedding *m, tutti_module *parent, const char *name, int64_t n,
                          int64_t width, bool sparse)
{
    tutti__embedding_init_normal(m, parent, name, n, width, 1);
    if (!m->weight || !sparse)
        return;
    m->weight->parameter->touched = tutti__alloc((size_t)m->weight->shape.d[0]);
    if (!m->weight->parameter->touched)
        tutti__module_fail(&m->base, TUTTI_ERR_MEMORY, "%s", tutti_last_error());
}

tutti_tensor *tutti_embedding_forward(tutti_embedding *m, tutti_tensor *indices)
{
    return tutti__module_run(m ? &m->base : NULL, indices, forward);
}
