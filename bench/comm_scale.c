/* From $BEGIN (seconds since 1970) to the end of the first all_reduce; then what calls take, and what a rank holds at most.
 * bench/scale.sh runs it.   SPDX-License-Identifier: MIT */
#include "scale.h"

#include <tutti/group.h>

typedef struct buffers {
    float *whole, *out, *in;
} buffers;

static void call(tutti_group *group, const buffers *b, size_t count)
{
    const size_t n = (size_t)tutti_group_size(group);

    if (count > 0)
        TUTTI_MUST(tutti_all_reduce(group, TUTTI_BUF(b->whole, count, TUTTI_F32), TUTTI_MAX, NULL));
    else
        TUTTI_MUST(tutti_all_to_all(group, TUTTI_CONST_BUF(b->out, n, TUTTI_F32),
                                    TUTTI_BUF(b->in, n, TUTTI_F32), NULL));
}

static double time_of(tutti_group *group, const buffers *b, size_t count)
{
    double us[SCALE_CALLS];

    call(group, b, count);
    for (int i = 0; i < SCALE_CALLS; i++) {
        double begin;

        TUTTI_MUST(tutti_barrier(group, NULL));
        begin = scale_now(CLOCK_MONOTONIC);
        call(group, b, count);
        us[i] = (scale_now(CLOCK_MONOTONIC) - begin) * 1e6;
    }
    return scale_median(us);
}

int main(void)
{
    static const size_t COUNTS[] = {1, 1024, 262144, 0};
    const char *text = getenv("BEGIN");
    const double begin = text ? atof(text) : scale_now(CLOCK_REALTIME);
    double first, us[4] = {0}, holds[3];
    tutti_group *group;
    size_t n;
    buffers b;

    TUTTI_MUST(tutti_group_init(&group, NULL));
    n = (size_t)tutti_group_size(group);
    b = (buffers){calloc(262144, sizeof(float)), calloc(n, sizeof(float)),
                  calloc(n, sizeof(float))};
    if (!b.whole || !b.out || !b.in)
        return 1;
    call(group, &b, 1);
    first = (scale_now(CLOCK_REALTIME) - begin) * 1e3;
    scale_holds(holds);
    TUTTI_MUST(tutti_all_reduce(group, TUTTI_BUF(holds, 3, TUTTI_F64), TUTTI_MAX, NULL));
    for (int i = 0; i < 4; i++)
        us[i] = time_of(group, &b, COUNTS[i]);
    if (tutti_group_rank(group) == 0)
        scale_say(first, us, holds);
    tutti_group_free(group);
    return 0;
}
