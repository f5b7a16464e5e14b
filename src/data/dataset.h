/* dataset.h -- what a format is: a row of a table, and the beginning that all data sets share.
 * SPDX-License-Identifier: MIT
 *
 * To add a format, write format/<name>.c with one tutti__format and add it to the table in dataset.c. */
#ifndef TUTTI_DATA_DATASET_H
#define TUTTI_DATA_DATASET_H

#include "base/base.h"

#include <stdio.h>
#include <tutti/data.h>

/* Images are refused beyond this height or width: what a hostile header can make us allocate is bounded. */
#define TUTTI__MAX_SIDE 4096

typedef struct tutti__format {
    const char *name, *usage; /* usage: "cifar10:DIR/train|test" */
    size_t size;              /* of its struct, which begins with a tutti_dataset */
    bool in_library;          /* NAME:SPLIT, no folder */
    bool any_split;           /* not only train and test */
    /* dataset is zeroed but for format, info.name and info.split. After a failure close is called. */
    tutti_status (*open)(tutti_dataset *dataset, const char *dir);
    tutti_status (*read)(const tutti_dataset *dataset, size_t index, uint8_t *image,
                         int64_t *label_p);
    void (*close)(tutti_dataset *dataset); /* NULL: nothing to release */
} tutti__format;

/* F32 rows instead of images. */
typedef struct tutti__rows {
    const float *x, *y;
    size_t n_x, n_y;
} tutti__rows;

struct tutti_dataset {
    const tutti__format *format;
    tutti_dataset_info info;
    tutti__rows rows; /* x NULL: images */
    char split[64];
};

extern const tutti__format tutti__format_digits, tutti__format_cifar10, tutti__format_mnist,
    tutti__format_folder, tutti__format_synthetic;

/* Allocates a data set of this format; open is not yet called. */
tutti_status tutti__dataset_new(tutti_dataset **dataset_p, const tutti__format *format,
                                const char *split);
bool tutti__dataset_is_train(const tutti_dataset *dataset);
/* Bytes of one image. */
size_t tutti__dataset_image_bytes(const tutti_dataset *dataset);
/* Joins a path; ARG if it is too long for `path`. */
tutti_status tutti__path(char path[4096], const char *dir, const char *file);

/* The file and label of an image folder's sample. */
tutti_status tutti__folder_sample(const tutti_dataset *dataset, size_t index, char path[4096],
                                  int64_t *label_p);

/* ---- What `tutti data` does ------------------------------------------------------------------------- */

/* Called now and then while something long goes on; false stops it, with an error. NULL: never called. */
typedef struct tutti__tick {
    bool (*call)(void *user, size_t done, size_t total);
    void *user;
} tutti__tick;
tutti_status tutti__tick_call(const tutti__tick *tick, size_t done, size_t total);

typedef struct tutti__pack_report {
    size_t train, test;
    int classes;
} tutti__pack_report;

typedef struct tutti__pack_opts {
    bool resize;             /* scale every image to 32x32; otherwise another size is an error */
    const tutti__tick *tick; /* NULL: none */
} tutti__pack_opts;

/* Writes the image folders source/train and source/test (or val) as CIFAR-10 binary files in the new folder dest.
 * All or nothing: the files are made in dest.partial, which is renamed at the end. */
tutti_status tutti__data_pack(const char *source, const char *dest, const tutti__pack_opts *opts,
                              tutti__pack_report *report_p);

/* Reads the whole data set and describes it. */
tutti_status tutti__data_show(const char *spec, FILE *out, const tutti__tick *tick);

#endif
