/* uses.c -- which parameters a loss uses, and the errors about those that it does not.   SPDX-License-Identifier: MIT
 *
 * The tape knows them before backward starts. In the first step ranks exchange them, so that all can name every parameter and
 * every rank that lacks it; later a rank that finds one ends the step on all ranks with its message. */
#include "ddp/ddp.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tutti__ddp_find(const tutti_ddp *ddp, const tutti_tensor *t, size_t *i_p)
{
    *i_p = t->parameter->index;
    return *i_p < ddp->n && ddp->parameters[*i_p] == t && ddp->roles[*i_p] == TUTTI__AVERAGED;
}

void tutti__ddp_note_uses(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order)
{
    size_t k;

    for (size_t i = 0; i < ddp->n;
         i++) { /* zero_grad may have dropped a paused backward's gradients */
        const tutti__parameter *p = ddp->parameters[i]->parameter;
        bool has_gradient = p->grad && p->grad_round == *p->round;

        ddp->uses[i] =
            ddp->uses[i] != TUTTI__UNUSED && has_gradient ? TUTTI__USED_PAUSED : TUTTI__UNUSED;
    }
    for (size_t i = 0; i < n_order; i++)
        if (tutti__ddp_find(ddp, order[i], &k))
            ddp->uses[k] = TUTTI__USED;
}

tutti_status tutti__ddp_check_roles(const tutti_ddp *ddp)
{
    tutti__names frozen = {0}, freed = {0};

    for (size_t i = 0; i < ddp->n; i++) {
        bool trains = ddp->parameters[i]->parameter->requires_grad;

        if (ddp->roles[i] == TUTTI__AVERAGED && !trains)
            tutti__names_add(&frozen, ddp->parameters[i]->name);
        if (ddp->roles[i] == TUTTI__FROZEN && trains)
            tutti__names_add(&freed, ddp->parameters[i]->name);
    }
    if (frozen.n > 0)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "%s required a gradient when DDP was made, and no longer does on rank %d; "
            "after freezing parameters, free DDP and make it again on every rank",
            tutti__names_end(&frozen), tutti_group_rank(ddp->group));
    if (freed.n > 0)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "%s was frozen when DDP was made, and requires a gradient now on rank %d, "
            "but would not be averaged; free DDP and make it again on every rank",
            tutti__names_end(&freed), tutti_group_rank(ddp->group));
    return TUTTI_OK;
}

#define REMEDY                                                                                     \
    "every rank waits for the gradient of every parameter: use it in the loss, take it out of "    \
    "the module, or set find_unused"

static bool is_missing(const tutti_ddp *ddp, size_t i)
{
    return ddp->roles[i] == TUTTI__AVERAGED && ddp->uses[i] == TUTTI__UNUSED && !ddp->shadowing;
}

tutti_status tutti__ddp_check_uses(const tutti_ddp *ddp)
{
    tutti__names names = {0};

    for (size_t i = 0; i < ddp->n; i++)
        if (is_missing(ddp, i))
            tutti__names_add(&names, ddp->parameters[i]->name);
    if (names.n == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE, "the loss of step %llu on rank %d does not use %s; " REMEDY,
                       (unsigned long long)tutti_ctx_step(tutti_module_ctx(ddp->module)),
                       tutti_group_rank(ddp->group), tutti__names_end(&names));
}

/* "rank 1", "ranks 0, 2", "all ranks": those that lack a parameter; "" for none. missing: a byte per rank, at this stride. */
static void ranks_text(const unsigned char *missing, size_t stride, int size, char *text,
                       size_t capacity)
{
    int n = 0, named = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < size; r++)
        n += missing[(size_t)r * stride];
    if (n == size && n > 1)
        snprintf(text, capacity, "all ranks");
    if (n == 0 || (n == size && n > 1))
        return;
    used = (size_t)snprintf(text, capacity, "rank%s", n > 1 ? "s" : "");
    for (int r = 0; r < size && named < 8; r++)
        if (missing[(size_t)r * stride])
            used += (size_t)snprintf(text + used, capacity - used, "%s %d", named++ ? "," : "", r);
    if (n > named)
        snprintf(text + used, capacity - used, " and %d more", n - named);
}

/* The same message on every rank: parameters that are missing on the same ranks are listed together. */
static tutti_status fail_together(const tutti_ddp *ddp, const unsigned char *missing, size_t n)
{
    char text[1500] = "", ranks[128], last[128] = "";
    size_t used = 0, k = 0;
    tutti__names names = {0};

    for (size_t i = 0; i <= ddp->n; i++) {
        if (i < ddp->n && ddp->roles[i] != TUTTI__AVERAGED)
            continue;
        ranks[0] = '\0';
        if (i < ddp->n)
            ranks_text(missing + k++, n, tutti_group_size(ddp->group), ranks, sizeof ranks);
        if (names.n > 0 && (i == ddp->n || (ranks[0] && strcmp(ranks, last) != 0))) {
            if (used < sizeof text)
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%s on %s",
                                         used ? ", and " : "", tutti__names_end(&names), last);
            names = (tutti__names){0};
        }
        if (ranks[0]) {
            tutti__names_add(&names, ddp->parameters[i]->name);
            memcpy(last, ranks, sizeof last);
        }
    }
    return tutti__fail(TUTTI_ERR_STATE, "the loss of step %llu does not use %s; " REMEDY,
                       (unsigned long long)tutti_ctx_step(tutti_module_ctx(ddp->module)), text);
}

tutti_status tutti__ddp_check_uses_together(const tutti_ddp *ddp)
{
    size_t size = (size_t)tutti_group_size(ddp->group), n = 0;
    unsigned char *missing;
    int64_t any = 0;
    tutti_status status;

    for (size_t i = 0; i < ddp->n; i++) {
        n += ddp->roles[i] == TUTTI__AVERAGED;
        any |= is_missing(ddp, i);
    }
    TUTTI_TRY(tutti_all_reduce(ddp->group, TUTTI_BUF(&any, 1, TUTTI_I64), TUTTI_MAX, NULL));
    if (!any)
        return TUTTI_OK;
    missing = tutti__alloc((size + 1) * n);
    if (!missing)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0, k = 0; i < ddp->n; i++)
        if (ddp->roles[i] == TUTTI__AVERAGED)
            missing[size * n + k++] = is_missing(ddp, i);
    status = tutti_all_gather(ddp->group, TUTTI_CONST_BUF(missing + size * n, n, TUTTI_U8),
                              TUTTI_BUF(missing, size * n, TUTTI_U8), NULL);
    if (status == TUTTI_OK)
        status = fail_together(ddp, missing, n);
    free(missing);
    return status;
}
