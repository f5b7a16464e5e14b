/* record_file.h -- a new file that grows by whole records.   SPDX-License-Identifier: MIT
 *
 * What event_file.c and wandb_file.c write into. A record is one write(2), or nothing: where the disk fills up in the middle of
 * one, the file is cut back to its end before, so that readers never meet half a record but after a power cut. Nothing is
 * synced: a kill of the process loses nothing, and what a power cut takes is the last seconds of a curve. */
#ifndef TUTTI_TRAIN_RECORD_FILE_H
#define TUTTI_TRAIN_RECORD_FILE_H

#include "base/base.h"
#include <protobuf-c/protobuf-c.h>

typedef struct tutti__record_file {
    int fd;
    uint64_t size; /* of the file */
    char path[4096];
    uint8_t *message, *frame; /* a message packed; what goes to the file */
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
