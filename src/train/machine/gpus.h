/* gpus.h -- the GPUs that a run's ranks compute on, and the driver's error reports.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_GPUS_H
#define TUTTI_TRAIN_GPUS_H

#include "device/device.h"
#include "train/machine/nvml.h"
#include <tutti/group.h>

/* What a rank sends to the others: the kind of its device, and which GPU of which machine that is. */
typedef struct tutti__gpu_place {
    uint64_t machine;
    int64_t rank;
    char kind[16]; /* "cuda" */
    char bus[32];  /* "": none */
} tutti__gpu_place;

typedef struct tutti__gpus {
    tutti__device_info device; /* this rank's */
    tutti__gpu_place *here;    /* ranks on this rank's machine with a GPU, in order */
    size_t n_here;
    int n_devices;   /* devices that ranks use, on all machines */
    int most_on_one; /* most ranks on one device */
    /* on a machine's first rank with a GPU, which listens to the driver; else NULL */
    tutti__nvml *nvml;
} tutti__gpus;

/* Finds them, and starts listening. Collective. MISMATCH, already reported: only some ranks have GPUs. A lost group is
 * not reported. */
tutti_status tutti__gpus_open(tutti__gpus *gpus, tutti_group *group, tutti_device device);
/* Logs what the driver has reported about these GPUs since the last call, or reports within wait_ms. */
void tutti__gpus_listen(tutti__gpus *gpus, int wait_ms);
void tutti__gpus_close(tutti__gpus *gpus);

#endif
