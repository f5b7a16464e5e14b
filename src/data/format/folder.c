/* folder.c -- an image folder: DIR/SPLIT/CLASS/FILE.{jpg,jpeg,png}.   SPDX-License-Identifier: MIT
 *
 * A class's number is its place in the sorted names of the class folders; images are in the order of class, then file
 * name (plain byte order, as torchvision's). Opening lists the files and looks at the size of the first; each file is
 * decoded when it is read. */
#include "data/dataset.h"
#include "data/files.h"
#include "data/image/image.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct names {
    char **name;
    size_t n, room;
} names;

typedef struct folder {
    tutti_dataset base;
    char root[4096]; /* DIR/SPLIT */
    names classes;
    names files; /* of all classes, one after the other */
    int *labels; /* of files; has the room of files */
} folder;

static tutti_status names_add(names *list, const char *name)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        char **grown = realloc(list->name, room * sizeof *grown);

        if (!grown)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory to list an image folder");
        list->name = grown;
        list->room = room;
    }
    list->name[list->n] = strdup(name);
    if (!list->name[list->n])
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to list an image folder");
    list->n++;
    return TUTTI_OK;
}

static void names_free(names *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->name[i]);
    free(list->name);
    *list = (names){0};
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_type(const char *dir, const struct dirent *entry, unsigned char type)
{
    char path[4096];
    struct stat st;

    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == type;
    if (tutti__path(path, dir, entry->d_name) != TUTTI_OK || stat(path, &st) != 0)
        return false;
    return type == DT_DIR ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode);
}

/* The sorted names of the folders, or of the image files, in dir; those that begin with '.' are nobody's data.
 * *skipped_p counts what else lies there. */
static tutti_status list_dir(const char *dir, unsigned char type, names *list, size_t *skipped_p)
{
    tutti_status status = TUTTI_OK;
    struct dirent *entry;
    DIR *d = opendir(dir);

    if (!d)
        return tutti__fail_errno(errno, "cannot list folder %s", dir);
    errno = 0;
    while (status == TUTTI_OK && (entry = readdir(d))) {
        if (entry->d_name[0] == '.')
            continue;
        if (has_type(dir, entry, type) && (type == DT_DIR || tutti__image_named(entry->d_name)))
            status = names_add(list, entry->d_name);
        else
            ++*skipped_p;
        errno = 0;
    }
    if (status == TUTTI_OK && errno)
        status = tutti__fail_errno(errno, "cannot list folder %s", dir);
    closedir(d);
    if (list->n)
        qsort(list->name, list->n, sizeof *list->name, compare);
    return status;
}

/* DIR/SPLIT; "val" also serves where "test" is asked for. */
static tutti_status find_root(folder *data, const char *dir)
{
    struct stat st;

    if (stat(dir, &st) != 0)
        return tutti__fail_errno(errno, "data folder %s", dir);
    TUTTI_TRY(tutti__path(data->root, dir, data->base.split));
    if (stat(data->root, &st) == 0 && S_ISDIR(st.st_mode))
        return TUTTI_OK;
    if (strcmp(data->base.split, "test") == 0) {
        TUTTI_TRY(tutti__path(data->root, dir, "val"));
        if (stat(data->root, &st) == 0 && S_ISDIR(st.st_mode))
            return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_NOT_FOUND,
                       "there is no folder %s/%s%s: images are expected as %s/%s/CLASS/FILE.jpg",
                       dir, data->base.split,
                       strcmp(data->base.split, "test") == 0 ? " (nor val)" : "", dir,
                       data->base.split);
}

/* A split with other classes than train would number them differently, silently. */
static tutti_status check_classes(const folder *data, const char *dir)
{
    char path[4096];
    names train = {0};
    size_t skipped = 0, i = 0;
    tutti_status status;

    if (tutti__dataset_is_train(&data->base))
        return TUTTI_OK;
    TUTTI_TRY(tutti__path(path, dir, "train"));
    if (access(path, F_OK) != 0)
        return TUTTI_OK;
    status = list_dir(path, DT_DIR, &train, &skipped);
    while (i < train.n && i < data->classes.n && strcmp(train.name[i], data->classes.name[i]) == 0)
        i++;
    if (status == TUTTI_OK && (i < train.n || i < data->classes.n))
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s has %zu classes and %s has %zu; the first difference in sorted "
                             "order is number %zu: "
                             "\"%s\" and \"%s\". Both need the same class folders",
                             path, train.n, data->root, data->classes.n, i,
                             i < train.n ? train.name[i] : "(none)",
                             i < data->classes.n ? data->classes.name[i] : "(none)");
    names_free(&train);
    return status;
}

