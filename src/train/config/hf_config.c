/* hf_config.c -- config.json of Hugging Face's language models, read and written.   SPDX-License-Identifier: MIT
 *
 * What a file says and these models do not have is refused: the weights would load, and mean something else. */
#include "train/config/hf_config.h"

#include "checkpoint/state.h"
#include "train/config/config_language.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of config.json that is a key of ours. */
typedef struct same_number {
    const char *theirs, *ours;
} same_number;

static const same_number of_gpt2[] = {{"n_layer", "layers"},   {"n_head", "heads"},
                                      {"n_embd", "width"},     {"n_positions", "context"},
                                      {"vocab_size", "vocab"}, {NULL, NULL}};
static const same_number of_llama[] = {{"num_hidden_layers", "layers"},
                                       {"num_attention_heads", "heads"},
                                       {"num_key_value_heads", "kv_heads"},
                                       {"hidden_size", "width"},
                                       {"max_position_embeddings", "context"},
                                       {"vocab_size", "vocab"},
                                       {"intermediate_size", "ffn_width"},
                                       {"rms_norm_eps", "norm_eps"},
                                       {NULL, NULL}};

/* ---- Reading ------------------------------------------------------------------------------------------ */

static tutti_status unsupported(const char *path, const char *name, const json_t *value,
                                const char *expected)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const tutti_status status =
        tutti__fail(TUTTI_ERR_UNSUPPORTED,
                    "%s: \"%s\" is %.60s, which this version does not compute; expected %s", path,
                    name, text ? text : "?", expected);

    free(text);
    return status;
}

/* Missing values and null are the default. */
static bool is_false(const json_t *config, const char *name)
{
    const json_t *value = json_object_get(config, name);

    return !value || json_is_null(value) || json_is_false(value);
}

static bool is_number(const json_t *config, const char *name, double expected)
{
    const json_t *value = json_object_get(config, name);

    return !value || json_is_null(value) ||
           (json_is_number(value) && json_number_value(value) == expected);
}

static tutti_status check_gpt2(const char *path, const json_t *config)
{
    static const char *const off[] = {"scale_attn_by_inverse_layer_idx", "add_cross_attention"};
    const json_t *activation = json_object_get(config, "activation_function");
    const char *name = json_string_value(activation);
    const double width = json_number_value(json_object_get(config, "n_embd"));

    if (activation && !(name && tutti__word_in("gelu_new gelu_pytorch_tanh", name)))
        return unsupported(path, "activation_function", activation, "\"gelu_new\"");
    if (!is_number(config, "n_inner", 4 * width))
        return unsupported(path, "n_inner", json_object_get(config, "n_inner"), "4 n_embd");
    if (!is_number(config, "layer_norm_epsilon", 1e-5))
        return unsupported(path, "layer_norm_epsilon",
                           json_object_get(config, "layer_norm_epsilon"), "1e-05");
    if (json_is_false(json_object_get(config, "scale_attn_weights")))
        return unsupported(path, "scale_attn_weights", json_false(), "true");
    if (json_is_false(json_object_get(config, "tie_word_embeddings")))
        return unsupported(path, "tie_word_embeddings", json_false(), "true");
    for (size_t i = 0; i < TUTTI__COUNT_OF(off); i++)
        if (!is_false(config, off[i]))
            return unsupported(path, off[i], json_object_get(config, off[i]), "false");
    return TUTTI_OK;
}

static tutti_status check_llama(const char *path, const json_t *config)
{
    static const char *const off[] = {"attention_bias", "mlp_bias"};
    const json_t *activation = json_object_get(config, "hidden_act");
    const char *name = json_string_value(activation);
    const double heads = json_number_value(json_object_get(config, "num_attention_heads"));
    const double width = json_number_value(json_object_get(config, "hidden_size"));

    if (activation && !(name && tutti__word_in("silu swish", name)))
        return unsupported(path, "hidden_act", activation, "\"silu\"");
    if (heads > 0 && !is_number(config, "head_dim", width / heads))
        return unsupported(path, "head_dim", json_object_get(config, "head_dim"),
                           "hidden_size / num_attention_heads");
    for (size_t i = 0; i < TUTTI__COUNT_OF(off); i++)
        if (!is_false(config, off[i]))
            return unsupported(path, off[i], json_object_get(config, off[i]), "false");
    return TUTTI_OK;
}

