/* ctx.c -- the context: its kernels, its threads, and steps.
 * SPDX-License-Identifier: MIT
 *
 * The arena, the tape and the parameters' use counts belong to a step, and start empty
 * in each. */
#include "device/planned/planned.h"
#include "tensor/kernel.h"
#include "tensor/parallel.h"
#include "tensor/tensor.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The family in the options, or for AUTO the one in TUTTI_KERNELS. */
static tutti_status wanted_kernels(tutti_kernels wanted, tutti_kernels *wanted_p)
{
    static const char *const names[] = {"auto", "reference", "onednn"};
    size_t choice;

    *wanted_p = wanted;
    if (wanted != TUTTI_KERNELS_AUTO) {
        if (wanted == TUTTI_KERNELS_REFERENCE || wanted == TUTTI_KERNELS_ONEDNN)
            return TUTTI_OK;
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ctx_new: kernels is %d, expected a tutti_kernels value",
                           (int)wanted);
    }
    TUTTI_TRY(tutti__env_choice(TUTTI__ENV_KERNELS, names, TUTTI__COUNT_OF(names), &choice));
    *wanted_p = (tutti_kernels)choice;
    return TUTTI_OK;
}

/* Devices other than the CPU have one family; the strict device uses the reference kernels. */
static tutti_status choose_device_kernels(tutti_ctx *cx, tutti_kernels wanted)
{
    const bool strict = cx->device.kind == TUTTI_STRICT;

    if (wanted == TUTTI_KERNELS_ONEDNN || (wanted == TUTTI_KERNELS_REFERENCE && !strict))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "kernels %s compute on device cpu; device %s has its own: choose "
                           "kernels auto, or device cpu",
                           wanted == TUTTI_KERNELS_ONEDNN ? "onednn" : "reference",
                           cx->device_ops->name);
    cx->kernels = strict ? &tutti__kernels_strict : &tutti__kernels_cuda;
    return TUTTI_OK;
}

static tutti_status choose_kernels(tutti_ctx *cx, tutti_kernels wanted)
{
    long emulate, deterministic, tf32;

    TUTTI_TRY(tutti__env_int(TUTTI__ENV_EMULATE_HALF, 0, 1, &emulate));
    TUTTI_TRY(tutti__env_int(TUTTI__ENV_DETERMINISTIC, 0, 1, &deterministic));
    TUTTI_TRY(tutti__env_int(TUTTI__ENV_TF32, 0, 1, &tf32));
    cx->emulate_half = emulate == 1;
    cx->nondeterministic |= deterministic == 0;
    cx->tf32 = tf32 == 1;
    TUTTI_TRY(wanted_kernels(wanted, &wanted));
    if (cx->device.kind != TUTTI_CPU && !cx->device_ops->plans)
        return choose_device_kernels(cx, wanted);
    if (wanted != TUTTI_KERNELS_REFERENCE) {
        tutti_status status = tutti__kernels_onednn(&cx->kernels);

        if (status == TUTTI_OK || wanted == TUTTI_KERNELS_ONEDNN || status != TUTTI_ERR_UNSUPPORTED)
            return status;
    }
    cx->kernels = &tutti__kernels_reference;
    cx->emulate_half = true; /* always: the reference need not be fast */
    return TUTTI_OK;
}

tutti_status tutti__kernels_check(const tutti__kernels *k, bool half)
{
#define ONE(name)     +1
#define TWO(name)     +2
#define MISSING(name) !k->name ? #name:
#define HALF_OF(name)                                                                              \
    !k->name##_forward != !k->name##_backward                                                      \
        ? k->name##_forward ? #name "_backward" : #name "_forward"                                 \
        :
    static_assert(sizeof *k == offsetof(tutti__kernels, reorder) +
                                   (0 TUTTI__KERNELS_REQUIRED(ONE) TUTTI__KERNELS_REQUIRED_F32(ONE)
                                        TUTTI__KERNELS_OPTIONAL_PAIRS(TWO)
                                            TUTTI__KERNELS_OPTIONAL(ONE)) *
                                       sizeof(void (*)(void)),
                  "a function of the table is in none of kernel.h's lists");
    const char *missing = TUTTI__KERNELS_REQUIRED(MISSING) NULL;

    if (!missing && !half)
        missing = TUTTI__KERNELS_REQUIRED_F32(MISSING) NULL;
    if (!missing)
        missing = TUTTI__KERNELS_OPTIONAL_PAIRS(HALF_OF) NULL;
    if (!missing)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_INTERNAL,
                       "kernels %s: the table%s lacks %s; kernel.h lists what may be left out",
                       k->name, half ? " of 16 bit" : "", missing);
}

