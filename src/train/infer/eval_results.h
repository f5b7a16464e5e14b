/* eval_results.h -- what `tutti eval` and a program's --eval show.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_EVAL_RESULTS_H
#define TUTTI_TRAIN_EVAL_RESULTS_H

#include "train/infer/inference.h"

/* For tutti__inference_run. line: a tutti__inference_line; with --json in a file, or in place of the tables. */
tutti_status tutti__eval_show(void *line, const tutti__inference_result *result);

#endif
