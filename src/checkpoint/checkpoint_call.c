/* checkpoint_call.c -- the arguments of tutti_checkpoint_save and _load.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_call.h"

#include "data/loader.h"
#include "optim/ema.h"
#include "optim/optim.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 64 }; /* of what comes after it in the paths of files */

static tutti_status check(const tutti__checkpoint_call *p, const char *path)
{
    const int ranks = p->opts.loader ? tutti__loader_at(p->opts.loader).ranks : 0;

    TUTTI_TRY(tutti_module_status(p->m));
    if (!path)
        return tutti__fail(TUTTI_ERR_ARG, "checkpoint: the path is NULL");
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_checkpoint_opts, &p->opts));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_position, p->opts.position));
    if (p->optim && p->optim->module->root != p->m->root)
        return tutti__fail(TUTTI_ERR_ARG, "checkpoint %s: the optimizer is of another module",
                           path);
    if (p->opts.ema && p->opts.ema->swapped)
        return tutti__fail(TUTTI_ERR_STATE,
                           "checkpoint %s: the module has the averages; call tutti_ema_swap first, "
                           "which gives it back its own weights",
                           path);
    if (p->opts.ema && p->opts.ema->module != p->m)
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint %s: the average (opts.ema) is of another module", path);
    if (!p->opts.loader || ranks == tutti__checkpoint_call_ranks(p))
        return TUTTI_OK;
    if (ranks == 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "checkpoint %s: a loader by shard has no position; pass only "
                           "opts.position",
                           path);
    return tutti__fail(
        TUTTI_ERR_ARG,
        "checkpoint %s: the loader divides its samples among %d rank%s, and the group "
        "has %d; make both for the same group",
        path, ranks, tutti__s((uint64_t)ranks), tutti__checkpoint_call_ranks(p));
}

/* What ranks must have in common: tensors, and the parts. n is at least 1. */
static void describe(const tutti__checkpoint_call *p, tutti__item *items, size_t n)
{
    const tutti_checkpoint_opts *o = &p->opts;

    snprintf(items[0].text, sizeof items[0].text, "optimizer %s%s%s%s%s",
             p->optim ? p->optim->rule->name : "none", o->scaler ? ", scaler" : "",
             o->loader ? ", loader" : "", o->position ? ", position" : "", o->ema ? ", ema" : "");
    for (size_t i = 1; i < n; i++) {
        const tutti_tensor *t = tutti_module_state(p->m, i - 1);

        snprintf(items[i].text, sizeof items[i].text, "\"%.120s\" %s %s", tutti_tensor_name(t),
                 tutti__shape_text(tutti_tensor_shape(t)), tutti_dtype_name(tutti_tensor_dtype(t)));
    }
}

static tutti_status resolve(const char *path, char folder[TUTTI__CHECKPOINT_PATH])
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "checkpoint: the path is empty");
    if (n >= TUTTI__CHECKPOINT_PATH - LONGEST_NAME)
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint: the path %.60s... has %zu bytes, expected at most %d", path,
                           n, TUTTI__CHECKPOINT_PATH - LONGEST_NAME - 1);
    memcpy(folder, path, n);
    folder[n] = '\0';
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_call_begin(tutti__checkpoint_call *p,
                                          const tutti_checkpoint_opts *opts, const char *path,
                                          char folder[TUTTI__CHECKPOINT_PATH])
{
    tutti__item *items = NULL;
    tutti_status status;
    size_t n = 0;

    p->opts = opts ? *opts : (tutti_checkpoint_opts){.scaler = NULL};
    status = check(p, path);
    if (status == TUTTI_OK)
        status = resolve(path, folder);
    if (!p->group)
        return status;
    if (status == TUTTI_OK) {
        n = tutti_module_n_state(p->m) + 1;
        items = tutti__alloc(n * sizeof *items);
        if (items)
            describe(p, items, n);
        else
            status = TUTTI_ERR_MEMORY;
    }
    status = tutti__agree_after(p->group, status, "arguments of the checkpoint", "part", items,
                                items ? n : 0);
    free(items);
    return status;
}

tutti_status tutti__checkpoint_call_divided(const tutti__checkpoint_call *p, bool *model_p,
                                            bool *optim_p)
{
    const struct tutti_root *root = p->m->root;
    int64_t is[2] = {root->reserved, root->sharding && !root->sharding->whole_gradients};

    *model_p = *optim_p = false;
    if (tutti__checkpoint_call_ranks(p) == 1)
        return TUTTI_OK;
    for (size_t i = 0; i < root->parameters.n; i++)
        is[0] |= root->parameters.p[i]->split.count > 0;
    TUTTI_TRY(tutti_all_reduce(p->group, TUTTI_BUF(is, 2, TUTTI_I64), TUTTI_MAX, NULL));
    *model_p = is[0] != 0;
    *optim_p = is[0] || is[1];
    return TUTTI_OK;
}
