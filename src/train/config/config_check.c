/* config_check.c -- constraints between keys.   SPDX-License-Identifier: MIT */
#include "checkpoint/output.h"
#include "train/config/config_language.h"
#include "train/config/config_optim.h"
#include "train/config/config_read.h"

#include <stdio.h>
#include <string.h>

/* With shards, rejects keys whose result depends on the number of ranks. */
static tutti_status check_shards(const tutti__train_config *c)
{
    if (c->shards == 0)
        return strcmp(c->wire_bits, "64") == 0
                   ? TUTTI_OK
                   : tutti__fail(
                         TUTTI_ERR_ARG,
                         "wire_bits: it applies to sums over shards; add --shards V, or leave it "
                         "out (comm_hook=bf16 or fp16 rounds the sums of ranks)");
    if (c->sync_bn)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "sync_bn: with shards, batch norm uses the statistics of one shard; "
            "leave sync_bn out and make shards larger (batch_size), or use shards=0");
    if (strcmp(c->comm_hook, "none") != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "comm_hook: %s rounds the sum of a rank, which depends on the number of "
                           "ranks; with shards use comm_hook=none (wire_bits=32 for slow "
                           "links), or shards=0",
                           c->comm_hook);
    return TUTTI_OK;
}

static tutti_status check_offload(const tutti__train_config *c)
{
    if (strcmp(c->offload, "parameters") != 0)
        return TUTTI_OK;
    if (c->zero != 3)
        return tutti__fail(TUTTI_ERR_ARG,
                           "offload: parameters is for zero=3 on GPUs, where each rank has a share "
                           "of them; add --zero 3, or use offload=optimizer, on a CPU none");
    if (c->ema > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "ema: averages are made on the GPU, and with offload=parameters the "
                           "parameters are in host memory; use ema=0, or offload=optimizer");
    return TUTTI_OK;
}

static tutti_status check_zero_of_shards(const tutti__train_config *c)
{
    if (c->zero_ranks > 0 && c->zero == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "zero_ranks: it says among how many ranks zero divides, and zero=0; add "
                           "--zero 1, 2 or 3");
    if (c->zero_ranks > 0 && c->shards > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "zero_ranks: with shards ranks come and go, and all of them divide; use "
                           "zero_ranks=0, or shards=0");
    if (c->shards == 0 || c->zero < 2)
        return TUTTI_OK;
    if (strcmp(c->amp, "fp16") == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "amp: with shards and zero=%lld each rank sees infinities in its own "
                           "share of the gradients only; use amp=bf16, or zero=1",
                           (long long)c->zero);
    return TUTTI_OK;
}

/* Between an update in a group that has died and the next group, a rank's weights are not complete (zero_copies.c). */
static tutti_status check_copies(const tutti__train_config *c, const tutti__parts *parts)
{
    if (c->shard_copies == 1)
        return TUTTI_OK;
    if (c->shards == 0 || c->zero == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "shard_copies: shares of the optimizer state with a second rank are for "
                           "--shards V with --zero 1, 2 or 3; add %s, or use shard_copies=1",
                           c->zero > 0      ? "--shards V"
                           : c->shards == 0 ? "--shards V --zero 1"
                                            : "--zero 1");
    if (c->ema > 0 || c->histograms || parts->own.hooks || strcmp(c->amp, "fp16") == 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s: with shard_copies=2 it cannot be used: it reads or changes state in "
            "the middle of a step, which a death may undo; use %s, or shard_copies=1",
            c->ema > 0         ? "ema"
            : c->histograms    ? "histograms"
            : parts->own.hooks ? "hooks"
                               : "amp",
            c->ema > 0         ? "ema=0"
            : c->histograms    ? "histograms=false"
            : parts->own.hooks ? "no hooks"
                               : "amp=bf16");
    return TUTTI_OK;
}

/* What a rank that has a stage of the model cannot do. */
static tutti_status check_pipeline(const tutti__train_config *c, const tutti__parts *parts)
{
    const struct {
        bool is_set;
        const char *name, *why;
    } rows[] = {
        {c->find_unused, "find_unused", "may skip what another stage waits for; leave it out"},
        {c->static_graph, "static_graph", "may skip what another stage waits for; leave it out"},
        {c->lr_find, "lr_find", "changes weights and takes them back; use pipeline=1 for it"},
        {strcmp(c->comm_hook, "powersgd") == 0, "comm_hook",
         "keeps, with powersgd, as much on each rank; use none, bf16 or fp16"},
        {parts->own.hooks, "hooks", "gives the program a part of the model; leave the hooks out"},
    };
    const char *name = c->pipeline_cuts[0]                         ? "pipeline_cuts"
                       : c->pipeline_chunks > 0                    ? "pipeline_chunks"
                       : strcmp(c->pipeline_schedule, "1f1b") != 0 ? "pipeline_schedule"
                                                                   : NULL;

    if (c->pipeline == 1)
        return name ? tutti__fail(TUTTI_ERR_ARG, "%s: it is for a pipeline; add --pipeline P", name)
                    : TUTTI_OK;
    if (c->pipeline_chunks > 1 && strcmp(c->pipeline_schedule, "interleaved") != 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "pipeline_chunks: %lld stages a rank are for an interleaved schedule; add "
            "--pipeline-schedule interleaved",
            (long long)c->pipeline_chunks);
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++)
        if (rows[i].is_set)
            return tutti__fail(TUTTI_ERR_ARG, "%s: with pipeline=%lld it cannot be used: it %s",
                               rows[i].name, (long long)c->pipeline, rows[i].why);
    return TUTTI_OK;
}

