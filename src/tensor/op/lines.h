/* lines.h -- elements at indices along a dimension, as gather and scatter find them.   SPDX-License-Identifier: MIT
 *
 *     for each place i, j, k of the index:  small[i][j][k]  <->  large[i][index[i][j][k]][k]     (dim 1)
 *
 * A job has all places of some lines along dim: no other job has an element of `large` in common with it, so that jobs may add in
 * parallel; within a job, the places are in order. The number of jobs depends on the shapes only. */
#ifndef TUTTI_TENSOR_OP_LINES_H
#define TUTTI_TENSOR_OP_LINES_H

#include "tensor/each.h"
#include "tensor/op.h"

typedef struct tutti__lines {
    int64_t rows, width; /* of the index: its last dimension, and how many of it */
    int n;               /* its other dimensions */
    int64_t size[TUTTI_MAX_DIMS], small_stride[TUTTI_MAX_DIMS];
    int64_t large_stride[TUTTI_MAX_DIMS]; /* 0 for dim */
    int64_t step;                         /* of large, along dim */
    int64_t last;                         /* of large, along the last dimension; 0 if that is dim */
    int64_t group;                        /* rows that have lines in common */
    int64_t columns;                      /* per job */
    int64_t groups;                       /* per job */
} tutti__lines;

/* Checks index [..] (I64) beside `large` and `small` (the index's own shape for gather), and that indices are in 0 .. the size of
 * dim - 1, or from_the_end from minus that size on. Scalars count as one dimension of size 1. */
tutti_status tutti__lines_check(int dim, const tutti_tensor *large, const tutti_tensor *index,
                                const tutti_tensor *small, bool from_the_end);
tutti__lines tutti__lines_of(int dim, tutti_shape large, tutti_shape index, tutti_shape small);
int64_t tutti__lines_jobs(const tutti__lines *l);

/* The places of a job, row by row. */
typedef struct tutti__lines_run {
    int64_t n, large, small, index; /* elements from here on: of a row, in order */
} tutti__lines_run;
/* The number of rows of the job, and row i of it. */
int64_t tutti__lines_rows(const tutti__lines *l, int64_t job);
tutti__lines_run tutti__lines_row(const tutti__lines *l, int64_t job, int64_t i);

/* The same for jobs on a device (job/places.h): `job` gets the index and its strides; the caller sets large and small. *lines_p = how
 * many lines there are. */
tutti__job_places tutti__job_places_of(int dim, tutti_shape large, tutti_shape index,
                                       tutti_shape small, const int64_t *indices, int64_t *lines_p);

/* ARG, with the place of the first of these I64 that is not in first .. size - 1: `element 3 of index [4] is 9, but dim 1 of x has 4
 * elements`. */
tutti_status tutti__check_indices(const tutti_tensor *index, const char *name, int64_t first,
                                  int64_t size, const char *because);

#endif
