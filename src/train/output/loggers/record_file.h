/* record_file.h -- a new file to which whole records are appended.   SPDX-License-Identifier: MIT
 *
 * For event_file.c and wandb_file.c. A record is one write(2), or nothing: if the disk fills up in the middle of one, the file
 * is truncated to its previous end, so that readers never see a partial record, except after a power failure. Nothing is
 * synced: killing the process loses nothing, and a power failure at most the last seconds of a curve. */
#ifndef TUTTI_TRAIN_RECORD_FILE_H
#define TUTTI_TRAIN_RECORD_FILE_H

#include "base/base.h"
#include <protobuf-c/protobuf-c.h>

typedef struct tutti__record_file {
    int fd;
    uint64_t size; /* of the file */
    char path[4096];
    uint8_t *message, *frame; /* the packed message; the bytes for the file */
    size_t message_room, frame_room;
} tutti__record_file;

/* Makes the file, which must not exist: errno EEXIST is IO with *exists_p true. */
tutti_status tutti__record_file_open(tutti__record_file *file, const char *path, bool *exists_p);
/* Packs a message into file->message; *bytes_p its length. */
tutti_status tutti__record_file_pack(tutti__record_file *file, const ProtobufCMessage *message,
                                     size_t *bytes_p);
/* Room for `bytes` in file->frame. */
tutti_status tutti__record_file_frame(tutti__record_file *file, size_t bytes);
/* Appends the frame's first `bytes`. */
tutti_status tutti__record_file_write(tutti__record_file *file, size_t bytes);
void tutti__record_file_close(tutti__record_file *file); /* also one that was never opened: fd -1 */

/* Little-endian, as both formats have it. */
static inline void tutti__put_le(uint8_t *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

#endif
