/* system.h -- this machine's load: cores, memory, disk, network, GPUs.   SPDX-License-Identifier: MIT
 *
 * From /proc, the control group's files, statvfs and NVIDIA's management library (NVML), if there is one. A
 * figure that is not available is NaN, or for an INT 0. */
#ifndef TUTTI_TRAIN_SYSTEM_H
#define TUTTI_TRAIN_SYSTEM_H

#include "train/machine/gpus.h"

typedef struct tutti__system_sample {
    tutti__system_metrics machine;
    tutti__gpu_metrics gpus[TUTTI__MOST_GPUS];
    size_t n_gpus;
} tutti__system_sample;

/* Physical cores of the machine, whichever this process may use; where /sys does not say, its processors. */
int tutti__system_cores(void);

/* Not shared between threads. `folder`: whose disk to measure; gpus: of the ranks, borrowed. NULL: out of memory, message
 * set. */
typedef struct tutti__system tutti__system;
tutti__system *tutti__system_open(const char *folder, const tutti__gpus *gpus);
/* Rates are since the last sample, or since it was opened. */
void tutti__system_read(tutti__system *system, tutti__system_sample *sample);
void tutti__system_close(tutti__system *system); /* NULL: nothing */

#endif
