/* data.h -- data sets, the distributed sampler, and the loader.
 * SPDX-License-Identifier: MIT
 *
 * Threads: one thread calls a loader; a data set is read by any number. */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include <tutti/group.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Data sets: samples of named arrays, such as an image and its label -------------------------------- */

typedef struct tutti_dataset tutti_dataset;

#define TUTTI_MAX_FIELDS 8

/* One of a sample's arrays, which has the same shape in all samples. The first is the model's input, "x"; the second is what to
 * predict, "y" of a batch: labels, targets, a mask. Further ones are found by name (tutti_batch_array). */
typedef struct tutti_field {
    const char *name; /* 1 to 31 characters, unique in a sample */
    /* F32 and I64 are loaded as they are; U8 as I64, but for the first field: bytes there are images, loaded as F32. */
    tutti_dtype dtype;
    tutti_shape
        shape; /* of one sample; of no dimensions: a number. A batch has the samples as a first dimension */
    /* With augment, the image's crop and flip are those of this array, too: a mask [H,W], or [C,H,W], as large as the image. */
    bool moves;
    double fill; /* with `moves`: its value where the crop reaches beyond the image */
    const void
        *data; /* of tutti_samples in memory: count of them back to back, borrowed. Else NULL */
    uint64_t reserved[2]; /* zero */
} tutti_field;

/* What a data set is. Images are bytes of one size, normalised when they are loaded: (byte/255 - mean) / std. */
typedef struct tutti_dataset_info {
    const char *name; /* "cifar10" */
    const char *split;
    size_t count;
    int channels, height, width; /* of x [C,H,W]; K, 1, 1 of [K]; 1, T, K of [T,K] */
    int classes;                 /* labels are less than this; 0: samples have targets instead */
    float mean[4], std[4];       /* per channel */
    /* Of the classes; if classes is 0, of the targets, as a table's columns. NULL: none, they are numbers */
    const char *const *class_names;
    tutti_dtype dtype; /* of x: U8; F32 and I64 are loaded as they are */
    int targets;       /* F32 numbers to predict per sample; 0: labels */
    const tutti_field
        *fields;          /* x, y, and what else a sample has; valid until the data set is freed */
    int n_fields;         /* 2 to TUTTI_MAX_FIELDS */
    uint64_t reserved[1]; /* zero */
} tutti_dataset_info;

/* How a table's columns are used (csv, and a program's formats that read it). Zero means default. */
typedef struct tutti_table_opts {
    const char *
        target; /* names of the columns to predict, separated by commas; default: the last column */
    const char *
        features; /* names of the columns of x, in this order; default: all others, in the table's order */
    /* "classification": the values of target, also numbers, are the names of classes; "regression": they are numbers. Default:
     * classification if one of them is not a number. */
    const char *task;
    double test_fraction; /* of the rows, if there is no file for the test split; default 0.2 */
    bool raw; /* features as they are; else (value - mean) / std, of the training split's column */
    uint64_t reserved[4]; /* zero */
} tutti_table_opts;

/* Of text and tokens. Zero means default. */
typedef struct tutti_text_opts {
    int context; /* tokens of a sample: T of x [T] and y [T]; default 64 */
    int vocab; /* tokens: how many there are; default: by the tokenizer, or one more than the largest in the files */
    const char *tokenizer; /* a file or name (tutti_tokenizer_open); default: bytes. Borrowed */
    uint64_t reserved[4];  /* zero */
} tutti_text_opts;

/* Zero means default. */
typedef struct tutti_dataset_opts {
    /* 0: images unchanged, all of one size. Else, for formats whose images may differ in size (folder): the shorter side is
     * scaled to this, and the middle square is used; loaders with augment take random crops instead. */
    int image_size;
    const struct tutti_dataset_format *format; /* also the program's format */
    const tutti_table_opts *table;             /* for tables; NULL: defaults. Others ignore it */
    /* What was learned from the training split (tutti_dataset_fitted), for the same columns, scale and classes as in training;
     * NULL: the format finds its training split, or refuses. */
    const char *fit;
    const tutti_text_opts *text; /* for text and tokens; NULL: defaults. Others ignore it */
    uint64_t reserved[1];        /* zero */
} tutti_dataset_opts;

