/* train.c -- `tutti train`: reads the flags, and trains in this process or in N workers.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "cli/cli.h"
#include "cli/nproc.h"
#include "comm/comm.h"
#include "train/config/agreement.h"
#include "train/machine/signals.h"
#include "train/trainer.h"
#include "train/config/config_read.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(void)
{
    printf("Trains a model on a data set; with several ranks, data-parallel.\n\n"
           "usage: tutti train [-n N] [--config FILE.json] [--KEY VALUE]...\n\n"
           "  tutti train                       alone, with the defaults\n"
           "  tutti train -n 2 --epochs 3       two workers on this machine\n"
           "  tutti run -n 2 tutti train        the same; also under torchrun, srun, mpirun\n"
           "  tutti train --run-dir R --resume auto\n"
           "                                    continues from R's last checkpoint\n\n"
           "  -n, --nproc-per-node N\n"
           "                       workers on this machine (default 1: this process)\n");
    tutti__config_help(stdout, NULL);
}

/* The process ends after it, so signal handlers need not be restored. */
static int train(void *user)
{
    tutti_trainer *trainer = user;
    int code;

    (void)!tutti__trainer_run(trainer); /* failures were reported */
    code = tutti_trainer_get_result(trainer).exit_code;
    if (code == 128 + SIGPIPE)
        tutti__signals_end_by_pipe();
    return code;
}

int tutti__cli_train(int argc, char **argv)
{
    tutti_trainer *trainer = NULL;
    tutti_status status;
    int64_t n;
    int code;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        print_help();
        return 0;
    }
    status = tutti__nproc_take(&argc, argv, &n);
    if (status == TUTTI_OK)
        status = tutti__nproc_check("tutti train", n);
    if (status == TUTTI_OK)
        status = tutti__trainer_new(&trainer, "tutti train", NULL, argc - 1, argv + 1, NULL);
    if (status != TUTTI_OK)
        return tutti__report_usage("tutti train", status);
    if (n == 0 && tutti__config_lacks_ranks(&trainer->config)) {
        status = tutti__fail(
            TUTTI_ERR_ARG,
            "--config: this is the configuration of a run of %lld ranks; add -n %lld, or "
            "-n 1 to train with one rank, whose steps take other samples",
            (long long)trainer->config.world_size, (long long)trainer->config.world_size);
        code = tutti__report_usage("tutti train", status);
    } else if (n > 0 && strcmp(trainer->config.backend, "mpi") == 0) {
        fprintf(stderr,
                "tutti train: backend mpi needs mpirun, which -n does not start: mpirun -n %lld "
                "tutti train --backend mpi ...\n",
                (long long)n);
        code = 2;
    } else {
        const bool quiet = strcmp(trainer->config.progress, "quiet") == 0;

        code = tutti__nproc_run(&(tutti__nproc){.title = "tutti train",
                                                .argc = argc,
                                                .argv = argv,
                                                .n = n,
                                                .work = train,
                                                .user = trainer,
                                                .quiet = quiet});
    }
    tutti_trainer_free(trainer);
    return code;
}