static double number_in(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

/* A value that is there and not null. */
static const json_t *given(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_null(value) ? NULL : value;
}

static tutti_status read_theta(const char *path, const json_t *config, const json_t *rope,
                               json_t *keys)
{
    const json_t *theta = given(rope, "rope_theta");

    if (!theta)
        theta = given(config, "rope_theta");
    if (theta && !(json_number_value(theta) > 0))
        return tutti__fail(TUTTI_ERR_FORMAT, "%s: \"rope_theta\" is not a number above 0", path);
    if (theta)
        json_object_set_new(keys, "rope_theta", json_real(json_number_value(theta)));
    return TUTTI_OK;
}

/* rope_scaling, or newer files' rope_parameters, as our key. Without a type it is the default, as to transformers. */
static tutti_status read_rope(const char *path, const json_t *config, json_t *keys)
{
    const json_t *newer = given(config, "rope_parameters");
    const json_t *rope = newer ? newer : given(config, "rope_scaling"), *value;
    const char *name = newer ? "rope_parameters" : "rope_scaling", *type = "default";
    tutti_rope_opts opts = {.theta = 0};
    char text[128] = "";

    TUTTI_TRY(read_theta(path, config, newer, keys));
    value = given(rope, "rope_type") ? given(rope, "rope_type") : given(rope, "type");
    if (value || (rope && !json_is_object(rope)))
        type = json_string_value(value);
    if (type && strcmp(type, "default") == 0)
        return TUTTI_OK;
    if (type && strcmp(type, "linear") == 0)
        snprintf(text, sizeof text, "linear:%.17g", number_in(rope, "factor"));
    else if (type && strcmp(type, "llama3") == 0)
        snprintf(text, sizeof text, "llama3:%.17g,%.17g,%.17g,%.17g", number_in(rope, "factor"),
                 number_in(rope, "low_freq_factor"), number_in(rope, "high_freq_factor"),
                 number_in(rope, "original_max_position_embeddings"));
    else
        return unsupported(path, name, rope, "the type default, linear or llama3");
    if (!tutti__config_rope(text, &opts))
        return unsupported(path, name, rope,
                           strcmp(type, "linear") == 0
                               ? "a factor above 0"
                               : "a factor, low_freq_factor, a larger high_freq_factor and "
                                 "original_max_position_embeddings, all above 0");
    json_object_set_new(keys, "rope_scaling", json_string(text));
    return TUTTI_OK;
}

static tutti_status read_numbers(const char *path, const json_t *config, const same_number *names,
                                 json_t *keys)
{
    for (; names->theirs; names++) {
        json_t *value = json_object_get(config, names->theirs);

        if (!value || json_is_null(value))
            continue;
        if (!json_is_number(value) || json_number_value(value) <= 0)
            return tutti__fail(TUTTI_ERR_FORMAT, "%s: \"%s\" is not a number above 0", path,
                               names->theirs);
        json_object_set(keys, names->ours, value);
    }
    return TUTTI_OK;
}

static tutti_status read_config(const char *path, const json_t *config, json_t *keys)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const bool is_llama = type && strcmp(type, "llama") == 0;

    json_object_set_new(keys, "model", json_string(type));
    TUTTI_TRY(is_llama ? check_llama(path, config) : check_gpt2(path, config));
    TUTTI_TRY(read_numbers(path, config, is_llama ? of_llama : of_gpt2, keys));
    if (!is_llama)
        return TUTTI_OK;
    json_object_set_new(keys, "tie_embeddings",
                        json_boolean(json_is_true(json_object_get(config, "tie_word_embeddings"))));
    return read_rope(path, config, keys);
}

