/* hooks.c -- calls a program's functions for the current step.   SPDX-License-Identifier: MIT */
#include "train/session/session.h"

const tutti_trainer_hooks *tutti__session_hooks(const tutti__session *s)
{
    return s->parts->own.hooks;
}

tutti_status tutti__session_hook(const tutti__session *s,
                                 tutti_status (*hook)(void *self,
                                                      const tutti_trainer_update *update))
{
    const tutti_trainer_update update = {.step = s->step.number,
                                         .epoch = s->step.epoch,
                                         .loss = s->step.mean_loss,
                                         .lr = (double)tutti_optim_lr(s->optim),
                                         .rank = s->rank,
                                         .world_size = s->size,
                                         .module = s->module,
                                         .optim = s->optim,
                                         .ema = s->ema};

    return hook ? hook(s->parts->own.self, &update) : TUTTI_OK;
}
