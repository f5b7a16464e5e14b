/* own_trainer.c -- a program over tutti_trainer, for the tests: a model, data and a loss of its own, which its first argument chooses.
 * SPDX-License-Identifier: MIT
 *
 *     own_trainer images|read|rows|loss|model|silent|fewer|fewer-tests|name|quoted|no-loss|no-output|nested [KEYS...]
 *
 * silent: reading fails without a message. fewer, fewer-tests: rank 1 has half of the data. name: a model whose name has control
 * characters; quoted: a layer whose name has a quotation mark.
 * no-loss, no-output: the loss or the forward function returns NULL. nested: a run within the first on_step; and one test image.
 *
 * Prints the calls of its functions ("step", "eval"), the run's result, and the state of signals. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { TRAIN = 96, ALL = 128, SIDE = 8, CLASSES = 4 };

typedef struct {
    tutti_module base;
    tutti_conv2d conv;
    tutti_linear fc;
} net;

static const char *layer = "conv";

static void init(tutti_module *module, const tutti_model_opts *o)
{
    net *m = (net *)module;

    tutti_conv2d_init(&m->conv, module, layer,
                      &(tutti_conv2d_layer_opts){
                          .in = o->channels, .out = 8, .kernel = 3, .padding = 1, .no_bias = true});
    tutti_linear_init(&m->fc, module, "fc", 8 * o->height * o->width, o->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    net *m = (net *)module;
    const int64_t n = tutti_tensor_shape(x).d[0];

    x = tutti_relu(tutti_conv2d_forward(&m->conv, x));
    return tutti_linear_forward(&m->fc, tutti_reshape(x, TUTTI_SHAPE(n, -1)));
}

static tutti_tensor *no_output(tutti_module *module, tutti_tensor *x)
{
    (void)module, (void)x;
    return NULL;
}

static tutti_model_kind kind = {
    .name = "net", .bytes = sizeof(net), .init = init, .forward = forward};

static uint8_t images[ALL][SIDE * SIDE];
static int64_t labels[ALL];
static float rows[ALL][2], sums[ALL];

static void make(void)
{
    for (int i = 0; i < ALL; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < SIDE * SIDE; k++)
            images[i][k] = (uint8_t)((i * 37 + k * 11) % 90 + (k % SIDE / 2 == labels[i]) * 120);
        rows[i][0] = (float)(i % 11) / 11;
        rows[i][1] = (float)(i % 7) / 7;
        sums[i] = rows[i][0] + 2 * rows[i][1];
    }
}

static tutti_status read_image(void *self, size_t index, void *x, void *y)
{
    index += *(const size_t *)self;
    memcpy(x, images[index], sizeof images[index]);
    memcpy(y, &labels[index], sizeof labels[index]);
    return TUTTI_OK;
}

static tutti_status fail_silently(void *self, size_t index, void *x, void *y)
{
    (void)self, (void)index, (void)x, (void)y;
    return TUTTI_ERR_IO;
}

static tutti_tensor *half_of_entropy(void *self, tutti_tensor *output, tutti_tensor *target)
{
    (void)self;
    return tutti_scale(tutti_cross_entropy(output, target), 0.5f);
}

static tutti_tensor *no_loss(void *self, tutti_tensor *output, tutti_tensor *target)
{
    (void)self, (void)output, (void)target;
    return NULL;
}

static bool nested;

static void run_within(void)
{
    char *const argv[] = {"inner", "--run-dir=inner", NULL};
    tutti_trainer *inner;

    TUTTI_MUST(tutti_trainer_new(&inner, 2, argv, NULL));
    printf("nested: %s\n", tutti_status_name(tutti_trainer_run(inner)));
    tutti_trainer_free(inner);
}

static void on_step(void *self, const tutti_trainer_step *s)
{
    if (nested)
        run_within();
    nested = false;
    printf("%s: step %d of epoch %d, loss %.4f\n", (const char *)self, (int)s->step, (int)s->epoch,
           s->loss);
}

static void on_eval(void *self, const tutti_trainer_eval *e)
{
    printf("%s: eval after step %d, loss %.4f, accuracy %.4f\n", (const char *)self, (int)e->step,
           e->loss, e->accuracy);
}

static void ignore(int number)
{
    (void)number;
}

/* Training data, or the rest for the test. */
static tutti_dataset *open(const char *what, bool test)
{
    static const size_t starts[2] = {0, TRAIN};
    const size_t first = starts[test], count = test ? ALL - TRAIN : TRAIN;
    tutti_samples s = {.count = count,
                       .shape = TUTTI_SHAPE(1, SIDE, SIDE),
                       .dtype = TUTTI_U8,
                       .classes = CLASSES,
                       .split = test ? "test" : "train"};
    const char *rank = getenv("RANK");
    tutti_dataset *data;

    if (strcmp(what, "model") == 0)
        return NULL;
    if (strcmp(what, test ? "fewer-tests" : "fewer") == 0 && rank && strcmp(rank, "1") == 0)
        s.count /= 2;
    if (test && nested)
        s.count = 1;
    if (strcmp(what, "read") == 0) {
        s.read = read_image;
        s.self = (void *)(uintptr_t)&starts[test];
    } else if (strcmp(what, "silent") == 0) {
        s.read = fail_silently;
    } else if (strcmp(what, "rows") == 0) {
        s.shape = TUTTI_SHAPE(2);
        s.dtype = TUTTI_F32;
        s.classes = 0;
        s.targets = 1;
        s.x = rows[first];
        s.y = sums + first;
    } else {
        s.x = images[first];
        s.labels = labels + first;
    }
    TUTTI_MUST(tutti_dataset_new(&data, &s));
    return data;
}

