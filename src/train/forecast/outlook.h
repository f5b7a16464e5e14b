/* outlook.h -- memory, wire and time of a layout of ranks, and which layouts fit a limit.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_OUTLOOK_H
#define TUTTI_TRAIN_OUTLOOK_H

#include "train/forecast/wire.h"
#include <jansson.h>
#include <stdio.h>

typedef struct tutti__outlook_ask {
    tutti__layout_of_ranks layout;
    size_t limit;   /* bytes that a rank may take; 0: none given */
    double step_ms; /* of the computation of a step; 0: measured, or estimated */
    tutti__wire wire;
    const tutti__session_data *data; /* data sets that are open already; NULL: none */
    tutti__timeline *timeline; /* of the outlook, with a time for its FLOPs; NULL: not wanted */
} tutti__outlook_ask;

typedef struct tutti__outlook {
    tutti__layout_of_ranks layout;
    bool recompute;
    int64_t batch_size, grad_accumulation;
    tutti__footprint f;
    double compute_s, wire_s, exposed_s, step_s;
    double bubble_s; /* a rank of a pipeline waits so long for other stages, on average */
    const char *compute_from;
} tutti__outlook;

/* ARG: the ranks do not make such a layout, with what would; UNSUPPORTED: what is not in this version. */
tutti_status tutti__layout_check(const tutti__layout_of_ranks *layout, int64_t shards);

/* Ranks with different samples, those of them that have all shares of zero, ranks that divide layers, and two neighbours in a pipeline, as layouts of their own. */
tutti__layout_of_ranks tutti__layout_of_data(const tutti__layout_of_ranks *layout);
tutti__layout_of_ranks tutti__layout_of_shares(const tutti__layout_of_ranks *layout);
tutti__layout_of_ranks tutti__layout_of_tensor(const tutti__layout_of_ranks *layout);
tutti__layout_of_ranks tutti__layout_of_neighbours(const tutti__layout_of_ranks *layout);

/* Of one layout. seconds_per_flop: of the computation, by an outlook of the same model; 0: to be found. */
tutti_status tutti__outlook_find(tutti__outlook *o, const tutti__train_config *config,
                                 const tutti__parts *parts, const tutti__outlook_ask *ask,
                                 double seconds_per_flop);

/* bubble_s, of which the rest is known: by the pipeline's table, with times of stages as their products, and of messages by the links. */
tutti_status tutti__outlook_bubble(tutti__outlook *o, const tutti__train_config *config,
                                   const tutti__wire *wire);

/* Those that fit ask->limit, cheapest first, of ZeRO's stages, recomputation, pipelines, tensor parallel within a host, and more batches
 * per step that are as much smaller. */
enum { TUTTI__OUTLOOKS = 160 };
tutti_status tutti__outlook_fitting(tutti__outlook fitting[TUTTI__OUTLOOKS], size_t *n_p,
                                    const tutti__train_config *config, const tutti__parts *parts,
                                    const tutti__outlook_ask *ask, const tutti__outlook *asked);
/* How a command line that asks for this layout differs from the one that was asked: " --zero 1 --recompute true". */
void tutti__outlook_flags(const tutti__outlook *o, const tutti__outlook *asked, char *text,
                          size_t size);

/* For people, and as a JSON object. */
void tutti__outlook_print(FILE *out, const tutti__outlook *o, const tutti__train_config *config,
                          const tutti__wire *wire);
json_t *tutti__outlook_json(const tutti__outlook *o, const tutti__train_config *config);

#endif
