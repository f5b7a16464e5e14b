/* cifar100.c -- CIFAR-100's binary files: a record is the coarse label, the fine label and the pixels.
 * SPDX-License-Identifier: MIT
 *
 * The fine label, of 100 classes, is used; the coarse one, of 20, is not. Mean and standard deviation are
 * those of the 50,000 training images. */
#include "data/records.h"

#define COMMON                                                                                     \
    .n_files = 1, .folder = "cifar-100-binary", .label_bytes = 2, .names = "fine_label_names.txt", \
    .classes = 100, .mean = {0.5071f, 0.4865f, 0.4409f}, .std = {0.2673f, 0.2564f, 0.2762f},       \
    .origin = "CIFAR-100 is cifar-100-binary.tar.gz (161 MiB) from "                               \
              "https://www.cs.toronto.edu/~kriz/cifar.html, unpacked in that folder"

static tutti_status cifar100_open(void **self_p, const tutti_dataset_source *source,
                                  tutti_dataset_info *info)
{
    static const char *const TRAIN[] = {"train.bin"}, *const TEST[] = {"test.bin"};
    static const tutti__records_layout train = {.files = TRAIN, .own_bytes = 153700000, COMMON},
                                       test = {.files = TEST, .own_bytes = 30740000, COMMON};

    return tutti__records_open(self_p, source, source->train ? &train : &test, info);
}

const tutti_dataset_format tutti__format_cifar100 = {
    .name = "cifar100",
    .help = "CIFAR-100 binary files; the fine labels",
    .open = cifar100_open,
    .read = tutti__records_read,
    .close = tutti__records_close,
    .locate = tutti__records_locate,
};