static tutti_status open_kernels(tutti_ctx *cx, tutti_kernels wanted)
{
    TUTTI_TRY(choose_kernels(cx, wanted));
    TUTTI_TRY(tutti__kernels_check(cx->kernels, false));
    cx->f32_kernels = cx->kernels;
    return cx->kernels->open ? cx->kernels->open(cx) : TUTTI_OK;
}

static tutti_status choose_half(tutti_ctx *cx, tutti_dtype dtype, const tutti__kernels **kernels_p)
{
    const tutti__kernels *k = cx->f32_kernels;

    if (k->can_half && k->can_half(cx, dtype)) {
        TUTTI_TRY(tutti__kernels_check(k->half, true));
        *kernels_p = k->half;
        return TUTTI_OK;
    }
    if (!cx->emulate_half)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "kernels %s have no %s arithmetic on this CPU; %scompute in F32 (amp off), "
            "or set TUTTI_EMULATE_HALF=1 for the results of %s at less than F32's speed",
            k->name, tutti_dtype_name(dtype),
            dtype == TUTTI_F16 && k->can_half && k->can_half(cx, TUTTI_BF16)
                ? "they have BF16 (amp bf16); "
                : "",
            tutti_dtype_name(dtype));
    *kernels_p = &tutti__kernels_emulated;
    return TUTTI_OK;
}

tutti_status tutti__kernels_of(tutti_ctx *cx, tutti_dtype dtype, const tutti__kernels **kernels_p)
{
    const tutti__kernels **half = dtype == TUTTI_F16 ? &cx->f16_kernels : &cx->bf16_kernels;

    *kernels_p = cx->f32_kernels;
    if (!tutti__is_half(dtype))
        return TUTTI_OK;
    if (!*half)
        TUTTI_TRY(choose_half(cx, dtype, half));
    *kernels_p = *half;
    return TUTTI_OK;
}

/* Threads of this rank's kernels: as requested, or its share of the cores. */
static tutti_status choose_threads(tutti_ctx *cx, int asked)
{
    const int cores = tutti__cores();
    long from_env;
    int64_t ranks_here = 1;
    const char *text = getenv("LOCAL_WORLD_SIZE");

    if (asked < 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ctx_new: threads is %d, expected 0 (default) or more", asked);
    TUTTI_TRY(tutti__env_int(TUTTI__ENV_THREADS, 0, 4096, &from_env));
    if (text && *text && (!tutti__parse_int64(text, &ranks_here) || ranks_here < 1))
        return tutti__fail(TUTTI_ERR_ARG,
                           "LOCAL_WORLD_SIZE is \"%s\", expected the number of ranks on this host",
                           text);
    if (asked == 0)
        asked = (int)from_env;
    if (asked == 0)
        asked = (int)(cores / ranks_here);
    cx->threads = asked > 0 ? asked : 1;
    cx->threads_have_cores = cx->threads * ranks_here <= cores;
    return TUTTI_OK;
}

static void *get_block(void *self, size_t bytes)
{
    const tutti_ctx *cx = self;

    return cx->device_ops->alloc(cx->device, bytes, false);
}

static void put_block(void *self, void *p)
{
    const tutti_ctx *cx = self;

    cx->device_ops->free(cx->device, p);
}

static void *get_space(void *self, size_t bytes)
{
    (void)self;
    return tutti__planned_space(bytes);
}

static void put_space(void *self, void *p)
{
    (void)self;
    (void)tutti__planned_free(p);
}

/* Host memory is the heap's, an arena's default. Of planned memory an arena counts what it uses, not what it has. */
static void set_arenas(tutti_ctx *cx)
{
    const bool planned = cx->device_ops->plans;

    if (cx->device_ops->is_host && !planned)
        return;
    cx->memory.get = cx->small.get = planned ? get_space : get_block;
    cx->memory.put = cx->small.put = planned ? put_space : put_block;
    cx->memory.self = cx->small.self = cx;
    if (planned) {
        cx->arena.get = get_space;
        cx->arena.put = put_space;
    }
}

static tutti_status open_ctx(tutti_ctx *cx, tutti_device device, const tutti_ctx_opts *opts)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_ctx_opts, opts));
    cx->device = device;
    cx->seed = opts->seed;
    cx->shard = opts->shard;
    cx->shard_chosen = opts->shard != 0;
    cx->nondeterministic = opts->nondeterministic;
    cx->defers_parameters = opts->defers_parameters;
    cx->serial = cx->serials = 1;
    cx->out_of_memory = (tutti_tensor){.cx = cx,
                                       .name = "",
                                       .poison = TUTTI_ERR_MEMORY,
                                       .poison_text = "out of memory for the tensors of a step"};
    TUTTI_TRY(tutti__device_ops_of(device.kind, &cx->device_ops));
    set_arenas(cx);
    TUTTI_TRY(tutti_stream_new(&cx->stream, device));
    TUTTI_TRY(choose_threads(cx, opts->threads));
    return open_kernels(cx, opts->kernels);
}