/* Opens "NAME:PATH/SPLIT" or "NAME:SPLIT":
 *   digits:train|test            8x8 digits, in the library
 *   cifar10:DIR/train|test       CIFAR-10 binary files (also DIR/cifar-10-batches-bin)
 *   cifar100:DIR/train|test      CIFAR-100 binary files (also DIR/cifar-100-binary); labels are the fine ones
 *   folder:DIR/train|test        an image folder, DIR/SPLIT/CLASS/FILE.{jpg,png}; all images of one size, or image_size;
 *                                any other name of a split works too, and val is used if there is no test
 *   masks:DIR/train|test         images with masks of classes, DIR/SPLIT/images/NAME.{jpg,png} and DIR/SPLIT/masks/NAME.png
 *   mnist:DIR/train|test         IDX files, also .gz
 *   csv:DIR/train|test           tables with a header, DIR/train.csv and test.csv; csv:FILE/train|test|all: parts of one
 *   npy:DIR/train|test           NumPy arrays x and y, of DIR/SPLIT.npz or DIR/SPLIT/x.npy and y.npy
 *   shakespeare:train|test       Tiny Shakespeare, in the library: 65 characters; x and y of text are I64 [T], y the next tokens
 *   text:PATH/train|test|all     UTF-8 text, of one file, or DIR/train.txt and val.txt, or all .txt files of DIR
 *   tokens:PATH/train|test|all   .bin files of tokens, nanoGPT's or llm.c's: one, or DIR/train.bin and val.bin
 *   synthetic:train|test         random images and labels, 3x32x32, 10 classes, a function of the index only
 * and the name of opts->format. opts NULL: defaults. opts is not kept, but what opts->format points to must outlive the data set.
 * Errors: NOT_FOUND, IO, FORMAT with the file and what was expected; ARG for an unknown name, with the list, and for an
 * image_size that the format does not support. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_open(tutti_dataset **dataset_p,
                                                          const char *spec);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_open_with(tutti_dataset **dataset_p,
                                                               const char *spec,
                                                               const tutti_dataset_opts *opts);
TUTTI_API void tutti_dataset_free(tutti_dataset *dataset);
TUTTI_API tutti_dataset_info tutti_dataset_describe(const tutti_dataset *dataset);
/* What the data set learned from its training split, as JSON in one line, such as the mean and std of a table's columns; valid
 * until the data set is freed. NULL: nothing. */
TUTTI_API const char *tutti_dataset_fitted(const tutti_dataset *dataset);
/* Reads image `index` as bytes [C,H,W] and its label. Any thread may call. Errors name file and index; UNSUPPORTED if samples
 * are not bytes with one label and nothing else. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_read(const tutti_dataset *dataset,
                                                          size_t index, uint8_t *image,
                                                          int64_t *label_p);

/* The program's own samples: in memory, or read by a function. Zero means default. */
typedef struct tutti_samples {
    size_t count;
    tutti_shape shape; /* of x of one sample: [C,H,W], [K] or [T,K] */
    /* F32: used unchanged. U8: images of 1 to 4 channels, normalised by mean and std, which loaders can augment. I64: used
     * unchanged, as indices for an embedding. */
    tutti_dtype dtype;
    int classes; /* each sample has a label in [0, classes) */
    int targets; /* or, if classes is 0, this many F32 numbers to predict */
    /* In memory, borrowed until the data set is freed: count samples back to back, and labels [count] or y [count, targets]. */
    const void *x;
    const int64_t *labels;
    const float *y;
    /* Or by function: writes sample `index` < count to x, and its label (int64_t) or targets (float) to y. Workers of a loader
     * call it concurrently. On failure it calls tutti_fail with the reason; the index is added. */
    tutti_status (*read)(void *self, size_t index, void *x, void *y);
    void *self;
    float mean[4], std[4]; /* for U8, per channel; std 0 means 1 */
    const char *name; /* in messages and folders; default "memory", with a function "own". Copied */
    const char *split;              /* default "train". Copied */
    const char *const *class_names; /* or of the targets; NULL: numbers. Borrowed */
    /* Arrays of any number, shape and dtype, at least x and y, in place of shape, dtype, targets, x, labels and y, which are then
     * 0. classes: the values of an integer y (labels [], per token [T], a mask [H,W]) are less than this; 0 for y of F32. The
     * list and its names are copied. */
    const tutti_field *fields;
    int n_fields;
    /* Fields by function: as read, writing one array for each field, of the field's dtype. */
    tutti_status (*read_arrays)(void *self, size_t index, void *const *arrays);
    uint64_t reserved[1]; /* zero */
} tutti_samples;
/* Errors: ARG, naming what is missing or inconsistent, or the index of a label in memory that is not a class. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_new(tutti_dataset **dataset_p,
                                                         const tutti_samples *samples);
/* The same with F32 rows and F32 targets in memory, for regression. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_from_memory(tutti_dataset **dataset_p,
                                                                 const float *x, size_t n_x,
                                                                 const float *y, size_t n_y,
                                                                 size_t count);

/* ---- Formats: docs/your-own-dataset.md -------------------------------------------------------------- */

