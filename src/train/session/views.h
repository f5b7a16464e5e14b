/* views.h -- test-time augmentation: several views of an image, whose outputs are averaged.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_VIEWS_H
#define TUTTI_TRAIN_VIEWS_H

#include "train/session/session.h"

/* The image at (i + down, j + right) for each pixel (i, j), reflected at its edges, and then mirrored left to right. */
typedef struct tutti__view {
    int down, right;
    bool mirrored;
    float weight; /* of its output in the average: those of a level add up to 1 */
} tutti__view;

/* The views of a level, 0 to 2 (the key tta); the first one is the image as it is. */
const tutti__view *tutti__views_of(int64_t tta, size_t *n_p);
/* x: F32 [n,C,H,W]; to: as many. */
void tutti__view_make(const tutti__view *view, tutti_array x, float *to);
/* ARG: the key tta, for data or a task of which there are no other views. */
tutti_status tutti__views_check(const tutti__session *s, const tutti_dataset *data);

#endif
