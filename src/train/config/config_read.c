/* config_read.c -- converts text to values, by the table of config.def.   SPDX-License-Identifier: MIT
 *
 * Flags and files both use set_value, which takes text, so that both reject the same values. */
#include "train/config/config_read.h"

#include "base/flag.h"
#include "base/terminal.h"
#include "data/dataset.h"
#include "train/config/config_init.h"
#include "train/config/config_language.h"
#include "train/config/config_optim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not a key, because the launcher decides it; but config.json records it. */
#define WORLD_SIZE "world_size"

enum { MAX_FILE = 1 << 20 }; /* bytes; all keys take some kilobytes */

/* Reading in progress: which keys were given, and where the current ones come from (a file's path, or NULL). */
typedef struct reader {
    tutti__train_config *config;
    const tutti__parts *parts;
    bool given[TUTTI__N_KEYS];
    const char *file;
    /* the folder of the run that wrote the file; "": written by a user */
    char ran_in[TUTTI__CONFIG_TEXT];
} reader;

/* "batch_size: ..." from the command line, "FILE: batch_size: ..." from a file. */
static tutti_status refuse(const reader *r, const tutti__key_row *key, const char *format, ...)
    TUTTI_PRINTF(3, 4);
static tutti_status refuse(const reader *r, const tutti__key_row *key, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti__fail(TUTTI_ERR_ARG, "%s%s%s: %s", r->file ? r->file : "", r->file ? ": " : "",
                       key->name, text);
}

/* Whether the key can stand alone on the command line, or as --no-KEY. */
static bool is_flag(int key)
{
    return key >= 0 && key < TUTTI__N_KEYS &&
           (tutti__key_table[key].type == TUTTI__KEY_FLAG ||
            tutti__key_table[key].type == TUTTI__KEY_STEPS);
}

/* A word of the list, or one with a number for the N of "cuda:N". */
static bool has_choice(const char *list, const char *word)
{
    const char *colon = strchr(word, ':');
    char pattern[40];
    int64_t number;

    if (!colon || colon - word > 30 || !tutti__parse_int64(colon + 1, &number) || number < 0)
        return tutti__word_in(list, word) && !(colon && strcmp(colon, ":N") == 0);
    snprintf(pattern, sizeof pattern, "%.*s:N", (int)(colon - word), word);
    return tutti__word_in(list, pattern) && strlen(word) < 32;
}

static void *value_of(tutti__train_config *config, const tutti__key_row *key)
{
    return (char *)config + key->offset;
}

static bool parse_flag(const char *text, bool *value_p)
{
    *value_p = tutti__word_in("true on 1 yes", text);
    return *value_p || tutti__word_in("false off 0 no", text);
}

static tutti_status set_int(const reader *r, const tutti__key_row *key, const char *text)
{
    int64_t value, low = 0, high = 0;

    sscanf(key->limits, "%" SCNd64 " %" SCNd64, &low, &high);
    if (!tutti__parse_int64(text, &value))
        return refuse(r, key, "\"%.100s\" is not an integer; expected %" PRId64 " to %" PRId64,
                      text, low, high);
    if (value < low || value > high)
        return refuse(r, key, "%" PRId64 " is out of range; expected %" PRId64 " to %" PRId64,
                      value, low, high);
    *(int64_t *)value_of(r->config, key) = value;
    return TUTTI_OK;
}

static tutti_status set_steps(const reader *r, const tutti__key_row *key, const char *text)
{
    const char *word = tutti__steps_word(key);
    const bool on = tutti__word_in("true on yes", text);

    if (strcmp(text, "auto") == 0 || (word && (on || strcmp(text, word) == 0))) {
        *(int64_t *)value_of(r->config, key) =
            strcmp(text, "auto") == 0 ? TUTTI__STEPS_AUTO : TUTTI__STEPS_WORD;
        return TUTTI_OK;
    }
    return set_int(r, key, on ? "1" : tutti__word_in("false off no", text) ? "0" : text);
}

static tutti_status set_real(const reader *r, const tutti__key_row *key, const char *text)
{
    double value, low = 0, high = 0;

    sscanf(key->limits, "%lf %lf", &low, &high);
    if (!tutti__parse_double(text, &value))
        return refuse(r, key, "\"%.100s\" is not a number; expected %g to %g", text, low, high);
    if (!(value >= low && value <= high))
        return refuse(r, key, "%g is out of range; expected %g to %g", value, low, high);
    *(double *)value_of(r->config, key) = value;
    return TUTTI_OK;
}

