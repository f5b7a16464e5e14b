/* verify_together.c -- ranks verify a checkpoint before they read it, each a part of its files.   SPDX-License-Identifier: MIT */
#include "checkpoint/verify_together.h"

#include "checkpoint/divided_load.h"
#include "checkpoint/optim_block.h"
#include "comm/comm.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 320 };
#define UPDATES "step."

/* A rank's part of FOLDER/STEM. */
typedef struct checking {
    const tutti_module *m;
    tutti__tensor_files *files;
    bool optim;
    tutti__optim_block states; /* names of states */
    char *room;
    size_t bytes;
} checking;

/* ---- A tensor ------------------------------------------------------------------------------------------------- */

/* A parameter or buffer, or an average; t NULL: another rank's. */
static tutti_status check_value(const checking *c, const tutti__safetensors_entry *e,
                                const tutti_tensor *t)
{
    tutti_shape shape;

    if (!t)
        return TUTTI_OK;
    shape = tutti__whole_shape(t);
    if (e->readable && e->dtype == t->dtype && tutti_shape_equal(e->shape, shape))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s does not hold the weights of this model: \"%.120s\" is %s%s, "
                       "expected %s %s",
                       c->files->path, t->name, e->dtype_text, tutti__shape_text(e->shape),
                       tutti_dtype_name(t->dtype), tutti__shape_text(shape));
}

/* How often a parameter was updated; if it was, all of its state is there. */
static tutti_status check_updates(const checking *c, const tutti__safetensors_entry *e)
{
    const char *parameter = e->name + strlen(UPDATES);
    char name[NAME_BYTES];
    uint64_t updates;

    if (e->dtype != TUTTI_I64 || e->bytes != sizeof updates)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s is of another shape or dtype", c->files->path,
                           e->name);
    memcpy(&updates, c->room, sizeof updates);
    for (size_t k = 0; k < c->states.n_states && updates > 0; k++) {
        snprintf(name, sizeof name, "%s.%s", c->states.names[k], parameter);
        if (!tutti__tensor_files_has(c->files, name))
            return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s is missing", c->files->path, name);
    }
    return TUTTI_OK;
}

/* "exp_avg.fc1.weight" */
static tutti_status check_state(const checking *c, const tutti__safetensors_entry *e)
{
    const char *dot = strchr(e->name, '.');
    const tutti_tensor *t = dot ? tutti_module_find(c->m, dot + 1) : NULL;

    if (!t || (e->readable && e->dtype == TUTTI_F32 &&
               tutti_shape_equal(e->shape, tutti__whole_shape(t))))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s is of another shape or dtype", c->files->path,
                       e->name);
}

static tutti_status check_one(checking *c, const tutti__safetensors *file,
                              const tutti__safetensors_entry *e)
{
    if (!tutti__safetensors_has_digest(file, e))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s has no digest", c->files->path, e->name);
    TUTTI_TRY(tutti__room_grow(&c->room, &c->bytes, (size_t)e->bytes));
    TUTTI_TRY(tutti__safetensors_read(file, e, c->room));
    if (!c->optim)
        return check_value(c, e, tutti_module_find(c->m, e->name));
    return strncmp(e->name, UPDATES, strlen(UPDATES)) == 0 ? check_updates(c, e)
                                                           : check_state(c, e);
}

/* ---- This rank's part ----------------------------------------------------------------------------------------- */

/* Those tensors of a file whose middle byte is from `low` to `high` of it, in parts of `of`. */
static tutti_status check_range(checking *c, size_t k, uint64_t low, uint64_t high, uint64_t of)
{
    const tutti__safetensors *file;
    uint64_t all = 0, before = 0;

    TUTTI_TRY(tutti__tensor_files_file(c->files, k, &file));
    if (c->optim)
        TUTTI_TRY(tutti__optim_block_names_of(&c->states, c->files->path, file));
    for (size_t i = 0; i < tutti__safetensors_count(file); i++)
        all += tutti__safetensors_at(file, i)->bytes;
    for (size_t i = 0; i < tutti__safetensors_count(file); i++) {
        const tutti__safetensors_entry *e = tutti__safetensors_at(file, i);
        const double middle = all > 0 ? ((double)before + (double)e->bytes / 2) / (double)all : 0;
        const uint64_t at = (uint64_t)(middle * (double)of);

        before += e->bytes;
        if (at >= low && at < high)
            TUTTI_TRY(check_one(c, file, e));
    }
    return TUTTI_OK;
}

