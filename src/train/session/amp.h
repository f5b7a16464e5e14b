/* amp.h -- the key `amp`: autocast, and for fp16 the loss scaler.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_AMP_H
#define TUTTI_TRAIN_AMP_H

#include <jansson.h>
#include <tutti/amp.h>

typedef struct tutti__run tutti__run;

/* The dtype of `amp`; F32: off. */
tutti_dtype tutti__amp_dtype(const tutti__run *run);
/* UNSUPPORTED, naming the key, if this rank's kernels lack it. Local. */
tutti_status tutti__amp_check(const tutti__run *run);
/* Makes run->scaler if `amp` needs one. */
tutti_status tutti__amp_open(tutti__run *run);

/* One update by run->optim; skipped, and counted, if a gradient of any rank is infinite or NaN. *norm_p (may be NULL): the
 * gradient's norm before clipping to `clip` (0: none). Fails if smaller scales do not help. */
tutti_status tutti__amp_update(tutti__run *run, float clip, float *norm_p);

/* The scaler's state for state.json, a new reference; null without a scaler. And back, from a checkpoint's state.json;
 * FORMAT if it lacks what this run needs. */
json_t *tutti__amp_json(const tutti__run *run);
tutti_status tutti__amp_restore(tutti__run *run, const json_t *state);

#endif