static tutti_status set_choice(const reader *r, const tutti__key_row *key, const char *text)
{
    const char *names[16], *meant = strcmp(text, "gpu") == 0 ? "cuda" : text; /* not cpu */
    char list[256], expected[256], *rest = list, *name;
    size_t n = 0;

    if (has_choice(key->limits, text)) {
        snprintf(value_of(r->config, key), 32, "%s", text);
        return TUTTI_OK;
    }
    snprintf(list, sizeof list, "%s", key->limits);
    while ((name = strsep(&rest, " ")) != NULL && n < TUTTI__COUNT_OF(names))
        names[n++] = name;
    return refuse(r, key, "\"%.100s\" is not one of its values; expected %s", text,
                  tutti__choice_text(meant, names, n, expected, sizeof expected));
}

static tutti_status set_text(const reader *r, const tutti__key_row *key, const char *text)
{
    if (strlen(text) >= TUTTI__CONFIG_TEXT)
        return refuse(r, key, "the text has %zu bytes; expected at most %d", strlen(text),
                      TUTTI__CONFIG_TEXT - 1);
    strcpy(value_of(r->config, key), text);
    return TUTTI_OK;
}

static tutti_status set_value(const reader *r, const tutti__key_row *key, const char *text)
{
    bool flag;

    switch (key->type) {
    case TUTTI__KEY_STEPS:
        TUTTI_TRY(set_steps(r, key, text));
        break;
    case TUTTI__KEY_INT:
        TUTTI_TRY(set_int(r, key, text));
        break;
    case TUTTI__KEY_REAL:
        TUTTI_TRY(set_real(r, key, text));
        break;
    case TUTTI__KEY_FLAG:
        if (!parse_flag(text, &flag))
            return refuse(
                r, key,
                "\"%.100s\" is not one of its values; expected true, false, on, off, 1 or 0", text);
        *(bool *)value_of(r->config, key) = flag;
        break;
    case TUTTI__KEY_CHOICE:
        TUTTI_TRY(set_choice(r, key, text));
        break;
    case TUTTI__KEY_NAME: /* it is resolved after all keys are read */
    case TUTTI__KEY_TEXT:
        TUTTI_TRY(set_text(r, key, text));
        break;
    }
    return TUTTI_OK;
}

/* Names of keys in PyTorch and other trainers, if they are not similar enough to be suggested by spelling. */
static const struct other_name {
    const char *theirs, *ours;
} other_names[] = {
    {"learning_rate", "lr"},
    {"wd", "weight_decay"},
    {"bs", "batch_size"},
    {"per_device_train_batch_size", "batch_size"},
    {"arch", "model"},
    {"dataset", "data"},
    {"data_path", "data_dir"},
    {"precision", "amp"},
    {"mixed_precision", "amp"},
    {"fp16", "amp"},
    {"bf16", "amp"},
    {"max_grad_norm", "clip_grad_norm"},
    {"gradient_clip_val", "clip_grad_norm"},
    {"clip_value", "clip_grad_value"},
    {"t_0", "restart_epochs"},
    {"t_mult", "restart_mult"},
    {"max_lr", "lr"},
    {"eta_min", "final_lr"},
    {"accumulate_grad_batches", "grad_accumulation"},
    {"gradient_accumulation_steps", "grad_accumulation"},
    {"lr_scheduler", "schedule"},
    {"prefetch_factor", "prefetch"},
    {"output_dir", "run_dir"},
    {"save_dir", "run_dir"},
    {"logdir", "run_dir"},
    {"log_dir", "run_dir"},
    {"save_every", "checkpoint_every"},
    {"save_steps", "checkpoint_every"},
    {"save_total_limit", "keep_checkpoints"},
    {"pretrained", "init"},
    {"weights", "init"},
    {"sync_batchnorm", "sync_bn"},
    {"find_unused_parameters", "find_unused"},
    {"bucket_cap_mb", "bucket_mb"},
    {"gpus", "-n"},
    {"devices", "-n"},
    {"n", "-n"},
    {"world_size", "-n"},
    {"eval", "tutti eval"},
    {"predict", "tutti predict"},
};

