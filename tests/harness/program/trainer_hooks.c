/* trainer_hooks.c -- a program whose functions change gradients, look at each step, and end the run, for the tests.
 * SPDX-License-Identifier: MIT
 *
 *     trainer_hooks none|log|clip|stop-update|stop-eval|stop-step|stop-rank1|fail-update|fail-gradients [KEYS...]
 *
 * clip: what --clip-grad-norm 0.5 does. stop-update: all ranks, after step 7; stop-rank1: rank 1 alone; stop-eval: after the second
 * evaluation; stop-step: at the line of step 8. DIE_STEP in the environment: rank 1 dies after that step, once. Prints a line for each call on each rank, and the result. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/tutti.h>

static const char *what;
static uint64_t gradients_of; /* the step of the last call */

static void stop(const char *why)
{
    TUTTI_MUST(tutti_trainer_stop(why));
    TUTTI_MUST(tutti_trainer_stop("a second reason, which does not count"));
}

static tutti_status on_gradients(void *self, const tutti_trainer_update *u)
{
    float norm;

    (void)self;
    gradients_of = u->step;
    if (strcmp(what, "fail-gradients") == 0 && u->step == 3)
        return tutti_fail(TUTTI_ERR_ARG, "the gradient of step 3 is not to my liking");
    if (strcmp(what, "clip") == 0)
        return tutti_clip_grad_norm(u->module, 0.5f, &norm);
    return TUTTI_OK;
}

static tutti_status on_update(void *self, const tutti_trainer_update *u)
{
    const char *die = getenv("DIE_STEP");

    (void)self;
    printf("update %d of epoch %d on rank %d of %d, loss %.17g, lr %g, gradients %d, ema %d\n",
           (int)u->step, (int)u->epoch, u->rank, u->world_size, u->loss, u->lr, (int)gradients_of,
           (int)tutti_ema_updates(u->ema));
    fflush(stdout);
    if (tutti_module_n_parameters(u->module) == 0 || !u->optim)
        return tutti_fail(TUTTI_ERR_ARG, "no module or optimizer");
    if (strcmp(what, "fail-update") == 0 && u->step == 3 && u->rank == u->world_size - 1)
        return tutti_fail(TUTTI_ERR_ARG, "step 3 is not to my liking");
    if ((strcmp(what, "stop-update") == 0 || (strcmp(what, "stop-rank1") == 0 && u->rank == 1)) &&
        u->step == 7)
        stop("seven \033 steps");
    if (u->rank == 1 && die && u->step == strtoull(die, NULL, 10) && mkdir("died", 0777) == 0)
        raise(SIGKILL);
    return TUTTI_OK;
}

static void on_step(void *self, const tutti_trainer_step *s)
{
    (void)self;
    if (strcmp(what, "stop-step") == 0 && s->step == 8)
        stop(NULL);
}

static void on_eval(void *self, const tutti_trainer_eval *e)
{
    (void)self;
    if (strcmp(what, "stop-eval") == 0 && e->epoch == 2)
        stop("good enough");
}

int main(int argc, char **argv)
{
    static const char *const defaults[] = {"--model", "mlp",           "--epochs=6",  "--lr",
                                           "0.1",     "--log-every=4", "--threads=1", NULL};
    static const tutti_trainer_hooks hooks = {on_gradients, on_update, {0}};
    tutti_trainer *trainer;
    tutti_trainer_result r;

    what = argc > 1 ? argv[1] : "none";
    argv[1] = argv[0];
    if (tutti_trainer_stop("too early") != TUTTI_ERR_STATE)
        return 98;
    if (tutti_trainer_new(&trainer, argc - 1, argv + 1,
                          &(tutti_trainer_opts){.hooks = strcmp(what, "none") ? &hooks : NULL,
                                                .on_step = on_step,
                                                .on_eval = on_eval,
                                                .defaults = defaults}) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_last_error());
        return 2;
    }
    (void)!tutti_trainer_run(trainer);
    r = tutti_trainer_get_result(trainer);
    printf("result: %s, code %d, %d steps, %d epochs, digest %s\n", r.status, r.exit_code,
           (int)r.steps, (int)r.epochs, r.parameter_digest);
    tutti_trainer_free(trainer);
    return r.exit_code;
}
