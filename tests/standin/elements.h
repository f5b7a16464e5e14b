/* elements.h -- shared by the stand-ins of cuDNN and cuBLASLt: records of calls, and elements of any dtype as floats.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_STANDIN_ELEMENTS_H
#define TUTTI_TESTS_STANDIN_ELEMENTS_H

#include "base/half.h"
#include "standin/standin.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum element { ELEMENT_F32, ELEMENT_BF16, ELEMENT_F16, ELEMENT_NONE } element;

static inline const char *element_name(element e)
{
    static const char *const names[] = {"f32", "bf16", "f16", "?"};

    return names[e];
}

static inline int64_t element_bytes(element e)
{
    return e == ELEMENT_F32 ? 4 : 2;
}

static inline float element_load(const void *p, element e, int64_t i)
{
    return e == ELEMENT_F32    ? ((const float *)p)[i]
           : e == ELEMENT_BF16 ? tutti__f32_of_bf16(((const uint16_t *)p)[i])
                               : tutti__f32_of_f16(((const uint16_t *)p)[i]);
}

static inline void element_store(void *p, element e, int64_t i, float x)
{
    if (e == ELEMENT_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = e == ELEMENT_BF16 ? tutti__bf16_of_f32(x) : tutti__f16_of_f32(x);
}

/* As tensor cores read F32: 10 bits of mantissa. */
static inline float element_tf32(float x)
{
    return tutti__float_of_bits((tutti__bits_of_float(x) + 0x1000u) & 0xffffe000u);
}

/* Appends a line to the file in STANDIN_RECORD, if set, atomically. */
__attribute__((format(printf, 1, 2))) static inline void record(const char *format, ...)
{
    const char *path = getenv("STANDIN_RECORD");
    char line[1024];
    va_list args;
    int file, n;

    if (!path)
        return;
    va_start(args, format);
    n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n < 0)
        abort();
    n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    line[n] = '\n';
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)n + 1) != n + 1)
        abort();
    close(file);
}

/* A setting in the variable `name`: 0 without "key", else 1, or N of "key=N". */
static inline int64_t wish(const char *name, const char *key)
{
    const char *all = getenv(name), *at = all ? strstr(all, key) : NULL;

    if (!at)
        return 0;
    at += strlen(key);
    return *at == '=' ? strtoll(at + 1, NULL, 10) : 1;
}

#endif
