/* totals.h -- a run's time and traffic, including what it had before it was resumed.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_TOTALS_H
#define TUTTI_TRAIN_TOTALS_H

#include "train/metrics/ledger.h"
#include <tutti/ddp.h>

typedef struct tutti__totals {
    uint64_t start_ns;
    double seconds_before; /* that the run had taken when it was resumed */
    tutti_traffic before;  /* bytes of gradients until then */
    tutti__ledger ledger;
} tutti__totals;

/* Seconds since the run began; bytes of gradients (ddp NULL: none yet). */
double tutti__totals_seconds(const tutti__totals *t);
tutti_traffic tutti__totals_traffic(const tutti__totals *t, tutti_ddp *ddp);
/* Takes this traffic as the run's so far; ddp's own earlier traffic is included, or was not of this run. */
void tutti__totals_set_traffic(tutti__totals *t, tutti_traffic traffic, tutti_ddp *ddp);

#endif
