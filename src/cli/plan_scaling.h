/* plan_scaling.h -- `tutti plan`: a step of more and more ranks, in virtual time.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_PLAN_SCALING_H
#define TUTTI_CLI_PLAN_SCALING_H

#include "simulate/step.h"

enum { TUTTI__SCALING_RANKS = 16384, TUTTI__SCALING_ROWS = 64 };

/* "1024": 1, 2, 4, ... of them, as far as they make such a layout, and 1024; "8,64,1024": these. */
typedef struct tutti__scaling {
    int ranks[TUTTI__SCALING_ROWS]; /* ascending */
    int n;
    bool listed;
    double spread;
    tutti__sim_links links;
    const tutti__timeline *timeline; /* of the layout with most ranks */
    tutti__sim_costs costs;
    tutti_status status;             /* the first failure of a cost that had no other way */
    tutti__layout_of_ranks *layouts; /* of the rows */
    tutti__sim_step *rows;
    double *samples; /* of a step */
} tutti__scaling;

/* Errors: ARG for a text that is none. */
tutti_status tutti__scaling_ranks(tutti__scaling *scaling, const char *text);
/* With more ranks than a step has shards, these compute, and the others are spares: at most so many in `most` and in all rows. */
void tutti__scaling_spares(tutti__scaling *scaling, tutti__layout_of_ranks *most, int64_t shards);
/* The links that `wire` describes, all hosts alike; or, of a file (path not NULL), what it has for `wire`, which is printed. Also takes
 * over the cost of the wire's calls. Errors: those of tutti__sim_links_read. */
tutti_status tutti__scaling_links(tutti__scaling *scaling, tutti__wire *wire, const char *path);
/* Finds the rows. first: the outlook of the layout with most ranks, whose times become those of the last row. Errors: of a listed number
 * ARG. */
tutti_status tutti__scaling_find(tutti__scaling *scaling, tutti__outlook *first,
                                 const tutti__train_config *config, const tutti__parts *parts,
                                 const tutti__outlook_ask *ask);
void tutti__scaling_print(FILE *out, tutti__scaling *scaling, const tutti__train_config *config);
/* An array; NULL: no memory. */
json_t *tutti__scaling_json(tutti__scaling *scaling);
void tutti__scaling_free(tutti__scaling *scaling);

/* ---- Measured by a run (plan_from.c) ------------------------------------------------------------------------------------ */

/* What a run measured: ms of a step's computation on a rank, the median of its lines. Refuses keys that make it another computation.
 * Errors: ARG, FORMAT, IO. */
tutti_status tutti__plan_from(const char *run_dir, const tutti__train_config *config, int ranks,
                              double *step_ms);

#endif
