/* status.h -- what a call returns, and the message that explains it.
 * SPDX-License-Identifier: MIT
 *
 * Every call that can fail returns tutti_status: 0, or a negative error. Errors come in three scopes,
 * by the largest thing that is lost:
 *   CALL     this call only: a bad argument, a missing file. Correct it and continue.
 *   GROUP    a peer is gone or the ranks disagree: the group is dead; free it and make a new one.
 *   PROCESS  memory, disk or device is exhausted: save what can be saved and exit.
 * The message is made once, where the error is found; callers only forward the status.
 * No call crashes if an object is NULL: a function that returns a status returns ARG, a getter returns 0, -1, NULL or "", a
 * function that returns a tensor returns NULL, and one that frees, sets or begins does nothing.
 * Threads: tutti_last_error() belongs to the calling thread. */
#ifndef TUTTI_STATUS_H
#define TUTTI_STATUS_H

#include <stdio.h> /* both for TUTTI_MUST */
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TUTTI_API          __attribute__((visibility("default")))
#define TUTTI_NODISCARD    __attribute__((warn_unused_result))
#define TUTTI_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define TUTTI_API
#define TUTTI_NODISCARD
#define TUTTI_PRINTF(f, a)
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
#define TUTTI_VERSION       "0.1.0"

/* Zero-initialise options structs ({0}, or a literal with designators): a field that is 0 has its default, which is
 * documented beside it. If the default is not 0, set TUTTI_ZERO for zero in float and double fields, and -1 in integer
 * fields that say so. Arguments and setters take zero as zero.
 * The `reserved` fields at the end are for later versions and must be zero: if one is not, the call returns ARG, so that an
 * older library never silently ignores an option of a newer program. Rule and reasons: docs/design/api.md. */
#define TUTTI_ZERO                                                                                 \
    1.17549435082228750797e-38f /* FLT_MIN: never meant literally, and negligible in every sum */

/* X(name, value, text) */
#define TUTTI_STATUS_TABLE(X)                                                                      \
    X(OK, 0, "ok")                                                                                 \
    X(ERR_ARG, -1, "bad argument")                                                                 \
    X(ERR_STATE, -2, "call out of order")                                                          \
    X(ERR_NOT_FOUND, -3, "not found")                                                              \
    X(ERR_FORMAT, -4, "malformed data")                                                            \
    X(ERR_IO, -5, "input/output error")                                                            \
    X(ERR_UNSUPPORTED, -6, "not supported")                                                        \
    X(ERR_PEER, -20, "a peer was lost")                                                            \
    X(ERR_TIMEOUT, -21, "timed out")                                                               \
    X(ERR_MISMATCH, -22, "ranks disagree")                                                         \
    X(ERR_ABORTED, -23, "group aborted")                                                           \
    X(ERR_MEMORY, -40, "out of memory")                                                            \
    X(ERR_DISK, -41, "disk full")                                                                  \
    X(ERR_DEVICE, -42, "device failed")                                                            \
    X(ERR_INTERNAL, -43, "internal error")

typedef enum tutti_status {
#define X(name, value, text) TUTTI_##name = value,
    TUTTI_STATUS_TABLE(X)
#undef X
} tutti_status;

typedef enum tutti_scope {
    TUTTI_SCOPE_NONE,
    TUTTI_SCOPE_CALL,
    TUTTI_SCOPE_GROUP,
    TUTTI_SCOPE_PROCESS
} tutti_scope;

/* The message of the last error on this thread ("" before any). Valid until the next failing call. */
TUTTI_API const char *tutti_last_error(void);
TUTTI_API const char *tutti_status_name(tutti_status status); /* "ERR_PEER" */
TUTTI_API const char *tutti_status_text(tutti_status status); /* "a peer was lost" */
TUTTI_API tutti_scope tutti_status_scope(tutti_status status);

/* The process exit code of a program that ends with this status: 0; 2 bad argument; 3 a peer lost,
 * timed out or disagreeing; 4 memory, disk, device; 1 anything else. */
TUTTI_API int tutti_status_exit_code(tutti_status status);

typedef enum tutti_log_level {
    TUTTI_LOG_ERROR,
    TUTTI_LOG_WARN,
    TUTTI_LOG_INFO,
    TUTTI_LOG_DEBUG, /* once per object */
    TUTTI_LOG_TRACE  /* once per operation */
} tutti_log_level;

/* Writes one line to standard error, "tutti[RANK] LEVEL area: text", if TUTTI_LOG lets it through:
 * a level (default warn), or a list of AREA:LEVEL, as in TUTTI_LOG=warn,comm:debug. */
TUTTI_API void tutti_log(tutti_log_level level, const char *area, const char *format, ...)
    TUTTI_PRINTF(3, 4);

/* Receives the lines that TUTTI_LOG lets through, instead of standard error: text without prefix and end of line, valid
 * during the call; rank -1 on a thread that belongs to no group yet. Called on the thread that logs, which may be any of the
 * program's or the library's, several at once. It must return soon, because ranks may be waiting, and must call no other
 * function of the library; what it logs itself goes to standard error. */
typedef void (*tutti_log_callback)(void *user, tutti_log_level level, const char *area, int rank,
                                   const char *text);
/* For the whole process; NULL: standard error again. Any thread, but not inside a callback. When it returns, the previous
 * callback no longer runs, so its `user` may be freed. `user` is borrowed. */
TUTTI_API void tutti_log_set_callback(tutti_log_callback callback, void *user);

/* Sets the thread's message and returns `status`: for callbacks of the program that fail (such as those of a data set's
 * format). The message should say what was wrong, where, and what was expected. */
TUTTI_API tutti_status tutti_fail(tutti_status status, const char *format, ...) TUTTI_PRINTF(2, 3);

/* Forwards a failure to the caller; the message is already set. */
#define TUTTI_TRY(expression)                                                                      \
    do {                                                                                           \
        tutti_status tutti_try_status_ = (expression);                                             \
        if (tutti_try_status_ != TUTTI_OK)                                                         \
            return tutti_try_status_;                                                              \
    } while (0)

/* For main() and examples: prints the message and exits with the status's exit code. The library itself
 * never exits. */
#define TUTTI_MUST(expression)                                                                     \
    do {                                                                                           \
        tutti_status tutti_must_status_ = (expression);                                            \
        if (tutti_must_status_ != TUTTI_OK) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, tutti_last_error());                \
            exit(tutti_status_exit_code(tutti_must_status_));                                      \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
