/* diff_faults.c -- a trainer with one fault, on one rank, for the tests of `tutti diff`.   SPDX-License-Identifier: MIT
 *
 *     diff_faults none|rate|buffer|batch|weight [KEYS...]
 *
 * On rank 1: batch: some samples are black; rate: from step 3 on, twice the learning rate; weight: after step 3 the last bit of an element of
 * fc's weight is flipped. On both, since buffers are those of rank 0: buffer: after step 3 a bit of an element of stem.1's mean. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

static const char *what;
static bool at_fault; /* the rank */
static uint64_t step; /* the last one that is complete */

static bool is(const char *fault)
{
    return at_fault && step >= 2 && strcmp(what, fault) == 0;
}

/* A bit of element 7. */
static tutti_status flip(tutti_tensor *t, int bit)
{
    const size_t n = (size_t)tutti_shape_count(tutti_tensor_shape(t));
    uint32_t *bits = malloc(n * sizeof *bits);
    tutti_status status = tutti_tensor_read(t, bits);

    bits[7] ^= 1u << bit;
    if (status == TUTTI_OK)
        status = tutti_tensor_write(t, bits);
    free(bits);
    return status;
}

static tutti_status on_gradients(void *self, const tutti_trainer_update *u)
{
    (void)self;
    if (is("rate"))
        tutti_optim_set_lr(u->optim, 2 * tutti_optim_lr(u->optim));
    return TUTTI_OK;
}

static tutti_status on_update(void *self, const tutti_trainer_update *u)
{
    tutti_status status = TUTTI_OK;

    (void)self;
    step = u->step;
    if (step == 3 && strcmp(what, "buffer") == 0)
        status = flip(tutti_module_find(u->module, "stem.1.running_mean"), 16);
    if (step == 3 && is("weight"))
        status = flip(tutti_module_find(u->module, "fc.weight"), 0);
    return status;
}

static tutti_status augment(void *self, tutti_sample *sample)
{
    (void)self;
    if (sample->train && at_fault && strcmp(what, "batch") == 0 && sample->index % 5 == 0)
        memset(sample->x, 0, (size_t)tutti_shape_count(sample->shape));
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    static const char *const defaults[] = {"--model",     "mini_resnet", "--epochs=1",
                                           "--threads=1", "--workers=1", "--augment=false",
                                           NULL};
    static const tutti_trainer_hooks hooks = {on_gradients, on_update, {0}};
    const char *rank = getenv("RANK");
    tutti_trainer *trainer;
    int code;

    what = argc > 1 ? argv[1] : "none";
    at_fault = rank && strcmp(rank, "1") == 0;
    argv[1] = argv[0];
    TUTTI_MUST(tutti_trainer_new(
        &trainer, argc - 1, argv + 1,
        &(tutti_trainer_opts){.defaults = defaults, .hooks = &hooks, .augment = augment}));
    (void)!tutti_trainer_run(trainer);
    code = tutti_trainer_get_result(trainer).exit_code;
    tutti_trainer_free(trainer);
    return code;
}
