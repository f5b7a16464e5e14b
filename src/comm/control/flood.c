/* flood.c -- what the ranks of a group pass on to their neighbours.   SPDX-License-Identifier: MIT */
#include "comm/control/flood.h"

static bool all_are_neighbours(const tutti__flood *f)
{
    return f->n_to == f->size - 1;
}

tutti__flood_action tutti__flood_step(tutti__flood *f, const tutti__flood_event *event)
{
    tutti__flood_action action = {false, false, false};

    if (event->kind == TUTTI__FLOOD_DEAD) {
        action.tell = !f->told;
        f->told = true;
        return action;
    }
    if (event->rank == f->rank)
        return action;
    action.note_left = event->kind == TUTTI__FLOOD_GOODBYE || !event->connected;
    action.pass_left = !f->someone && !all_are_neighbours(f);
    f->someone = true;
    return action;
}
