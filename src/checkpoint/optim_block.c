/* optim_block.c -- copies an optimizer's state to and from memory and a safetensors file.   SPDX-License-Identifier: MIT */
#include "checkpoint/optim_block.h"

#include "checkpoint/safetensors.h"
#include "comm/comm.h"
#include "optim/optim.h"
#include "tensor/tensor.h"
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 320 };

static size_t count_of(const tutti_tensor *t)
{
    return (size_t)tutti_shape_count(tutti_tensor_shape(t));
}

static size_t values_bytes(const tutti__optim_block *block)
{
    return (block->n_states * block->n + 1) * sizeof *block->values;
}

/* Counts the elements of block->has, and allocates zeroed room for them. */
static tutti_status make_room(tutti__optim_block *block, const tutti_module *m)
{
    block->n = 0;
    for (size_t i = 0; i < block->n_parameters; i++)
        block->n += block->has[i] ? count_of(tutti_module_parameter(m, i)) : 0;
    if (block->values)
        block->ops->host_free(block->device, block->values);
    block->values = block->ops->host_alloc(block->device, values_bytes(block));
    if (!block->values)
        return TUTTI_ERR_MEMORY;
    if (!block->ops->plans)
        memset(block->values, 0, values_bytes(block));
    return TUTTI_OK;
}

static tutti_status allocate(tutti__optim_block *block, const tutti_module *m)
{
    block->n_parameters = tutti_module_n_parameters(m);
    block->ops = m->cx->device_ops;
    block->device = m->cx->device;
    block->updates = tutti__alloc((block->n_parameters + 1) * sizeof *block->updates);
    block->has = tutti__alloc(block->n_parameters + 1);
    return block->updates && block->has ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* Notes which parameters have state now; whether one has it that had none. */
static bool find_state(tutti__optim_block *block, const tutti_optim *optim, const tutti_module *m)
{
    bool more = false;

    for (size_t i = 0; i < block->n_parameters; i++) {
        const tutti_tensor *t = tutti_module_parameter(m, i);
        const bool has = t->parameter->requires_grad || tutti_optim_updates(optim, t) > 0;

        more |= has && !block->has[i];
        block->has[i] |= has;
    }
    return more;
}

/* Makes an empty block with the names of this optimizer's states. */
static void name_states(tutti__optim_block *block, const tutti_optim *optim)
{
    const char *name;

    *block = (tutti__optim_block){0};
    while (block->n_states < TUTTI__OPTIM_BLOCK_STATES &&
           (name = tutti_optim_state_name(optim, block->n_states)))
        snprintf(block->names[block->n_states++], sizeof block->names[0], "%s", name);
}

tutti_status tutti__optim_block_new(tutti__optim_block *block, const tutti_optim *optim,
                                    const tutti_module *m)
{
    name_states(block, optim);
    TUTTI_TRY(allocate(block, m));
    find_state(block, optim, m);
    return make_room(block, m);
}

void tutti__optim_block_free(tutti__optim_block *block)
{
    if (block->values)
        block->ops->host_free(block->device, block->values);
    free(block->updates);
    free(block->has);
    *block = (tutti__optim_block){0};
}

tutti_status tutti__optim_block_take(tutti__optim_block *block, const tutti_optim *optim,
                                     const tutti_module *m, tutti_stream *stream)
{
    float *at;

    if (find_state(block, optim, m))
        TUTTI_TRY(make_room(block, m));
    at = block->values;
    for (size_t k = 0; k < block->n_states; k++)
        for (size_t i = 0; i < block->n_parameters; i++) {
            const tutti_tensor *t = tutti_module_parameter(m, i);

            if (!block->has[i])
                continue;
            TUTTI_TRY(tutti__optim_state_copy(optim, k, t, stream, at));
            at += count_of(t);
        }
    for (size_t i = 0; i < block->n_parameters; i++)
        block->updates[i] = tutti_optim_updates(optim, tutti_module_parameter(m, i));
    return TUTTI_OK;
}

tutti_status tutti__optim_block_put(const tutti__optim_block *block, tutti_optim *optim,
                                    const tutti_module *m)
{
    const float *at = block->values;

    for (size_t i = 0; i < block->n_parameters; i++)
        TUTTI_TRY(tutti_optim_set_updates(optim, tutti_module_parameter(m, i), block->updates[i]));
    for (size_t k = 0; k < block->n_states; k++)
        for (size_t i = 0; i < block->n_parameters; i++) {
            tutti_tensor *t = tutti_module_parameter(m, i);

            if (!block->has[i])
                continue;
            TUTTI_TRY(tutti_optim_state_write(optim, k, t, at));
            at += count_of(t);
        }
    return tutti_stream_wait(optim->cx->stream); /* until then the copies read block->values */
}

/* ---- File --------------------------------------------------------------------------------------------------- */

/* Writes the tensors' names back to back into memory that the caller frees. Returns how many there are. */
static size_t describe(const tutti__optim_block *block, const tutti_module *m,
                       tutti__safetensors_source *sources, char *names)
{
    float *at = block->values;
    size_t s = 0;

    for (size_t k = 0; k < block->n_states; k++)
        for (size_t i = 0; i < block->n_parameters; i++) {
            const tutti_tensor *t = tutti_module_parameter(m, i);

            if (!block->has[i])
                continue;
            snprintf(names + s * NAME_BYTES, NAME_BYTES, "%s.%s", block->names[k],
                     tutti_tensor_name(t));
            sources[s].array = (tutti_array){at, tutti_tensor_shape(t), TUTTI_F32};
            at += count_of(t);
            s++;
        }
    for (size_t i = 0; i < block->n_parameters; i++, s++) {
        snprintf(names + s * NAME_BYTES, NAME_BYTES, "step.%s",
                 tutti_tensor_name(tutti_module_parameter(m, i)));
        sources[s].array = (tutti_array){&block->updates[i], {.n = 0}, TUTTI_I64};
    }
    for (size_t i = 0; i < s; i++)
        sources[i].name = names + i * NAME_BYTES;
    return s;
}

static void list_states(const tutti__optim_block *block, char text[160])
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t k = 0; k < block->n_states; k++)
        used += (size_t)snprintf(text + used, 160 - used, "%s%s", k ? " " : "", block->names[k]);
}

