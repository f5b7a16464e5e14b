/* show.c -- describes a data set: text, numbers, and one image.   SPDX-License-Identifier: MIT */
#include "data/dataset.h"
#include "data/text/tokenize.h"

#include <math.h>
#include <stdlib.h>

#define BAR         40 /* characters of the longest bar */
#define PICTURE_MAX 32 /* images up to this size are drawn, two characters per pixel */
#define N_FIRST     8
#define MOST_BROKEN 20 /* messages about images that cannot be read */

typedef struct survey {
    uint64_t (*bytes)[256]; /* by channel: how often each value occurs */
    size_t *labels;
    int64_t first[N_FIRST];
    void (*broken)(void *user, const char *message);
    void *user;
} survey;

static tutti_status look_at_all(const tutti_dataset *dataset, survey *s, uint8_t *image,
                                const tutti__tick *tick)
{
    const tutti_dataset_info *info = &dataset->info;
    size_t plane = (size_t)info->height * (size_t)info->width, broken = 0;
    tutti_status first = TUTTI_OK;
    int64_t label;

    for (size_t i = 0; i < info->count; i++) {
        tutti_status status = tutti_dataset_read(dataset, i, image, &label);

        if (tutti_status_scope(status) == TUTTI_SCOPE_PROCESS)
            return status;
        if (status != TUTTI_OK) {
            first = broken ? first : status;
            if (broken++ < MOST_BROKEN)
                s->broken(s->user, tutti_last_error());
            TUTTI_TRY(tutti__tick_call(tick, i + 1, info->count));
            continue;
        }
        s->labels[label]++;
        if (i < N_FIRST)
            s->first[i] = label;
        for (size_t c = 0; c < (size_t)info->channels; c++)
            for (size_t k = 0; k < plane; k++)
                s->bytes[c][image[c * plane + k]]++;
        TUTTI_TRY(tutti__tick_call(tick, i + 1, info->count));
    }
    if (broken)
        return tutti__fail(first, "%zu of %zu images cannot be read", broken, info->count);
    return tutti_dataset_read(dataset, 0, image, &label); /* the image that is drawn */
}

static void print_class(FILE *out, const tutti_dataset_info *info, int64_t label)
{
    char name[64];

    if (info->class_names)
        fprintf(out, "%s", tutti__printable(info->class_names[label], name, sizeof name));
    else
        fprintf(out, "%lld", (long long)label);
}

static void print_statistics(FILE *out, const tutti_dataset_info *info, const survey *s)
{
    double n = (double)info->count * info->height * info->width;

    fprintf(out, "%-10s %9s %9s %9s %9s\n", "channel", "mean", "measured", "std", "measured");
    for (int c = 0; c < info->channels; c++) {
        double sum = 0, squares = 0;

        for (int byte = 0; byte < 256; byte++) {
            double value = byte / 255.0, times = (double)s->bytes[c][byte];

            sum += times * value;
            squares += times * value * value;
        }
        fprintf(out, "%-10d %9.4f %9.4f %9.4f %9.4f\n", c, (double)info->mean[c], sum / n,
                (double)info->std[c], sqrt(fmax(squares / n - sum / n * (sum / n), 0)));
    }
}

static void print_classes(FILE *out, const tutti_dataset_info *info, const survey *s)
{
    size_t most = 1;

    for (int i = 0; i < info->classes; i++)
        most = s->labels[i] > most ? s->labels[i] : most;
    fprintf(out, "%-4s %-20s %8s\n", "", "class", "images");
    for (int i = 0; i < info->classes; i++) {
        int bar = (int)((double)s->labels[i] / (double)most * BAR + 0.5);
        char name[64];

        tutti__printable(info->class_names ? info->class_names[i] : "", name, sizeof name);
        fprintf(out, "%-4d %-20s %8zu ", i, name, s->labels[i]);
        for (int k = 0; k < bar; k++)
            fputc('#', out);
        fputc('\n', out);
    }
}

static void print_picture(FILE *out, const tutti_dataset_info *info, const uint8_t *image)
{
    static const char SHADES[] = " .:-=+*#%@";
    int plane = info->height * info->width;

    for (int i = 0; i < info->height; i++) {
        for (int j = 0; j < info->width; j++) {
            int sum = 0, shade;

            for (int c = 0; c < info->channels; c++)
                sum += image[c * plane + i * info->width + j];
            shade = sum * ((int)sizeof SHADES - 2) / (255 * info->channels);
            fputc(SHADES[shade], out);
            fputc(SHADES[shade], out);
        }
        fputc('\n', out);
    }
}

static void print_all(FILE *out, const tutti_dataset_info *info, const survey *s,
                      const uint8_t *image)
{
    fprintf(out, "data set   %s, %s\n", info->name, info->split);
    fprintf(out, "images     %zu, each %d x %d x %d bytes (channels x height x width)\n",
            info->count, info->channels, info->height, info->width);
    fprintf(out, "classes    %d\n\n", info->classes);
    print_statistics(out, info, s);
    fputc('\n', out);
    print_classes(out, info, s);
    fprintf(out, "\nthe first labels: ");
    for (size_t i = 0; i < N_FIRST && i < info->count; i++) {
        fprintf(out, "%s", i ? ", " : "");
        print_class(out, info, s->first[i]);
    }
    fputc('\n', out);
    if (info->height <= PICTURE_MAX && info->width <= PICTURE_MAX) {
        fprintf(out, "\nthe first image:\n");
        print_picture(out, info, image);
    }
}

static tutti_status show_images(const tutti_dataset *dataset, FILE *out, const tutti__tick *tick,
                                void (*broken)(void *user, const char *message), void *user)
{
    const tutti_dataset_info *info = &dataset->info;
    uint8_t *image = tutti__alloc(tutti__image_bytes(info));
    survey s = {.broken = broken, .user = user};
    tutti_status status = TUTTI_ERR_MEMORY;

    s.bytes = tutti__alloc((size_t)info->channels * sizeof *s.bytes);
    s.labels = tutti__alloc((size_t)info->classes * sizeof *s.labels);
    if (image && s.bytes && s.labels)
        status = look_at_all(dataset, &s, image, tick);
    if (status == TUTTI_OK)
        print_all(out, info, &s, image);
    free(image);
    free(s.bytes);
    free(s.labels);
    return status;
}

tutti_status tutti__data_show(const char *spec, const tutti_dataset_opts *opts, FILE *out,
                              const tutti__tick *tick,
                              void (*broken)(void *user, const char *message), void *user)
{
    tutti_dataset *dataset;
    tutti_status status;

    TUTTI_TRY(tutti_dataset_open_with(&dataset, spec, opts));
    if (tutti__data_show_tokens(dataset, out, tick, &status))
        ;
    else if (tutti__dataset_has_images(dataset) && tutti__dataset_has_labels(dataset) &&
             dataset->info.n_fields == 2)
        status = show_images(dataset, out, tick, broken, user);
    else
        status = tutti__data_show_fields(dataset, out, tick);
    if (status == TUTTI_OK && fflush(out) != 0)
        status = tutti__fail(TUTTI_ERR_DISK,
                             "cannot write all of the description of %s: is the disk full?", spec);
    tutti_dataset_free(dataset);
    return status;
}
