/* optims.c -- checks that all ranks train with the same hyper-parameters.   SPDX-License-Identifier: MIT
 *
 * Each rank updates all parameters alone, or with ZeRO its share of them, so no rank notices by itself that another has a
 * different learning rate. */
#include "ddp/ddp.h"
#include "optim/optim.h"

#include <stdlib.h>

static const tutti_optim *optim_of(const tutti__optim_entry *entry)
{
    return (const tutti_optim *)entry;
}

tutti_status tutti__optim_items(const tutti__optim_entry *first, const tutti__optim_entry *end,
                                tutti__item **items_p, size_t *n_p)
{
    char text[TUTTI__ITEM_BYTES];
    size_t n = 0, capacity = 1;

    for (const tutti__optim_entry *e = first; e != end; e = e->next)
        for (size_t i = 0; tutti__optim_describe(optim_of(e), i, text, sizeof text); i++)
            capacity++;
    *items_p = tutti__alloc(capacity * sizeof **items_p);
    if (!*items_p)
        return TUTTI_ERR_MEMORY;
    for (const tutti__optim_entry *e = first; e != end; e = e->next)
        for (size_t i = 0;
             tutti__optim_describe(optim_of(e), i, (*items_p)[n].text, TUTTI__ITEM_BYTES); i++)
            n++;
    *n_p = n;
    return TUTTI_OK;
}

tutti_status tutti__agree_on_items(tutti_group *group, const tutti__item *items, size_t n)
{
    return tutti__agree(group, "optimizers", "hyper-parameter", items, n);
}

tutti_status tutti__agree_on_optim(tutti_group *group, const tutti_optim *optim)
{
    tutti__item *items;
    size_t n;
    tutti_status status = tutti__optim_items(&optim->entry, optim->entry.next, &items, &n);

    if (status == TUTTI_OK)
        status = tutti__agree_on_items(group, items, n);
    free(items);
    return status;
}
