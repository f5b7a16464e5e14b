/* cifar10.c -- CIFAR-10's binary files: a record is a label byte and the pixels.   SPDX-License-Identifier: MIT */
#include "data/records.h"

#define COMMON                                                                                     \
    .folder = "cifar-10-batches-bin", .label_bytes = 1, .names = "batches.meta.txt",               \
    .classes = 10, .mean = {0.4914f, 0.4822f, 0.4465f}, .std = {0.2470f, 0.2435f, 0.2616f},        \
    .own_bytes = 30730000,                                                                         \
    .origin = "CIFAR-10 is cifar-10-binary.tar.gz (162 MiB) from "                                 \
              "https://www.cs.toronto.edu/~kriz/cifar.html, unpacked in that folder"

static tutti_status cifar10_open(void **self_p, const tutti_dataset_source *source,
                                 tutti_dataset_info *info)
{
    static const char *const TRAIN[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin"};
    static const char *const TEST[] = {"test_batch.bin"};
    static const tutti__records_layout train = {.files = TRAIN, .n_files = 5, COMMON},
                                       test = {.files = TEST, .n_files = 1, COMMON};

    return tutti__records_open(self_p, source, source->train ? &train : &test, info);
}

const tutti_dataset_format tutti__format_cifar10 = {
    .name = "cifar10",
    .help = "CIFAR-10 binary files",
    .open = cifar10_open,
    .read = tutti__records_read,
    .close = tutti__records_close,
    .locate = tutti__records_locate,
};
