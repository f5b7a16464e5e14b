/* digests.h -- what a step computes, as digests (the key trace_digests).   SPDX-License-Identifier: MIT
 *
 * Each rank records what it computes itself, while it does, and writes it after the step. A failure is reported once, and ends the
 * record, not the run. All functions may be called without a record, and in a step that is not recorded. */
#ifndef TUTTI_TRAIN_DIGESTS_H
#define TUTTI_TRAIN_DIGESTS_H

#include "train/session/session.h"

/* MEMORY. Without the key there is no record. */
tutti_status tutti__digests_open(tutti__session *s);
void tutti__digests_close(tutti__session *s);
/* The step s->step.number begins, again if its last try has failed. */
void tutti__digests_begin(tutti__session *s);
/* It computes shard s->step.shard next. */
void tutti__digests_shard(const tutti__session *s);
/* The next micro-batch; its loss, without a scale: */
void tutti__digests_batch(const tutti__session *s, const tutti_batch *batch);
void tutti__digests_loss(const tutti__session *s, tutti_tensor *loss);
/* All gradients that this rank has: "reduced" or "clipped". */
void tutti__digests_gradients(const tutti__session *s, const char *kind);
/* After the update: what it has changed; writes the lines. */
void tutti__digests_end(const tutti__session *s);

#endif
