/* clock.c -- measures the offset of each rank's clock.   SPDX-License-Identifier: MIT */
#include "train/machine/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUESTIONS = 24, CLOCK_TAG = 2 };

/* What ranks exchange. */
typedef struct rank_reading {
    int64_t identity; /* of the clock; 0: not known */
    tutti__clock_reading reading;
} rank_reading;
enum { WORDS = sizeof(rank_reading) / sizeof(int64_t) };

tutti__clock_reading tutti__clock_estimate(int64_t asked_ns, int64_t theirs_ns, int64_t answered_ns)
{
    const int64_t half = (answered_ns - asked_ns) / 2;

    return (tutti__clock_reading){
        .at_ns = asked_ns + half, .offset_ns = theirs_ns - asked_ns - half, .error_ns = half + 1};
}

/* Processes on one boot of a kernel share a monotonic clock, except for time namespaces. */
static int64_t clock_identity(void)
{
    char text[256];
    ssize_t length;
    size_t n;

    if (!tutti__boot_text(text))
        return 0;
    n = strlen(text);
    length = readlink("/proc/self/ns/time", text + n, sizeof text - n);
    return (int64_t)tutti__hash64(text, n + (size_t)(length > 0 ? length : 0)) | 1;
}

static tutti_status answer(tutti_group *group, int rank)
{
    int64_t word = 0;

    for (int i = 0; i < QUESTIONS; i++) {
        TUTTI_TRY(tutti_recv(group, TUTTI_BUF(&word, 1, TUTTI_I64), rank, CLOCK_TAG, NULL));
        word = (int64_t)tutti__now_ns();
        TUTTI_TRY(tutti_send(group, TUTTI_CONST_BUF(&word, 1, TUTTI_I64), rank, CLOCK_TAG, NULL));
    }
    return TUTTI_OK;
}

static tutti_status ask(tutti_group *group, tutti__clock_reading *best_p)
{
    best_p->error_ns = INT64_MAX;
    for (int i = 0; i < QUESTIONS; i++) {
        int64_t asked = (int64_t)tutti__now_ns(), theirs = 0;
        tutti__clock_reading reading;

        TUTTI_TRY(tutti_send(group, TUTTI_CONST_BUF(&asked, 1, TUTTI_I64), 0, CLOCK_TAG, NULL));
        TUTTI_TRY(tutti_recv(group, TUTTI_BUF(&theirs, 1, TUTTI_I64), 0, CLOCK_TAG, NULL));
        reading = tutti__clock_estimate(asked, theirs, (int64_t)tutti__now_ns());
        if (reading.error_ns < best_p->error_ns)
            *best_p = reading;
    }
    return TUTTI_OK;
}

/* The best reading of the ranks that share this rank's clock. A reading that contradicts this rank's own is of another clock
 * after all (virtual machines cloned while running have one boot id). */
static tutti__clock_reading best_of(const rank_reading *all, int size, int rank)
{
    const rank_reading *mine = &all[rank];
    tutti__clock_reading best = mine->reading;

    for (int r = 0; r < size; r++) {
        const tutti__clock_reading *its = &all[r].reading;
        const int64_t apart = llabs(its->offset_ns - mine->reading.offset_ns);

        if (mine->identity != 0 && all[r].identity == mine->identity &&
            its->error_ns < best.error_ns && apart <= its->error_ns + mine->reading.error_ns)
            best = *its;
    }
    return best;
}

tutti_status tutti__clock_read(tutti__clock *clock, tutti_group *group)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    rank_reading mine = {.identity = clock_identity(),
                         .reading = {.at_ns = (int64_t)tutti__now_ns()}};
    rank_reading *all = tutti__alloc((size_t)size * sizeof *all);
    tutti_status status = TUTTI_OK;

    if (!all) {
        tutti_group_abort(group, "%s", tutti_last_error());
        return TUTTI_ERR_MEMORY;
    }
    for (int r = 1; r < size && status == TUTTI_OK && rank == 0; r++)
        status = answer(group, r);
    if (rank > 0)
        status = ask(group, &mine.reading);
    if (status == TUTTI_OK)
        status = tutti_all_gather(group, TUTTI_CONST_BUF(&mine, WORDS, TUTTI_I64),
                                  TUTTI_BUF(all, WORDS * (size_t)size, TUTTI_I64), NULL);
    if (status == TUTTI_OK) {
        clock->last = best_of(all, size, rank);
        if (clock->n++ == 0)
            clock->first = clock->last;
    }
    free(all);
    return status;
}

int64_t tutti__clock_of_rank0(const tutti__clock *c, uint64_t ns)
{
    const int64_t span = c->last.at_ns - c->first.at_ns, t = (int64_t)ns;
    double share;

    if (span <= 0)
        return t + c->first.offset_ns;
    share = (double)(t - c->first.at_ns) / (double)span;
    return t + c->first.offset_ns +
           (int64_t)(share * (double)(c->last.offset_ns - c->first.offset_ns));
}