tutti_status tutti__optim_block_write(const tutti__optim_block *block, const tutti_module *m,
                                      uint64_t step, tutti__put *put, void *user)
{
    const size_t n = (block->n_states + 1) * block->n_parameters;
    tutti__safetensors_source *sources = tutti__alloc((n + 1) * sizeof *sources);
    char *names = tutti__alloc((n + 1) * NAME_BYTES), states[160], number[24];
    const tutti__safetensors_pair pairs[] = {
        {"format", "pt"}, {"step", number}, {"states", states}};
    tutti_status status = TUTTI_ERR_MEMORY;

    if (sources && names) {
        list_states(block, states);
        snprintf(number, sizeof number, "%llu", (unsigned long long)step);
        status = tutti__safetensors_put(put, user, sources, describe(block, m, sources, names),
                                        pairs, TUTTI__COUNT_OF(pairs));
    }
    free(sources);
    free(names);
    return status;
}

tutti_status tutti__optim_block_names_of(tutti__optim_block *block, const char *path,
                                         const tutti__safetensors *file)
{
    const char *states = tutti__safetensors_metadata(file, "states");

    *block = (tutti__optim_block){0};
    if (!states)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: it does not say which states it holds", path);
    while (*states) {
        size_t n = strcspn(states, " ");

        if (n == 0 || n >= sizeof block->names[0] || block->n_states == TUTTI__OPTIM_BLOCK_STATES)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s: its list of states is broken", path);
        memcpy(block->names[block->n_states++], states, n);
        states += n + (states[n] == ' ');
    }
    return TUTTI_OK;
}

tutti_status tutti__optim_block_names(tutti__optim_block *block, tutti__tensor_files *files)
{
    const tutti__safetensors *first;

    *block = (tutti__optim_block){0};
    TUTTI_TRY(tutti__tensor_files_file(files, 0, &first));
    return tutti__optim_block_names_of(block, files->path, first);
}

/* Whether no update was made to the parameter of a state: it was frozen then, and its state, which is not in the file, is zeros. */
static bool is_new(const tutti__optim_block *block, const tutti_module *m, const char *state)
{
    const char *dot = strchr(state, '.');

    for (size_t i = 0; dot && i < block->n_parameters; i++)
        if (strcmp(tutti_tensor_name(tutti_module_parameter(m, i)), dot + 1) == 0)
            return block->updates[i] == 0;
    return false;
}

