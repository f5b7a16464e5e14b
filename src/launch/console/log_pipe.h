/* log_pipe.h -- reads one stream of one worker, for the console and a file.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_LOG_PIPE_H
#define TUTTI_LAUNCH_LOG_PIPE_H

#include "launch/console/console.h"

#include <sys/types.h>

typedef struct tutti__log_pipe {
    int fd;         /* read end; -1: none, or end of file */
    int file;       /* receives the unchanged bytes; -1: none */
    char *path;     /* of the file, owned; NULL: none */
    off_t begin;    /* of this stream in the file, after that of an earlier job */
    int console_fd; /* 1, 2; -1: not shown */
    int rank;       /* of the worker */
    char prefix[256];
    /* lines with one of these words are copied to `filtered`; NULL: none */
    const char *const *filters;
    int filtered; /* 0: none */
    bool started; /* there was output */
    char *line;   /* the incomplete last line */
    size_t used, capacity, scanned;
    char tail[2048]; /* last bytes of the stream, for the report */
    size_t tail_bytes;
} tutti__log_pipe;

/* Reads once, and returns how many bytes; 0: none available now, or the stream has ended (fd is -1 then). */
size_t tutti__log_pipe_read(tutti__log_pipe *pipe, tutti__console *console);
/* Reads what is in the pipe now, not what is written meanwhile: at most the pipe's capacity. */
void tutti__log_pipe_drain(tutti__log_pipe *pipe, tutti__console *console);
void tutti__log_pipe_close(tutti__log_pipe *pipe, tutti__console *console);

#endif