static tutti_status add_class(folder *data, int label)
{
    char path[4096];
    names files = {0};
    size_t skipped = 0;
    tutti_status status;

    TUTTI_TRY(tutti__path(path, data->root, data->classes.name[label]));
    status = list_dir(path, DT_REG, &files, &skipped);
    if (status == TUTTI_OK && files.n == 0)
        status = tutti__fail(TUTTI_ERR_FORMAT, "class folder %s holds no .jpg, .jpeg or .png file",
                             path);
    if (status == TUTTI_OK && skipped)
        tutti_log(TUTTI_LOG_WARN, "data", "%s: %zu entries that are no image files are left out",
                  path, skipped);
    for (size_t i = 0; status == TUTTI_OK && i < files.n; i++) {
        size_t room = data->files.room;

        status = names_add(&data->files, files.name[i]);
        if (status == TUTTI_OK && data->files.room != room) {
            int *grown = realloc(data->labels, data->files.room * sizeof *grown);

            if (!grown)
                status = tutti__fail(TUTTI_ERR_MEMORY, "no memory to list %s", path);
            else
                data->labels = grown;
        }
        if (status == TUTTI_OK)
            data->labels[data->files.n - 1] = label;
    }
    names_free(&files);
    return status;
}

tutti_status tutti__folder_sample(const tutti_dataset *dataset, size_t index, char path[4096],
                                  int64_t *label_p)
{
    const folder *data = (const folder *)dataset;
    char class_path[4096];

    TUTTI_TRY(tutti__path(class_path, data->root, data->classes.name[data->labels[index]]));
    *label_p = data->labels[index];
    return tutti__path(path, class_path, data->files.name[index]);
}

static tutti_status folder_open(tutti_dataset *dataset, const char *dir)
{
    static const float MEAN[] = {0.485f, 0.456f, 0.406f};
    static const float DEVIATION[] = {0.229f, 0.224f, 0.225f};
    folder *data = (folder *)dataset;
    tutti_dataset_info *info = &dataset->info;
    char path[4096];
    size_t skipped = 0;
    int64_t label;

    TUTTI_TRY(find_root(data, dir));
    TUTTI_TRY(list_dir(data->root, DT_DIR, &data->classes, &skipped));
    if (data->classes.n == 0 || data->classes.n > INT_MAX)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s holds no class folders: images are expected as %s/CLASS/FILE.jpg",
                           data->root, data->root);
    TUTTI_TRY(check_classes(data, dir));
    for (size_t i = 0; i < data->classes.n; i++)
        TUTTI_TRY(add_class(data, (int)i));
    TUTTI_TRY(tutti__folder_sample(dataset, 0, path, &label));
    TUTTI_TRY(tutti__image_size(path, &info->height, &info->width));
    info->count = data->files.n;
    info->channels = 3;
    info->classes = (int)data->classes.n;
    info->class_names = (const char *const *)data->classes.name;
    memcpy(info->mean, MEAN, sizeof MEAN);
    memcpy(info->std, DEVIATION, sizeof DEVIATION);
    return TUTTI_OK;
}

static tutti_status folder_read(const tutti_dataset *dataset, size_t index, uint8_t *image,
                                int64_t *label_p)
{
    char path[4096];

    TUTTI_TRY(tutti__folder_sample(dataset, index, path, label_p));
    return tutti__image_load(path, dataset->info.height, dataset->info.width, image);
}

static void folder_close(tutti_dataset *dataset)
{
    folder *data = (folder *)dataset;

    names_free(&data->classes);
    names_free(&data->files);
    free(data->labels);
}

const tutti__format tutti__format_folder = {
    .name = "folder",
    .usage = "folder:DIR/train|test",
    .size = sizeof(folder),
    .any_split = true,
    .open = folder_open,
    .read = folder_read,
    .close = folder_close,
};