int main(int argc, char **argv)
{
    static const char *const defaults[] = {"--epochs",      "2", "--batch-size=8", "--lr", "0.1",
                                           "--log-every=4", NULL};
    const char *what = argc > 1 ? argv[1] : "images";
    tutti_dataset *train, *test;
    tutti_trainer *trainer;
    tutti_trainer_result r;
    tutti_status status;

    make();
    if (strcmp(what, "name") == 0)
        kind.name = "net\033[31m\n";
    if (strcmp(what, "quoted") == 0)
        layer = "a\"b\\";
    if (strcmp(what, "no-output") == 0)
        kind.forward = no_output;
    nested = strcmp(what, "nested") == 0;
    train = open(what, false);
    test = open(what, true);
    signal(SIGTERM, ignore);
    argv[1] = argv[0];
    TUTTI_MUST(
        tutti_trainer_new(&trainer, argc - 1, argv + 1,
                          &(tutti_trainer_opts){.model = strcmp(what, "rows") ? &kind : NULL,
                                                .train = train,
                                                .test = test,
                                                .loss = strcmp(what, "loss") == 0 ? half_of_entropy
                                                        : strcmp(what, "no-loss") == 0 ? no_loss
                                                                                       : NULL,
                                                .on_step = on_step,
                                                .on_eval = on_eval,
                                                .self = (void *)(uintptr_t) "told",
                                                .defaults = defaults}));
    status = tutti_trainer_run(trainer);
    r = tutti_trainer_get_result(trainer);
    printf(
        "result: %s, code %d, rank %d of %d, %d steps, %d epochs, accuracy %.4f, digest %s, %s\n",
        r.status, r.exit_code, r.rank, r.world_size, (int)r.steps, (int)r.epochs, r.val_accuracy,
        r.parameter_digest, r.run_dir);
    printf("signals: %s\n", signal(SIGTERM, SIG_DFL) == ignore ? "as before" : "changed");
    if (tutti_trainer_run(trainer) == TUTTI_OK || (status != TUTTI_OK && r.exit_code == 0))
        return 99;
    tutti_trainer_free(trainer);
    tutti_dataset_free(train);
    tutti_dataset_free(test);
    return r.exit_code;
}
