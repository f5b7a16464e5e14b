/* transform.h -- turns an image's bytes into normalised floats, with or without augmentation.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TRANSFORM_H
#define TUTTI_DATA_TRANSFORM_H

#include "base/base.h"

#include <tutti/data.h>

typedef struct tutti__transform {
    int channels_in, channels, height, width;
    bool augment;
    tutti_flip_mode flip; /* not AUTO */
    int padding;          /* of the random crop; 0: none */
    tutti_pad_mode padding_mode;
    uint64_t key;
    float table[4][256]; /* by channel: the normalised value of a byte */
} tutti__transform;

/* channels 0: the data set's own. opts NULL: defaults. Errors: ARG. */
tutti_status tutti__transform_init(tutti__transform *t, const tutti_dataset_info *info,
                                   int channels, bool augment, uint64_t seed,
                                   const tutti_augment_opts *opts);
/* 64 random bits from the same generator as the crop, for data sets that crop by themselves (padding is 0 then). */
uint64_t tutti__transform_chance(const tutti__transform *t, uint64_t epoch, size_t sample);
/* x is [channels,height,width]. The same bytes, epoch and sample give the same floats, on any thread or rank. */
void tutti__transform_apply(const tutti__transform *t, uint64_t epoch, size_t sample,
                            const uint8_t *image, float *x);

/* Another array of the same sample: with its image if it moves, and U8 as I64. */
void tutti__transform_field(const tutti__transform *t, uint64_t epoch, size_t sample,
                            const tutti_field *field, const void *from, void *to);

#endif
