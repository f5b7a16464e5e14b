/* npy_header.h -- the header of NumPy's .npy format.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_NPY_HEADER_H
#define TUTTI_DATA_NPY_HEADER_H

#include "base/base.h"

#include <tutti/tensor.h>

#define TUTTI__NPY_HEADER 65536 /* bytes that a header may take, at most */

/* How an element is stored: little-endian. */
typedef enum tutti__npy_type {
    TUTTI__NPY_U8, /* also bool */
    TUTTI__NPY_I32,
    TUTTI__NPY_I64,
    TUTTI__NPY_F32,
    TUTTI__NPY_F64
} tutti__npy_type;

typedef struct tutti__npy {
    tutti__npy_type type;
    tutti_shape shape;   /* up to 6 dimensions, each at least 1 */
    size_t element;      /* bytes of one */
    uint64_t count;      /* elements */
    uint64_t data_bytes; /* of all */
    size_t header_bytes; /* before them */
} tutti__npy;

/* Reads a header from the first n bytes of an array of `bytes` bytes in all. FORMAT with `what` ("x.npy") and the cause: not an
 * .npy file, another dtype, Fortran order, or data of another size than the shape says. */
tutti_status tutti__npy_header(tutti__npy *npy, const uint8_t *p, size_t n, uint64_t bytes,
                               const char *what);

#endif
