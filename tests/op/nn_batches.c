/* nn_batches.c -- a model gives a sample the same bits in a batch of any size, on any number of threads, and a token the same ones
 * whether it is read with the whole text or alone.   SPDX-License-Identifier: MIT
 *
 * Every kind of model, with each instruction set of this CPU, in F32 and in 16 bit (nn_batches_all: all of them). Of models without batch
 * norm and dropout the forward pass of training gives the same bits as that of an evaluation.
 * timeout: 60 */
#include "op/settings.h"

#include "harness/memory.h"
#include "nn/kv_cache.h"
#include "nn/nn.h"

#include <string.h>

#define SAMPLES 9
#define TOKENS  45
#define CLASSES 61

typedef struct row {
    const char *name;
    tutti_model_opts opts; /* input and classes are set if 0 */
    bool norms;            /* batch norm, whose training is another function */
    bool is_large;         /* not with reference kernels */
} row;

static const tutti_llama_opts of_llama = {.kv_heads = 2};
static const row rows[] = {
    {.name = "mini_resnet", .norms = true, .is_large = true},
    {.name = "mlp"},
    {.name = "linear"},
    {.name = "resnet18", .norms = true, .is_large = true},
    {.name = "resnet50", .norms = true, .is_large = true},
    {.name = "mobilenet_v2", .norms = true},
    {.name = "vit", .opts = {.layers = 2, .hidden = 192, .heads = 3, .patch = 8}},
    {.name = "lstm", .opts = {.layers = 2}},
    {.name = "unet", .opts = {.layers = 2, .hidden = 16}, .norms = true},
    {.name = "airbench94", .norms = true, .is_large = true},
    {.name = "gpt2", .opts = {.layers = 2, .hidden = 384, .heads = 4, .context = TOKENS}},
    {.name = "llama",
     .opts = {.layers = 2, .hidden = 384, .heads = 4, .context = TOKENS, .llama = &of_llama}},
};

/* A model in a context of its own. */
typedef struct bench {
    tutti_ctx *cx;
    tutti_model *model;
    tutti_dtype autocast;
    bool tokens;
    tutti_shape x; /* of SAMPLES */
    const void *data;
} bench;

static const void *input_of(bool tokens, int64_t n)
{
    float *numbers = test_keep((size_t)n * sizeof *numbers);
    int64_t *ids = test_keep((size_t)n * sizeof *ids);
    uint64_t state = 5;

    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (float)((double)(state >> 40) / 8388608.0 - 1.0);
        ids[i] = (int64_t)(state >> 40) % CLASSES;
    }
    return tokens ? (const void *)ids : numbers;
}

static bench bench_new(const row *r, const setting *s, int threads)
{
    tutti_model_opts opts = r->opts;
    bench b = {.autocast = s->autocast, .tokens = r->opts.context > 0};

    opts.classes = CLASSES;
    opts.channels = b.tokens ? TOKENS : 3;
    opts.height = opts.width = b.tokens ? 1 : 32;
    b.x = b.tokens ? TUTTI_SHAPE(SAMPLES, TOKENS) : TUTTI_SHAPE(SAMPLES, 3, 32, 32);
    b.data = input_of(b.tokens, tutti_shape_count(b.x));
    test_must(
        tutti_ctx_new(&b.cx, (tutti_device){TUTTI_CPU, 0},
                      &(tutti_ctx_opts){.kernels = s->kernels, .threads = threads, .seed = 3}));
    test_must(tutti_model_new(&b.model, b.cx, r->name, &opts));
    return b;
}

static void bench_free(bench *b)
{
    tutti_model_free(b->model);
    tutti_ctx_free(b->cx);
}

/* The outputs for x, in F32, which the caller frees; *n_p: how many. Between the beginning of a step and its end. */
static float *outputs(const bench *b, const void *x, tutti_shape shape, size_t *n_p)
{
    const tutti_array input = {x, shape, b->tokens ? TUTTI_I64 : TUTTI_F32};
    tutti_tensor *y =
        tutti_cast(tutti_model_forward(b->model, tutti_input(b->cx, input)), TUTTI_F32);
    float *values;

    test_must(tutti_tensor_status(y));
    *n_p = (size_t)tutti_shape_count(tutti_tensor_shape(y));
    values = malloc(*n_p * sizeof *values);
    test_must(tutti_tensor_read(y, values));
    return values;
}

