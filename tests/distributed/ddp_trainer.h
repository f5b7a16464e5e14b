/* ddp_trainer.h -- shared by the tests of ddp that train a model of the library.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DDP_TRAINER_H
#define TUTTI_TESTS_DDP_TRAINER_H

#include "distributed/ddp_bodies.h"
#include <tutti/tutti.h>

typedef struct trainer {
    tutti_ctx *cx;
    tutti_model *model;
    tutti_module *module;
    tutti_ddp *ddp; /* NULL: trains alone */
    tutti_optim *optim;
    tutti_scaler *scaler; /* NULL: without */
} trainer;

static inline void trainer_free(trainer *t)
{
    tutti_scaler_free(t->scaler);
    tutti_optim_free(t->optim);
    tutti_ddp_free(t->ddp);
    tutti_model_free(t->model);
    tutti_ctx_free(t->cx);
}

/* With zero 3 where all parameters are gathered, in turn. Collective. */
static inline int digest_of(trainer *t, tutti_group *group, char digest[33])
{
    const bool shares = tutti_zero_get_stats(tutti_ddp_zero(t->ddp)).stage == 3;

    for (int r = 0; r < (shares ? tutti_group_size(group) : 1); r++) {
        if (shares)
            CHECK_OK(tutti_zero_consolidate(tutti_ddp_zero(t->ddp), t->optim, r));
        if (!shares || r == tutti_group_rank(group))
            tutti_module_digest(t->module, digest);
    }
    CHECK(digest[0]);
    return 0;
}

#endif
