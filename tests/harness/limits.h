/* limits.h -- cases that need more than a machine may allow.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_LIMITS_H
#define TUTTI_TESTS_LIMITS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <cmocka.h>

/* Allows this process n open files, or skips the case where the hard limit is lower. */
static inline void test_needs_files(rlim_t n)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur >= n)
        return;
    limit.rlim_cur = n;
    if (limit.rlim_max < n || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        print_message("the limit of open files (ulimit -n) is %llu, and this case needs %llu\n",
                      (unsigned long long)limit.rlim_max, (unsigned long long)n);
        skip();
    }
}

#endif
