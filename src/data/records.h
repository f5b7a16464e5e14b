/* records.h -- common to the binary files of CIFAR-10 and CIFAR-100: records of label bytes and planes of pixels.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_RECORDS_H
#define TUTTI_DATA_RECORDS_H

#include "data/dataset.h"

/* Next to the files, for images of another size or with other statistics, as written by `tutti data pack`:
 *     {"height": 64, "width": 64, "mean": [0.48, 0.45, 0.40], "std": [0.23, 0.22, 0.22]}
 * Without it images are 32x32, and mean and std are the layout's. */
#define TUTTI__RECORDS_INFO "images.json"
#define TUTTI__RECORDS_SIDE 8192 /* at most */

typedef struct tutti__records_layout {
    const char *const *files; /* of the split, in order */
    size_t n_files;           /* up to 5 */
    const char *folder;       /* folder inside the archive; dir may be it or contain it */
    size_t label_bytes;       /* before the pixels; the last of them is the label */
    /* the file with the classes' names, one per line; without it there are `classes` */
    const char *names;
    int classes;
    float mean[3], std[3];
    unsigned long long own_bytes; /* of the original's first file, for messages */
    const char *origin;           /* where the original comes from, for messages */
} tutti__records_layout;

tutti_status tutti__records_open(void **self_p, const tutti_dataset_source *source,
                                 const tutti__records_layout *layout, tutti_dataset_info *info);

/* read and close of such a format. */
tutti_status tutti__records_read(const void *self, size_t index, uint8_t *image, int64_t *label_p);
void tutti__records_close(void *self);
void tutti__records_locate(const void *self, size_t index, char *text, size_t size);

#endif
