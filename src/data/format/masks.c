/* masks.c -- segmentation: DIR/SPLIT/images/NAME.{jpg,png} and DIR/SPLIT/masks/NAME.png.   SPDX-License-Identifier: MIT
 *
 * A mask's numbers are classes: the lines of DIR/classes.txt, from 0; 255 is none of them. Images are in the order of their names. */
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/image/image.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST 255 /* classes */

typedef struct mask_folder {
    char root[4096]; /* DIR/SPLIT */
    struct dirent **files;
    int n, height, width, classes;
    char *names; /* the text of classes.txt, cut into lines */
    const char *class_names[MOST];
    tutti_field fields[2];
} mask_folder;

static int is_image(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && tutti__image_named(entry->d_name);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static tutti_status read_classes(mask_folder *data, const char *dir)
{
    char path[4096], *rest, *line;
    uint8_t *text;
    size_t bytes;

    TUTTI_TRY(tutti__path(path, dir, "classes.txt"));
    TUTTI_TRY(tutti__with_origin(tutti__read_file(path, 1 << 20, &text, &bytes),
                                 "It names the masks' classes, one a line, from 0 on"));
    rest = data->names = (char *)text;
    while ((line = strsep(&rest, "\n"))) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line)
            continue;
        if (data->classes == MOST)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s names more than %d classes", path, MOST);
        data->class_names[data->classes++] = line;
    }
    return data->classes ? TUTTI_OK
                         : tutti__fail(TUTTI_ERR_FORMAT,
                                       "%s is empty; it names the masks' classes, one a "
                                       "line, from 0 on",
                                       path);
}

static tutti_status paths_of(const mask_folder *data, size_t index, char image[4096],
                             char mask[4096])
{
    const char *name = data->files[index]->d_name;
    char file[300];

    snprintf(file, sizeof file, "images/%s", name);
    TUTTI_TRY(tutti__path(image, data->root, file));
    snprintf(file, sizeof file, "masks/%.*s.png", (int)(strrchr(name, '.') - name), name);
    return tutti__path(mask, data->root, file);
}

static tutti_status open_images(mask_folder *data, const tutti_dataset_source *source)
{
    char images[4096], mask[4096];

    TUTTI_TRY(tutti__path(data->root, source->dir, source->split));
    TUTTI_TRY(tutti__path(images, data->root, "images"));
    data->n = scandir(images, &data->files, is_image, by_name);
    if (data->n < 0) {
        data->n = 0;
        return tutti__fail_errno(errno, "cannot list folder %s", images);
    }
    if (data->n == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s holds no .jpg, .jpeg or .png file", images);
    TUTTI_TRY(paths_of(data, 0, images, mask));
    return tutti__image_size(images, &data->height, &data->width);
}

static tutti_status masks_open(void **self_p, const tutti_dataset_source *source,
                               tutti_dataset_info *info)
{
    static const float MEAN[] = {0.485f, 0.456f, 0.406f};
    static const float DEVIATION[] = {0.229f, 0.224f, 0.225f};
    mask_folder *data = *self_p = tutti__alloc(sizeof *data);

    if (!data)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(read_classes(data, source->dir));
    TUTTI_TRY(open_images(data, source));
    data->fields[0] = (tutti_field){
        .name = "x", .dtype = TUTTI_U8, .shape = TUTTI_SHAPE(3, data->height, data->width)};
    data->fields[1] = (tutti_field){.name = "mask",
                                    .dtype = TUTTI_I64,
                                    .shape = TUTTI_SHAPE(data->height, data->width),
                                    .moves = true,
                                    .fill = TUTTI__IGNORED_LABEL};
    info->count = (size_t)data->n;
    info->classes = data->classes;
    info->class_names = data->class_names;
    info->fields = data->fields;
    info->n_fields = 2;
    memcpy(info->mean, MEAN, sizeof MEAN);
    memcpy(info->std, DEVIATION, sizeof DEVIATION);
    return TUTTI_OK;
}

/* From the end, because the bytes are the beginning of the same memory. */
static tutti_status widen(const mask_folder *data, const char *path, const uint8_t *bytes,
                          int64_t *mask)
{
    for (size_t i = (size_t)data->height * (size_t)data->width; i-- > 0;) {
        const uint8_t class = bytes[i];

        if (class >= data->classes && class != TUTTI__IGNORED_BYTE)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s: row %zu, column %zu is %d, expected a class, 0 to %d, or 255 "
                               "for none",
                               path, i / (size_t)data->width, i % (size_t)data->width, class,
                               data->classes - 1);
        mask[i] = class == TUTTI__IGNORED_BYTE ? TUTTI__IGNORED_LABEL : class;
    }
    return TUTTI_OK;
}

static tutti_status masks_read(const void *self, size_t index, const uint64_t *chance,
                               void *const *arrays)
{
    const mask_folder *data = self;
    const tutti__image_want want = {TUTTI__FIT_MASKED, data->height, data->width, 0};
    char image[4096], mask[4096];

    (void)chance;
    TUTTI_TRY(paths_of(data, index, image, mask));
    TUTTI_TRY(tutti__image_load(image, &want, arrays[0]));
    TUTTI_TRY(tutti__image_mask(mask, data->height, data->width, arrays[1]));
    return widen(data, mask, arrays[1], arrays[1]);
}

static void masks_locate(const void *self, size_t index, char *text, size_t size)
{
    char image[4096], mask[4096];

    if (paths_of(self, index, image, mask) == TUTTI_OK)
        snprintf(text, size, "%s", image);
}

static void masks_close(void *self)
{
    mask_folder *data = self;

    for (int i = 0; i < data->n; i++)
        free(data->files[i]);
    free(data->files);
    free(data->names);
    free(data);
}

const tutti_dataset_format tutti__format_masks = {
    .name = "masks",
    .help = "DIR/train/images/NAME.jpg or .png with DIR/train/masks/NAME.png",
    .any_split = true,
    .open = masks_open,
    .read_arrays = masks_read,
    .close = masks_close,
    .locate = masks_locate,
};
