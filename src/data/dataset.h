/* dataset.h -- the struct of a data set, and the list of the library's formats.   SPDX-License-Identifier: MIT
 *
 * To add a format, write format/<name>.c with one tutti_dataset_format called tutti__format_<name>, and add the name to
 * the list: specs, the keys of `tutti train` and the help texts follow. */
#ifndef TUTTI_DATA_DATASET_H
#define TUTTI_DATA_DATASET_H

#include "base/base.h"

#include <stdio.h>
#include <tutti/data.h>

#define TUTTI__MAX_CLASSES (1 << 24)
#define TUTTI__MAX_VOCAB   1048576 /* tokens; in digits, for the limits of the key vocab */

/* In masks: of no class, so that the pixel does not count; the number is PyTorch's. In masks of bytes it is 255. */
#define TUTTI__IGNORED_LABEL (-100)
#define TUTTI__IGNORED_BYTE  255

#define TUTTI__FORMATS(X)                                                                          \
    X(digits)                                                                                      \
    X(cifar10)                                                                                     \
    X(cifar100)                                                                                    \
    X(mnist) X(folder) X(masks) X(csv) X(npy) X(shakespeare) X(text) X(tokens) X(synthetic)

#define TUTTI__FORMAT(name) extern const tutti_dataset_format tutti__format_##name;
TUTTI__FORMATS(TUTTI__FORMAT)
#undef TUTTI__FORMAT

/* The library's format of this name, and the i-th; NULL: none. */
const tutti_dataset_format *tutti__format_find(const char *name);
const tutti_dataset_format *tutti__format_at(size_t i);
/* Checks a format of the program; ARG with the member that it lacks. */
tutti_status tutti__format_check(const tutti_dataset_format *own);
/* "cifar10:DIR/train|test", written to text. */
const char *tutti__format_usage(const tutti_dataset_format *format, char text[96]);

struct tutti_dataset {
    const tutti_dataset_format *format; /* NULL: the program's samples */
    void *self;                         /* the format's */
    tutti_dataset_info info;
    int image_size; /* 0: images unchanged */
    size_t whole;   /* samples, of which info.count are a part, evenly spread; 0: that is all */
    tutti_samples samples;
    tutti_field fields[TUTTI_MAX_FIELDS]; /* info.n_fields of them */
    size_t bytes[TUTTI_MAX_FIELDS];       /* of one sample's array, of the field's dtype */
    char names[TUTTI_MAX_FIELDS][32];
    char name[64], split[64];
};

/* Checks the fields, copies them, and fills in what info says of them; dataset's names and info.classes are set. ARG, or FORMAT
 * for a format's. */
tutti_status tutti__dataset_set_fields(tutti_dataset *dataset, const tutti_field *fields, int n);
/* Reads sample `index` below count: one array for each field, of its dtype. chance: NULL, or for a random part of a larger image,
 * if the format has those. Any thread. */
tutti_status tutti__dataset_read(const tutti_dataset *dataset, size_t index, const uint64_t *chance,
                                 void *const *arrays);
/* The label of sample `index` if it is known without reading the sample, as in an image folder. */
bool tutti__dataset_label(const tutti_dataset *dataset, size_t index, int64_t *label_p);
/* Shape and dtype of a field in a batch of n, as loaders deliver it; p is NULL. channels: of field 0, instead of the data set's
 * (0: those). */
tutti_array tutti__dataset_array(const tutti_dataset *dataset, int field, int64_t n, int channels);
/* Leaves n of its samples, evenly spread, which are then 0 to n - 1; at most once, before anyone reads them. */
void tutti__dataset_take_part(tutti_dataset *dataset, size_t n);
/* Whether y is one label for each sample: not targets, nor a mask. */
bool tutti__dataset_has_labels(const tutti_dataset *dataset);
/* Whether x and y are equally long lists of integers: tokens, and what follows each. */
bool tutti__dataset_has_tokens(const tutti_dataset *dataset);
/* Whether samples are images, which can be cropped and flipped. */
bool tutti__dataset_has_images(const tutti_dataset *dataset);
/* The unit of rates and counts: "images", or "samples" if they are rows. */
const char *tutti__dataset_noun(const tutti_dataset *dataset);
/* "images of 3x32x32", "rows of 64"; for n of them (singular for 1). */
const char *tutti__dataset_text(const tutti_dataset *dataset, size_t n, char text[64]);
/* Where a sample is stored, printable; "sample 7" if the format does not tell. Any thread. */
const char *tutti__dataset_locate(const tutti_dataset *dataset, size_t index, char *text,
                                  size_t size);
/* Bytes of one image. */
size_t tutti__image_bytes(const tutti_dataset_info *info);
/* Joins a path; ARG if it is too long for `path`. */
tutti_status tutti__path(char path[4096], const char *dir, const char *file);

/* The file and label of an image folder's sample. */
tutti_status tutti__folder_sample(const void *folder, size_t index, char path[4096],
                                  int64_t *label_p);

/* ---- For `tutti data` ------------------------------------------------------------------------- */

/* Called now and then during long operations; false stops them, with an error. NULL: never called. */
typedef struct tutti__tick {
    bool (*call)(void *user, size_t done, size_t total);
    void *user;
} tutti__tick;
tutti_status tutti__tick_call(const tutti__tick *tick, size_t done, size_t total);

typedef struct tutti__pack_report {
    size_t train, test;
    int classes, height, width;
} tutti__pack_report;

typedef struct tutti__pack_opts {
    int image_size; /* side of the square that images become; 0: unchanged, all of one size */
    bool resize;    /* to image_size by stretching; false: scaled, and the middle square */
    const tutti__tick *tick; /* NULL: none */
} tutti__pack_opts;

/* Writes the image folders source/train and source/test (or val) as CIFAR-10 binary files in the new folder dest.
 * All or nothing: the files are made in dest.partial, which is renamed at the end. */
tutti_status tutti__data_pack(const char *source, const char *dest, const tutti__pack_opts *opts,
                              tutti__pack_report *report_p);

/* Reads the whole data set and describes it. Of one with images that cannot be read it only tells what is wrong with each of
 * them (the first 20), through `broken`, and fails. */
tutti_status tutti__data_show(const char *spec, const tutti_dataset_opts *opts, FILE *out,
                              const tutti__tick *tick,
                              void (*broken)(void *user, const char *message), void *user);
/* Its part for samples that are not an image of bytes with a label: the range of each field, and how often each class occurs. */
tutti_status tutti__data_show_fields(const tutti_dataset *dataset, FILE *out,
                                     const tutti__tick *tick);

#endif
