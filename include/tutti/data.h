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

/* ---- Data sets: samples of one shape, each with a label or with numbers to predict -------------------- */

typedef struct tutti_dataset tutti_dataset;

/* What a data set is. Images are bytes of one size, normalised when they are loaded: (byte/255 - mean) / std. */
typedef struct tutti_dataset_info {
    const char *name; /* "cifar10" */
    const char *split;
    size_t count;
    int channels, height, width;    /* of a sample [C,H,W]; of one [K]: K, 1, 1 */
    int classes;                    /* labels are below it; 0: the sample has targets instead */
    float mean[4], std[4];          /* a channel */
    const char *const *class_names; /* NULL: numbers */
    tutti_dtype dtype;              /* of samples: U8; F32 and I64 are loaded as they are */
    int targets;                    /* F32 numbers that go with a sample; 0: a label does */
    uint64_t reserved[3];           /* zero */
} tutti_dataset_info;

/* Zero means default. */
typedef struct tutti_dataset_opts {
    /* 0: images as they are, all of one size. Else, for formats whose images may have many (folder): the shorter side is
     * scaled to this, and the middle square of that is the image; loaders with augment take random crops instead. */
    int image_size;
    const struct tutti_dataset_format *format; /* one of the program's own, beside the library's */
    uint64_t reserved[4];                      /* zero */
} tutti_dataset_opts;

/* Opens "NAME:PATH/SPLIT" or "NAME:SPLIT":
 *   digits:train|test            8x8 digits, in the library
 *   cifar10:DIR/train|test       CIFAR-10 binary files (also DIR/cifar-10-batches-bin)
 *   cifar100:DIR/train|test      CIFAR-100 binary files (also DIR/cifar-100-binary); labels are the fine ones
 *   folder:DIR/train|test        an image folder, DIR/SPLIT/CLASS/FILE.{jpg,png}; all images of one size, or image_size;
 *                                any other name of a split is right too, and val serves where there is no test
 *   mnist:DIR/train|test         IDX files, also .gz
 *   synthetic:train|test         random images and labels, 3x32x32, 10 classes, a function of the index only
 * and what opts->format names. opts NULL: defaults; it is not kept, what opts->format points to is.
 * Errors: NOT_FOUND, IO, FORMAT with the file and what was expected; ARG for another name, with the list, and for an
 * image_size that the format has no use for. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_open(tutti_dataset **dataset_p,
                                                          const char *spec);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_open_with(tutti_dataset **dataset_p,
                                                               const char *spec,
                                                               const tutti_dataset_opts *opts);
TUTTI_API void tutti_dataset_free(tutti_dataset *dataset);
TUTTI_API tutti_dataset_info tutti_dataset_describe(const tutti_dataset *dataset);
/* Reads image `index` as bytes [C,H,W] and its label. Any thread may call. Errors name file and index; UNSUPPORTED of samples that
 * are not bytes with a label. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_read(const tutti_dataset *dataset,
                                                          size_t index, uint8_t *image,
                                                          int64_t *label_p);

/* Samples of the program's own: in memory, or read by a function. Zero means default. */
typedef struct tutti_samples {
    size_t count;
    tutti_shape shape; /* of one: [C,H,W], or [K] */
    /* F32: as they are. U8: images, normalised by mean and std, which loaders can augment; 1 to 4 channels. I64: as they are,
     * indices for an embedding. */
    tutti_dtype dtype;
    int classes; /* each sample has a label in [0, classes) */
    int targets; /* or, where classes is 0, so many F32 numbers to predict */
    /* In memory, borrowed until the data set is freed: count samples back to back, and labels [count] or y [count, targets]. */
    const void *x;
    const int64_t *labels;
    const float *y;
    /* Or by function: sample `index` below count into x, and its label (int64_t) or targets (float) into y. Workers of a loader call
     * it at once. What fails says why with tutti_fail; the index is added. */
    tutti_status (*read)(void *self, size_t index, void *x, void *y);
    void *self;
    float mean[4], std[4]; /* of U8, a channel; std 0: 1 */
    const char *name;      /* of messages and run folders; "memory", or "own" with read. Copied */
    const char *split;     /* "train". Copied */
    const char *const *class_names; /* NULL: numbers. Borrowed */
    uint64_t reserved[4];           /* zero */
} tutti_samples;
/* Errors: ARG with what is missing or does not go together; a label in memory that is no class, by its index. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_new(tutti_dataset **dataset_p,
                                                         const tutti_samples *samples);
/* The same of F32 rows and F32 targets in memory: for regression. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_from_memory(tutti_dataset **dataset_p,
                                                                 const float *x, size_t n_x,
                                                                 const float *y, size_t n_y,
                                                                 size_t count);

/* ---- Formats: docs/your-own-dataset.md -------------------------------------------------------------- */

