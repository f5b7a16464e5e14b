/* safetensors.h -- read and write safetensors files: named arrays after a JSON header.   SPDX-License-Identifier: MIT
 *
 *   u64 N (little-endian) | N bytes of JSON | data: each array's bytes, back to back, with nothing in between or after
 *
 * Files are untrusted: the whole header is checked before it is used, and data are read with pread, so that a file that shrinks
 * meanwhile gives an error and not a signal. */
#ifndef TUTTI_CHECKPOINT_SAFETENSORS_H
#define TUTTI_CHECKPOINT_SAFETENSORS_H

#include "base/base.h"
#include <tutti/tensor.h>

/* A key of __metadata__ is this prefix and a tensor's name; its value is the XXH3-64 of the tensor's bytes, in 16 hexadecimal
 * digits. */
#define TUTTI__SAFETENSORS_DIGEST "xxh3:"

typedef struct tutti__safetensors tutti__safetensors;

/* One array of an open file. */
typedef struct tutti__safetensors_entry {
    const char *name;
    const char *dtype_text; /* as in the file */
    bool readable; /* `dtype` is valid; false for types that Tutti does not have (F8_E4M3, ...) */
    tutti_dtype dtype;
    tutti_shape shape;
    uint64_t offset, bytes; /* in the data */
} tutti__safetensors_entry;

/* Errors: NOT_FOUND, IO; FORMAT with the path and what is wrong in the header. */
tutti_status tutti__safetensors_open(tutti__safetensors **file_p, const char *path);
void tutti__safetensors_close(tutti__safetensors *file);
/* Entries in the order of their data. */
size_t tutti__safetensors_count(const tutti__safetensors *file);
const tutti__safetensors_entry *tutti__safetensors_at(const tutti__safetensors *file, size_t i);
const tutti__safetensors_entry *tutti__safetensors_find(const tutti__safetensors *file,
                                                        const char *name);
/* XXH3-64 of the file's beginning up to its data, in which the digests of its arrays are. */
tutti_status tutti__safetensors_header(const char *path, uint64_t *digest_p);
uint64_t tutti__safetensors_header_digest(const tutti__safetensors *file);
/* Takes entry i out; those after it move down. Before pointers to entries are kept. */
void tutti__safetensors_pass_over(tutti__safetensors *file, size_t i);
/* The text of a key of __metadata__, or NULL. */
const char *tutti__safetensors_metadata(const tutti__safetensors *file, const char *key);
/* The i-th further name of an array, and that array's: a key of __metadata__ and its value. NULL past the end. */
const char *tutti__safetensors_tied(const tutti__safetensors *file, size_t i, const char **to_p);
/* Copies an entry's bytes to dst (entry->bytes of them). FORMAT, with its name, if they do not match the file's digest. */
tutti_status tutti__safetensors_read(const tutti__safetensors *file,
                                     const tutti__safetensors_entry *entry, void *dst);

typedef struct tutti__safetensors_source {
    const char *name;
    tutti_array array;
} tutti__safetensors_source;
typedef struct tutti__safetensors_pair {
    const char *key, *value;
} tutti__safetensors_pair;

/* FORMAT if the name of a tensor in the file `path` is longer than any that is used. */
tutti_status tutti__check_tensor_name(const char *path, const char *name, size_t n);

/* For qsort, of elements that begin with a name, as those above do. */
int tutti__by_name(const void *a, const void *b);

/* Whether the file has a digest of the entry. */
bool tutti__safetensors_has_digest(const tutti__safetensors *file,
                                   const tutti__safetensors_entry *entry);

/* Receives the next bytes of a file. */
typedef tutti_status tutti__put(void *user, const void *p, size_t bytes);
/* Writes a file's contents by put(user, ...), with the metadata and a digest of each array.
 * A further name of a tensor is a pair of metadata, with the name of the source, as safetensors.torch.save_model writes it. */
tutti_status tutti__safetensors_put(tutti__put *put, void *user,
                                    const tutti__safetensors_source *sources, size_t n,
                                    const tutti__safetensors_pair *metadata, size_t n_metadata);
/* Arrays that come into memory one by one, when they are written: get() writes the elements of source i to room. */
typedef struct tutti__fetch {
    tutti_status (*get)(void *arg, size_t i, void *room);
    void *arg;
} tutti__fetch;
/* The arrays' elements: those of the sources, or if `fetch` is not NULL, what it gets, in *room_p, memory for the largest; free() it. */
tutti_status tutti__fetch_array(const tutti__fetch *fetch, const tutti__safetensors_source *sources,
                                size_t n, size_t i, void **room_p, const void **elements_p);
/* Writes path through a temporary file, fsync, rename and fsync of the folder, so that a failure leaves the old file; with
 * the metadata and a digest of each array. fetch NULL: the sources have their elements. */
tutti_status tutti__safetensors_write_each(const char *path,
                                           const tutti__safetensors_source *sources, size_t n,
                                           const tutti__safetensors_pair *metadata,
                                           size_t n_metadata, const tutti__fetch *fetch);
tutti_status tutti__safetensors_write(const char *path, const tutti__safetensors_source *sources,
                                      size_t n, const tutti__safetensors_pair *metadata,
                                      size_t n_metadata);

#endif