static tutti_status read_tensors(const tutti__optim_block *block, const tutti_module *m,
                                 tutti__tensor_files *file)
{
    size_t n = (block->n_states + 1) * block->n_parameters, found = 0;
    tutti__safetensors_source *sources = tutti__alloc((n + 1) * sizeof *sources);
    char *names = tutti__alloc((n + 1) * NAME_BYTES);
    tutti_status status = sources && names ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK)
        n = describe(block, m, sources, names);
    for (size_t i = n; i-- > 0 && status == TUTTI_OK;) { /* the numbers of updates are last */
        if (i < n - block->n_parameters && !tutti__tensor_files_has(file, sources[i].name) &&
            is_new(block, m, sources[i].name))
            continue;
        status =
            tutti__tensor_files_read(file, sources[i].name, sources[i].array.dtype,
                                     sources[i].array.shape, (void *)(uintptr_t)sources[i].array.p);
        found++;
    }
    if (status == TUTTI_OK && tutti__tensor_files_count(file) != found)
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s: it holds %zu tensors, expected %zu", file->path,
                             tutti__tensor_files_count(file), found);
    free(sources);
    free(names);
    return status;
}

/* A parameter has state if it is trained, or the file has some of it. */
static void find_in_file(tutti__optim_block *block, const tutti_module *m,
                         const tutti__tensor_files *file)
{
    char name[NAME_BYTES];

    for (size_t i = 0; i < block->n_parameters; i++) {
        const tutti_tensor *t = tutti_module_parameter(m, i);

        snprintf(name, sizeof name, "%s.%s", block->names[0], tutti_tensor_name(t));
        block->has[i] = t->parameter->requires_grad ||
                        (block->n_states > 0 && tutti__tensor_files_has(file, name));
    }
}

tutti_status tutti__optim_block_read(tutti__optim_block *block, const tutti_module *m,
                                     const char *folder)
{
    tutti__tensor_files file;
    tutti_status status;

    *block = (tutti__optim_block){0};
    status = tutti__tensor_files_open(&file, folder, "optimizer");
    if (status == TUTTI_OK)
        status = tutti__optim_block_names(block, &file);
    if (status == TUTTI_OK)
        status = allocate(block, m);
    if (status == TUTTI_OK) {
        find_in_file(block, m, &file);
        status = make_room(block, m);
    }
    if (status == TUTTI_OK)
        status = read_tensors(block, m, &file);
    tutti__tensor_files_close(&file);
    if (status != TUTTI_OK)
        tutti__optim_block_free(block);
    return status;
}

void tutti__optim_states_text(const tutti_optim *optim, char text[160])
{
    tutti__optim_block own;

    name_states(&own, optim);
    list_states(&own, text);
}

tutti_status tutti__optim_block_fits(const tutti__optim_block *block, const tutti_optim *optim,
                                     const char *path)
{
    char here[160], there[160];

    tutti__optim_states_text(optim, here);
    list_states(block, there);
    if (strcmp(here, there) == 0)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "%s is of an optimizer with %s for each parameter, and this one, %s, has %s; "
        "load it into an optimizer of the same kind and options, or load only the "
        "weights",
        path, *there ? there : "no state", optim->rule->name, *here ? here : "none");
}

tutti_status tutti__optim_block_share(tutti__optim_block *block, const tutti_module *m,
                                      tutti_group *group)
{
    TUTTI_TRY(
        tutti_broadcast(group, TUTTI_BUF(block->has, block->n_parameters, TUTTI_U8), 0, NULL));
    TUTTI_TRY(
        tutti__group_agree(group, tutti_group_rank(group) == 0 ? TUTTI_OK : make_room(block, m)));
    TUTTI_TRY(tutti_broadcast(
        group, TUTTI_BUF(block->values, block->n_states * block->n, TUTTI_F32), 0, NULL));
    return tutti_broadcast(
        group, TUTTI_BUF(block->updates, block->n_parameters * sizeof *block->updates, TUTTI_U8), 0,
        NULL);
}
