/* adapter.h -- low-rank adapters in weight files, and PEFT's files of them.   SPDX-License-Identifier: MIT
 *
 * A weight file of a module with adapters (tutti_lora_apply) has the base weights and the adapters, as tensors of their own, and says
 * in its metadata which belong together:
 *
 *     {"r": 8, "lora_alpha": 16.0, "lora_dropout": 0.0,
 *      "layers": {"h.0.attn.c_attn": {"weight": "h.0.attn.c_attn.weight", "fan_in_fan_out": true}, ...},
 *      "trained": ["head.weight", ...]}
 *
 * PEFT's folder has the adapters and what was trained as a whole: adapter_model.safetensors, adapter_config.json. */
#ifndef TUTTI_CHECKPOINT_ADAPTER_H
#define TUTTI_CHECKPOINT_ADAPTER_H

#include "checkpoint/weights.h"
#include <jansson.h>
#include <tutti/nn.h>

#define TUTTI__ADAPTERS_KEY "lora" /* of __metadata__ */

/* That text for a module; NULL: it has no adapters. free() it. */
tutti_status tutti__adapters_text(const tutti_module *m, char **text_p);

/* The adapters of an open weight file, which must outlive it. */
typedef struct tutti__adapters {
    const tutti__weights *file;
    json_t *json;
    double scale;
    size_t n;
    struct tutti__adapted_layer {
        const char *path;
        size_t weight, a, b; /* tensors of the file */
        bool in_out;         /* the weight is [in,out] */
    } * layers;
} tutti__adapters;

/* *adapters_p NULL: it has none. FORMAT if its metadata do not fit its tensors. */
tutti_status tutti__adapters_open(tutti__adapters **adapters_p, const tutti__weights *file);
void tutti__adapters_close(tutti__adapters *adapters);
/* Whether tensor i of the file is one of an adapter's; adapters NULL: no. */
bool tutti__adapters_hold(const tutti__adapters *adapters, size_t i);
/* Whether tensor i has an adapter; adapters NULL: no. */
bool tutti__adapters_change(const tutti__adapters *adapters, size_t i);
/* Adds to the values of tensor i, in F32, what its adapter does: W + alpha / r * B A. */
tutti_status tutti__adapters_merge(const tutti__adapters *adapters, size_t i, float *values);

/* Writes PEFT's folder, which is made if it is missing; *n_p tensors. */
tutti_status tutti__adapters_save(const tutti__adapters *adapters, const char *folder, size_t *n_p);

#endif
