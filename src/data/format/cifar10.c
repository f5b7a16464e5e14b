/* cifar10.c -- CIFAR-10's binary files: records of a label byte and 3x32x32 pixel bytes.   SPDX-License-Identifier: MIT
 *
 * data_batch_1.bin to data_batch_5.bin are the training part, test_batch.bin the test part. The files need not have
 * 10,000 records, and batches.meta.txt, where present, says how many classes there are and their names: so the layout
 * serves for any 32x32 images of up to 256 classes (`tutti data pack` writes it).
 * Records are read with pread, not mapped: the page cache is shared between ranks all the same, and a file that shrinks
 * or a disk that fails is an error with a name instead of SIGBUS. */
#include "data/dataset.h"
#include "data/files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD  3073
#define FILES   5
#define CLASSES 256 /* what a label byte can say */

typedef struct cifar10 {
    tutti_dataset base;
    int n_files;
    int fd[FILES];
    size_t end[FILES]; /* the index after the file's last record */
    char *path[FILES];
    char *names; /* text of batches.meta.txt, cut into lines */
    const char *class_names[CLASSES];
} cifar10;

static tutti_status open_file(cifar10 *data, const char *dir, const char *file)
{
    char path[4096];
    uint64_t bytes;
    int i = data->n_files;

    TUTTI_TRY(tutti__path(path, dir, file));
    TUTTI_TRY(tutti__open_file(path, &data->fd[i], &bytes));
    data->n_files++;
    data->path[i] = strdup(path);
    if (!data->path[i])
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open %s", path);
    if (bytes % RECORD != 0)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s has %llu bytes, which is not a whole number of records of %d bytes "
                           "(the last has %llu): "
                           "is the file truncated? CIFAR-10's own have 30730000 bytes",
                           path, (unsigned long long)bytes, RECORD,
                           (unsigned long long)(bytes % RECORD));
    data->end[i] = (i ? data->end[i - 1] : 0) + (size_t)(bytes / RECORD);
    return TUTTI_OK;
}

/* The classes are those of batches.meta.txt, a name a line; without that file they are ten numbers. */
static tutti_status read_names(cifar10 *data, const char *dir)
{
    char path[4096];
    size_t bytes;
    int n = 0;

    TUTTI_TRY(tutti__path(path, dir, "batches.meta.txt"));
    data->base.info.classes = 10;
    if (access(path, F_OK) != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__read_file(path, 1 << 20, (uint8_t **)&data->names, &bytes));
    for (char *rest = data->names, *line; (line = strsep(&rest, "\r\n"));) {
        if (!*line)
            continue;
        if (n == CLASSES)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s names more than %d classes", path, CLASSES);
        data->class_names[n++] = line;
    }
    if (n == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s names no class: expected a name a line", path);
    data->base.info.classes = n;
    data->base.info.class_names = data->class_names;
    return TUTTI_OK;
}

static tutti_status cifar10_open(tutti_dataset *dataset, const char *dir)
{
    static const char *const TRAIN[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin"};
    static const char *const TEST[] = {"test_batch.bin"};
    static const float MEAN[] = {0.4914f, 0.4822f, 0.4465f};
    static const float DEVIATION[] = {0.2470f, 0.2435f, 0.2616f};
    cifar10 *data = (cifar10 *)dataset;
    tutti_dataset_info *info = &dataset->info;
    bool train = tutti__dataset_is_train(dataset);
    const char *const *files = train ? TRAIN : TEST;
    size_t n = train ? TUTTI__COUNT_OF(TRAIN) : TUTTI__COUNT_OF(TEST);
    char found[4096];

    TUTTI_TRY(tutti__find_folder(found, dir, "cifar-10-batches-bin", files, 1));
    for (size_t i = 0; i < n; i++)
        TUTTI_TRY(open_file(data, found, files[i]));
    TUTTI_TRY(read_names(data, found));
    info->count = data->end[n - 1];
    if (info->count == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "the files of %s in %s hold no records", info->split,
                           found);
    info->channels = 3;
    info->height = 32;
    info->width = 32;
    memcpy(info->mean, MEAN, sizeof MEAN);
    memcpy(info->std, DEVIATION, sizeof DEVIATION);
    return TUTTI_OK;
}

static tutti_status cifar10_read(const tutti_dataset *dataset, size_t index, uint8_t *image,
                                 int64_t *label_p)
{
    const cifar10 *data = (const cifar10 *)dataset;
    uint8_t record[RECORD];
    size_t number;
    int i = 0;

    while (index >= data->end[i])
        i++;
    number = index - (i ? data->end[i - 1] : 0);
    TUTTI_TRY(
        tutti__read_at(data->fd[i], data->path[i], (uint64_t)number * RECORD, record, RECORD));
    if (record[0] >= dataset->info.classes)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: record %zu has label %d, expected 0 to %d%s",
                           data->path[i], number, record[0], dataset->info.classes - 1,
                           dataset->info.class_names ? " (the classes of batches.meta.txt)" : "");
    *label_p = record[0];
    memcpy(image, record + 1, RECORD - 1);
    return TUTTI_OK;
}

static void cifar10_close(tutti_dataset *dataset)
{
    cifar10 *data = (cifar10 *)dataset;

    for (int i = 0; i < data->n_files; i++) {
        close(data->fd[i]);
        free(data->path[i]);
    }
    free(data->names);
}

const tutti__format tutti__format_cifar10 = {
    .name = "cifar10",
    .usage = "cifar10:DIR/train|test",
    .size = sizeof(cifar10),
    .open = cifar10_open,
    .read = cifar10_read,
    .close = cifar10_close,
};
