/* comm: what ranks pass on to their neighbours reaches all, whoever dies meanwhile and in whatever order frames arrive: the pure
 * machine, with a queue of frames in place of connections, by seed.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "comm/control/flood.h"
#include "comm/core/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 1000, FRAMES = 64 * MOST };

typedef struct frame {
    int from, to, about; /* about: who has left; -1: the group is dead */
    int steps;
} frame;

typedef struct world {
    int size, n_frames, n_sent, deepest;
    tutti__flood flood[MOST];
    int near[MOST][TUTTI__NEIGHBOURS];
    bool ended[MOST], knows[MOST];
    frame frames[FRAMES];
} world;

static world *w;

static uint32_t dice(uint64_t seed, uint32_t at)
{
    uint32_t out[4];

    tutti__philox(seed, (tutti__philox_counter){{at, 0, 0, 29}}, out);
    return out[0];
}

static void begin(int size)
{
    w->size = size;
    w->n_frames = w->n_sent = w->deepest = 0;
    for (int r = 0; r < size; r++) {
        w->flood[r] = (tutti__flood){.rank = r, .size = size, .to = w->near[r]};
        w->flood[r].n_to = tutti__tree_neighbours(r, size, w->near[r]);
        w->ended[r] = w->knows[r] = false;
    }
}

static void send_near(int from, int except, int about, int steps)
{
    for (int i = 0; i < w->flood[from].n_to; i++) {
        int to = w->near[from][i];

        if (to == except || to == about)
            continue;
        assert_true(w->n_frames < FRAMES);
        w->frames[w->n_frames++] = (frame){from, to, about, steps + 1};
        w->n_sent++;
    }
}

static void learn(int rank, const tutti__flood_event *event, int steps)
{
    tutti__flood_action action = tutti__flood_step(&w->flood[rank], event);

    if (action.tell)
        send_near(rank, -1, -1, steps);
    if (action.pass_left)
        send_near(rank, event->from, event->rank, steps);
    w->knows[rank] = w->knows[rank] || action.tell || action.note_left;
    w->deepest = steps > w->deepest ? steps : w->deepest;
}

/* Delivers frames in random order until none is left; now and then another rank ends, of which its neighbours hear. */
static void run(uint64_t seed, int n_deaths)
{
    for (uint32_t at = 0; w->n_frames > 0; at++) {
        int i = (int)(dice(seed, 2 * at) % (uint32_t)w->n_frames);
        frame f = w->frames[i];
        int dies = (int)(dice(seed, 2 * at + 1) % (uint32_t)(8 * w->size));

        w->frames[i] = w->frames[--w->n_frames];
        if (!w->ended[f.to] && f.about < 0)
            learn(f.to, &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD, .from = f.from}, f.steps);
        else if (!w->ended[f.to])
            learn(f.to,
                  &(tutti__flood_event){.kind = f.from == f.about ? TUTTI__FLOOD_GOODBYE
                                                                  : TUTTI__FLOOD_LEFT,
                                        .rank = f.about,
                                        .from = f.from},
                  f.steps);
        if (dies >= w->size || w->ended[dies] || n_deaths-- <= 0)
            continue;
        w->ended[dies] = true;
        for (int n = 0; n < w->flood[dies].n_to; n++)
            if (!w->ended[w->near[dies][n]])
                learn(w->near[dies][n],
                      &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD, .from = -1}, 0);
    }
}

static void assert_all_know(void)
{
    for (int r = 0; r < w->size; r++)
        assert_true(w->ended[r] || w->knows[r]);
}

static void a_cause_reaches_all(void **state)
{
    static const int SIZES[] = {2, 16, 17, 64, 257, MOST};

    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        int size = SIZES[seed % 6], first = (int)(dice(seed, 1u << 30) % (uint32_t)size);

        begin(size);
        learn(first, &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD, .from = -1}, 0);
        run(seed, seed % 2 ? 0 : size / 8);
        assert_all_know();
        if (size > TUTTI__ALL_NEAR)
            assert_true(w->n_sent < 5 * size);
    }
}

/* Whole hosts end at one moment, which cuts parts off from the rest: these border on an ended rank. */
static void a_part_that_is_cut_off_knows(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        begin(MOST);
        for (int host = 0; host < MOST / 50; host++)
            for (int r = 0; r < 50 && dice(seed, (uint32_t)host) % 3 == 0; r++)
                w->ended[host * 50 + r] = true;
        for (int r = 0; r < MOST; r++)
            for (int i = 0; i < w->flood[r].n_to && !w->ended[r]; i++)
                if (w->ended[w->near[r][i]])
                    learn(r, &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD, .from = -1}, 0);
        run(seed, 0);
        if (memchr(w->ended, true, MOST))
            assert_all_know();
    }
}

static void the_first_that_leaves_is_known_to_all(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        int size = seed % 2 ? MOST : 40, leaves = (int)(dice(seed, 7) % (uint32_t)size);

        begin(size);
        w->ended[leaves] = true;
        send_near(leaves, -1, leaves, 0);
        run(seed, 0);
        assert_all_know();
        assert_true(w->n_sent < 5 * size);
    }
}

/* Frames that each take one step at a time: how far the farthest rank is. */
static void the_farthest_is_near(void **state)
{
    (void)state;
    for (int from = 0; from < MOST; from += 37) {
        begin(MOST);
        learn(from, &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD, .from = -1}, 0);
        for (int i = 0; i < w->n_frames; i++)
            if (!w->knows[w->frames[i].to])
                learn(w->frames[i].to, &(tutti__flood_event){.kind = TUTTI__FLOOD_DEAD},
                      w->frames[i].steps);
        assert_true(w->deepest <= 8);
    }
}

static int set_up(void **state)
{
    (void)state;
    w = malloc(sizeof *w);
    return w ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_cause_reaches_all),
                                       cmocka_unit_test(a_part_that_is_cut_off_knows),
                                       cmocka_unit_test(the_first_that_leaves_is_known_to_all),
                                       cmocka_unit_test(the_farthest_is_near)};

    return cmocka_run_group_tests(tests, set_up, NULL);
}
