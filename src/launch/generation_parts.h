/* generation_parts.h -- what the files of the generations share: generation.c, generation_events.c.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_GENERATION_PARTS_H
#define TUTTI_LAUNCH_GENERATION_PARTS_H

#include "launch/generation.h"

/* The member in a node's place, whose process may have changed; NULL: there is none. */
tutti__member *tutti__generation_find(const tutti__generations *g, int node, int place);
/* That very process; NULL: it is not known (any more). */
tutti__member *tutti__generation_find_worker(const tutti__generations *g, tutti__worker_id id);
/* Somebody works in its place, or will at once. */
bool tutti__generation_is_open(const tutti__member *m);
void tutti__generation_enter(tutti__member *m, tutti__member_state state, uint64_t now);
/* Has something done, by opts.act. */
void tutti__generation_act(const tutti__generations *g, tutti__act what, const tutti__member *m,
                           const char *why);
void tutti__generation_tell_leave(tutti__generations *g, tutti__member *m);
/* Nobody will be tried in its place again. */
void tutti__generation_close_resting(tutti__generations *g, tutti__member *m);
/* One of the generation is out of it. Those who form it still would wait for it in vain. */
void tutti__generation_break_up(tutti__generations *g, uint32_t generation, uint64_t now);
void tutti__generation_note_trouble(tutti__generations *g, uint64_t since);
void tutti__generation_order_replacement(tutti__generations *g, uint64_t now, tutti__member *m);
/* Does what the table as a whole asks for. */
void tutti__generation_consider(tutti__generations *g, uint64_t now);

#endif
