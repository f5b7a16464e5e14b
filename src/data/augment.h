/* augment.h -- changes of samples and of batches beside crops and flips.   SPDX-License-Identifier: MIT
 *
 * Each consists of a choice at random and of what it does, a function of its own. */
#ifndef TUTTI_DATA_AUGMENT_H
#define TUTTI_DATA_AUGMENT_H

#include "data/dataset.h"

/* ---- Random numbers (random.c) ------------------------------------------------------------------------ */

/* The source of a sample, or of the batch that begins with it, in an epoch. */
tutti_random tutti__random_start(uint64_t key, uint64_t epoch, size_t sample);
double tutti__random_between(tutti_random *random, double low, double high);
int tutti__random_below(tutti_random *random, int n); /* n > 0 */
/* Beta(alpha, alpha), 0.001 <= alpha <= 1000 */
double tutti__random_beta(tutti_random *random, double alpha);

/* ---- Colours: torchvision's functions on bytes (jitter.c) ----------------------------------------------- */

/* image: n pixels of each of 1 or 3 channels, [C,n], changed in place. */
void tutti__adjust_brightness(uint8_t *image, int channels, size_t n, double factor);
void tutti__adjust_contrast(uint8_t *image, int channels, size_t n, double factor);
void tutti__adjust_saturation(uint8_t *image, int channels, size_t n, double factor);
/* turn: -0.5 to 0.5, of a whole one */
void tutti__adjust_hue(uint8_t *image, int channels, size_t n, double turn);
void tutti__color_jitter(const tutti_augment_opts *o, tutti_random *random, uint8_t *image,
                         int channels, size_t n);

/* ---- Rectangles and mixtures (mix.c) ------------------------------------------------------------------- */

typedef struct tutti__box {
    int top, left, bottom, right; /* rows [top, bottom), columns [left, right) */
} tutti__box;

/* RandomErasing's; empty if none of ten attempts fits. */
tutti__box tutti__erasing_box(tutti_random *random, int height, int width);
/* CutMix's around (row, column), clipped at the edges; *lambda becomes the part of the area outside it. */
tutti__box tutti__cutmix_box(int row, int column, int height, int width, double *lambda);

/* A batch's arrays: n samples of [planes, height, width] and n rows of n_y, x and y both F32. */
typedef struct tutti__mixed {
    float *x, *y;
    size_t n, n_y;
    int planes, height, width;
    float *scratch; /* of one sample, and one row of y */
} tutti__mixed;

/* Each sample becomes lambda times itself plus 1 - lambda times the one before it; the first one's is the last. */
void tutti__mixup(const tutti__mixed *m, double lambda);
void tutti__cutmix(const tutti__mixed *m, tutti__box box, double lambda);
/* As the options say; random: the batch's. */
void tutti__mix(const tutti_augment_opts *o, tutti_random *random, const tutti__mixed *m);

/* ---- In a loader (augment.c) ----------------------------------------------------------------------------- */

/* What a loader does; zero: nothing. */
typedef struct tutti__augmentation {
    tutti_augment_opts opts;
    uint64_t seed;
    bool varies;               /* between epochs */
    bool jitters;              /* colours */
    bool mixes;                /* samples of a batch */
    size_t y_classes;          /* above 0: labels become this many probabilities */
    int planes, height, width; /* of a sample as delivered */
} tutti__augmentation;

/* opts NULL: nothing. channels: of delivered images (0: the data set's). Errors: ARG, with the member, its value and what was
 * expected, or why it does not suit the data set. */
tutti_status tutti__augmentation_init(tutti__augmentation *a, const tutti_augment_opts *opts,
                                      const tutti_dataset *dataset, int channels, uint64_t seed);
/* Of a sample as read: own and colours. */
tutti_status tutti__augment_read(const tutti__augmentation *a, const tutti_dataset *dataset,
                                 uint64_t epoch, size_t index, void *const *arrays);
/* Of a sample as delivered: erasing. */
void tutti__augment_sample(const tutti__augmentation *a, uint64_t epoch, size_t index, float *x);
/* Of a batch of n samples that begins with sample `first`. scratch: as in tutti__mixed. */
void tutti__augment_batch(const tutti__augmentation *a, uint64_t epoch, size_t first, float *x,
                          float *y, size_t n, size_t n_y, float *scratch);

#endif
