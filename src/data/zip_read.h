/* zip_read.h -- reads zip files.   SPDX-License-Identifier: MIT
 *
 * Files are untrusted. The reader uses the central directory, because writers that stream leave local headers without sizes;
 * every offset and size is checked against the file before it is used. */
#ifndef TUTTI_DATA_ZIP_READ_H
#define TUTTI_DATA_ZIP_READ_H

#include "base/base.h"

typedef struct tutti__zip tutti__zip;

typedef struct tutti__zip_entry {
    const char *name;
    uint64_t bytes;
    uint64_t header; /* where its local header begins */
    uint32_t crc;
    uint64_t packed; /* its bytes in the file */
    bool stored;     /* neither compressed nor encrypted */
    bool deflated;   /* compressed by deflate, not encrypted */
} tutti__zip_entry;

/* kind: "PyTorch (zip)", for messages; borrowed. Errors: NOT_FOUND, IO; FORMAT with path and cause. */
tutti_status tutti__zip_open(tutti__zip **zip_p, const char *path, const char *kind);
void tutti__zip_close(tutti__zip *zip);
size_t tutti__zip_count(const tutti__zip *zip);
/* Entry i in the directory's order; NULL past the end. */
const tutti__zip_entry *tutti__zip_at(const tutti__zip *zip, size_t i);
const tutti__zip_entry *tutti__zip_find(const tutti__zip *zip, const char *name);
uint64_t tutti__zip_file_bytes(const tutti__zip *zip);
/* Copies `bytes` of an entry's data from `offset` on. FORMAT past its end, or if it is not stored. */
tutti_status tutti__zip_read(const tutti__zip *zip, const tutti__zip_entry *entry, void *dst,
                             uint64_t bytes, uint64_t offset);
/* Reads all of the entry. FORMAT if its CRC-32 does not match. */
tutti_status tutti__zip_check(const tutti__zip *zip, const tutti__zip_entry *entry);
/* Reads all of an entry, stored or deflated, and checks its CRC-32; free(*p). FORMAT also for more than `limit` bytes. */
tutti_status tutti__zip_load(const tutti__zip *zip, const tutti__zip_entry *entry, uint64_t limit,
                             uint8_t **p);

#endif
