/* amp.h -- the keys `amp` of a run: autocast, and for fp16 the loss scale.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_AMP_H
#define TUTTI_TRAIN_AMP_H

#include <jansson.h>
#include <tutti/amp.h>

typedef struct tutti__run tutti__run;

/* What `amp` stands for; F32: off. */
tutti_dtype tutti__amp_dtype(const tutti__run *run);
/* Whether this rank's kernels can: UNSUPPORTED, naming the key. Needs no other rank. */
tutti_status tutti__amp_check(const tutti__run *run);
/* Makes run->scaler where `amp` needs one. */
tutti_status tutti__amp_open(tutti__run *run);

/* One update by run->optim, or none where a gradient of any rank is infinite or NaN, which is counted; *norm_p, where not
 * NULL: the gradient's norm before it is clipped to `clip` (0: it is not). Fails where smaller scales do not help. */
tutti_status tutti__amp_update(tutti__run *run, float clip, float *norm_p);

/* The scaler's state for state.json, a new reference; null where there is none. And back, from a checkpoint's state.json;
 * FORMAT if it lacks what this run needs. */
json_t *tutti__amp_json(const tutti__run *run);
tutti_status tutti__amp_restore(tutti__run *run, const json_t *state);

#endif