typedef struct tutti_dataset_source {
    const char *dir; /* NULL: the format needs no folder */
    const char *split;
    bool train;                    /* the split is "train" */
    int image_size;                /* of tutti_dataset_opts; 0 for formats without read_random */
    const tutti_table_opts *table; /* likewise; never NULL */
    const char *fit;               /* likewise */
    const tutti_text_opts *text;   /* likewise; never NULL */
    uint64_t reserved[1];          /* zero */
} tutti_dataset_source;

/* How data sets of one format are opened and read: a table of functions, static in the program. The library's own are in
 * src/data/format. A function that fails calls tutti_fail with the reason. */
typedef struct tutti_dataset_format {
    const char *name; /* before the colon of a spec */
    const char *help; /* a few words */
    bool no_folder;   /* NAME:SPLIT; else NAME:DIR/SPLIT */
    bool any_split;   /* not only train and test */
    /* The `chance` of read_arrays is one that all samples of an epoch share, from the second epoch on, for loaders that shuffle. */
    bool epoch_seed;
    /* Sets *self_p (the format's own data; NULL before) and fills in info: count, channels (1 to 4), height, width, classes;
     * mean and std if they are not 0 and 1; class_names, valid until close. A format with read_arrays sets fields and n_fields
     * instead of channels, height and width; the list need be valid only until open returns. */
    tutti_status (*open)(void **self_p, const tutti_dataset_source *source,
                         tutti_dataset_info *info);
    /* Reads sample `index` < count as bytes [C,H,W], and its label in [0, classes). Called by several threads at once. */
    tutti_status (*read)(const void *self, size_t index, uint8_t *image, int64_t *label_p);
    /* NULL: nothing to release. Also called if open failed after setting *self_p. */
    void (*close)(void *self);
    /* For augment. NULL: images have one size, and image_size is refused. Else like read, but it takes a random part of a larger
     * image, determined by `chance`, which is a function of (seed, epoch, index). */
    tutti_status (*read_random)(const void *self, size_t index, uint64_t chance, uint8_t *image,
                                int64_t *label_p);
    /* Where the sample is, such as "pictures/cat/1.jpg", for messages about slow reads; NULL: unknown. */
    void (*locate)(const void *self, size_t index, char *text, size_t size);
    /* In place of read and read_random, for samples that are not an image of bytes with a label: writes one array for each field
     * of info. chance: NULL, or as in read_random. */
    tutti_status (*read_arrays)(const void *self, size_t index, const uint64_t *chance,
                                void *const *arrays);
    /* tutti_dataset_fitted; NULL: nothing is learned. The text is valid until close. */
    const char *(*fitted)(const void *self);
    uint64_t reserved[2]; /* zero */
} tutti_dataset_format;

/* ---- DistributedSampler: PyTorch's formula and permutation, bit for bit ------------------------------ */

typedef struct tutti_sampler_opts {
    size_t count; /* samples in the data set */
    int rank, world_size;
    bool shuffle;
    uint64_t seed; /* the permutation of an epoch is torch.randperm(count) from seed + epoch */
    bool drop_last;
    /* For evaluation: each sample exactly once over all ranks; ranks' numbers differ by at most one. */
    bool no_padding;
    /* Samples of the epoch that were used before, by any number of ranks: the rest of the list is divided. */
    size_t start;
    uint64_t reserved[4]; /* zero */
} tutti_sampler_opts;

/* Number of samples of one rank. */
TUTTI_API size_t tutti_sampler_length(const tutti_sampler_opts *opts);
/* Writes their indices. Errors: ARG for a rank outside [0, world_size), or a start past the end. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_sampler_indices(const tutti_sampler_opts *opts,
                                                             uint64_t epoch, size_t *indices);

/* ---- Augmentation: what a loader does to samples, in addition to crops and flips ------------------------ */

/* A source of random numbers, Philox4x32-10: the same numbers on every machine. {.key = 7} starts one; a loader gives each sample
 * its own. A copy goes on with the same numbers. Not for several threads at once. */
