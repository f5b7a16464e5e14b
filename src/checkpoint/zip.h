/* zip.h -- writes zip files of stored (uncompressed) entries, as PyTorch's.   SPDX-License-Identifier: MIT
 *
 *   local header, name, extra | data     of each entry
 *   central directory: each entry's name, size, CRC-32, place
 *   [zip64 end and its locator]  end
 *
 * Beyond 4 GiB reader (data/zip_read.h) and writer use zip64. */
#ifndef TUTTI_CHECKPOINT_ZIP_H
#define TUTTI_CHECKPOINT_ZIP_H

#include "data/zip_read.h"

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
