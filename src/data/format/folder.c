/* folder.c -- an image folder: DIR/SPLIT/CLASS/FILE.{jpg,jpeg,png}.   SPDX-License-Identifier: MIT
 *
 * A class's number is its position among the sorted names of class folders; images are in the order of class, then file
 * name (plain byte order, as torchvision's). Opening lists the files and, without image_size, reads the size of the
 * first; each file is decoded when it is read. */
#include "data/dataset.h"
#include "data/data_files.h"
#include "data/file_names.h"
#include "data/image/image.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN 3 /* names of skipped entries in the warning */

/* Entries that are skipped: how many, and the first of them by name. */
typedef struct leftovers {
    size_t n;
    char text[1024];
} leftovers;

typedef struct folder {
    const tutti_dataset_source *source; /* while it is opened */
    int height, width;
    bool sized;      /* image_size is set: files may have any size */
    char root[4096]; /* DIR/SPLIT */
    tutti__file_names classes;
    tutti__file_names files; /* of all classes, back to back */
    int *labels;             /* of files; has the capacity of files */
} folder;

/* Why an entry is not a folder, or an image file, of the kind searched for; NULL: it is one. */
static const char *fault_of(const char *dir, const struct dirent *entry, unsigned char type)
{
    unsigned char is = entry->d_type;
    char path[4096];
    struct stat st;

    if (is == DT_UNKNOWN || is == DT_LNK) {
        if (tutti__path(path, dir, entry->d_name) != TUTTI_OK)
            return "its path is too long";
        if (stat(path, &st) != 0)
            return errno == ENOENT  ? "a link to nothing"
                   : errno == ELOOP ? "a link in a circle"
                                    : "it cannot be looked at";
        is = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
    }
    if (is != type)
        return type == DT_DIR ? "not a folder" : is == DT_DIR ? "a folder" : "not a regular file";
    return type == DT_DIR || tutti__image_named(entry->d_name) ? NULL : "not .jpg, .jpeg or .png";
}

static void leave_out(leftovers *rest, const char *dir, const char *name, const char *fault)
{
    const char *class_name = strrchr(dir, '/');
    size_t used = strlen(rest->text);

    if (++rest->n <= SHOWN)
        snprintf(rest->text + used, sizeof rest->text - used, "%s%.80s/%.120s (%s)",
                 used ? ", " : "", class_name ? class_name + 1 : dir, name, fault);
}

/* The sorted names of the folders, or of the image files, in dir; names that begin with '.' are ignored. All others go to rest,
 * if it is not NULL. */
static tutti_status list_dir(const char *dir, unsigned char type, tutti__file_names *list,
                             leftovers *rest)
{
    tutti_status status = TUTTI_OK;
    struct dirent *entry;
    DIR *d = opendir(dir);

    if (!d)
        return tutti__fail_errno(errno, "cannot list folder %s", dir);
    errno = 0;
    while (status == TUTTI_OK && (entry = readdir(d))) {
        const char *fault;

        if (entry->d_name[0] == '.')
            continue;
        fault = fault_of(dir, entry, type);
        if (!fault)
            status = tutti__file_names_add(list, entry->d_name);
        else if (rest)
            leave_out(rest, dir, entry->d_name, fault);
        errno = 0;
    }
    if (status == TUTTI_OK && errno)
        status = tutti__fail_errno(errno, "cannot list folder %s", dir);
    closedir(d);
    tutti__file_names_sort(list);
    return status;
}

/* DIR/SPLIT; "val" is used if there is no "test". */
static tutti_status find_root(folder *data)
{
    const char *dir = data->source->dir, *split = data->source->split;
    const bool is_test = strcmp(split, "test") == 0;
    struct stat st;

    if (stat(dir, &st) != 0 || access(dir, X_OK) != 0)
        return tutti__fail_errno(errno, "data folder %s", dir);
    TUTTI_TRY(tutti__path(data->root, dir, split));
    if (tutti__is_folder(data->root))
        return TUTTI_OK;
    if (is_test) {
        TUTTI_TRY(tutti__path(data->root, dir, "val"));
        if (tutti__is_folder(data->root))
            return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_NOT_FOUND,
                       "there is no folder %s/%s%s: images are expected as %s/%s/CLASS/FILE.jpg",
                       dir, split, is_test ? " (nor val)" : "", dir, split);
}

/* A split with other classes than train would silently number them differently. */
static tutti_status check_classes(const folder *data)
{
    char path[4096];
    tutti__file_names train = {0};
    size_t i = 0;
    tutti_status status;

    if (data->source->train)
        return TUTTI_OK;
    TUTTI_TRY(tutti__path(path, data->source->dir, "train"));
    if (access(path, F_OK) != 0)
        return TUTTI_OK;
    status = list_dir(path, DT_DIR, &train, NULL);
    while (i < train.n && i < data->classes.n && strcmp(train.of[i], data->classes.of[i]) == 0)
        i++;
    if (status == TUTTI_OK && (i < train.n || i < data->classes.n))
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s has %zu classes and %s has %zu; the first difference in sorted "
                             "order is number %zu: "
                             "\"%s\" and \"%s\". Both need the same class folders",
                             path, train.n, data->root, data->classes.n, i,
                             i < train.n ? train.of[i] : "(none)",
                             i < data->classes.n ? data->classes.of[i] : "(none)");
    tutti__file_names_free(&train);
    return status;
}

