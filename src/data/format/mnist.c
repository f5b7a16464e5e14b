/* mnist.c -- MNIST and its relatives: IDX files, plain or gzipped, held in memory.   SPDX-License-Identifier: MIT
 *
 * An IDX file is big-endian: two zero bytes, the type (8: bytes), the number of dimensions, each dimension in four bytes,
 * then the values. */
#include "data/dataset.h"
#include "data/data_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define ORIGIN                                                                                     \
    "MNIST is four files, train- and t10k-images-idx3-ubyte.gz and -labels-idx1-ubyte.gz (11 "     \
    "MiB), from https://ossci-datasets.s3.amazonaws.com/mnist/ (a mirror); Fashion-MNIST has the " \
    "same names: https://github.com/zalandoresearch/fashion-mnist"

#define CLASSES  10
#define MAX_SIDE 4096
#define LIMIT    ((uint64_t)4 << 30) /* bytes of images: a header with more is rejected */

typedef struct mnist {
    size_t count, bytes; /* images; bytes of one */
    uint8_t *images, *labels;
    char *labels_path;
} mnist;

typedef struct idx_header {
    uint32_t d[3];
} idx_header;

static tutti_status fail_read(gzFile file, const char *path, uint64_t got, uint64_t expected)
{
    int code = Z_OK;
    const char *text = gzerror(file, &code);

    if (code != Z_OK && code != Z_BUF_ERROR)
        return tutti__fail(code == Z_MEM_ERROR ? TUTTI_ERR_MEMORY
                           : code == Z_ERRNO   ? TUTTI_ERR_IO
                                               : TUTTI_ERR_FORMAT,
                           "cannot read %s: %s", path, text);
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "%s ends too early, after %llu bytes (unpacked) of %llu: is the file truncated?", path,
        (unsigned long long)got, (unsigned long long)expected);
}

/* Reads the header; `dims` is the expected number of dimensions: 3 for images, 1 for labels. */
static tutti_status read_header(gzFile file, const char *path, int dims, idx_header *header)
{
    uint8_t bytes[16];
    unsigned n = 4 + 4 * (unsigned)dims;
    int got = gzread(file, bytes, n);

    if (got != (int)n)
        return fail_read(file, path, got < 0 ? 0 : (uint64_t)got, n);
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != dims)
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s begins with %02x%02x%02x%02x, expected 000008%02x (IDX, bytes, %d dimensions)",
            path, bytes[0], bytes[1], bytes[2], bytes[3], (unsigned)dims, dims);
    for (int i = 0; i < dims; i++) {
        const uint8_t *b = bytes + 4 + 4 * i;

        header->d[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    return TUTTI_OK;
}

/* Reads exactly `bytes` values, up to the file's end. Memory grows with the data actually read, because a header may be wrong. */
static tutti_status read_values(gzFile file, const char *path, uint64_t bytes, uint8_t **p)
{
    size_t room = bytes < (1 << 20) ? (size_t)bytes : 1 << 20, got = 0;
    uint8_t *values = malloc(room + 1), *grown, extra;
    int n = 1, code = Z_OK;

    while (values && n > 0 && got < bytes) {
        if (got == room) {
            room = room * 2 < bytes ? room * 2 : (size_t)bytes;
            grown = realloc(values, room);
            if (!grown)
                break;
            values = grown;
        }
        n = gzread(file, values + got, (unsigned)(room - got < (1 << 30) ? room - got : 1 << 30));
        got += n > 0 ? (size_t)n : 0;
    }
    if (values && got == bytes) {
        n = gzread(file, &extra, 1);
        /* a gzip file truncated within its checksum has returned all values */
        gzerror(file, &code);
        if (n == 0 && code == Z_OK) {
            *p = values;
            return TUTTI_OK;
        }
    }
    free(values);
    if (n > 0 && got < bytes)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the %llu bytes of %s",
                           (unsigned long long)bytes, path);
    if (n > 0)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s continues after the %llu values that its header announces", path,
                           (unsigned long long)bytes);
    return fail_read(file, path, got, bytes);
}

/* The file's path: with '-' or '.' before "idx", and with or without .gz. */
static tutti_status find_file(char path[4096], const char *dir, const char *const names[4])
{
    for (size_t i = 0; i < 4; i++) {
        TUTTI_TRY(tutti__path(path, dir, names[i]));
        if (access(path, F_OK) == 0)
            return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_NOT_FOUND, "there is no %s in %s (nor %s, %s, %s)", names[0], dir,
                       names[1], names[2], names[3]);
}

