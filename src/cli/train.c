/* train.c -- `tutti train`: reads the flags, and trains, or has N workers do it.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "cli/cli.h"
#include "cli/workers.h"
#include "comm/comm.h"
#include "train/train.h"

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
           "                                    goes on where R's last checkpoint was taken\n\n"
           "  -n, --nproc-per-node N\n"
           "                       workers on this machine (default 1: this process)\n"
           "  --config FILE.json   keys and values as a JSON object; flags override it. The "
           "config.json of a run\n"
           "                       repeats it in a new folder; with --resume auto it goes on in "
           "its own\n"
           "  -h, --help           this text\n\n"
           "Keys (hyphens and underscores are the same; --KEY=VALUE works too; booleans also as "
           "--KEY and\n"
           "--no-KEY):\n\n");
    tutti__config_help(stdout);
}

static int train(void *config)
{
    return tutti__train(config);
}

static int usage_error(void)
{
    /* All ranks of a host have the same arguments; one of them says what is wrong. */
    if (tutti__launcher_find().first_on_host)
        fprintf(stderr, "tutti train: %s\n", tutti_last_error());
    tutti__error_file_write(true, tutti_last_error());
    return 2;
}

/* A run of several ranks is repeated by one only where that is said: -n 1, or a launcher's variables. */
static tutti_status check_ranks(const tutti__train_config *config, int64_t n)
{
    if (n > 0 || config->world_size < 2 || config->shards > 0 || getenv("LOCAL_RANK") ||
        tutti__launcher_find().name)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "--config: this is the configuration of a run of %lld ranks; add -n %lld, or "
        "-n 1 to train with one rank, whose steps take other samples",
        (long long)config->world_size, (long long)config->world_size);
}

int tutti__cli_train(int argc, char **argv)
{
    tutti__train_config *config;
    int64_t n;
    int code;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return 0;
        }
    if (tutti__workers_take(&argc, argv, &n) != TUTTI_OK ||
        tutti__workers_check("tutti train", n) != TUTTI_OK)
        return usage_error();
    config = tutti__alloc(sizeof *config);
    if (!config)
        return 4;
    if (tutti__config_read(config, argc - 1, argv + 1) != TUTTI_OK ||
        check_ranks(config, n) != TUTTI_OK)
        code = usage_error();
    else if (n > 0 && strcmp(config->backend, "mpi") == 0) {
        fprintf(stderr,
                "tutti train: backend mpi needs mpirun, which -n does not start: mpirun -n %lld "
                "tutti train --backend mpi ...\n",
                (long long)n);
        code = 2;
    } else
        code = tutti__workers_run(&(tutti__workers){"tutti train", argc, argv, n, train, config});
    free(config);
    return code;
}
