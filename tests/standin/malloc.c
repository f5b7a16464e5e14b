/* malloc.c -- malloc of a process to which the system gives no more memory at one moment: LD_PRELOAD=libfailing_malloc.so.
 * SPDX-License-Identifier: MIT
 *
 * FAIL_AT=K: the K-th allocation of this process fails, and standard error says so. Counted are those of Tutti and of jansson,
 * which it uses for JSON: oneDNN and the C++ library end the process where they get nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static long fail_at;
static atomic_long n_calls;
static _Thread_local bool looking; /* dladdr may allocate */

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("FAIL_AT");

    fail_at = text ? strtol(text, NULL, 10) : 0;
}

static bool is_counted(const void *caller)
{
    Dl_info info;
    const char *name;
    bool found;

    looking = true;
    found = dladdr(caller, &info) != 0 && info.dli_fname;
    looking = false;
    name = found ? strrchr(info.dli_fname, '/') : NULL;
    return name && (strcmp(name, "/tutti") == 0 || strncmp(name, "/libjansson", 11) == 0);
}

static bool fails(const void *caller)
{
    static const char said[] = "failing_malloc: no memory\n";

    if (fail_at == 0 || looking || !is_counted(caller) ||
        atomic_fetch_add(&n_calls, 1) + 1 != fail_at)
        return false;
    (void)!write(STDERR_FILENO, said, sizeof said - 1);
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **p, size_t alignment, size_t bytes)
{
    void *found = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);

    if (!found)
        return ENOMEM;
    *p = found;
    return 0;
}