static tutti_status read_idx(const char *path, int dims, idx_header *header, uint8_t **p)
{
    uint64_t bytes, values = 1;
    int fd;
    gzFile file;
    tutti_status status;

    TUTTI_TRY(tutti__open_file(path, &fd, &bytes));
    file = gzdopen(fd, "rb");
    if (!file) {
        close(fd);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
    }
    status = read_header(file, path, dims, header);
    if (status == TUTTI_OK && dims == 3 &&
        (header->d[1] < 1 || header->d[1] > MAX_SIDE || header->d[2] < 1 ||
         header->d[2] > MAX_SIDE))
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s: images of %ux%u, expected 1 to %d a side", path,
                             header->d[1], header->d[2], MAX_SIDE);
    for (int i = 0; i < dims; i++)
        values *= status == TUTTI_OK ? header->d[i] : 0;
    if (status == TUTTI_OK && values > LIMIT)
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s: its header announces %llu bytes, at most %llu are read", path,
                             (unsigned long long)values, (unsigned long long)LIMIT);
    if (status == TUTTI_OK)
        status = read_values(file, path, values, p);
    gzclose(file);
    return status;
}

static tutti_status check_labels(const mnist *data, const char *images_path, uint32_t n_labels)
{
    size_t count = data->count;

    if (n_labels != count)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s has %zu images but %s has %u labels", images_path,
                           count, data->labels_path, n_labels);
    if (count == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s holds no images", images_path);
    for (size_t i = 0; i < count; i++)
        if (data->labels[i] >= CLASSES)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s: label %zu is %d, expected 0 to %d",
                               data->labels_path, i, data->labels[i], CLASSES - 1);
    return TUTTI_OK;
}

/* [train or test][images or labels][spelling] */
static const char *const NAMES[2][2][4] = {
    {{"train-images-idx3-ubyte", "train-images.idx3-ubyte", "train-images-idx3-ubyte.gz",
      "train-images.idx3-ubyte.gz"},
     {"train-labels-idx1-ubyte", "train-labels.idx1-ubyte", "train-labels-idx1-ubyte.gz",
      "train-labels.idx1-ubyte.gz"}},
    {{"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte", "t10k-images-idx3-ubyte.gz",
      "t10k-images.idx3-ubyte.gz"},
     {"t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte", "t10k-labels-idx1-ubyte.gz",
      "t10k-labels.idx1-ubyte.gz"}},
};

static tutti_status read_files(mnist *data, const tutti_dataset_source *source,
                               tutti_dataset_info *info)
{
    /* Where torchvision unpacks MNIST and similar data sets. */
    static const char *const FOLDERS[] = {"MNIST/raw", "FashionMNIST/raw", "KMNIST/raw"};
    const char *const(*names)[4] = NAMES[source->train ? 0 : 1];
    char found[4096], path[4096];
    idx_header header = {{0}}, labels = {{0}};

    TUTTI_TRY(tutti__with_origin(
        tutti__find_folder(found, source->dir, FOLDERS, TUTTI__COUNT_OF(FOLDERS), names[0], 4),
        ORIGIN));
    TUTTI_TRY(tutti__with_origin(find_file(path, found, names[1]), ORIGIN));
    data->labels_path = strdup(path);
    if (!data->labels_path)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open %s", path);
    TUTTI_TRY(read_idx(path, 1, &labels, &data->labels));
    TUTTI_TRY(find_file(path, found, names[0]));
    TUTTI_TRY(read_idx(path, 3, &header, &data->images));
    info->count = data->count = header.d[0];
    info->channels = 1;
    info->height = (int)header.d[1];
    info->width = (int)header.d[2];
    info->classes = CLASSES;
    info->mean[0] = 0.1307f;
    info->std[0] = 0.3081f;
    data->bytes = (size_t)header.d[1] * header.d[2];
    return check_labels(data, path, labels.d[0]);
}

static tutti_status mnist_open(void **self_p, const tutti_dataset_source *source,
                               tutti_dataset_info *info)
{
    *self_p = tutti__alloc(sizeof(mnist));
    return *self_p ? read_files(*self_p, source, info) : TUTTI_ERR_MEMORY;
}

static tutti_status mnist_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    const mnist *data = self;

    memcpy(image, data->images + index * data->bytes, data->bytes);
    *label_p = data->labels[index];
    return TUTTI_OK;
}

static void mnist_close(void *self)
{
    mnist *data = self;

    free(data->images);
    free(data->labels);
    free(data->labels_path);
    free(data);
}

const tutti_dataset_format tutti__format_mnist = {
    .name = "mnist",
    .help = "MNIST, Fashion-MNIST and the like: IDX files, also .gz",
    .open = mnist_open,
    .read = mnist_read,
    .close = mnist_close,
};