static tutti_status add_class(folder *data, int label, leftovers *rest)
{
    char path[4096];
    tutti__file_names files = {0};
    size_t left_before = rest->n;
    tutti_status status;

    TUTTI_TRY(tutti__path(path, data->root, data->classes.of[label]));
    status = list_dir(path, DT_REG, &files, rest);
    if (status == TUTTI_OK && files.n == 0)
        status = tutti__fail(
            TUTTI_ERR_FORMAT, "class folder %s holds no .jpg, .jpeg or .png file%s%s", path,
            rest->n > left_before ? "; left out: " : "", rest->n > left_before ? rest->text : "");
    for (size_t i = 0; status == TUTTI_OK && i < files.n; i++) {
        size_t room = data->files.room;

        status = tutti__file_names_add(&data->files, files.of[i]);
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
    tutti__file_names_free(&files);
    return status;
}

/* Every rank finds the same; only one warns. */
static void warn_of(const leftovers *rest, const char *root)
{
    if (rest->n > 0)
        tutti_log(tutti__log_rank() > 0 ? TUTTI_LOG_DEBUG : TUTTI_LOG_WARN, "data",
                  "%s: %zu %s left out: %s%s", root, rest->n,
                  rest->n == 1 ? "entry is" : "entries are", rest->text,
                  rest->n > SHOWN ? ", ..." : "");
}

static tutti_status list_all(folder *data)
{
    leftovers rest = {0};

    TUTTI_TRY(find_root(data));
    TUTTI_TRY(list_dir(data->root, DT_DIR, &data->classes, &rest));
    if (data->classes.n == 0 || data->classes.n > INT_MAX)
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s holds no class folders: images are expected as %s/CLASS/FILE.jpg%s%s", data->root,
            data->root, rest.n ? "; left out: " : "", rest.text);
    TUTTI_TRY(check_classes(data));
    for (size_t i = 0; i < data->classes.n; i++)
        TUTTI_TRY(add_class(data, (int)i, &rest));
    warn_of(&rest, data->root);
    return TUTTI_OK;
}

tutti_status tutti__folder_sample(const void *self, size_t index, char path[4096], int64_t *label_p)
{
    const folder *data = self;
    char class_path[4096];

    TUTTI_TRY(tutti__path(class_path, data->root, data->classes.of[data->labels[index]]));
    *label_p = data->labels[index];
    return tutti__path(path, class_path, data->files.of[index]);
}

static tutti_status find_size(folder *data)
{
    char path[4096];
    int64_t label;

    data->sized = data->source->image_size > 0;
    data->height = data->width = data->source->image_size;
    if (data->sized)
        return TUTTI_OK;
    TUTTI_TRY(tutti__folder_sample(data, 0, path, &label));
    return tutti__image_size(path, &data->height, &data->width);
}

static tutti_status folder_open(void **self_p, const tutti_dataset_source *source,
                                tutti_dataset_info *info)
{
    static const float MEAN[] = {0.485f, 0.456f, 0.406f};
    static const float DEVIATION[] = {0.229f, 0.224f, 0.225f};
    folder *data = tutti__alloc(sizeof *data);

    if (!data)
        return TUTTI_ERR_MEMORY;
    *self_p = data;
    data->source = source;
    TUTTI_TRY(list_all(data));
    TUTTI_TRY(find_size(data));
    data->source = NULL;
    info->count = data->files.n;
    info->channels = 3;
    info->height = data->height;
    info->width = data->width;
    info->classes = (int)data->classes.n;
    info->class_names = (const char *const *)data->classes.of;
    memcpy(info->mean, MEAN, sizeof MEAN);
    memcpy(info->std, DEVIATION, sizeof DEVIATION);
    return TUTTI_OK;
}

static tutti_status load(const folder *data, size_t index, const tutti__image_want *want,
                         uint8_t *image, int64_t *label_p)
{
    char path[4096];

    TUTTI_TRY(tutti__folder_sample(data, index, path, label_p));
    return tutti__image_load(path, want, image);
}

static tutti_status folder_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    const folder *data = self;
    tutti__image_want want = {data->sized ? TUTTI__FIT_CENTRE : TUTTI__FIT_EXACT, data->height,
                              data->width, 0};

    return load(data, index, &want, image, label_p);
}

static tutti_status folder_read_random(const void *self, size_t index, uint64_t chance,
                                       uint8_t *image, int64_t *label_p)
{
    const folder *data = self;
    tutti__image_want want = {TUTTI__FIT_RANDOM, data->height, data->width, chance};

    return load(data, index, &want, image, label_p);
}

static void folder_locate(const void *self, size_t index, char *text, size_t size)
{
    char path[4096];
    int64_t label;

    if (tutti__folder_sample(self, index, path, &label) == TUTTI_OK)
        snprintf(text, size, "%s", path);
}

static void folder_close(void *self)
{
    folder *data = self;

    tutti__file_names_free(&data->classes);
    tutti__file_names_free(&data->files);
    free(data->labels);
    free(data);
}

const tutti_dataset_format tutti__format_folder = {
    .name = "folder",
    .help = "images as DIR/train/CLASS/FILE.jpg or .png",
    .any_split = true,
    .open = folder_open,
    .read = folder_read,
    .close = folder_close,
    .read_random = folder_read_random,
    .locate = folder_locate,
};
