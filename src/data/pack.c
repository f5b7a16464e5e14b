/* pack.c -- converts an image folder to CIFAR-10 binary files.   SPDX-License-Identifier: MIT
 *
 * The images, which are sorted by class, are shuffled (always in the same way), as in CIFAR-10's own files, so that any part of
 * a file contains all classes. The same folder gives the same bytes. */
#include "data/dataset.h"
#include "data/image/image.h"
#include "data/records.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRAIN_FILES 5
#define MAX_CLASSES 256

static const char *const FILES[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
                                    "batches.meta.txt", TUTTI__RECORDS_INFO};
enum { N_FILES = TUTTI__COUNT_OF(FILES), TEST_FILE = TRAIN_FILES, NAMES_FILE, INFO_FILE };

typedef struct packer {
    const tutti__pack_opts *opts;
    char dest[4000], partial[4096];
    bool made; /* partial exists and is ours */
    FILE *file[N_FILES];
    int height, width;
    uint8_t *record;
    uint64_t sum[3], squares[3]; /* of the training images' bytes, by channel */
    size_t done, total;
} packer;

/* Nothing is written to the source, whose folders are its classes. dest may be missing; its parent must exist. */
static tutti_status check_outside(const char *source, const char *dest)
{
    char *real_source = realpath(source, NULL), *real_dest = realpath(dest, NULL), *parent;
    const size_t n = real_source ? strlen(real_source) : 0;
    const char *slash = strrchr(dest, '/');
    bool inside;

    if (!real_dest && errno == ENOENT) {
        parent = slash ? strndup(dest, slash == dest ? 1 : (size_t)(slash - dest)) : strdup(".");
        real_dest = parent ? realpath(parent, NULL) : NULL;
        free(parent);
    }
    inside = real_source && real_dest && strncmp(real_dest, real_source, n) == 0 &&
             (real_dest[n] == '\0' || real_dest[n] == '/' || n == 1);
    free(real_source);
    free(real_dest);
    if (!inside)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "cannot pack into %s: it lies in %s, which is packed; name a new folder "
                       "outside it",
                       dest, source);
}

static tutti_status check_dest(packer *p, const char *source, const char *dest)
{
    size_t n = strlen(dest);
    struct dirent *entry;
    bool empty = true;
    DIR *d;

    if (!*source) /* not the root folder, but most likely an unset variable */
        return tutti__fail(TUTTI_ERR_ARG,
                           "the name of the folder to pack is empty; expected the one with "
                           "train/CLASS/FILE");
    while (n > 1 && dest[n - 1] == '/')
        n--;
    if (n == 0 || n >= sizeof p->dest)
        return tutti__fail(TUTTI_ERR_ARG,
                           "the folder to pack into has an empty or too long name: \"%.60s\"",
                           dest);
    memcpy(p->dest, dest, n);
    TUTTI_TRY(check_outside(source, p->dest));
    snprintf(p->partial, sizeof p->partial, "%s.partial", p->dest);
    d = opendir(p->dest);
    if (!d && errno == ENOENT)
        return TUTTI_OK;
    if (!d && errno == ENOTDIR)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "cannot pack into %s: it or what it lies in is a file; name a new folder", p->dest);
    if (!d)
        return tutti__fail_errno(errno, "cannot pack into %s", p->dest);
    while ((entry = readdir(d)))
        empty = empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
    closedir(d);
    if (!empty)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "cannot pack into %s: it is not empty; name a new folder, or remove it first", p->dest);
    return TUTTI_OK;
}

static tutti_status create_files(packer *p)
{
    char path[4096];

    if (mkdir(p->partial, 0777) != 0)
        return errno == EEXIST ? tutti__fail(TUTTI_ERR_STATE,
                                             "folder %s exists: another pack is writing it or was "
                                             "killed; remove it if none is running",
                                             p->partial)
                               : tutti__fail_errno(errno, "cannot make folder %s", p->partial);
    p->made = true;
    for (int i = 0; i < N_FILES; i++) {
        TUTTI_TRY(tutti__path(path, p->partial, FILES[i]));
        p->file[i] = fopen(path, "wxe");
        if (!p->file[i])
            return tutti__fail_errno(errno, "cannot write %s", path);
    }
    return TUTTI_OK;
}

static tutti_status write_bytes(packer *p, int file, const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, p->file[file]) != n)
        return tutti__fail_errno(errno, "cannot write %s/%s", p->partial, FILES[file]);
    return TUTTI_OK;
}

static tutti_status write_image(packer *p, const tutti_dataset *images, size_t index, int file)
{
    char path[4096];
    const size_t plane = (size_t)p->height * (size_t)p->width;
    const tutti__image_want want = {p->opts->resize       ? TUTTI__FIT_STRETCH
                                    : p->opts->image_size ? TUTTI__FIT_CENTRE
                                                          : TUTTI__FIT_EXACT,
                                    p->height, p->width, 0};
    int64_t label;

    TUTTI_TRY(tutti__folder_sample(images->self, index, path, &label));
    TUTTI_TRY(tutti__image_load(path, &want, p->record + 1));
    p->record[0] = (uint8_t)label;
    for (size_t c = 0; c < 3 && file < TEST_FILE; c++)
        for (size_t k = 0; k < plane; k++) {
            const uint64_t byte = p->record[1 + c * plane + k];

            p->sum[c] += byte;
            p->squares[c] += byte * byte;
        }
    TUTTI_TRY(write_bytes(p, file, p->record, 1 + 3 * plane));
    return tutti__tick_call(p->opts->tick, ++p->done, p->total);
}

