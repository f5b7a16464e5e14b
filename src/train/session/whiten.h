/* whiten.h -- a first convolution whose results are uncorrelated, by the training images: the key whiten.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_SESSION_WHITEN_H
#define TUTTI_TRAIN_SESSION_WHITEN_H

#include "train/session/session.h"

/* A convolution's weight [out,channels,height,width]. */
typedef struct tutti__filters {
    int64_t out, channels, height, width;
} tutti__filters;

/* Principal components of all patches of the first n images, as they are without augmentation: out / 2 filters of the largest variances,
 * smallest first, each divided by sqrt(variance + 5e-4), and then their negatives. Variances are those around 0. Errors: ARG for other
 * data than images, of other channels, or smaller than a patch; for a number of filters that is odd or above 2 * channels * height *
 * width; FORMAT: an image that cannot be read. */
tutti_status tutti__whiten_filters(float *weights, const tutti__filters *filters,
                                   const tutti_dataset *images, size_t n);

/* Those for the first convolution of the session's model that reads images, by the key whiten, which is above 0. *name_p: of its weight; NULL if
 * this rank's stages do not have it. */
tutti_status tutti__session_whiten(tutti__session *s, const char **name_p);

#endif
