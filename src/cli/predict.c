/* predict.c -- `tutti predict`: a model's output for each sample of a data set.   SPDX-License-Identifier: MIT */
#include "cli/cli.h"
#include "cli/inference_command.h"

static const char HELP[] =
    "Writes a model's predictions for all samples of a data set, in the data set's order.\n"
    "\n"
    "usage: tutti predict PATH --out FILE [-n N] [--FLAG VALUE]...\n"
    "\n"
    "  tutti predict runs/mine --out logits.safetensors\n"
    "  tutti predict runs/mine --out - --format probabilities | head\n"
    "\n" TUTTI__INFERENCE_HELP
    "  --out FILE               .safetensors: tensors logits (or probabilities) F32 [N, classes], "
    "label and\n"
    "                           predicted I64 [N]; .csv, or - for standard output: one line per\n"
    "                           sample: index, label, predicted, and one column per class\n"
    "  --format KIND            logits or probabilities (default logits)\n"
    "  -h, --help               this text\n";

int tutti__cli_predict(int argc, char **argv)
{
    tutti__inference_line line = {.title = "tutti predict", .predicts = true};

    return tutti__inference_command(&line, HELP, argc, argv);
}
