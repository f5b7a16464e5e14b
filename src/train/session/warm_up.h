/* warm_up.h -- creates the kernels of a step before it.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_WARM_UP_H
#define TUTTI_TRAIN_WARM_UP_H

#include "train/session/session.h"

/* Of a session with data and model. */
tutti_status tutti__warm_up(tutti__session *s);

#endif