/* Spreads the images evenly over n files. */
static tutti_status write_images(packer *p, const tutti_dataset *images, int first_file, size_t n)
{
    tutti_sampler_opts all = {.count = images->info.count, .world_size = 1, .shuffle = true};
    size_t *order = tutti__alloc(all.count * sizeof *order);
    tutti_status status = order ? tutti_sampler_indices(&all, 0, order) : TUTTI_ERR_MEMORY;

    for (size_t i = 0; status == TUTTI_OK && i < all.count; i++)
        status = write_image(p, images, order[i], first_file + (int)(i * n / all.count));
    free(order);
    return status;
}

static tutti_status write_names(packer *p, const tutti_dataset_info *info)
{
    for (int i = 0; i < info->classes; i++) {
        if (strpbrk(info->class_names[i], "\r\n"))
            return tutti__fail(TUTTI_ERR_ARG,
                               "the name of class folder %d holds a line break: rename it", i);
        TUTTI_TRY(write_bytes(p, NAMES_FILE, info->class_names[i], strlen(info->class_names[i])));
        TUTTI_TRY(write_bytes(p, NAMES_FILE, "\n", 1));
    }
    return TUTTI_OK;
}

/* Writes the size, and mean and standard deviation of the training images, as fractions of 255. */
static tutti_status write_info(packer *p, size_t n_images)
{
    const double n = (double)n_images * p->height * p->width;
    double mean[3], std[3];
    char text[256];
    int bytes;

    for (int c = 0; c < 3; c++) {
        mean[c] = (double)p->sum[c] / n / 255;
        std[c] = sqrt(fmax((double)p->squares[c] / n / 65025 - mean[c] * mean[c], 0));
        std[c] = fmax(std[c], 1.0 / 255); /* a constant channel has a std of 0 */
    }
    bytes = snprintf(text, sizeof text,
                     "{\"height\": %d, \"width\": %d, \"mean\": [%.6f, %.6f, %.6f], "
                     "\"std\": [%.6f, %.6f, %.6f]}\n",
                     p->height, p->width, mean[0], mean[1], mean[2], std[0], std[1], std[2]);
    return write_bytes(p, INFO_FILE, text, (size_t)bytes);
}

/* Syncs everything to disk, then renames the folder. */
static tutti_status commit(packer *p)
{
    for (int i = 0; i < N_FILES; i++) {
        FILE *file = p->file[i];
        bool good = fflush(file) == 0 && fsync(fileno(file)) == 0;

        p->file[i] = NULL;
        if (!good) {
            tutti_status status =
                tutti__fail_errno(errno, "cannot write %s/%s", p->partial, FILES[i]);

            fclose(file);
            return status;
        }
        fclose(file);
    }
    if (rename(p->partial, p->dest) != 0)
        return tutti__fail_errno(errno, "cannot rename %s to %s", p->partial, p->dest);
    p->made = false;
    return TUTTI_OK;
}

static void clean(packer *p)
{
    char path[4096];

    if (!p->made)
        return;
    for (int i = 0; i < N_FILES; i++) {
        if (p->file[i])
            fclose(p->file[i]);
        if (snprintf(path, sizeof path, "%s/%s", p->partial, FILES[i]) < (int)sizeof path)
            unlink(path);
    }
    rmdir(p->partial);
}

static tutti_status open_split(tutti_dataset **images_p, const char *source, const char *split,
                               int image_size)
{
    const tutti_dataset_opts opts = {.image_size = image_size};
    char spec[4200];

    if (snprintf(spec, sizeof spec, "folder:%s/%s", source, split) >= (int)sizeof spec)
        return tutti__fail(TUTTI_ERR_ARG, "folder %.60s... has too long a name", source);
    return tutti_dataset_open_with(images_p, spec, &opts);
}

static tutti_status pack(packer *p, const tutti_dataset *train, const tutti_dataset *test)
{
    if (train->info.classes > MAX_CLASSES)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%d classes do not fit the layout, which has a byte for the label: at most %d",
            train->info.classes, MAX_CLASSES);
    p->total = train->info.count + test->info.count;
    p->height = train->info.height;
    p->width = train->info.width;
    if (p->height > TUTTI__RECORDS_SIDE || p->width > TUTTI__RECORDS_SIDE)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "the images of %s are %dx%d pixels, but at most %d a side can be packed; make "
            "them smaller with --image-size N",
            train->info.name, p->height, p->width, TUTTI__RECORDS_SIDE);
    p->record = tutti__alloc(1 + tutti__image_bytes(&train->info));
    if (!p->record)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(create_files(p));
    TUTTI_TRY(write_names(p, &train->info));
    TUTTI_TRY(write_images(p, train, 0, TRAIN_FILES));
    TUTTI_TRY(write_images(p, test, TEST_FILE, 1));
    TUTTI_TRY(write_info(p, train->info.count));
    return commit(p);
}

tutti_status tutti__data_pack(const char *source, const char *dest, const tutti__pack_opts *opts,
                              tutti__pack_report *report_p)
{
    packer p = {.opts = opts};
    tutti_dataset *train = NULL, *test = NULL;
    tutti_status status = check_dest(&p, source, dest);

    if (status == TUTTI_OK)
        status = open_split(&train, source, "train", opts->image_size);
    if (status == TUTTI_OK)
        status = open_split(&test, source, "test", opts->image_size);
    if (status == TUTTI_OK)
        status = pack(&p, train, test);
    if (status == TUTTI_OK)
        *report_p = (tutti__pack_report){train->info.count, test->info.count, train->info.classes,
                                         p.height, p.width};
    clean(&p);
    free(p.record);
    tutti_dataset_free(train);
    tutti_dataset_free(test);
    return status;
}