/* Of n samples from `first` on; *each_p: numbers of one. */
static float *compute(const bench *b, bool eval, int64_t first, int64_t n, size_t *each_p)
{
    const size_t bytes = (b->tokens ? sizeof(int64_t) : sizeof(float));
    const size_t sample = (size_t)(tutti_shape_count(b->x) / SAMPLES) * bytes;
    tutti_shape shape = b->x;
    float *values;
    size_t count;

    shape.d[0] = n;
    tutti_step_begin(b->cx, &(tutti_step_opts){.autocast = b->autocast, .eval = eval});
    values = outputs(b, (const char *)b->data + (size_t)first * sample, shape, &count);
    tutti_step_end(b->cx);
    *each_p = count / (size_t)n;
    return values;
}

static bool same(const char *what, const char *model, int64_t n, const float *a, const float *b,
                 size_t count)
{
    const bool is = memcmp(a, b, count * sizeof *a) == 0;

    if (!is)
        printf("%s: other bits %s %lld\n", model, what, (long long)n);
    return is;
}

static bool check_batches(const row *r, const setting *s)
{
    static const int64_t sizes[] = {1, 2, 3, 7};
    bench one = bench_new(r, s, 1), many = bench_new(r, s, 3);
    size_t each;
    float *whole = compute(&one, true, 0, SAMPLES, &each);
    bool good = true;

    for (size_t i = 0; i < TUTTI__COUNT_OF(sizes); i++) {
        const int64_t n = sizes[i], first = i % 2 ? 0 : SAMPLES - n;
        float *some = compute(i % 2 ? &one : &many, true, first, n, &each);

        good &=
            same("in a batch of", r->name, n, some, whole + (size_t)first * each, (size_t)n * each);
        free(some);
    }
    if (!r->norms) {
        float *training = compute(&many, false, 0, SAMPLES, &each);

        good &= same("in training's forward pass of", r->name, SAMPLES, training, whole,
                     SAMPLES * each);
        free(training);
    }
    free(whole);
    bench_free(&one);
    bench_free(&many);
    return good;
}

/* The last sample's text, of which `prompt` tokens are read at once, and the others `step` at a time. */
static bool check_text(const row *r, const setting *s, const bench *b, const float *whole,
                       int64_t prompt, int64_t step)
{
    const int64_t *text = (const int64_t *)b->data + (SAMPLES - 1) * TOKENS;
    tutti__kv_cache cache;
    bool good = true;

    tutti__kv_cache_open(&cache, TOKENS);
    for (int64_t at = 0, n = prompt; at < TOKENS && good; at += n, n = step) {
        const int64_t end = at + n < TOKENS ? at + n : TOKENS;
        size_t count;
        float *logits;

        tutti_step_begin(b->cx, &(tutti_step_opts){.autocast = s->autocast, .eval = true});
        b->cx->kv_cache = &cache;
        logits = outputs(b, text + at, TUTTI_SHAPE(1, end - at), &count);
        b->cx->kv_cache = NULL;
        tutti_step_end(b->cx);
        tutti__kv_cache_advance(&cache, end - at);
        assert_int_equal(count, CLASSES);
        good = same("of a text that is read on, at token", r->name, end - 1, logits,
                    whole + (size_t)(end - 1) * CLASSES, CLASSES);
        free(logits);
    }
    tutti__kv_cache_close(&cache);
    return good;
}

/* Logits with the keys and values of earlier tokens kept are those of the whole text. */
static bool check_texts(const row *r, const setting *s)
{
    bench one = bench_new(r, s, 1), many = bench_new(r, s, 2);
    size_t each;
    float *whole = compute(&one, false, 0, SAMPLES, &each);
    const float *last = whole + (SAMPLES - 1) * each;
    const bool good = check_text(r, s, &many, last, 1, 1) & check_text(r, s, &one, last, 6, 1) &
                      check_text(r, s, &many, last, 33, 1) & check_text(r, s, &one, last, 17, 5);

    free(whole);
    bench_free(&one);
    bench_free(&many);
    return good;
}

static bool check(const setting *s)
{
    bool good = true;

    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        if (rows[i].is_large && s->kernels == TUTTI_KERNELS_REFERENCE)
            continue;
        good &= check_batches(&rows[i], s);
        if (rows[i].opts.context)
            good &= check_texts(&rows[i], s);
    }
    return good;
}

/* Sizes of one network share its code. */
static void check_rows(void)
{
#define MODEL_NAME(symbol, name) name,
    static const char *const names[] = {TUTTI__MODELS(MODEL_NAME)};
#undef MODEL_NAME

    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++) {
        bool has = false;

        for (size_t k = 0; k < TUTTI__COUNT_OF(rows); k++)
            has |= tutti__model_find(rows[k].name)->forward == tutti__model_find(names[i])->forward;
        if (!has) {
            printf("nn_batches.c has no row of model %s\n", names[i]);
            exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    check_rows();
    return run_settings(argc, argv, check);
}
