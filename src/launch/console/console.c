/* console.c -- the queue of lines for standard output and error.   SPDX-License-Identifier: MIT */
#include "launch/console/console.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE_BYTES = 4096 /* per write, in whole lines if they are shorter */ };

bool tutti__grow(void **p, size_t *capacity, size_t wanted, size_t element)
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

/* A descriptor is shared with the shell and other programs, for which O_NONBLOCK would be unexpected, so it is opened again. */
void tutti__console_open(tutti__console *console, const char *title)
{
    console->title = title;
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
    if (!tutti__grow(&p, &console->capacity, console->end + bytes, 1) ||
        !tutti__grow(&parts, &console->parts_capacity, console->n_parts + 1,
                     sizeof *console->parts)) {
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
    int n = snprintf(raw, sizeof raw, "%s: ", console->title ? console->title : "tutti run");

    va_start(args, format);
    vsnprintf(raw + n, sizeof raw - (size_t)n, format, args);
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

void tutti__list_ranks(const int *ranks, size_t n, char *text, size_t bytes)
{
    size_t used = 0;

    *text = '\0';
    for (size_t i = 0, last; i < n; i = last + 1) {
        for (last = i; last + 1 < n && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if (used + 32 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, last > i ? "%s%d-%d" : "%s%d",
                                 i ? ", " : "", ranks[i], ranks[last]);
    }
}
