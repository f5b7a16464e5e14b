/* A rank's first all_reduce: from $BEGIN (seconds since 1970, when the launcher was started) to its end, in milliseconds, and
 * its parts. bench/start.sh runs it.   SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <time.h>
#include <tutti/group.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(void)
{
    const char *text = getenv("BEGIN");
    double main_at = now(), begin = text ? atof(text) : main_at, ready_at;
    tutti_group *group;
    float value;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    ready_at = now();
    value = (float)tutti_group_rank(group) + 1;
    TUTTI_MUST(tutti_all_reduce(group, TUTTI_BUF(&value, 1, TUTTI_F32), TUTTI_SUM, NULL));
    tutti_log0(group, "first all_reduce after %.3f ms (main %.3f, group %.3f), sum %g",
               (now() - begin) * 1e3, (main_at - begin) * 1e3, (ready_at - begin) * 1e3,
               (double)value);
    tutti_group_free(group);
    return 0;
}