typedef struct tutti_dataset_source {
    const char *dir; /* NULL: the format needs no folder */
    const char *split;
    bool train;           /* the split is "train" */
    int image_size;       /* of tutti_dataset_opts; 0 for formats without read_random */
    uint64_t reserved[4]; /* zero */
} tutti_dataset_source;

/* How data sets of one kind are opened and read: a table of functions, static in the program. The library's own are the
 * files of src/data/format. What fails says why with tutti_fail. */
typedef struct tutti_dataset_format {
    const char *name; /* before the colon of a spec */
    const char *help; /* a few words */
    bool no_folder;   /* NAME:SPLIT; else NAME:DIR/SPLIT */
    bool any_split;   /* not only train and test */
    /* Makes *self_p (NULL before; the format's affair) and fills in info: count, channels (1 to 4), height, width,
     * classes; mean and std where they are not 0 and 1; class_names, which live until close. */
    tutti_status (*open)(void **self_p, const tutti_dataset_source *source,
                         tutti_dataset_info *info);
    /* Sample `index` below count, as bytes [C,H,W], and its label in [0, classes). Called by several threads at once. */
    tutti_status (*read)(const void *self, size_t index, uint8_t *image, int64_t *label_p);
    void (*close)(
        void *
            self); /* NULL: nothing to release. Also called where open failed and has set *self_p. */
    /* NULL: images have one size, and image_size is refused. Else as read, but of an image larger than asked for it takes
     * a part that is a function of `chance`, which in turn is one of (seed, epoch, index): for augment. */
    tutti_status (*read_random)(const void *self, size_t index, uint64_t chance, uint8_t *image,
                                int64_t *label_p);
    /* Where the sample lies, as "pictures/cat/1.jpg", for messages about a read that takes long; NULL: it is not told. */
    void (*locate)(const void *self, size_t index, char *text, size_t size);
    uint64_t reserved[4]; /* zero */
} tutti_dataset_format;

/* ---- DistributedSampler: PyTorch's formula and permutation, bit for bit ------------------------------ */

typedef struct tutti_sampler_opts {
    size_t count; /* samples in the data set */
    int rank, world_size;
    bool shuffle;
    uint64_t seed; /* the permutation of an epoch is torch.randperm(count) from seed + epoch */
    bool drop_last;
    /* For evaluation: each sample exactly once over all ranks, shares differ by at most one. */
    bool no_padding;
    /* Samples of the epoch that have been dealt out before, to any number of ranks: the rest of the list is. */
    size_t start;
    uint64_t reserved[4]; /* zero */
} tutti_sampler_opts;

/* Number of samples of one rank. */
TUTTI_API size_t tutti_sampler_length(const tutti_sampler_opts *opts);
/* Writes them. Errors: ARG for a rank outside [0, world_size), or a start past the end. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_sampler_indices(const tutti_sampler_opts *opts,
                                                             uint64_t epoch, size_t *indices);

/* ---- Loader: persistent workers fill a ring of batches ---------------------------------------------- */

typedef struct tutti_loader tutti_loader;

