/* status.c -- status names and the thread's last message.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static _Thread_local char last_error[2048];
static _Thread_local tutti_status last_status;

const char *tutti_last_error(void)
{
    return last_error;
}

tutti_status tutti__last_status(void)
{
    return last_status;
}

const char *tutti_status_name(tutti_status status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case TUTTI_##name:                                                                             \
        return #name;
        TUTTI_STATUS_TABLE(X)
#undef X
    }
    return "?";
}

const char *tutti_status_text(tutti_status status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case TUTTI_##name:                                                                             \
        return text;
        TUTTI_STATUS_TABLE(X)
#undef X
    }
    return "unknown status";
}

tutti_scope tutti_status_scope(tutti_status status)
{
    if (status == TUTTI_OK)
        return TUTTI_SCOPE_NONE;
    if (status > TUTTI_ERR_PEER)
        return TUTTI_SCOPE_CALL;
    return status > TUTTI_ERR_MEMORY ? TUTTI_SCOPE_GROUP : TUTTI_SCOPE_PROCESS;
}

int tutti_status_exit_code(tutti_status status)
{
    if (status == TUTTI_OK)
        return 0;
    if (status == TUTTI_ERR_ARG)
        return 2;
    if (status == TUTTI_ERR_INTERNAL)
        return 1;
    switch (tutti_status_scope(status)) {
    case TUTTI_SCOPE_GROUP:
        return 3;
    case TUTTI_SCOPE_PROCESS:
        return 4;
    default:
        return 1;
    }
}

tutti_status tutti__vfail(tutti_status status, const char *format, va_list args)
{
    char text[sizeof last_error]; /* the arguments may point into last_error */

    vsnprintf(text, sizeof text, format, args);
    tutti__printable(text, last_error, sizeof last_error); /* it may contain a name from outside */
    return last_status = status;
}

tutti_status tutti__fail(tutti_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tutti__vfail(status, format, args);
    va_end(args);
    return status;
}

tutti_status tutti_fail(tutti_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tutti__vfail(status, format, args);
    va_end(args);
    return status;
}

/* The limit that the errno is about, with its value if known; "": the errno is not about a limit. */
static const char *limit_text(int error_number, char *text, size_t capacity)
{
    struct rlimit limit = {0};

    *text = '\0';
    if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        snprintf(text, capacity, " (ulimit -n is %llu)", (unsigned long long)limit.rlim_cur);
    else if (error_number == ENFILE)
        snprintf(text, capacity, " (the whole machine's limit, fs.file-max)");
    else if (error_number == EAGAIN) /* fork and pthread_create return it for each of these */
        snprintf(text, capacity,
                 " (a limit of processes or memory: ulimit -u, ulimit -v, a container's pids.max)");
    return text;
}

tutti_status tutti__fail_errno(int error_number, const char *format, ...)
{
    char text[sizeof last_error], limit[96];
    va_list args;
    tutti_status status = TUTTI_ERR_IO;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG)
        status = TUTTI_ERR_DISK;
    else if (error_number == ENOMEM || error_number == EMFILE || error_number == ENFILE ||
             error_number == EAGAIN)
        status = TUTTI_ERR_MEMORY;
    else if (error_number == ENOENT)
        status = TUTTI_ERR_NOT_FOUND;
    return tutti__fail(status, "%s: %s%s", text, strerror(error_number),
                       limit_text(error_number, limit, sizeof limit));
}

tutti_status tutti__fail_again(tutti_status status, const char *message)
{
    return tutti__fail(status, "%s", message);
}

tutti_status tutti__check_reserved(const char *type, const void *p, size_t offset, size_t n)
{
    const uint64_t *reserved = p ? (const uint64_t *)((const char *)p + offset) : NULL;
    uint64_t set = 0;

    for (size_t i = 0; p && i < n; i++)
        set |= reserved[i];
    if (!set)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s: a reserved field is set by a program built against a newer Tutti than "
                       "this library, which is " TUTTI_VERSION ", or the struct was never zeroed; "
                       "update the library, or begin with {0}",
                       type);
}
