/* record_file.c -- a new file to which whole records are appended.   SPDX-License-Identifier: MIT */
#include "train/output/loggers/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tutti_status tutti__record_file_open(tutti__record_file *file, const char *path, bool *exists_p)
{
    *exists_p = false;
    *file = (tutti__record_file){.fd = -1};
    if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
        return tutti__fail(TUTTI_ERR_ARG, "file %.60s...: the path is too long", path);
    /* O_APPEND: truncation after a failed write leaves no hole. */
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    *exists_p = file->fd < 0 && errno == EEXIST;
    return file->fd < 0 ? tutti__fail_errno(errno, "cannot make %s", path) : TUTTI_OK;
}

static tutti_status make_room(uint8_t **p, size_t *room, size_t bytes)
{
    uint8_t *more;

    if (bytes <= *room)
        return TUTTI_OK;
    more = realloc(*p, bytes + bytes / 2);
    if (!more)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a record of %zu bytes", bytes);
    *p = more;
    *room = bytes + bytes / 2;
    return TUTTI_OK;
}

tutti_status tutti__record_file_pack(tutti__record_file *file, const ProtobufCMessage *message,
                                     size_t *bytes_p)
{
    *bytes_p = protobuf_c_message_get_packed_size(message);
    TUTTI_TRY(make_room(&file->message, &file->message_room, *bytes_p));
    protobuf_c_message_pack(message, file->message);
    return TUTTI_OK;
}

tutti_status tutti__record_file_frame(tutti__record_file *file, size_t bytes)
{
    return make_room(&file->frame, &file->frame_room, bytes);
}

tutti_status tutti__record_file_write(tutti__record_file *file, size_t bytes)
{
    ssize_t n;
    int error;

    do
        n = write(file->fd, file->frame, bytes);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)bytes) {
        file->size += bytes;
        return TUTTI_OK;
    }
    error = n < 0 ? errno : ENOSPC;
    if (n > 0 && ftruncate(file->fd, (off_t)file->size) != 0)
        tutti_log(TUTTI_LOG_DEBUG, "train", "%s ends in half a record", file->path);
    return tutti__fail_errno(error, "cannot write %s", file->path);
}

void tutti__record_file_close(tutti__record_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->message);
    free(file->frame);
    *file = (tutti__record_file){.fd = -1};
}