static void say_kind(const char *path, const json_t *config, char fault[TUTTI__HF_FAULT])
{
    const json_t *type = json_object_get(config, "model_type");
    char *text = type ? json_dumps(type, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    if (type)
        snprintf(fault, TUTTI__HF_FAULT,
                 "%s: \"model_type\" is %.60s, which is neither \"gpt2\" nor \"llama\"", path,
                 text ? text : "?");
    else
        snprintf(fault, TUTTI__HF_FAULT,
                 "%s: it has neither the \"model_type\" of a folder of Hugging Face, \"gpt2\" or "
                 "\"llama\", nor the \"model\" of a run",
                 path);
    free(text);
}

tutti_status tutti__hf_keys(json_t **keys_p, const char *folder, char fault[TUTTI__HF_FAULT])
{
    char path[4096 + 16];
    json_error_t error = {.line = 0};
    json_t *config;
    const char *type;
    tutti_status status = TUTTI_OK;

    *keys_p = NULL;
    fault[0] = '\0';
    snprintf(path, sizeof path, "%s/config.json", folder);
    config = tutti__json_read(path, 0, &error);
    if (!config)
        return tutti__fail(TUTTI_ERR_FORMAT, "cannot read %s: %s", path, error.text);
    type = json_string_value(json_object_get(config, "model_type"));
    if (type && tutti__word_in("gpt2 llama", type)) {
        *keys_p = json_object();
        status = *keys_p ? read_config(path, config, *keys_p)
                         : tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
    } else
        say_kind(path, config, fault);
    json_decref(config);
    return status;
}

void tutti__hf_limit_context(json_t *keys)
{
    const json_int_t most = 1024, context = json_integer_value(json_object_get(keys, "context"));

    json_object_set_new(keys, "context", json_integer(context && context < most ? context : most));
}

/* ---- Sizes of weights ----------------------------------------------------------------------------------- */

static json_int_t count_of(const tutti__weights *weights, const char *name)
{
    json_int_t n = 0;

    for (size_t i = 0; i < tutti__weights_count(weights); i++)
        n += tutti__ends_in(tutti__weights_at(weights, i)->name, name);
    return n;
}

/* What weights show of a key: a dimension of a tensor, or how often there is one. */
typedef struct shown_size {
    const char *key, *tensor;
    enum { ROWS, COLUMNS, COUNT } what;
} shown_size;

static const shown_size shown_of_gpt2[] = {{"vocab", "wte.weight", ROWS},
                                           {"width", "wte.weight", COLUMNS},
                                           {"context", "wpe.weight", ROWS},
                                           {"layers", ".attn.c_attn.weight", COUNT},
                                           {NULL, NULL, ROWS}};
static const shown_size shown_of_llama[] = {{"vocab", "embed_tokens.weight", ROWS},
                                            {"width", "embed_tokens.weight", COLUMNS},
                                            {"ffn_width", "mlp.up_proj.weight", ROWS},
                                            {"layers", ".mlp.up_proj.weight", COUNT},
                                            {NULL, NULL, ROWS}};

static tutti_status check_size(const char *folder, const same_number *names, const shown_size *s,
                               const json_t *value, const tutti__weights *weights)
{
    const tutti_shape shape = tutti__weights_shape(weights, s->tensor);
    const double says = json_number_value(value);
    const double is = s->what == COUNT ? (double)count_of(weights, s->tensor)
                      : shape.n == 2   ? (double)shape.d[s->what == COLUMNS]
                                       : 0;
    /* Of a table of positions the first rows may be used alone. */
    const bool fits = strcmp(s->key, "context") == 0 ? says <= is : says == is;

    while (strcmp(names->ours, s->key) != 0)
        names++;
    return fits ? TUTTI_OK
                : tutti__fail(TUTTI_ERR_FORMAT,
                              "%s/config.json: \"%s\" is %.15g, and %s has %.15g (%s %s); expected "
                              "the config.json that was saved with the weights",
                              folder, names->theirs, says, tutti__weights_path(weights), is,
                              s->what == ROWS      ? "rows of"
                              : s->what == COLUMNS ? "columns of"
                                                   : "tensors",
                              s->tensor + (*s->tensor == '.'));
}

tutti_status tutti__hf_check_sizes(const json_t *keys, const char *folder, const char *path)
{
    const char *model = json_string_value(json_object_get(keys, "model"));
    const bool is_llama = model && strcmp(model, "llama") == 0;
    tutti__weights *weights;
    tutti_status status = TUTTI_OK;

    if (tutti__weights_open(&weights, path) != TUTTI_OK)
        return TUTTI_OK;
    for (const shown_size *s = is_llama ? shown_of_llama : shown_of_gpt2; s->key; s++) {
        const json_t *value = json_object_get(keys, s->key);

        if (value && status == TUTTI_OK)
            status = check_size(folder, is_llama ? of_llama : of_gpt2, s, value, weights);
    }
    tutti__weights_close(weights);
    return status;
}

json_t *tutti__hf_ends(const char *folder)
{
    static const char *const files[] = {"config.json", "generation_config.json"};
    json_t *ends = json_array(), *config, *value, *one;
    char path[4096 + 32];
    size_t i;

    for (size_t k = 0; k < TUTTI__COUNT_OF(files); k++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[k]);
        config = tutti__json_read(path, 0, NULL);
        value = json_object_get(config, "eos_token_id");
        if (json_is_integer(value))
            json_array_append(ends, value);
        json_array_foreach(value, i, one)
        {
            if (json_is_integer(one))
                json_array_append(ends, one);
        }
        json_decref(config);
    }
    return ends;
}

