/* inference_command.h -- common to `tutti eval` and `tutti predict` as commands.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_INFERENCE_COMMAND_H
#define TUTTI_CLI_INFERENCE_COMMAND_H

#include "train/infer/inference_line.h"

/* The common part of the help. */
#define TUTTI__INFERENCE_HELP                                                                      \
    "PATH is a checkpoint (RUN/checkpoints/step-N, latest or best), a run folder (its latest "     \
    "checkpoint), or a\n"                                                                          \
    ".safetensors or PyTorch .pt file. Model and data set are those of the run; without one, "     \
    "give --model\n"                                                                               \
    "and --data.\n"                                                                                \
    "\n"                                                                                           \
    "  -n, --nproc-per-node N   workers on this machine, each with its share of the data; the "    \
    "results are the\n"                                                                            \
    "                           same with any N "                                                  \
    "(default: this process; also under tutti run, torchrun, srun,\n"                              \
    "                           mpirun)\n"                                                         \
    "  --tensor T, --zero 3     with -n: ranks divide each layer, or each has a share of the "     \
    "weights, as in\n"                                                                             \
    "                           tutti train, for a model that is larger than one process\n"        \
    "  --split NAME             train or test (default test): the part of the data set\n"          \
    "  --weights KIND           ema or model (default ema if PATH is a folder that has one): the " \
    "average of a run\n"                                                                           \
    "                           with --ema, or the weights themselves\n"                           \
    "  --model, --layers, --width, --heads, --kv-heads, --context, --vocab, --patch-size,\n"       \
    "  --task, --loss, --data, --data-dir, --tokenizer, --image-size, --target, --features,\n"     \
    "  --standardize, --test-fraction, --tta, --amp, --batch-size, --workers, --prefetch,\n"       \
    "  --threads, --device, --backend, --timeout-s\n"                                              \
    "                           as in tutti train --help; columns and scale of a run's table are " \
    "the run's\n"

/* The whole command: reads argv, and works in this process or in N. line: with its title and `predicts`. Returns the exit
 * code. */
int tutti__inference_command(tutti__inference_line *line, const char *help, int argc, char **argv);

#endif