/* Of n files laid end to end, each as long as the others, rank `rank` of `ranks` checks its part of the length. */
static tutti_status check_part(checking *c, uint64_t rank, uint64_t ranks)
{
    const uint64_t n = c->files->n, begin = rank * n, end = begin + n;

    for (uint64_t k = begin / ranks; k * ranks < end; k++) {
        const uint64_t low = begin > k * ranks ? begin - k * ranks : 0;
        const uint64_t high = end < (k + 1) * ranks ? end - k * ranks : ranks;

        TUTTI_TRY(check_range(c, (size_t)k, low, high, ranks));
    }
    return TUTTI_OK;
}

/* All that this rank's module has, by name. */
static tutti_status check_names(const checking *c)
{
    const size_t n = c->optim ? tutti_module_n_parameters(c->m) : tutti_module_n_state(c->m);
    char name[NAME_BYTES];

    for (size_t i = 0; i < n; i++) {
        const tutti_tensor *t =
            c->optim ? tutti_module_parameter(c->m, i) : tutti_module_state(c->m, i);

        snprintf(name, sizeof name, "%s%s", c->optim ? UPDATES : "", t->name);
        if (tutti__tensor_files_has(c->files, name))
            continue;
        if (c->optim)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s: %s is missing", c->files->path, name);
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s does not hold the weights of this model: \"%.120s\" is missing, "
                           "expected %s %s",
                           c->files->path, name, tutti_dtype_name(t->dtype),
                           tutti__shape_text(tutti__whole_shape(t)));
    }
    return TUTTI_OK;
}

/* Nothing on a rank that does not see the files. */
static tutti_status check_mine(const tutti_module *m, tutti__divided_source *source, bool optim)
{
    const int rank = tutti_group_rank(source->group), size = tutti_group_size(source->group);
    checking c = {.m = m, .files = &source->file, .optim = optim};
    uint64_t before = 0, able = 0;
    tutti_status status;

    for (int r = 0; r < size; r++) {
        before += r < rank && source->may[r];
        able += source->may[r];
    }
    if (!source->may[rank])
        return TUTTI_OK;
    status = check_names(&c);
    if (status == TUTTI_OK)
        status = check_part(&c, before, able);
    free(c.room);
    return status;
}

/* ---- Together ------------------------------------------------------------------------------------------------- */

static tutti_status verify(tutti_group *group, const tutti_module *m,
                           const tutti__verify_wish *wish, const char *stem)
{
    tutti__divided_source source;
    tutti_status status = tutti__divided_open(&source, group, wish->folder, stem, wish->digest);

    if (status == TUTTI_OK)
        status = tutti__group_agree(group, check_mine(m, &source, strcmp(stem, "optimizer") == 0));
    tutti__divided_close(&source);
    return status;
}

static tutti_status verify_all(tutti_group *group, const tutti_module *m,
                               const tutti__verify_wish *wish)
{
    if (wish->model)
        TUTTI_TRY(verify(group, m, wish, "model"));
    if (wish->average)
        TUTTI_TRY(verify(group, m, wish, "ema"));
    return wish->optim ? verify(group, m, wish, "optimizer") : TUTTI_OK;
}

static tutti_status tell(tutti_group *group, const tutti__verify_wish *wish)
{
    tutti__verify_wish copy = *wish;

    return tutti_broadcast(group, TUTTI_BUF(&copy, sizeof copy, TUTTI_U8), 0, NULL);
}

tutti_status tutti__verify_ask(tutti_group *group, const tutti_module *m,
                               const tutti__verify_wish *wish)
{
    TUTTI_TRY(tell(group, wish));
    return verify_all(group, m, wish);
}

tutti_status tutti__verify_end(tutti_group *group, tutti_status status)
{
    char why[2048];

    if (status != TUTTI_OK && tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
        return status;
    snprintf(why, sizeof why, "%s", status == TUTTI_OK ? "" : tutti_last_error());
    TUTTI_TRY(tell(group, &(tutti__verify_wish){.model = false}));
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, why);
}

tutti_status tutti__verify_answer(tutti_group *group, const tutti_module *m)
{
    tutti__verify_wish wish = {.model = true};
    tutti_status status = TUTTI_OK;

    while (wish.model || wish.average || wish.optim) {
        if (status != TUTTI_OK && tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
            return status;
        TUTTI_TRY(tutti_broadcast(group, TUTTI_BUF(&wish, sizeof wish, TUTTI_U8), 0, NULL));
        status = verify_all(group, m, &wish);
    }
    return TUTTI_OK;
}