/* tensor_parts, which makes the same sums whatever tensor is. */
static tutti_status check_parts(const tutti__train_config *c)
{
    const long long parts = c->tensor_parts;

    if (parts == 0)
        return TUTTI_OK;
    if ((parts & (parts - 1)) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tensor_parts: it is %lld; expected a power of two, as sums of parts "
                           "are added in pairs",
                           parts);
    if (parts % c->tensor != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tensor_parts: %lld parts cannot be divided among the ranks of "
                           "tensor=%lld; expected a tensor that divides them",
                           parts, (long long)c->tensor);
    if (c->lora_dropout > 0 || strcmp(c->comm_hook, "powersgd") == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tensor_parts: %s makes another result for each tensor; leave one of "
                           "them out",
                           c->lora_dropout > 0 ? "lora_dropout" : "comm_hook=powersgd");
    if (c->sequence_parallel && c->lora_rank > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tensor_parts: with sequence_parallel, adapters' gradients are not sums "
                           "of %lld parts; leave out sequence_parallel or lora_rank",
                           parts);
    return TUTTI_OK;
}

/* Keys that divide a model among ranks. */
static tutti_status check_layout(const tutti__train_config *c, const tutti__parts *parts)
{
    const char *name = c->pipeline > 1 ? "pipeline" : "tensor";

    TUTTI_TRY(check_pipeline(c, parts));
    TUTTI_TRY(check_parts(c));
    if (c->tensor == 1 && c->tensor_parts == 0 && c->sequence_parallel)
        return tutti__fail(TUTTI_ERR_ARG, "sequence_parallel: it divides tokens among the "
                                          "ranks of a layer; add --tensor T");
    if (c->tensor == 1 && c->tensor_parts == 0 && c->pipeline == 1)
        return TUTTI_OK;
    if (c->tensor > 1 && strcmp(c->comm_hook, "powersgd") == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "comm_hook: the matrices that powersgd approximates are divided among "
                           "ranks with tensor=%lld; use comm_hook=none, bf16 or fp16, or tensor=1",
                           (long long)c->tensor);
    if (c->tensor > 1 && c->lora_dropout > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "lora_dropout: with tensor=%lld ranks have parts of an adapter's input, "
                           "which dropout does not tell apart; use lora_dropout=0 or tensor=1",
                           (long long)c->tensor);
    if (c->shards > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: with shards any rank computes any shard alone, and %s=%lld divides "
                           "a model among ranks; use %s=1 or shards=0",
                           name, name, (long long)(c->pipeline > 1 ? c->pipeline : c->tensor),
                           name);
    return TUTTI_OK;
}

/* Keys of crops and flips, which are made with augment. */
static tutti_status check_crops(const tutti__train_config *c)
{
    const char *name = strcmp(c->flip, "auto") != 0               ? "flip"
                       : c->crop_padding >= 0                     ? "crop_padding"
                       : strcmp(c->padding_mode, "constant") != 0 ? "padding_mode"
                                                                  : NULL;

    if (name && !c->augment)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: crops and flips are made with augment, which is off; add "
                           "--augment, or leave %s out",
                           name, name);
    if (c->crop_padding == 0 && strcmp(c->padding_mode, "constant") != 0)
        return tutti__fail(TUTTI_ERR_ARG, "padding_mode: crop_padding=0 pads nothing; leave "
                                          "padding_mode out, or give another crop_padding");
    return TUTTI_OK;
}

static tutti_status check_augmentation(const tutti__train_config *c, const tutti__parts *parts)
{
    const char *name = c->mixup > 0 ? "mixup" : "cutmix";
    double strength[4];

    TUTTI_TRY(check_crops(c));
    if (!tutti__config_color_jitter(c, strength))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "color_jitter: \"%.60s\" is not one number, three or four; expected the strength (0 to "
            "100) of brightness, contrast and saturation, as in 0.4, or of each of them, as in "
            "0.4,0.4,0.2, with the hue's behind it (0 to 0.5), as in 0.4,0.4,0.2,0.1",
            c->color_jitter);
    if (c->mixup == 0 && c->cutmix == 0)
        return TUTTI_OK;
    if (parts->own.loss)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: it mixes labels and targets, and this program has its own loss, "
                           "which may not take them; leave %s out, and mix in the program",
                           name, name);
    if (c->batch_size == 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: it mixes the samples of a batch, and batch_size is 1; use larger "
                           "batches, or leave %s out",
                           name, name);
    return TUTTI_OK;
}

