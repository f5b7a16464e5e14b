/* amp.h -- the key `amp`: autocast, and for fp16 the loss scaler.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_AMP_H
#define TUTTI_TRAIN_AMP_H

#include "train/session/session.h"

/* The dtype of `amp`; F32: off. */
tutti_dtype tutti__amp_of(const tutti__train_config *c);
tutti_dtype tutti__amp_dtype(const tutti__session *s);
/* UNSUPPORTED, naming the key, if this rank's kernels lack it. Local. */
tutti_status tutti__amp_check(tutti_ctx *cx, const tutti__train_config *c);
/* Makes s->scaler if `amp` needs one. */
tutti_status tutti__amp_open(tutti__session *s);

/* One update by s->optim; skipped, and counted in *skipped_steps, if a gradient of any rank is infinite or NaN. *norm_p (may be
 * NULL): the gradient's norm before clipping to `clip` (0: none). Fails if smaller scales do not help. */
tutti_status tutti__amp_update(tutti__session *s, float clip, uint64_t *skipped_steps,
                               float *norm_p);

#endif
