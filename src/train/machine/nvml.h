/* nvml.h -- NVIDIA's management library, loaded if there is one.   SPDX-License-Identifier: MIT
 *
 * NVML numbers all GPUs of the machine from 0, regardless of CUDA_VISIBLE_DEVICES: CUDA devices are found by their PCI
 * addresses. What an older library or a GPU does not support is NaN, 0 or false. One thread at a time. */
#ifndef TUTTI_TRAIN_NVML_H
#define TUTTI_TRAIN_NVML_H

#include "train/metrics/metrics.h"

enum { TUTTI__MOST_GPUS = 16 };

typedef struct tutti__nvml tutti__nvml;
/* NULL: no library, no driver, no device. */
tutti__nvml *tutti__nvml_open(void);
/* Fills in up to n devices, and returns how many. */
size_t tutti__nvml_read(tutti__nvml *nvml, tutti__gpu_metrics *gpus, size_t n);
void tutti__nvml_close(tutti__nvml *nvml); /* NULL: nothing */

/* The number of the device at a PCI address; -1: none. */
int tutti__nvml_find(tutti__nvml *nvml, const char *bus);

/* ---- Xids: the driver's error reports about a GPU or its use ---- */

typedef struct tutti__xid {
    int gpu, number;
} tutti__xid;
/* Starts keeping those of this device. False: the device or the library does not support it. */
bool tutti__nvml_watch(tutti__nvml *nvml, int gpu);
/* The next one, within wait_ms; false: none. */
bool tutti__nvml_next_xid(tutti__nvml *nvml, int wait_ms, tutti__xid *xid_p);
/* "GPU has fallen off the bus; check power and slot, ...": its meaning and remedy. */
const char *tutti__xid_text(int number);

/* ---- Constant properties ---- */

typedef struct tutti__nvml_about {
    char name[96], bus[32];
    int major, minor;       /* compute capability; 0 0: not known */
    double power_limit_w;   /* NaN: not known */
    int ecc;                /* 1: on, 0: off, -1: none or unknown */
    int64_t bad_memory;     /* errors that ECC could not correct since the driver was loaded */
    int nvlinks;            /* active links */
    tutti__gpu_metrics now; /* as tutti__nvml_read */
    size_t memory_bytes;
} tutti__nvml_about;
int tutti__nvml_count(const tutti__nvml *nvml);
bool tutti__nvml_describe(const tutti__nvml *nvml, int gpu, tutti__nvml_about *about);
bool tutti__nvml_driver(const tutti__nvml *nvml, char *text, size_t bytes); /* "580.82.07" */
/* Whether a and b can copy to each other without the host: 1, 0; -1: unknown. */
int tutti__nvml_peers(const tutti__nvml *nvml, int a, int b);

#endif
