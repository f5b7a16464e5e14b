/* loss.h -- a batch's loss on the host, without stopping the device.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_LOSS_H
#define TUTTI_TRAIN_LOSS_H

#include "device/device.h"
#include <tutti/tensor.h>

typedef struct tutti__loss {
    tutti_ctx *cx;
    float *value; /* in pinned memory */
    tutti__event *event;
} tutti__loss;

tutti_status tutti__loss_open(tutti__loss *l, tutti_ctx *cx);
/* Submits the copy. Errors: those of the step that computed it. */
tutti_status tutti__loss_ask(tutti__loss *l, tutti_tensor *loss);
/* The last requested loss. On the CPU it is available at once; else waits for the work up to it, and not for later work. */
tutti_status tutti__loss_get(tutti__loss *l, double *value_p);
void tutti__loss_close(tutti__loss *l);

#endif
