/* nvml.h -- NVIDIA's management library, loaded where there is one.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_NVML_H
#define TUTTI_TRAIN_NVML_H

#include "train/metrics.h"

typedef struct tutti__nvml tutti__nvml;
/* NULL: no library, no driver, no device. */
tutti__nvml *tutti__nvml_open(void);
/* Fills in up to n of the devices, and returns how many. What one does not tell is NaN or 0. */
size_t tutti__nvml_read(tutti__nvml *nvml, tutti__gpu_metrics *gpus, size_t n);
void tutti__nvml_close(tutti__nvml *nvml); /* NULL: nothing */

#endif
