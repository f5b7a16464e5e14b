/* log_pipe.c -- workers' output: from pipes, line by line, to the console and to files.
 * SPDX-License-Identifier: MIT
 *
 * Nothing is lost and nothing blocks: lines wait in one queue until the console accepts them; while the queue is long the agent
 * does not read, so that workers block in their own writes, as on a terminal. */
#include "launch/console/log_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    READ_BYTES = 1 << 16,
    LINE_BYTES = 1 << 23 /* longer lines are shown in pieces */
};

/* False: it is not shown on the console. */
static bool show(const tutti__log_pipe *pipe, tutti__console *console, const char *text,
                 size_t bytes)
{
    if (pipe->console_fd < 0)
        return false;
    if (pipe->console_fd == STDERR_FILENO && *pipe->prefix && console->forward &&
        tutti__console_is_ours(text, bytes) &&
        console->forward(console->context, pipe->rank, pipe->prefix, text, bytes))
        return false;
    if (pipe->console_fd == STDERR_FILENO && *pipe->prefix &&
        tutti__console_repeats(console, pipe->rank, text, bytes))
        return false;
    tutti__console_add(console, pipe->console_fd, pipe->prefix, strlen(pipe->prefix));
    tutti__console_add(console, pipe->console_fd, text, bytes);
    return true;
}

static bool has_one(const char *const *words, const char *text, size_t bytes)
{
    for (; *words; words++)
        if (memmem(text, bytes, *words, strlen(*words)))
            return true;
    return false;
}

/* Appends lines with their prefixes in one write, so that those of several workers do not mix. */
static void copy_filtered(const tutti__log_pipe *pipe, const char *text, size_t bytes)
{
    struct iovec parts[] = {{(void *)(uintptr_t)pipe->prefix, strlen(pipe->prefix)},
                            {(void *)(uintptr_t)text, bytes},
                            {(void *)(uintptr_t) "\n", text[bytes - 1] != '\n'}};

    if (pipe->filtered > 0 && has_one(pipe->filters, text, bytes) &&
        writev(pipe->filtered, parts, TUTTI__COUNT_OF(parts)) < 0)
        return; /* only a copy: the line itself is shown anyway */
}

static void show_unfinished(tutti__log_pipe *pipe, tutti__console *console)
{
    if (pipe->used == 0)
        return;
    if (show(pipe, console, pipe->line, pipe->used))
        tutti__console_add(console, pipe->console_fd, "\n", 1);
    copy_filtered(pipe, pipe->line, pipe->used);
    pipe->used = pipe->scanned = 0;
}

/* Shows complete lines. A carriage return ends a line too, so that progress bars move, but only when the next byte is known:
 * "\r\n" is one line end. */
static void show_lines(tutti__log_pipe *pipe, tutti__console *console)
{
    size_t begin = 0, i;

    for (i = pipe->scanned; i < pipe->used; i++) {
        char c = pipe->line[i];

        if (c == '\r' && i + 1 == pipe->used)
            break;
        if (c == '\n' || (c == '\r' && pipe->line[i + 1] != '\n')) {
            show(pipe, console, pipe->line + begin, i + 1 - begin);
            copy_filtered(pipe, pipe->line + begin, i + 1 - begin);
            begin = i + 1;
        }
    }
    pipe->used -= begin;
    pipe->scanned = i - begin;
    memmove(pipe->line, pipe->line + begin, pipe->used);
    if (pipe->used >= LINE_BYTES)
        show_unfinished(pipe, console);
}

static void keep_tail(tutti__log_pipe *pipe, const char *text, size_t bytes)
{
    size_t kept;

    if (bytes > sizeof pipe->tail) {
        text += bytes - sizeof pipe->tail;
        bytes = sizeof pipe->tail;
    }
    kept =
        sizeof pipe->tail - bytes < pipe->tail_bytes ? sizeof pipe->tail - bytes : pipe->tail_bytes;
    memmove(pipe->tail, pipe->tail + pipe->tail_bytes - kept, kept);
    memcpy(pipe->tail + kept, text, bytes);
    pipe->tail_bytes = kept + bytes;
}

static void write_file(tutti__log_pipe *pipe, tutti__console *console, const char *text,
                       size_t bytes)
{
    while (pipe->file >= 0 && bytes > 0) {
        ssize_t n = write(pipe->file, text, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            tutti__console_say(console, "cannot write %s: %s; it ends here", pipe->path,
                               strerror(errno));
            close(pipe->file);
            pipe->file = -1;
            return;
        }
        text += n;
        bytes -= (size_t)n;
    }
}

void tutti__log_pipe_close(tutti__log_pipe *pipe, tutti__console *console)
{
    show_unfinished(pipe, console);
    if (pipe->fd >= 0)
        close(pipe->fd);
    if (pipe->file >= 0)
        close(pipe->file);
    if (pipe->filtered > 0)
        close(pipe->filtered);
    pipe->filtered = 0;
    if (pipe->started && --console->streams == 0)
        tutti__console_report_repeats(console);
    pipe->started = false;
    free(pipe->line);
    free(pipe->path);
    pipe->line = pipe->path = NULL;
    pipe->capacity = 0;
    pipe->fd = pipe->file = -1;
}

size_t tutti__log_pipe_read(tutti__log_pipe *pipe, tutti__console *console)
{
    char piece[512], *text = piece;
    size_t bytes = sizeof piece;
    void *p = pipe->line;
    ssize_t n;

    if (pipe->fd < 0)
        return 0;
    if (!tutti__grow(&p, &pipe->capacity, pipe->used + READ_BYTES, 1))
        show_unfinished(pipe, console); /* shown in pieces */
    if (p) { /* else each piece is shown at once: a stream that is not read would never end */
        pipe->line = p;
        text = pipe->line + pipe->used;
        bytes = pipe->capacity - pipe->used;
    }
    n = read(pipe->fd, text, bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        tutti__log_pipe_close(pipe, console);
        return 0;
    }
    console->streams += !pipe->started;
    pipe->started = true;
    write_file(pipe, console, text, (size_t)n);
    keep_tail(pipe, text, (size_t)n);
    if (p) {
        pipe->used += (size_t)n;
        show_lines(pipe, console);
    } else
        show(pipe, console, text, (size_t)n);
    return (size_t)n;
}

/* A worker that has ended writes no more; other processes that hold its stream open may write forever, as fast as we read. */
void tutti__log_pipe_drain(tutti__log_pipe *pipe, tutti__console *console)
{
    size_t n = 1;
    int left;

    if (pipe->fd < 0 || ioctl(pipe->fd, FIONREAD, &left) != 0)
        return;
    for (; left > 0 && n > 0; left -= (int)n)
        n = tutti__log_pipe_read(pipe, console);
}
