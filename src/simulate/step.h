/* step.h -- a training step in virtual time: computation, and the calls that it makes on the way.   SPDX-License-Identifier: MIT
 *
 * All ranks are alike, so one is followed. What it computes takes its time; the collectives of a group follow each other on the wire.
 * An asynchronous one begins when it is issued and those before it are done, and does not keep the rank; others do. A rank waits for a
 * gathered unit of parameters when it asks for the next one (ddp/units.c), and for all that is under way before the update. */
#ifndef TUTTI_SIMULATE_STEP_H
#define TUTTI_SIMULATE_STEP_H

#include "simulate/cost.h"
#include "train/forecast/outlook.h"

/* What a step of one rank computes, alone. */
typedef struct tutti__sim_compute {
    const tutti__timeline *timeline; /* its progress */
    double flops;                    /* of such a step */
    double gradients_s, update_s;
} tutti__sim_compute;

typedef struct tutti__sim_step_ask {
    tutti__layout_of_ranks layout;
    const tutti__timeline *calls; /* of a rank of this layout, but for the number of ranks */
    const tutti__sim_compute *compute;
    int64_t shards;  /* of a step; 0: ranks compute as much however many they are */
    double bubble_s; /* a rank of a pipeline waits so long for others */
    double spread;   /* of the ranks' times of a step: standard deviation by mean */
} tutti__sim_step_ask;

typedef struct tutti__sim_step {
    double compute_s; /* of a rank, alone */
    double behind_s;  /* the slowest rank of a step, on average, is so much behind the mean */
    double wire_s;    /* of its calls one after the other */
    double exposed_s; /* it waits for them */
    double step_s;
    double
        efficiency; /* samples a second and rank, by those of one rank that has the whole model */
    double sent;    /* bytes that a rank sends to others, see tutti__sim_cost */
    bool scaled;    /* some of the costs are */
    const tutti__sim_cost *largest; /* the call that takes longest; NULL: none */
} tutti__sim_step;

/* Errors: those of tutti__sim_cost_of. */
tutti_status tutti__sim_step_find(tutti__sim_step *step, const tutti__sim_step_ask *ask,
                                  tutti__sim_costs *costs);
/* The cost of a call of a step. */
tutti_status tutti__sim_step_cost(const tutti__layout_of_ranks *layout,
                                  const tutti__planned_entry *call, tutti__sim_costs *costs,
                                  const tutti__sim_cost **cost_p);
/* The expected largest of n draws from a normal distribution, in standard deviations. */
double tutti__largest_of_normal(int n);

#endif