static void tell_bits(const tutti_ctx *cx)
{
    char text[TUTTI__BUILD_TEXT / 2];
    tutti__device_info info = {0};

    snprintf(text, sizeof text, "%s", cx->kernels->name);
    if (cx->kernels->bits)
        cx->kernels->bits(cx, text, sizeof text);
    else if (cx->device_ops->describe && cx->device_ops->describe(cx->device, &info) == TUTTI_OK)
        snprintf(text, sizeof text, "%s %.40s", cx->kernels->name, info.name);
    tutti__build_uses(text);
}

tutti_status tutti_ctx_new(tutti_ctx **cx_p, tutti_device device, const tutti_ctx_opts *opts)
{
    static const tutti_ctx_opts defaults;
    tutti_ctx *cx = tutti__alloc(sizeof *cx);
    tutti_status status;

    *cx_p = NULL;
    if (!cx)
        return TUTTI_ERR_MEMORY;
    status = open_ctx(cx, device, opts ? opts : &defaults);
    if (status != TUTTI_OK) {
        tutti_stream_free(cx->stream);
        free(cx);
        return status;
    }
    tell_bits(cx);
    tutti_log(TUTTI_LOG_DEBUG, "tensor", "kernels %s, %d threads", cx->kernels->name, cx->threads);
    *cx_p = cx;
    return TUTTI_OK;
}

void tutti_ctx_free(tutti_ctx *cx)
{
    if (!cx)
        return;
    tutti_step_end(cx);
    tutti__parallel_end(cx);
    if (cx->kernels->close)
        cx->kernels->close(cx);
    tutti__arena_destroy(&cx->arena);
    tutti__arena_destroy(&cx->memory);
    tutti__arena_destroy(&cx->small);
    tutti_stream_free(cx->stream);
    free(cx);
}

tutti_device tutti_ctx_device(const tutti_ctx *cx)
{
    return cx ? cx->device : (tutti_device){TUTTI_CPU, 0};
}

tutti_stream *tutti_ctx_stream(tutti_ctx *cx)
{
    return cx ? cx->stream : NULL;
}

const char *tutti_ctx_kernels_name(const tutti_ctx *cx)
{
    return cx ? cx->kernels->name : "";
}

int tutti_ctx_threads(const tutti_ctx *cx)
{
    return cx ? cx->threads : 0;
}

tutti_status tutti_ctx_set_autocast(tutti_ctx *cx, tutti_dtype dtype)
{
    const tutti__kernels *kernels;

    TUTTI_TRY(TUTTI__NOT_NULL(cx));
    if (dtype != TUTTI_F32 && !tutti__is_half(dtype))
        return tutti__fail(TUTTI_ERR_ARG,
                           "autocast: the dtype is %s, expected BF16, F16 or F32 (off)",
                           tutti_dtype_name(dtype));
    TUTTI_TRY(tutti__kernels_of(cx, dtype, &kernels));
    cx->autocast = dtype;
    return TUTTI_OK;
}

