/* regression.c -- predicts a column of a CSV file from the others; regression.py is the same in PyTorch.   SPDX-License-Identifier: MIT
 *     tutti run -n 2 build/examples/example_regression --data-dir examples/regression.csv --target price
 *     build/examples/example_regression --predict RUN --out predictions.csv */
#include <tutti/tutti.h>

typedef struct {
    tutti_module base; /* first */
    tutti_linear fc1, fc2, fc3;
} net;

static void init(tutti_module *module, const tutti_model_opts *o)
{
    net *m = (net *)module;

    tutti_linear_init(&m->fc1, module, "fc1", o->channels, 64); /* the number of features */
    tutti_linear_init(&m->fc2, module, "fc2", 64, 64);
    tutti_linear_init(&m->fc3, module, "fc3", 64, o->classes); /* the number of targets */
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    net *m = (net *)module;

    x = tutti_relu(tutti_linear_forward(&m->fc1, x));
    x = tutti_relu(tutti_linear_forward(&m->fc2, x));
    return tutti_linear_forward(&m->fc3, x);
}

int main(int argc, char **argv)
{
    static const tutti_model_kind kind = {
        .name = "regression", .bytes = sizeof(net), .init = init, .forward = forward};
    /* Features become (value - mean) / std of the training rows; a fifth of the rows is for the test. */
    static const char *const keys[] = {
        "--data=csv",     "--epochs=20", "--batch-size=16", "--optimizer=adamw", "--lr=0.003",
        "--eval-every=5", NULL};

    return tutti_trainer_main(argc, argv, &(tutti_trainer_opts){.model = &kind, .defaults = keys});
}
