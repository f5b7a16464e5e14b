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

#endif
