/* jobs.h -- arithmetic that is written once, for loops on the host and for kernels of GPUs, and is not elementwise: jobs.def.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_JOBS_H
#define TUTTI_TENSOR_JOBS_H

#include "tensor/job/cells.h"
#include "tensor/job/channels.h"
#include "tensor/job/images.h"
#include "tensor/job/labels.h"
#include "tensor/job/lines.h"
#include "tensor/job/places.h"
#include "tensor/job/rotations.h"

typedef enum tutti__job_kind {
#define JOB(name, family) TUTTI__JOB_##name,
#include "tensor/jobs.def"
#undef JOB
} tutti__job_kind;

/* Pointers are to memory of where it runs. */
typedef struct tutti__each_job {
    tutti__job_kind kind;
    union {
        tutti__job_cells cells;
        tutti__job_channels channels;
        tutti__job_images images;
        tutti__job_labels labels;
        tutti__job_lines lines;
        tutti__job_places places;
        tutti__job_rotations rotations;
    } of;
} tutti__each_job;

#endif