typedef struct tutti_random {
    uint64_t key;
    uint32_t state[9]; /* the functions' own */
} tutti_random;
/* In [0, 1), a multiple of 2^-32. */
TUTTI_API double tutti_random_uniform(tutti_random *random);
/* Of mean 0 and standard deviation 1. */
TUTTI_API double tutti_random_normal(tutti_random *random);

/* A sample that a program's own augmentation may change in place. */
typedef struct tutti_sample {
    /* Its first array. Images of bytes: as they were read, before all other changes. F32 and I64: as they will be used. */
    void *x;
    tutti_shape shape; /* [C,H,W], [K], ... */
    tutti_dtype dtype; /* U8, F32 or I64 */
    void *y; /* its second array: its label, int64_t, which must stay a class; its targets, float */
    bool train;     /* the loader's tutti_augment_opts.train */
    size_t index;   /* in the data set */
    uint64_t epoch; /* 0 unless train */
    uint64_t seed;
    tutti_random random;       /* a function of (seed; epoch, index) */
    void *const *arrays;       /* [n_fields], all of them */
    const tutti_field *fields; /* [n_fields], what they are */
    int n_fields;
    uint64_t reserved[2]; /* zero */
} tutti_sample;

/* How images are mirrored, left to right, by a loader with `augment`. */
typedef enum tutti_flip_mode {
    TUTTI_FLIP_AUTO, /* random for images of three channels, else off */
    TUTTI_FLIP_OFF,
    TUTTI_FLIP_RANDOM, /* each image in each epoch with probability 1/2 */
    /* In epochs 0, 2, 4 ... the images that TUTTI_FLIP_RANDOM mirrors in epoch 0, in epochs 1, 3, 5 ... all others: any two epochs
     * show an image in both directions. */
    TUTTI_FLIP_ALTERNATE
} tutti_flip_mode;

/* Each is applied if it is not zero, in this order: own, colours, (the loader's crop and flip, and normalisation,) erasing, mixing.
 * Random numbers are functions of (seed; epoch, index of the sample), and those of a batch of (seed; epoch, index of its first
 * sample), hence independent of ranks, workers and order. */
typedef struct tutti_augment_opts {
    /* The program's own. Workers call it concurrently, so it must not change shared state. On failure it calls tutti_fail with the
     * reason; the index is added. With formats it gets the part of the image that read_random has taken. */
    tutti_status (*own)(void *self, tutti_sample *sample);
    void *self;
    bool train; /* what `own` is told */
    /* Images of bytes of 1 or 3 channels, as torchvision's ColorJitter on bytes: each of them in random order, by a factor from
     * max(0, 1 - b) to 1 + b; see hue. */
    float brightness, contrast, saturation;
    /* Images of bytes or F32: the probability that a rectangle of 2 to 33 % of the area, with an aspect ratio from 0.3 to 3.3, is
     * set to 0 (after normalisation), as by torchvision's RandomErasing. */
    float random_erasing;
    /* Above 0, up to 1000 (at least 0.001): the alpha of the distribution Beta(alpha, alpha) from which lambda is drawn for each
     * batch. If both are given, one of them is chosen at random for each batch.
     *   mixup   (U8 or F32 samples) x[i] = lambda x[i] + (1 - lambda) x[i-1], where x[-1] is the batch's last
     *   cutmix  (images of U8 or F32) a rectangle of 1 - lambda of the area is x[i-1]'s, and lambda becomes what is left exactly
     * batch.y is mixed likewise: targets, or for labels F32 [n,classes], probabilities for tutti_cross_entropy_with. */
    float mixup, cutmix;
    float hue; /* with the colours: a turn of the hue by -hue to hue, up to 0.5, half a circle */
    /* Of a loader with `augment`, whose crop and flip they change. crop_padding: pixels by which images are padded on each side before
     * the crop of their own size, less than that size; 0: 4, or 1 for images under 16; negative: no crop. Not for data sets with
     * image_size, which crop by themselves. */
    tutti_flip_mode flip;
    int crop_padding;
    tutti_pad_mode padding_mode; /* TUTTI_PAD_CONSTANT, with black, or TUTTI_PAD_REFLECT */
    uint64_t reserved[1];        /* zero */
} tutti_augment_opts;

/* ---- Loader: persistent workers fill a ring of batches ---------------------------------------------- */

typedef struct tutti_loader tutti_loader;