/* Zero means default. */
typedef struct tutti_loader_opts {
    int batch;    /* samples a batch of this rank; required */
    int workers;  /* threads; 0: the calling thread reads */
    int prefetch; /* batches ready ahead; default 2 a worker */
    bool shuffle;
    bool drop_last;  /* leaves out the last, smaller batch; and the sampler's remainder */
    bool no_padding; /* evaluation, see the sampler; also allows ranks without samples */
    uint64_t seed;
    /* Random crop with 4 pixels (1 for images under 16) of zero padding; flip for colour images. Philox(seed; epoch,
     * sample index): independent of rank, workers and order. With the data set's image_size: a random part of 8 to 100 % of
     * the image's area, of an aspect from 3:4 to 4:3, scaled to that size; and the flip. */
    bool augment;
    int channels; /* 3 with a grey data set: the grey value thrice. 0: the data set's own */
    /* The context whose inputs the batches will be. If its device is not the host, they are copied there as soon as they are made.
     * It outlives the loader, which is called by the context's thread alone. NULL: tutti_input makes the copy. */
    tutti_ctx *cx;
    /* Above 0: samples are dealt out to so many logical shards, as to ranks, whatever the group; and batches are had by
     * tutti_loader_take alone. */
    int shards;
    uint64_t reserved[2]; /* zero */
} tutti_loader_opts;

typedef struct tutti_batch {
    tutti_array x;         /* F32 [n,C,H,W], images normalised, or [n,K]; I64 of samples that are */
    tutti_array y;         /* labels, I64 [n]; or targets, F32 [n,T] */
    size_t n;              /* samples in it */
    size_t index;          /* of the batch in the epoch */
    const size_t *samples; /* [n], their numbers in the data set */
    uint64_t reserved[3];  /* zero */
} tutti_batch;

/* Borrows the data set. group gives rank and size (NULL: a group of one), and is not kept. Errors: ARG; more ranks than
 * samples without no_padding. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_loader_new(tutti_loader **loader_p,
                                                        const tutti_dataset *dataset,
                                                        const tutti_group *group,
                                                        const tutti_loader_opts *opts);
TUTTI_API void tutti_loader_free(tutti_loader *loader);
/* In an epoch: of this rank, or of a shard (of the first, where no_padding lets others have one less). */
TUTTI_API size_t tutti_loader_batches(const tutti_loader *loader);
/* Starts an epoch from its beginning, also after an error or in the middle of another. Without it the first is 0, and
 * next() after an end goes on with the following epoch, so that the order does not repeat; take() stays in its epoch. */
TUTTI_API void tutti_loader_set_epoch(tutti_loader *loader, uint64_t epoch);
/* The next batch, valid until the call after; false at the end of the epoch and on an error. Whoever waits in it longer than
 * TUTTI_DATA_WARN_S seconds is told in the log which worker is reading which file and index. */
TUTTI_API bool tutti_loader_next(tutti_loader *loader, tutti_batch *batch_p);
/* With opts.shards: batch `index` of a shard in this epoch, as rank `shard` of opts.shards would get it; valid until the next is
 * taken. Whether it was asked for before, and who else takes it, makes no difference but of time: what was asked for comes from
 * the workers, all else is made in this call. False past the end, and on an error. */
TUTTI_API bool tutti_loader_take(tutti_loader *loader, size_t index, int shard,
                                 tutti_batch *batch_p);
/* It will be taken soon, in this epoch or (epochs_ahead 1) the next: workers make it ahead, as far as prefetch goes, in the order
 * of asking. That is to be the order of taking too: to take a batch drops what was asked for before it, which another rank is then
 * believed to have. Dropped is also what is asked of an epoch that tutti_loader_set_epoch leaves or skips, and everything by
 * tutti_loader_forget. Asking again for what is asked for changes nothing; what does not exist is not made. */
TUTTI_API void tutti_loader_ask(tutti_loader *loader, size_t index, int shard, int epochs_ahead);
TUTTI_API void tutti_loader_forget(tutti_loader *loader);
/* OK at the end of an epoch; else the error of the worker, with file and index. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_loader_status(const tutti_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
