/* logit_rows.h -- losses of rows of logits, which become their gradients.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_LOGIT_ROWS_H
#define TUTTI_TENSOR_OP_LOGIT_ROWS_H

#include "tensor/op/class_loss.h"
#include "tensor/op/vocabulary_logits.h"

/* Rows of linear_cross_entropy.c: logits row-major [rows,classes]. */
typedef struct tutti__logit_rows {
    tutti_ctx *cx;
    const tutti__cross_entropy *how;
    const tutti__divided_classes *divided; /* NULL: this rank has all classes */
    const int64_t *label;                  /* of the first row */
    tutti_tensor *logits;
    tutti_tensor **
        parts; /* if a rank's classes are several parts (peers->parts), in place of logits: each one's */
    int64_t classes, in_job, rows;
    bool gradients; /* wanted in place of the logits */
    double divisor;
    double *loss;          /* of each row, in host memory; NULL: */
    float *device_loss;    /* in a device's, whose kernels take the rows */
    float *wide;           /* a row in F32 for each thread, if the logits have 16 bits */
    int64_t first;         /* class of this rank's (part's) first logit */
    int part, n_parts;     /* of those of all ranks; one a rank if not given */
    tutti__row_sums *sums; /* of each row, by part, if classes are divided; where the losses are */
} tutti__logit_rows;

/* If classes are divided: where this rank's begin, and room for sums of at most `rows` rows. Every rank has as many in a call. */
tutti_status tutti__logit_rows_prepare(tutti__logit_rows *c, int64_t rows);
/* Losses, and if wanted gradients. */
tutti_status tutti__logit_rows_run(tutti__logit_rows *c);

#endif