/* Zero means default. */
typedef struct tutti_loader_opts {
    int batch;    /* samples per batch of this rank; required */
    int workers;  /* threads; 0: the calling thread reads */
    int prefetch; /* batches read ahead; default 2 per worker */
    bool shuffle;
    bool drop_last;  /* omits the last, smaller batch, and the sampler's remainder */
    bool no_padding; /* for evaluation, see the sampler; also allows ranks without samples */
    uint64_t seed;
    /* Random crop with 4 pixels (1 for images under 16) of black padding; flip for colour images; see tutti_augment_opts. Philox(seed;
     * epoch, sample index): independent of rank, workers and order. With the data set's image_size: a random part of 8 to 100 % of
     * the image's area, with an aspect ratio from 3:4 to 4:3, scaled to that size; and the flip. */
    bool augment;
    int channels; /* 3 with a grey data set: repeats the grey value. 0: the data set's */
    /* The context that will use the batches. If its device is not the host, they are copied there as soon as they are ready.
     * It must outlive the loader, and only the context's thread may then call the loader. NULL: tutti_input makes the copy. */
    tutti_ctx *cx;
    /* Above 0: samples are divided among this many logical shards, as among ranks, whatever the group; use tutti_loader_take
     * to get batches. */
    int shards;
    const tutti_augment_opts *augmentation; /* NULL: none beside `augment`. Copied */
    uint64_t reserved[1];                   /* zero */
} tutti_loader_opts;

typedef struct tutti_named_array {
    const char *name;
    tutti_array array;
} tutti_named_array;

typedef struct tutti_batch {
    tutti_array x; /* F32 [n,C,H,W] (images normalised) or [n,K]; I64 for I64 samples */
    /* labels, I64 [n]; or targets, F32 [n,T]; or the data set's second field, with n in front; mixed labels: F32 [n,classes] */
    tutti_array y;
    size_t n;              /* samples in it */
    size_t index;          /* number of the batch in the epoch */
    const size_t *samples; /* [n], their indices in the data set */
    const tutti_named_array
        *arrays; /* [n_arrays], one for each field of the data set; x and y are the first two */
    size_t n_arrays;
    uint64_t reserved[1]; /* zero */
} tutti_batch;

/* The array of this name, valid as long as the batch; p is NULL if there is none, and tutti_last_error lists the names. */
TUTTI_API tutti_array tutti_batch_array(const tutti_batch *batch, const char *name);

/* Borrows the data set. group gives rank and size (NULL: a group of one), and is not kept. Errors: ARG; more ranks than
 * samples without no_padding. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_loader_new(tutti_loader **loader_p,
                                                        const tutti_dataset *dataset,
                                                        const tutti_group *group,
                                                        const tutti_loader_opts *opts);
TUTTI_API void tutti_loader_free(tutti_loader *loader);
/* Batches per epoch of this rank, or of a shard (of the first one; with no_padding others may have one less). */
TUTTI_API size_t tutti_loader_batches(const tutti_loader *loader);
/* Starts an epoch from its beginning, also after an error or in the middle of another; directly after
 * tutti_checkpoint_load_with has positioned the loader in this epoch, it stays there. Without this call the first epoch is
 * 0, and next() after the end of an epoch starts the following one, so that the order does not repeat; take() stays in its
 * epoch. */
TUTTI_API void tutti_loader_set_epoch(tutti_loader *loader, uint64_t epoch);
/* The next batch, valid until the next call; false at the end of the epoch and on an error. If it waits longer than
 * TUTTI_DATA_WARN_S seconds, a warning in the log names the worker, the file and the index. */
TUTTI_API bool tutti_loader_next(tutti_loader *loader, tutti_batch *batch_p);
/* With opts.shards: batch `index` of a shard in this epoch, as rank `shard` of opts.shards would get it; valid until the next is
 * taken. The result does not depend on whether it was asked for, or on who else takes it: batches that were asked for come from
 * the workers, others are read in this call. False past the end, and on an error. */
TUTTI_API bool tutti_loader_take(tutti_loader *loader, size_t index, int shard,
                                 tutti_batch *batch_p);
/* A hint that this batch will be taken soon, in this epoch or (epochs_ahead 1) the next: workers read ahead, up to prefetch, in
 * the order of the hints. Take batches in the same order: taking one drops the hints before it, on the assumption that other
 * ranks took those. tutti_loader_set_epoch drops the hints of epochs that it leaves or skips, tutti_loader_forget all. Repeated
 * hints, and those for batches that do not exist, have no effect. */
TUTTI_API void tutti_loader_ask(tutti_loader *loader, size_t index, int shard, int epochs_ahead);
TUTTI_API void tutti_loader_forget(tutti_loader *loader);
/* OK at the end of an epoch; else the error of the worker, with file and index. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_loader_status(const tutti_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
