/* evaluate.h -- a model over a data set, each sample exactly once.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_EVALUATE_H
#define TUTTI_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "train/session/session.h"
#include "train/session/tally.h"

typedef struct tutti__evaluation {
    tutti__tally *tally; /* cleared first; at the end summed over all ranks */
    tutti__tick *tick;   /* with the approximate number of samples done by all ranks; NULL: none */
    /* Called after each round on all ranks: the batch (NULL: this rank had none) and its outputs [batch->n, classes or
     * targets]. NULL: not needed. */
    tutti_status (*rows)(void *user, size_t round, const tutti_batch *batch, const float *outputs);
    void *user;
    tutti_dtype autocast; /* 0: F32, as in training's own evaluations */
} tutti__evaluation;

/* Samples of a batch that are computed at once: all, but of text as many as have at most 2^26 logits. */
size_t tutti__evaluate_at_once(const tutti__session *s);
/* s->model over s->data.test_loader. If a signal comes, sets s->stop.stopping and leaves the tally incomplete. Collective. */
tutti_status tutti__evaluate(tutti__session *s, const tutti__evaluation *e);

#endif