/* What early_stopping and checkpoint_best need. */
static tutti_status check_best(const tutti__train_config *c)
{
    const bool kept = strcmp(c->checkpoint_best, "off") != 0;

    if (c->eval_every == 0 && c->eval_steps == 0 && (kept || c->early_stopping > 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: needs evaluations, and eval_every=0 makes none; use eval_every=1",
                           kept ? "checkpoint_best" : "early_stopping");
    if (c->min_delta > 0 && !kept && c->early_stopping == 0)
        return tutti__fail(TUTTI_ERR_ARG, "min_delta: it is for early_stopping and "
                                          "checkpoint_best; add one of them");
    return TUTTI_OK;
}

static tutti_status check_lora(const tutti__train_config *c)
{
    const char *name = c->lora_alpha > 0     ? "lora_alpha"
                       : c->lora_dropout > 0 ? "lora_dropout"
                       : c->lora_targets[0]  ? "lora_targets"
                       : c->lora_train[0]    ? "lora_train"
                       : c->lora_init[0]     ? "lora_init"
                                             : NULL;

    if (c->lora_rank > 0 || !name)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "%s: it is for adapters, and lora_rank=0 makes none; add --lora-rank R, as 8", name);
}

tutti_status tutti__config_check(const tutti__train_config *c, const tutti__parts *parts)
{
    int64_t first, last;

    TUTTI_TRY(check_shards(c));
    TUTTI_TRY(check_copies(c, parts));
    TUTTI_TRY(check_layout(c, parts));
    TUTTI_TRY(tutti__config_check_optim(c));
    TUTTI_TRY(tutti__config_check_language(c, parts->model));
    TUTTI_TRY(check_best(c));
    TUTTI_TRY(check_lora(c));
    if (c->zero && (c->shards == 0 || c->zero > 1) && parts->own.hooks &&
        parts->own.hooks->on_gradients)
        return tutti__fail(TUTTI_ERR_ARG,
                           "zero: with it each rank has its share of the mean gradients, and the "
                           "program's on_gradients needs all of them; use zero=0, or zero=1 with "
                           "shards");
    TUTTI_TRY(check_zero_of_shards(c));
    TUTTI_TRY(check_offload(c));
    if (c->ema == 1)
        return tutti__fail(TUTTI_ERR_ARG, "ema: with 1 the average never changes; expected a decay "
                                          "below 1, as 0.999, or 0 for none");
    TUTTI_TRY(tutti__parts_check(parts, c));
    TUTTI_TRY(check_augmentation(c, parts));
    if (!c->resume[0])
        return tutti__fail(TUTTI_ERR_ARG,
                           "resume: it is empty; expected auto, no, a checkpoint or a run folder");
    if (c->prometheus[0])
        TUTTI_TRY(tutti__output_check("prometheus:", c->prometheus));
    if (c->zero && strcmp(c->comm_hook, "powersgd") == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "comm_hook: powersgd keeps an error for each gradient, of which zero "
                           "leaves a rank a share; use comm_hook=none, bf16 or fp16, or zero=0");
    if (strcmp(c->backend, "nccl") == 0 &&
        (strcmp(c->device, "cpu") == 0 || strcmp(c->device, "strict") == 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "backend: nccl is between GPUs, and device=%s has none; use "
                           "backend=auto or native, or device=cuda",
                           c->device);
    if (c->histograms && !c->tensorboard)
        return tutti__fail(TUTTI_ERR_ARG,
                           "histograms: they are shown by TensorBoard; add --tensorboard");
    if (!tutti__config_profile(c, &first, &last))
        return tutti__fail(TUTTI_ERR_ARG,
                           "profile: \"%s\" is not A:B; expected the first and the last "
                           "step, counted from 1, as in 1:5",
                           c->profile);
    if (last - first >= 10000)
        return tutti__fail(TUTTI_ERR_ARG, "profile: %s is more than 10000 steps; trace fewer",
                           c->profile);
    if (!c->init[0] && (c->init_only[0] || c->init_partial))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: selects tensors of init, which is not given; add --init FILE",
                           c->init_only[0] ? "init_only" : "init_partial");
    if (c->whiten > 0 && (c->init[0] || c->zero == 3))
        return tutti__fail(TUTTI_ERR_ARG, "whiten: %s; leave whiten out%s",
                           c->init[0] ? "init has the weights of the first layer, too"
                                      : "with zero=3 no rank has all of the first layer's weights",
                           c->init[0] ? "" : ", or use zero=2");
    return TUTTI_OK;
}