/* program: it takes --eval and --predict too. */
static const char *nearest_key(const char *name, bool program)
{
    const char *names[TUTTI__N_KEYS + 3];

    for (int i = 0; i < TUTTI__N_KEYS; i++)
        names[i] = tutti__key_table[i].name;
    names[TUTTI__N_KEYS] = "config";
    names[TUTTI__N_KEYS + 1] = "eval";
    names[TUTTI__N_KEYS + 2] = "predict";
    for (size_t i = 0; i < TUTTI__COUNT_OF(other_names); i++)
        if (tutti__key_is(other_names[i].theirs, name, strlen(name)))
            return other_names[i].ours;
    return tutti__nearest(name, names, TUTTI__N_KEYS + (program ? 3 : 1));
}

static const char *title(const reader *r)
{
    return r->parts->title ? r->parts->title : "tutti train";
}

static tutti_status unknown(const reader *r, const char *name)
{
    const char *nearest = nearest_key(name, r->parts->program && !r->file);

    if (r->file && nearest && strcmp(nearest, name) == 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: \"%s\" is a flag, which cannot be in a file",
                           r->file, name);
    return tutti__fail(TUTTI_ERR_ARG, "%s%sunknown key \"%.60s\"%s%s%s (%s --help lists all)",
                       r->file ? r->file : "", r->file ? ": " : "", name,
                       nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?" : "", title(r));
}

/* ---- Files ---- */

static tutti_status set_from_json(reader *r, const char *name, const json_t *value)
{
    char number[40];
    const char *text = number;
    int i = tutti__key_find(name, strlen(name));

    if (strcmp(name, WORLD_SIZE) == 0 && json_is_integer(value)) {
        r->config->world_size = json_integer_value(value);
        return TUTTI_OK;
    }
    if (i < 0)
        return unknown(r, name);
    if (json_is_string(value))
        text = json_string_value(value);
    else if (json_is_integer(value))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        text = json_is_true(value) ? "true" : "false";
    else
        return refuse(
            r, &tutti__key_table[i],
            "the value is a list, an object or null; expected a text, a number or true/false");
    r->given[i] = true;
    return set_value(r, &tutti__key_table[i], text);
}

/* A run's config.json also contains its run_dir and how it started. These are not used: a repeated run starts in a new folder,
 * and --resume auto finds the run by the file's folder. Beside tokens_per_step its grad_accumulation is computed. */
static tutti_status leave_run_alone(reader *r, const char *path)
{
    const tutti__key_row *computed = &tutti__key_table[TUTTI__KEY_OF_grad_accumulation];
    const char *slash = strrchr(path, '/');
    char metrics[TUTTI__CONFIG_TEXT + 16];

    snprintf(r->ran_in, sizeof r->ran_in, "%.*s", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", r->ran_in);
    if (access(metrics, F_OK) != 0) /* the file is a copy */
        strcpy(r->ran_in, r->config->run_dir);
    r->config->run_dir[0] = '\0';
    r->given[TUTTI__KEY_OF_grad_accumulation] = false;
    if (r->config->tokens_per_step > 0)
        TUTTI_TRY(set_value(r, computed, computed->value));
    return set_value(r, &tutti__key_table[TUTTI__KEY_OF_resume], "no");
}

static tutti_status read_file(reader *r, const char *path)
{
    json_error_t error;
    struct stat about = {.st_size = 0};
    const char *name;
    json_t *root, *value;
    tutti_status status = TUTTI_OK;
    FILE *file;
    int fd;

    if (!*path)
        return tutti__fail(TUTTI_ERR_ARG, "--config is empty; expected a file");
    /* A named pipe that nobody writes is empty. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tutti__fail_errno(errno, "--config: cannot open %s", path);
    fcntl(fd, F_SETFL, O_RDONLY);
    file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", path);
    }
    if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        fclose(file);
        return tutti__fail(TUTTI_ERR_ARG,
                           "--config: %s is a folder; expected a file (of a run: %s/config.json)",
                           path, path);
    }
    if (about.st_size > MAX_FILE) {
        fclose(file);
        return tutti__fail(TUTTI_ERR_ARG, "--config: %s has %lld bytes; expected at most %d", path,
                           (long long)about.st_size, MAX_FILE);
    }
    root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!json_is_object(root)) {
        json_decref(root);
        return tutti__fail(TUTTI_ERR_ARG, "--config: %s is not a JSON object of keys: line %d: %s",
                           path, root ? 1 : error.line, root ? "not an object" : error.text);
    }
    r->file = path;
    json_object_foreach(root, name, value)
    {
        status = set_from_json(r, name, value);
        if (status != TUTTI_OK)
            break;
    }
    r->file = NULL;
    if (status == TUTTI_OK && json_object_get(root, WORLD_SIZE))
        status = leave_run_alone(r, path);
    json_decref(root);
    return status;
}

/* ---- Flags ---- */

/* A flag at argv[i]: its row (TUTTI__N_KEYS for --config), its text, and how many arguments it takes. */
typedef struct flag {
    int key, used;
    const char *text;
} flag;

static tutti_status needs_value(const char *name, int key)
{
    char choices[256];

    if (key < TUTTI__N_KEYS && (tutti__key_table[key].type == TUTTI__KEY_CHOICE ||
                                tutti__key_table[key].type == TUTTI__KEY_NAME))
        return tutti__fail(
            TUTTI_ERR_ARG, "%s needs a value: %s", name,
            tutti__words_text(tutti__key_table[key].limits, " or ", choices, sizeof choices));
    return tutti__fail(TUTTI_ERR_ARG, "%s needs a value, as in %s=VALUE", name, name);
}

static tutti_status read_flag(const reader *r, int argc, char *const *argv, int i, flag *f)
{
    const char *name = argv[i] + 2, *equals = strchr(argv[i], '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(argv[i]) - 2;

    if (strncmp(argv[i], "--", 2) != 0 || n == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "unexpected argument \"%.100s\"; keys are given as --key value (%s "
                           "--help lists all)",
                           argv[i], title(r));
    *f = (flag){tutti__key_find(name, n), 1, equals ? equals + 1 : NULL};
    if (n == 6 && memcmp(name, "config", 6) == 0)
        f->key = TUTTI__N_KEYS;
    if (f->key < 0 && n > 3 && memcmp(name, "no", 2) == 0 && (name[2] == '-' || name[2] == '_')) {
        f->key = tutti__key_find(name + 3, n - 3);
        if (is_flag(f->key)) {
            if (equals)
                return tutti__fail_value(argv[i], equals + 1);
            f->text = "false";
            return TUTTI_OK;
        }
        f->key = -1;
    }
    if (f->key < 0) {
        char word[64];

        snprintf(word, sizeof word, "%.*s", (int)(n < 60 ? n : 60), name);
        return unknown(r, word);
    }
    if (f->text)
        return TUTTI_OK;
    if (is_flag(f->key) && (i + 1 >= argc || argv[i + 1][0] == '-')) {
        f->text = "true";
        return TUTTI_OK;
    }
    if (i + 1 >= argc || strncmp(argv[i + 1], "--", 2) == 0)
        return needs_value(argv[i], f->key);
    f->text = argv[i + 1];
    f->used = 2;
    return TUTTI_OK;
}

/* ---- Arguments ---- */

/* An empty text takes away a file's or a program's. Where there is none, it is a variable that the shell does not know. */
static tutti_status check_empty(const reader *r, const tutti__key_row *key, const char *text)
{
    const char *value = value_of(r->config, key);

    if (*text || key->type != TUTTI__KEY_TEXT || *value)
        return TUTTI_OK;
    return refuse(r, key, "it is empty; leave it out, or give a value");
}

/* Files before flags, which override them. */
static tutti_status read_arguments(reader *r, int argc, char *const *argv)
{
    flag f;

    for (int i = 0; i < argc; i += f.used) {
        TUTTI_TRY(read_flag(r, argc, argv, i, &f));
        if (f.key == TUTTI__N_KEYS)
            TUTTI_TRY(read_file(r, f.text));
    }
    for (int i = 0; i < argc; i += f.used) {
        TUTTI_TRY(read_flag(r, argc, argv, i, &f));
        if (f.key == TUTTI__N_KEYS)
            continue;
        TUTTI_TRY(check_empty(r, &tutti__key_table[f.key], f.text));
        TUTTI_TRY(set_value(r, &tutti__key_table[f.key], f.text));
        r->given[f.key] = true;
        if (f.key == TUTTI__KEY_OF_model) /* it overrides the one in a file */
            r->config->model_file[0] = '\0';
        if (f.key == TUTTI__KEY_OF_data)
            r->config->data_file[0] = '\0';
    }
    return TUTTI_OK;
}

/* One of the two would be ignored. */
static tutti_status check_accumulation(const reader *r)
{
    const tutti__train_config *c = r->config;

    if (c->tokens_per_step == 0 || !r->given[TUTTI__KEY_OF_grad_accumulation])
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "grad_accumulation: it is given as %lld, and follows from tokens_per_step, "
                       "which is %lld; give one of the two",
                       (long long)c->grad_accumulation, (long long)c->tokens_per_step);
}

/* A pipeline's micro-batches are the batches that are accumulated. */
static tutti_status settle_micro_batches(const reader *r)
{
    tutti__train_config *c = r->config;
    const bool given = r->given[TUTTI__KEY_OF_grad_accumulation];

    if (c->pipeline == 1)
        return c->micro_batches == 0
                   ? TUTTI_OK
                   : tutti__fail(TUTTI_ERR_ARG,
                                 "micro_batches: it is for a pipeline, and pipeline=1; add "
                                 "--pipeline P, or use grad_accumulation");
    if (c->micro_batches > 0 && c->tokens_per_step > 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "micro_batches: it follows from tokens_per_step, which is %lld; give one "
            "of the two",
            (long long)c->tokens_per_step);
    if (c->micro_batches > 0 && given && c->grad_accumulation != c->micro_batches)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "micro_batches: it is %lld, and grad_accumulation, which is the same, is "
            "%lld; give one of the two",
            (long long)c->micro_batches, (long long)c->grad_accumulation);
    if (c->micro_batches > 0)
        c->grad_accumulation = c->micro_batches;
    else if (!given && c->tokens_per_step == 0)
        c->grad_accumulation = 2 * c->pipeline;
    return TUTTI_OK;
}

/* The table's defaults, then the program's. */
static tutti_status set_defaults(reader *r)
{
    const char *const *defaults = r->parts->own.defaults;
    tutti_status status;
    int n = 0;

    for (int i = 0; i < TUTTI__N_KEYS; i++)
        TUTTI_TRY(set_value(r, &tutti__key_table[i], tutti__key_table[i].value));
    tutti__parts_set_names(r->parts, r->config);
    while (defaults && defaults[n])
        n++;
    status = read_arguments(r, n, (char *const *)(uintptr_t)defaults);
    return status == TUTTI_OK
               ? TUTTI_OK
               : tutti__fail(status, "the program's defaults: %s", tutti_last_error());
}

/* Off unless it is asked for, for data of which not all are images, and for labels that may depend on positions, which crops and
 * flips change: those of a program's own data sets, and of formats of any arrays. */
static tutti_status settle_augment(const reader *r)
{
    const tutti_dataset_format *format = r->parts->format;
    const tutti_dataset *own = r->parts->own.train;
    tutti_dataset_info info;
    char text[64];

    if ((own || (format && format->read_arrays)) && !r->given[TUTTI__KEY_OF_augment])
        r->config->augment = false;
    if (!own || !r->config->augment || tutti__dataset_has_images(own))
        return TUTTI_OK;
    info = tutti_dataset_describe(own);
    return tutti__fail(TUTTI_ERR_ARG,
                       "augment: crops and flips are of images of bytes (U8 [C,H,W]), and the "
                       "samples of data=%s are %s %s; leave augment out, and augment where the "
                       "program reads its samples",
                       r->config->data, tutti_dtype_name(info.dtype),
                       tutti__dataset_text(own, 2, text));
}

/* What a folder of Hugging Face says, and is not given. */
static tutti_status take_init(reader *r)
{
    json_t *keys, *value;
    const char *name;
    tutti_status status;

    if (r->parts->own.model || r->config->model_file[0])
        return TUTTI_OK;
    status = tutti__config_of_init(r->config, r->given, &keys);
    json_object_foreach(keys, name, value)
    {
        if (status != TUTTI_OK)
            break;
        status = set_from_json(r, name, value);
    }
    json_decref(keys);
    return status;
}

tutti_status tutti__config_read_each(tutti__train_config *config, tutti__parts *parts, int argc,
                                     char *const *argv)
{
    reader r = {.config = config, .parts = parts};

    memset(config, 0, sizeof *config);
    TUTTI_TRY(set_defaults(&r));
    r.given[TUTTI__KEY_OF_grad_accumulation] = false;
    TUTTI_TRY(read_arguments(&r, argc, argv));
    TUTTI_TRY(check_accumulation(&r));
    TUTTI_TRY(settle_micro_batches(&r));
    if (!config->run_dir[0] && strcmp(config->resume, "auto") == 0)
        strcpy(config->run_dir, r.ran_in);
    TUTTI_TRY(take_init(&r));
    TUTTI_TRY(tutti__parts_find(parts, config));
    tutti__config_settle_language(config, parts->model, r.given);
    tutti__config_settle_optim(config, r.given);
    return settle_augment(&r);
}

tutti_status tutti__config_read(tutti__train_config *config, tutti__parts *parts, int argc,
                                char *const *argv)
{
    TUTTI_TRY(tutti__config_read_each(config, parts, argc, argv));
    return tutti__config_check(config, parts);
}

/* ---- --help ---- */

/* The values that a user may give. */
static const char *value_text(const tutti__key_row *key, char *text, size_t size)
{
    const char *word = tutti__steps_word(key);
    char high[64], *space;

    switch (key->type) {
    case TUTTI__KEY_CHOICE:
    case TUTTI__KEY_NAME:
        return tutti__words_text(key->limits, " or ", text, size);
    case TUTTI__KEY_FLAG:
        return "true or false";
    case TUTTI__KEY_TEXT:
        return "text";
    case TUTTI__KEY_INT:
        snprintf(text, size, "integer %s", key->limits);
        break;
    case TUTTI__KEY_STEPS:
        snprintf(text, size, "auto, %s%sor a number of steps", word ? word : "", word ? ", " : "");
        return text;
    case TUTTI__KEY_REAL:
        snprintf(text, size, "number %s", key->limits);
        break;
    }
    space = strchr(strchr(text, ' ') + 1, ' ');
    snprintf(high, sizeof high, "%s", space + 1);
    snprintf(space, size - (size_t)(space - text), " to %s", high);
    return text;
}

/* Whether the program's own model or data replace this key. */
static bool is_decided(const tutti__parts *parts, int key)
{
    switch (key) {
    case TUTTI__KEY_OF_model:
    case TUTTI__KEY_OF_model_file:
        return parts && parts->own.model;
    case TUTTI__KEY_OF_data:
    case TUTTI__KEY_OF_data_file:
    case TUTTI__KEY_OF_data_dir:
    case TUTTI__KEY_OF_image_size:
    case TUTTI__KEY_OF_target:
    case TUTTI__KEY_OF_features:
    case TUTTI__KEY_OF_standardize:
    case TUTTI__KEY_OF_test_fraction:
        return parts && parts->own.train;
    default:
        return false;
    }
}

/* A program's own default, as it wrote it, or else the table's. parts NULL: no program. */
static const char *default_text(const tutti__parts *parts, int key)
{
    const char *const *defaults = parts ? parts->own.defaults : NULL;
    const bool no_augment = key == TUTTI__KEY_OF_augment && parts && parts->own.train;
    const char *text = no_augment ? "false" : tutti__key_table[key].value;
    const reader r = {.parts = parts};
    int n = 0;
    flag f;

    while (defaults && defaults[n])
        n++;
    for (int i = 0; i < n; i += f.used) {
        if (read_flag(&r, n, (char *const *)(uintptr_t)defaults, i, &f) != TUTTI_OK)
            break; /* without --help it is reported */
        if (f.key == key)
            text = f.text;
    }
    return *text ? text : "none";
}

void tutti__config_help(FILE *out, const tutti__parts *parts)
{
    char text[256];

    fputs("  --config FILE.json   keys and values as a JSON object; flags override it. The "
          "config.json of a run\n"
          "                       repeats it in a new folder; with --resume auto the run continues "
          "in its own\n"
          "  -h, --help           this text\n\n"
          "Keys (hyphens and underscores are the same; --KEY=VALUE works too; booleans also as "
          "--KEY and\n"
          "--no-KEY; an empty text takes away a file's):\n\n",
          out);
    for (int i = 0; i < TUTTI__N_KEYS; i++) {
        const tutti__key_row *key = &tutti__key_table[i];
        char flag_text[64];

        if (is_decided(parts, i))
            continue;
        snprintf(flag_text, sizeof flag_text, "--%s", key->name);
        for (char *p = flag_text; *p; p++)
            *p = *p == '_' ? '-' : *p;
        fprintf(out, "  %-20s%s%s (default %s)\n", flag_text, strlen(flag_text) < 20 ? " " : "  ",
                value_text(key, text, sizeof text), default_text(parts, i));
        fprintf(out, "%23s", "");
        tutti__print_wrapped(out, key->help, 23);
    }
}
