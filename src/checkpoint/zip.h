/* zip.h -- zip files of stored (uncompressed) entries, as PyTorch's.   SPDX-License-Identifier: MIT
 *
 *   local header, name, extra | data     of each entry
 *   central directory: each entry's name, size, CRC-32, place
 *   [zip64 end and its locator]  end
 *
 * Files are untrusted. The reader uses the central directory, because writers that stream leave local headers without sizes;
 * every offset and size is checked against the file before it is used. Beyond 4 GiB reader and writer use zip64. */
#ifndef TUTTI_CHECKPOINT_ZIP_H
#define TUTTI_CHECKPOINT_ZIP_H

#include "base/base.h"

typedef struct tutti__zip tutti__zip;

typedef struct tutti__zip_entry {
    const char *name;
    uint64_t bytes;
    uint64_t header; /* where its local header begins */
    uint32_t crc;
    bool stored; /* neither compressed nor encrypted */
} tutti__zip_entry;

/* Errors: NOT_FOUND, IO; FORMAT with path and cause. */
tutti_status tutti__zip_open(tutti__zip **zip_p, const char *path);
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

/* ---- Writing: entries in turn, then the directory ----------------------------------------- */

typedef struct tutti__zip_writer tutti__zip_writer;

/* Writes to fd from its beginning; `path` is for messages and borrowed. Each entry's data are aligned to 64 bytes. Sizes and
 * offsets from `limit` on are written as zip64; 0 means 4 GiB, where zip64 is required. */
tutti_status tutti__zip_writer_new(tutti__zip_writer **writer_p, int fd, const char *path,
                                   uint64_t limit);
tutti_status tutti__zip_add(tutti__zip_writer *writer, const char *name, const void *p,
                            uint64_t bytes);
tutti_status tutti__zip_finish(tutti__zip_writer *writer);
void tutti__zip_writer_free(tutti__zip_writer *writer);

#endif
