/* data_files.h -- reading files that may be missing, truncated or not files at all.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_DATA_FILES_H
#define TUTTI_DATA_DATA_FILES_H

#include "base/base.h"

/* Opens a regular file for reading and returns its size. */
tutti_status tutti__open_file(const char *path, int *fd_p, uint64_t *bytes_p);
/* Reads the whole of a file of at most `limit` bytes, and appends a NUL; free(*p). */
tutti_status tutti__read_file(const char *path, size_t limit, uint8_t **p, size_t *bytes_p);
/* Reads exactly `bytes` bytes at offset; path is for the message. Any thread may call. */
tutti_status tutti__read_at(int fd, const char *path, uint64_t offset, void *p, size_t bytes);
/* Appends to the message about a missing folder or file where the data set can be found. Returns status. */
tutti_status tutti__with_origin(tutti_status status, const char *origin);
/* Writes to `found` which of dir and its subs contains one of the files. NOT_FOUND, with the names, if none does; ARG if
 * several subs do, which is ambiguous. */
tutti_status tutti__find_folder(char found[4096], const char *dir, const char *const *subs,
                                size_t n_subs, const char *const *files, size_t n);

#endif
