/* log_pipe.c -- workers' output: from pipes, line by line, to the console and to files.
 * SPDX-License-Identifier: MIT
 *
 * Nothing is lost and nothing blocks: lines wait in one queue until the console accepts them; while the queue is long the agent
 * does not read, so that workers block in their own writes, as on a terminal. */
#include "launch/agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    READ_BYTES = 1 << 16,
    LINE_BYTES = 1 << 23, /* longer lines are shown in pieces */
    WRITE_BYTES = 4096    /* per write, in whole lines if they are shorter */
};

/* Doubles *capacity until it holds `wanted` elements; false: no memory. */
static bool reserve(void **p, size_t *capacity, size_t wanted, size_t element)
{
    size_t larger = *capacity ? *capacity : 64;
    void *moved;

    if (wanted <= *capacity)
        return true;
    while (larger < wanted)
        larger *= 2;
    moved = realloc(*p, larger * element);
    if (!moved)
        return false;
    *p = moved;
    *capacity = larger;
    return true;
}

/* ---- Console --------------------------------------------------------------------------------------- */

/* A descriptor is shared with the shell and other programs, for which O_NONBLOCK would be unexpected, so it is opened again. */
void tutti__console_open(tutti__console *console)
{
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        char path[32];
        struct stat info;
        int own = -1;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)))
            own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        console->own[fd] = own > 0 ? own : 0;
    }
}

void tutti__console_add(tutti__console *console, int fd, const char *text, size_t bytes)
{
    void *p = console->bytes, *parts = console->parts;
    tutti__console_part *last;

    if (console->error || bytes == 0)
        return;
    if (console->begin > console->capacity / 2) {
        console->end -= console->begin;
        memmove(console->bytes, console->bytes + console->begin, console->end);
        console->begin = 0;
    }
    if (console->first > console->parts_capacity / 2) {
        console->n_parts -= console->first;
        memmove(console->parts, console->parts + console->first,
                console->n_parts * sizeof *console->parts);
        console->first = 0;
    }
    if (!reserve(&p, &console->capacity, console->end + bytes, 1) ||
        !reserve(&parts, &console->parts_capacity, console->n_parts + 1, sizeof *console->parts)) {
        console->error = ENOMEM;
        return;
    }
    console->bytes = p;
    console->parts = parts;
    memcpy(console->bytes + console->end, text, bytes);
    console->end += bytes;
    last = console->n_parts > console->first ? &console->parts[console->n_parts - 1] : NULL;
    if (last && last->fd == fd)
        last->bytes += bytes;
    else
        console->parts[console->n_parts++] = (tutti__console_part){fd, bytes};
}

void tutti__console_print(tutti__console *console, const char *format, ...)
{
    char text[4096];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= (int)sizeof text)
        n = (int)sizeof text - 1;
    if (n > 0)
        tutti__console_add(console, STDERR_FILENO, text, (size_t)n);
}

void tutti__console_say(tutti__console *console, const char *format, ...)
{
    char raw[4096], shown[4 * sizeof raw];
    va_list args;

    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    tutti__printable(raw, shown, sizeof shown - 1);
    strcat(shown, "\n");
    tutti__console_add(console, STDERR_FILENO, shown, strlen(shown));
}

int tutti__console_fd(const tutti__console *console)
{
    int fd = tutti__console_empty(console) ? -1 : console->parts[console->first].fd;

    return fd == STDOUT_FILENO || fd == STDERR_FILENO ? (console->own[fd] ? console->own[fd] : fd)
                                                      : fd;
}

void tutti__console_write(tutti__console *console)
{
    tutti__console_part *part = &console->parts[console->first];
    const char *text = console->bytes + console->begin, *newline;
    size_t bytes = part->bytes;
    struct stat info = {0};
    int fd = tutti__console_fd(console);
    ssize_t n;

    fstat(fd, &info);
    if (bytes > WRITE_BYTES && !S_ISREG(info.st_mode)) { /* other processes may write in between */
        newline = memrchr(text, '\n', WRITE_BYTES);
        bytes = newline ? (size_t)(newline - text) + 1 : WRITE_BYTES;
    }
    n = S_ISSOCK(info.st_mode) ? send(fd, text, bytes, MSG_DONTWAIT) : write(fd, text, bytes);
    if (n < 0) {
        if (errno == EINTR || errno == EAGAIN)
            return;
        console->error = errno;
        n = (ssize_t)(console->end - console->begin); /* dropped */
        part->bytes = (size_t)n;
    }
    console->begin += (size_t)n;
    part->bytes -= (size_t)n;
    console->first += part->bytes == 0;
    if (tutti__console_empty(console))
        console->begin = console->end = console->first = console->n_parts = 0;
}

void tutti__console_free(tutti__console *console)
{
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (console->own[fd])
            close(console->own[fd]);
    for (size_t i = 0; i < TUTTI__COUNT_OF(console->repeats); i++)
        free(console->repeats[i].ranks);
    free(console->bytes);
    free(console->parts);
    *console = (tutti__console){0};
}

/* ---- Log pipe -------------------------------------------------------------------------------------- */

/* False: it is not shown on the console. */
static bool show(const tutti__log_pipe *pipe, tutti__console *console, const char *text,
                 size_t bytes)
{
    if (pipe->console_fd < 0)
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
            tutti__console_say(console, "tutti run: cannot write %s: %s; it ends here", pipe->path,
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
    if (pipe->heard && --console->streams == 0)
        tutti__console_tell_repeats(console);
    pipe->heard = false;
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
    if (!reserve(&p, &pipe->capacity, pipe->used + READ_BYTES, 1))
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
    console->streams += !pipe->heard;
    pipe->heard = true;
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
