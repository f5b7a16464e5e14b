/* engine.c -- how an engine learns of failures.   SPDX-License-Identifier: MIT */
#include "comm/engine/engine.h"

static void announce(void *self, tutti__cause *cause)
{
    tutti__engine *engine = self;

    engine->ops->announce(engine, cause);
}

static void look(void *self)
{
    tutti__engine *engine = self;

    engine->ops->look(engine);
}

static void wake(void *self, bool first)
{
    tutti__engine *engine = self;

    (void)first;
    engine->ops->wake(engine, -1);
}

static void note_left(void *self, int rank)
{
    tutti__engine *engine = self;

    engine->ops->wake(engine, rank);
}

void tutti__engine_observe(tutti__engine *engine)
{
    const tutti__engine_ops *ops = engine->ops;

    tutti__comm_observe(engine->comm,
                        &(tutti__observer){.self = engine,
                                           .announce = ops->announce ? announce : NULL,
                                           .look = ops->look ? look : NULL,
                                           .failed = ops->wake ? wake : NULL,
                                           .left = ops->wake ? note_left : NULL});
}