const char *tutti_ctx_half_kernels_name(tutti_ctx *cx, tutti_dtype dtype)
{
    const tutti__kernels *kernels;

    if (!cx || !tutti__is_half(dtype) || tutti__kernels_of(cx, dtype, &kernels) != TUTTI_OK)
        return NULL;
    return kernels->name;
}

uint64_t tutti_ctx_step(const tutti_ctx *cx)
{
    return cx ? cx->step : 0;
}

void tutti_ctx_set_step(tutti_ctx *cx, uint64_t step)
{
    if (cx)
        cx->step = step;
}

uint64_t tutti_ctx_shard(const tutti_ctx *cx)
{
    return cx ? cx->shard : 0;
}

void tutti_ctx_set_shard(tutti_ctx *cx, uint64_t shard)
{
    if (!cx)
        return;
    cx->shard = shard;
    cx->shard_chosen = true;
}

tutti_ctx_memory tutti_ctx_memory_stats(const tutti_ctx *cx)
{
    if (!cx)
        return (tutti_ctx_memory){0};
    return (tutti_ctx_memory){.arena_bytes =
                                  cx->arena.capacity + cx->memory.capacity + cx->small.capacity,
                              .arena_used_bytes = cx->arena.used + cx->memory.used + cx->small.used,
                              .allocations = cx->arena.allocations + cx->memory.allocations +
                                             cx->small.allocations + cx->kernel_allocations};
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void poison_step(tutti_ctx *cx, tutti_status status)
{
    size_t bytes = strlen(tutti_last_error()) + 1;
    char *text = tutti__arena_alloc(&cx->arena, bytes);

    cx->step_status = status;
    cx->step_text = text ? memcpy(text, tutti_last_error(), bytes) : cx->out_of_memory.poison_text;
}

void tutti__tell_peers(const tutti_ctx *cx, tutti_status status)
{
    char cause[2048];

    if (!cx->peers || !cx->peers->abort)
        return;
    snprintf(cause, sizeof cause, "%s", tutti_last_error());
    cx->peers->abort(cx->peers->self, status, cause);
    (void)tutti__fail_again(status, cause);
}

void tutti_step_begin(tutti_ctx *cx, const tutti_step_opts *opts)
{
    tutti_status status;

    if (!cx)
        return;
    if (cx->in_step) {
        poison_step(
            cx, tutti__fail(
                    TUTTI_ERR_STATE,
                    "tutti_step_begin: the last step is still open; end it with tutti_step_end"));
        return;
    }
    cx->in_step = true;
    cx->eval = opts && opts->eval;
    cx->recording = !cx->eval && !(opts && opts->no_grad);
    cx->backward_done = cx->recomputing = false;
    cx->block = NULL;
    cx->round = ++cx->rounds;
    cx->dropout_calls = 0;
    cx->autocast = TUTTI_F32;
    cx->first_node = cx->last_node = NULL;
    cx->n_nodes = cx->n_parameters = 0;
    cx->spare = cx->spare_activations = cx->host_spare = cx->spare_entries = NULL;
    cx->of_operation = NULL;
    cx->step_status = TUTTI_OK;
    cx->step += cx->recording;
    status = TUTTI__CHECK_RESERVED(tutti_step_opts, opts);
    if (status == TUTTI_OK && opts)
        status = tutti_ctx_set_autocast(cx, opts->autocast);
    if (status == TUTTI_OK && cx->recording && cx->listener.step_begin)
        status = cx->listener.step_begin(cx->listener.self);
    if (status != TUTTI_OK)
        poison_step(cx, status);
}

void tutti_step_end(tutti_ctx *cx)
{
    if (!cx || !cx->in_step)
        return;
    if (cx->kernels->step_end && cx->n_parked == 0)
        cx->kernels->step_end(cx);
    cx->in_step = cx->recording = false;
    cx->autocast = TUTTI_F32;
    cx->first_node = cx->last_node = NULL;
    cx->spare = cx->spare_activations = cx->host_spare = cx->spare_entries = NULL;
    cx->of_operation = NULL;
    cx->serial = ++cx->serials;
    tutti__arena_reset(&cx->arena);
    tutti__arena_reset(&cx->memory);
    tutti__arena_reset(&cx->small);
}

void tutti__step_memory_release(tutti_ctx *cx)
{
    if (!cx->in_step)
        tutti__arena_destroy(&cx->memory);
}
