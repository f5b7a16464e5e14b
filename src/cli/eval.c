/* eval.c -- `tutti eval`: accuracy and loss of weights on a data set.   SPDX-License-Identifier: MIT */
#include "cli/cli.h"
#include "cli/inference_command.h"

static const char HELP[] =
    "Accuracy and loss of weights on a data set, overall and per class; each sample counts "
    "once.\n"
    "\n"
    "usage: tutti eval PATH [-n N] [--FLAG VALUE]...\n"
    "\n"
    "  tutti eval runs/mine\n"
    "  tutti eval runs/mine/checkpoints/latest -n 2 --confusion\n"
    "  tutti eval resnet.pt --model mini_resnet --data cifar10 --data-dir data/cifar10 --json -\n"
    "\n" TUTTI__INFERENCE_HELP "  --confusion              also the confusion matrix\n"
    "  --json FILE              the results as a JSON object; -: to standard output, in place of "
    "the "
    "tables\n"
    "  -h, --help               this text\n"
    "\n"
    "recall: share of a class's samples that were predicted correctly;\n"
    "precision: share of the predictions of a class that are correct.\n";

int tutti__cli_eval(int argc, char **argv)
{
    tutti__inference_line line = {.title = "tutti eval"};

    return tutti__inference_command(&line, HELP, argc, argv);
}
