/* gpus.h -- the GPUs that a run's ranks compute on, and what their driver reports meanwhile.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_GPUS_H
#define TUTTI_TRAIN_GPUS_H

#include "device/device.h"
#include "train/nvml.h"
#include <tutti/group.h>

/* What a rank tells the others: on what it computes, and which GPU of which machine that is. */
typedef struct tutti__gpu_place {
    uint64_t machine;
    int64_t rank;
    char kind[16]; /* "cuda" */
    char bus[32];  /* "": none */
} tutti__gpu_place;

typedef struct tutti__gpus {
    tutti__device_info device; /* this rank's */
    tutti__gpu_place *here;    /* ranks on this rank's machine that have one, in order */
    size_t n_here;
    int n_devices;   /* that ranks have, on all machines */
    int most_on_one; /* ranks on one device */
    tutti__nvml
        *nvml; /* of a machine's first rank with a GPU: it listens to the driver; else NULL */
} tutti__gpus;

/* Finds them, and begins to listen. Collective. MISMATCH, said: some ranks have GPUs, and some do not. A lost group is
 * not said. */
tutti_status tutti__gpus_open(tutti__gpus *gpus, tutti_group *group, tutti_device device);
/* Says in the log what the driver has reported of these GPUs since the last call, or reports in the next wait_ms. */
void tutti__gpus_listen(tutti__gpus *gpus, int wait_ms);
void tutti__gpus_close(tutti__gpus *gpus);

#endif
