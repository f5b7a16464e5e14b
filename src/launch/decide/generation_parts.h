/* generation_parts.h -- shared by the files of the generations: generation.c, generation_events.c.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_GENERATION_PARTS_H
#define TUTTI_LAUNCH_GENERATION_PARTS_H

#include "launch/decide/generation.h"

/* Where the worker with a node's local rank is in the list, or belongs. */
int tutti__generation_place(const tutti__generations *g, int node, int local_rank);
/* The worker with a node's local rank, whichever process that is now; NULL: none. */
tutti__generation_worker *tutti__generation_find(const tutti__generations *g, int node,
                                                 int local_rank);
/* The worker with this process; NULL: unknown, or no longer known. */
tutti__generation_worker *tutti__generation_find_worker(const tutti__generations *g,
                                                        tutti__worker_id id);
/* Whether a worker runs, or is about to start, with its local rank. */
bool tutti__generation_is_open(const tutti__generation_worker *w);
void tutti__generation_enter(tutti__generation_worker *w, tutti__generation_worker_state state,
                             uint64_t now);
/* Takes an action, by opts.act. */
void tutti__generation_act(const tutti__generations *g, tutti__act what,
                           const tutti__generation_worker *w, const char *why);
void tutti__generation_tell_leave(tutti__generations *g, tutti__generation_worker *w);
/* No worker will be started with its local rank again. */
void tutti__generation_close_resting(tutti__generations *g, tutti__generation_worker *w);
/* A worker has left the generation. Workers still forming it would wait for it forever. */
void tutti__generation_break_up(tutti__generations *g, uint32_t generation, uint64_t now);
void tutti__generation_note_trouble(tutti__generations *g, uint64_t since);
void tutti__generation_order_replacement(tutti__generations *g, uint64_t now,
                                         tutti__generation_worker *w);
/* Takes the actions that the whole table requires. */
void tutti__generation_consider(tutti__generations *g, uint64_t now);

#endif