/* ---- Writing ------------------------------------------------------------------------------------------ */

static json_int_t key_of(const json_t *keys, const char *name, json_int_t otherwise)
{
    const json_int_t value = json_integer_value(json_object_get(keys, name));

    return value ? value : otherwise;
}

/* Of the larger sizes by name each head has 64 features. */
static json_int_t gpt2_heads(const json_t *keys, int64_t width)
{
    const char *model = json_string_value(json_object_get(keys, "model"));

    return key_of(keys, "heads", strcmp(model, "gpt2") == 0 ? 12 : width / 64);
}

static json_t *gpt2_config(const json_t *keys, const tutti__weights *weights)
{
    const tutti_shape table = tutti__weights_shape(weights, "wte.weight"),
                      places = tutti__weights_shape(weights, "wpe.weight");
    const double dropout = number_in(keys, "dropout");
    json_t *config =
        json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:b}",
                  "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size",
                  (json_int_t)table.d[0], "n_positions", (json_int_t)places.d[0], "n_embd",
                  (json_int_t)table.d[1], "n_layer", count_of(weights, ".attn.c_attn.weight"),
                  "n_head", gpt2_heads(keys, table.d[1]), "activation_function", "gelu_new",
                  "layer_norm_epsilon", 1e-5, "initializer_range", 0.02, "attn_pdrop", dropout,
                  "embd_pdrop", dropout, "resid_pdrop", dropout, "tie_word_embeddings", 1);

    /* The default, 50256, is no token of a smaller vocabulary. */
    if (config && table.d[0] <= 50256) {
        json_object_set_new(config, "bos_token_id", json_null());
        json_object_set_new(config, "eos_token_id", json_null());
    }
    return config;
}

static json_t *rope_of(const char *scaling)
{
    tutti_rope_opts rope = {.theta = 0};

    if (!tutti__config_rope(scaling, &rope) || rope.scaling == TUTTI_ROPE_PLAIN)
        return json_null();
    if (rope.scaling == TUTTI_ROPE_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", rope.factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", rope.factor,
                     "low_freq_factor", rope.low_freq_factor, "high_freq_factor",
                     rope.high_freq_factor, "original_max_position_embeddings",
                     (json_int_t)rope.original_context);
}

static json_t *llama_config(const json_t *keys, const tutti__weights *weights)
{
    const tutti_shape table = tutti__weights_shape(weights, "embed_tokens.weight"),
                      up = tutti__weights_shape(weights, "mlp.up_proj.weight"),
                      k = tutti__weights_shape(weights, "self_attn.k_proj.weight");
    const json_int_t heads = key_of(keys, "heads", 12);
    const double theta = number_in(keys, "rope_theta"), eps = number_in(keys, "norm_eps");
    const char *scaling = json_string_value(json_object_get(keys, "rope_scaling"));
    json_t *config = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:b, s:n, s:n}",
        "architectures", "LlamaForCausalLM", "model_type", "llama", "vocab_size",
        (json_int_t)table.d[0], "max_position_embeddings", key_of(keys, "context", 1024),
        "hidden_size", (json_int_t)table.d[1], "num_hidden_layers",
        count_of(weights, ".mlp.up_proj.weight"), "num_attention_heads", heads,
        "num_key_value_heads", (json_int_t)(k.d[0] / (table.d[1] / heads)), "intermediate_size",
        (json_int_t)up.d[0], "hidden_act", "silu", "initializer_range", 0.02, "rms_norm_eps",
        eps > 0 ? eps : 1e-5, "rope_theta", theta > 0 ? theta : 10000.0, "attention_dropout",
        number_in(keys, "dropout"), "tie_word_embeddings",
        tutti__weights_shape(weights, "lm_head.weight").n == 0, "bos_token_id", "eos_token_id");

    if (config)
        json_object_set_new(config, "rope_scaling", rope_of(scaling ? scaling : ""));
    return config;
}

