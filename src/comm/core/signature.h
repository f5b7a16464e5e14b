/* signature.h -- what identifies a call, so that ranks can compare their calls.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_CORE_SIGNATURE_H
#define TUTTI_COMM_CORE_SIGNATURE_H

#include "comm/core/op_kind.h"
#include <tutti/group.h>

#include <string.h>

/* What ranks must agree on; every message begins with it. 40 bytes: with it a rank's call fits one cache line of shared memory. */
typedef struct tutti__signature {
    uint64_t group, sequence;
    uint64_t count; /* elements of one piece; bytes of an alloc */
    uint8_t op, dtype, redop;
    uint8_t coalesced : 1; /* several calls in one; `tag` is then a digest of all of them */
    uint8_t on_device : 1; /* devices move the data themselves: see tutti__device_backend */
    uint8_t scaled : 1;    /* each rank multiplies what it gives by a factor of its own */
    uint8_t unused : 5;
    /* Of a reducer's call: which reducer, and 1 + the bucket's index (0: none in particular); `tag` is then the step's low
     * 31 bits. 0: the program's call. */
    uint16_t reducer, bucket;
    /* of a send or receive: the other rank; of a coalesced all_reduce: how many calls there are */
    uint32_t root;
    int32_t tag;
} tutti__signature;
_Static_assert(sizeof(tutti__signature) == 40, "no hole: signatures are compared byte by byte");

/* Messages of window i (windows.c) have the tag TUTTI__TAG_WINDOWS - i; the monitored barrier's are above. */
enum { TUTTI__TAG_WINDOWS = -16 };

/* tutti_dtype_size, inline: calls that take 0.1 us need it several times. */
static inline size_t tutti__element(unsigned dtype)
{
#define X(name, value, bytes, text) [value] = bytes,
    static const uint8_t BYTES[] = {TUTTI_DTYPE_TABLE(X)};
#undef X

    return dtype < sizeof BYTES ? BYTES[dtype] : 0;
}

/* "all_reduce #12 (F32 x 1000, sum; reducer 2, step 7, bucket 3)" */
enum { TUTTI__SIGNATURE_TEXT = 160 };
void tutti__signature_text(const tutti__signature *signature, char *text, size_t capacity);
static inline bool tutti__signature_equal(const tutti__signature *a, const tutti__signature *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}
/* Bytes of one piece. */
size_t tutti__signature_bytes(const tutti__signature *signature);

#endif
