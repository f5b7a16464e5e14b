/* predict_results.h -- what `tutti predict` and a program's --predict write.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_PREDICT_RESULTS_H
#define TUTTI_TRAIN_PREDICT_RESULTS_H

#include "train/infer/inference.h"

/* ARG for --out and --format that are missing or of no known kind, and for the weights' own file. */
tutti_status tutti__predict_check(const tutti__inference_line *line);
/* For tutti__infer. line: a tutti__inference_line; writes its --out. */
tutti_status tutti__predict_write(void *line, const tutti__inference_result *result);

#endif
