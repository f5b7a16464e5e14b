/* ema.h -- the moving average of a module's parameters, as seen by checkpoints and elastic runs.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_OPTIM_EMA_H
#define TUTTI_OPTIM_EMA_H

#include "nn/nn.h"
#include <tutti/optim.h>

struct tutti_ema {
    tutti_module *module;
    tutti_ctx *cx;
    float weight;     /* 1 - decay */
    uint64_t updates; /* so far */
    float *average;   /* flat; NULL before the first use */
    size_t n;         /* its elements */
    size_t *offsets;  /* its layout: of parameter i */
    /* Where ranks have shares of the parameters (zero 3): it has those of this rank's ranges, back to back. NULL: all. */
    const tutti__sharding *sharding;
    uint64_t layouts; /* the root's count for that layout */
    bool swapped;     /* the module has the averages, and `average` the module's parameters */
};

/* Allocates the averages, or moves them to the parameters' current layout. */
tutti_status tutti__ema_prepare(tutti_ema *ema);
/* The average of the root's parameter i, in the device's memory, if this rank has all of them. After tutti__ema_prepare, until the next
 * call. */
float *tutti__ema_at(const tutti_ema *ema, size_t i);

/* With shares: all averages, in host memory at the places of flat memory, replace them; or they are gone, with the updates so far. */
tutti_status tutti__ema_take_whole(tutti_ema *ema, const float *whole);
void tutti__ema_drop_share(tutti_ema *ema);

#endif
