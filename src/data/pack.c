/* pack.c -- an image folder becomes CIFAR-10 binary files.   SPDX-License-Identifier: MIT
 *
 * The images, which come sorted by class, are shuffled (always in the same way), as those of CIFAR-10's own files are, so
 * that any part of a file holds every class. The same folder gives the same bytes. */
#include "data/dataset.h"
#include "data/image/image.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDE        32
#define PIXELS      (3 * SIDE * SIDE)
#define TRAIN_FILES 5
#define MAX_CLASSES 256

static const char *const FILES[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
                                    "batches.meta.txt"};
enum { N_FILES = TUTTI__COUNT_OF(FILES), TEST_FILE = TRAIN_FILES, NAMES_FILE = TRAIN_FILES + 1 };

typedef struct packer {
    const tutti__pack_opts *opts;
    char dest[4000], partial[4096];
    bool made; /* partial exists and is ours */
    FILE *file[N_FILES];
    size_t done, total;
} packer;

static tutti_status check_dest(packer *p, const char *dest)
{
    size_t n = strlen(dest);
    struct dirent *entry;
    bool empty = true;
    DIR *d;

    while (n > 1 && dest[n - 1] == '/')
        n--;
    if (n == 0 || n >= sizeof p->dest)
        return tutti__fail(TUTTI_ERR_ARG,
                           "the folder to pack into has an empty or too long name: \"%.60s\"",
                           dest);
    memcpy(p->dest, dest, n);
    snprintf(p->partial, sizeof p->partial, "%s.partial", p->dest);
    d = opendir(p->dest);
    if (!d && errno == ENOENT)
        return TUTTI_OK;
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
    uint8_t record[1 + PIXELS];
    tutti__image_want want = {p->opts->resize ? TUTTI__FIT_STRETCH : TUTTI__FIT_EXACT, SIDE, SIDE,
                              0};
    int64_t label;

    TUTTI_TRY(tutti__folder_sample(images->self, index, path, &label));
    TUTTI_TRY(tutti__image_load(path, &want, record + 1));
    record[0] = (uint8_t)label;
    TUTTI_TRY(write_bytes(p, file, record, sizeof record));
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

/* Everything is on the disk before the folder gets its name. */
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

static tutti_status open_split(tutti_dataset **images_p, const char *source, const char *split)
{
    char spec[4200];

    if (snprintf(spec, sizeof spec, "folder:%s/%s", source, split) >= (int)sizeof spec)
        return tutti__fail(TUTTI_ERR_ARG, "folder %.60s... has too long a name", source);
    return tutti_dataset_open(images_p, spec);
}

static tutti_status pack(packer *p, const tutti_dataset *train, const tutti_dataset *test)
{
    if (train->info.classes > MAX_CLASSES)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%d classes do not fit the layout, which has a byte for the label: at most %d",
            train->info.classes, MAX_CLASSES);
    p->total = train->info.count + test->info.count;
    TUTTI_TRY(create_files(p));
    TUTTI_TRY(write_names(p, &train->info));
    TUTTI_TRY(write_images(p, train, 0, TRAIN_FILES));
    TUTTI_TRY(write_images(p, test, TEST_FILE, 1));
    return commit(p);
}

tutti_status tutti__data_pack(const char *source, const char *dest, const tutti__pack_opts *opts,
                              tutti__pack_report *report_p)
{
    packer p = {.opts = opts};
    tutti_dataset *train = NULL, *test = NULL;
    tutti_status status = check_dest(&p, dest);

    if (status == TUTTI_OK)
        status = open_split(&train, source, "train");
    if (status == TUTTI_OK)
        status = open_split(&test, source, "test");
    if (status == TUTTI_OK)
        status = pack(&p, train, test);
    if (status == TUTTI_OK)
        *report_p = (tutti__pack_report){train->info.count, test->info.count, train->info.classes};
    clean(&p);
    tutti_dataset_free(train);
    tutti_dataset_free(test);
    return status;
}