tutti_status tutti__hf_config(json_t **config_p, const json_t *keys, const tutti__weights *weights)
{
    const char *model = json_string_value(json_object_get(keys, "model"));
    const bool is_gpt2 = model && strncmp(model, "gpt2", 4) == 0;
    const bool is_llama = model && strcmp(model, "llama") == 0;
    const bool fits = is_gpt2 ? tutti__weights_shape(weights, "wte.weight").n == 2 &&
                                    tutti__weights_shape(weights, "wpe.weight").n == 2
                              : is_llama &&
                                    tutti__weights_shape(weights, "embed_tokens.weight").n == 2 &&
                                    tutti__weights_shape(weights, "mlp.up_proj.weight").n == 2 &&
                                    tutti__weights_shape(weights, "self_attn.k_proj.weight").n == 2;
    const json_int_t heads = key_of(keys, "heads", 12);

    *config_p = NULL;
    if (fits && heads < 1)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s: its configuration says %lld heads; expected a number above 0",
                           tutti__weights_path(weights), (long long)heads);
    if (!fits || (is_llama && tutti__weights_shape(weights, "embed_tokens.weight").d[1] < heads))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s: its configuration%s%.60s%s is not of gpt2 or llama, of which Hugging "
            "Face's folders are written; expected a checkpoint or a run of these",
            tutti__weights_path(weights), model ? ", model " : " is missing, or",
            model ? model : "", model ? "," : "");
    *config_p = is_gpt2 ? gpt2_config(keys, weights) : llama_config(keys, weights);
    return *config_p ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for config.json");
}

static void take_id(json_t *config, const json_t *from, const char *name)
{
    json_t *value = json_object_get(from, name);

    if (json_is_integer(value) || json_is_array(value))
        json_object_set(config, name, value);
}

void tutti__hf_set_ends(json_t *config, const char *from, const tutti_tokenizer *t)
{
    const json_int_t end = t ? tutti_tokenizer_end_of_text(t) : -1;
    const json_t *type = json_object_get(config, "model_type");
    char path[4096 + 16];
    json_t *first;

    if (end >= 0 && end < json_integer_value(json_object_get(config, "vocab_size"))) {
        json_object_set_new(config, "eos_token_id", json_integer(end));
        if (strcmp(json_string_value(type), "gpt2") == 0)
            json_object_set_new(config, "bos_token_id", json_integer(end));
    }
    snprintf(path, sizeof path, "%s/config.json", from);
    first = *from ? tutti__json_read(path, 0, NULL) : NULL;
    if (json_equal(json_object_get(first, "model_type"), type)) {
        take_id(config, first, "eos_token_id");
        take_id(config, first, "bos_token_id");
    }
    json_decref(first);
}

bool tutti__hf_set_positions(json_t *config, const char *from)
{
    static const char name[] = "max_position_embeddings";
    const json_int_t own = json_integer_value(json_object_get(config, name));
    char path[4096 + 16];
    json_t *first;
    bool longer;

    snprintf(path, sizeof path, "%s/config.json", from);
    first = own && *from ? tutti__json_read(path, 0, NULL) : NULL;
    longer =
        json_equal(json_object_get(first, "model_type"), json_object_get(config, "model_type")) &&
        json_integer_value(json_object_get(first, name)) > own;
    if (longer)
        json_object_set(config, name, json_object_get(first, name));
    json_decref(first);
    return longer;
}

json_t *tutti__hf_tokenizer_config(const json_t *config, const tutti_tokenizer *t)
{
    static const char *const names[][2] = {{"eos_token_id", "eos_token"},
                                           {"bos_token_id", "bos_token"}};
    json_t *json = json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                             "clean_up_tokenization_spaces", 0);

    for (size_t k = 0; json && k < TUTTI__COUNT_OF(names); k++) {
        const json_t *id = json_object_get(config, names[k][0]);

        for (size_t i = 0; json_is_integer(id) && i < t->n_added; i++)
            if (t->added[i].token == json_integer_value(id))
                json_object_set_new(json, names[k][1], json_string(t->added[i].text));
    }
    return json;
}
