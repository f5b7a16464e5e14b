/* flood.h -- what the ranks of a group pass on, so that all learn why it is dead, and that a rank has left.
 * SPDX-License-Identifier: MIT
 *
 * Pure: events in, actions out; no clock, no socket, no thread. A rank knows its neighbours (core/tree.h) and passes each of two facts
 * on once: the first cause of the group's death that it hears or finds, and the first rank that has left. In a group in which all are
 * neighbours a rank that has left told all itself, and a cause is passed on because the one who found it may have died meanwhile.
 *
 * Of n ranks, each sends 4 frames or so; the farthest is 2 log8 n steps away. Living ranks that others' ends cut off from the rest
 * have an ended one for a neighbour, and find a cause of their own. */
#ifndef TUTTI_COMM_CONTROL_FLOOD_H
#define TUTTI_COMM_CONTROL_FLOOD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tutti__flood {
    int rank, size;
    bool told;     /* why the group is dead */
    bool someone;  /* has left: passed on */
    int n_to;      /* neighbours */
    const int *to; /* borrowed */
} tutti__flood;

typedef enum tutti__flood_kind {
    TUTTI__FLOOD_DEAD, /* this rank knows that the group is dead: it found the cause, or was told */
    TUTTI__FLOOD_GOODBYE, /* a rank says that it leaves */
    TUTTI__FLOOD_LEFT     /* a rank passes on that another has left */
} tutti__flood_kind;

typedef struct tutti__flood_event {
    tutti__flood_kind kind;
    int rank; /* that has left */
    int from; /* who says so; -1: this rank */
    bool
        connected; /* LEFT: that rank's connection is open, and will say so itself, after all that it sent before */
} tutti__flood_event;

typedef struct tutti__flood_action {
    bool tell;      /* the cause, to all neighbours and connected ranks */
    bool note_left; /* `rank` has left */
    bool pass_left; /* and the neighbours are told, except who said so and that rank */
} tutti__flood_action;

tutti__flood_action tutti__flood_step(tutti__flood *flood, const tutti__flood_event *event);

#endif
