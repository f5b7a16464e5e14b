/* train.c -- `tutti train`: reads the flags, and trains, or has N workers do it.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "launch/launch.h"
#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
           "config.json of an\n"
           "                       earlier run repeats it\n"
           "  -h, --help           this text\n\n"
           "Keys (hyphens and underscores are the same; --KEY=VALUE works too; booleans also as "
           "--KEY and\n"
           "--no-KEY):\n\n");
    tutti__config_help(stdout);
}

/* Takes -n N out of argv[1..]; the rest is moved up. *n_p 0: not given. */
static tutti_status take_n(int *argc, char **argv, int64_t *n_p)
{
    static const char *const names[] = {"-n", "--nproc-per-node", "--nproc_per_node"};
    int kept = 1;

    *n_p = 0;
    for (int i = 1; i < *argc; i++) {
        const char *text = NULL;

        for (size_t k = 0; k < TUTTI__COUNT_OF(names) && !text; k++) {
            size_t length = strlen(names[k]);

            if (strcmp(argv[i], names[k]) == 0) {
                if (++i >= *argc)
                    return tutti__fail(TUTTI_ERR_ARG, "-n needs the number of workers");
                text = argv[i];
            } else if (strncmp(argv[i], names[k], length) == 0 && argv[i][length] == '=')
                text = argv[i] + length + 1;
        }
        if (!text && argv[i][0] == '-' && argv[i][1] == 'n' && argv[i][2])
            text = argv[i] + 2; /* -n2 */
        if (!text)
            argv[kept++] = argv[i];
        else if (!tutti__parse_int64(text, n_p) || *n_p < 1 || *n_p > 4096)
            return tutti__fail(TUTTI_ERR_ARG,
                               "-n: \"%.40s\" is not a number of workers; expected 1 to 4096",
                               text);
    }
    argv[kept] = NULL;
    *argc = kept;
    return TUTTI_OK;
}

/* Has OpenMP's threads sleep, not spin, where they wait for each other, in programs that are started from here. libgomp
 * spins for milliseconds by default, which on a machine that does anything else too costs whole time slices: 2 threads on 2
 * busy cores made 33 images/s with it and 870 without. False: nothing to do, or the user has chosen. */
static bool let_threads_sleep(const tutti__train_config *config)
{
    return config->threads != 1 && tutti__cores() > 1 && !getenv("OMP_WAIT_POLICY") &&
           !getenv("GOMP_SPINCOUNT") && setenv("OMP_WAIT_POLICY", "passive", 1) == 0;
}

/* Under its own name, by which the kernel calls processes, where that is to be found. */
static void start_again(char *const *argv)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n > 0) {
        path[n] = '\0';
        execv(path, argv);
    }
    execv("/proc/self/exe", argv); /* it was replaced meanwhile */
}

/* Trains in this process, or (n > 0) as n workers that run `tutti train ARGUMENTS`. */
static int train(tutti__train_config *config, int64_t n, int argc, char **argv)
{
    char name[] = "tutti";
    char **whole = calloc((size_t)argc + 2, sizeof *whole);
    bool again = let_threads_sleep(config);
    int code;

    if (!whole) {
        fprintf(stderr, "tutti train: no memory\n");
        return 4;
    }
    if (n > 0 && strcmp(config->backend, "mpi") == 0) {
        fprintf(stderr,
                "tutti train: backend mpi needs mpirun, which -n does not start: mpirun -n %lld "
                "tutti train --backend mpi ...\n",
                (long long)n);
        free(whole);
        return 2;
    }
    whole[0] = name;
    memcpy(whole + 1, argv, (size_t)argc * sizeof *whole);
    if (n > 0)
        code = tutti__launch(&(tutti__launch_opts){
            .title = "tutti train", .argv = whole, .n = (int)n, .rank0_direct = true});
    else {
        if (again) /* libgomp has read its environment already */
            start_again(whole);
        code = tutti__train(config);
    }
    free(whole);
    return code;
}

/* Under a launcher, -n would make every rank a job of its own. */
static tutti_status check_launcher(int64_t n)
{
    const tutti__launcher outer = tutti__launcher_find();
    char flag[32];

    snprintf(flag, sizeof flag, "-n %lld", (long long)n);
    return n > 0 ? tutti__launcher_refuse(&outer, "tutti train", flag) : TUTTI_OK;
}

static int usage_error(void)
{
    /* All ranks of a host have the same arguments; one of them says what is wrong. */
    if (tutti__launcher_find().first_on_host)
        fprintf(stderr, "tutti train: %s\n", tutti_last_error());
    tutti__error_file_write(true, tutti_last_error());
    return 2;
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
    if (take_n(&argc, argv, &n) != TUTTI_OK || check_launcher(n) != TUTTI_OK)
        return usage_error();
    config = tutti__alloc(sizeof *config);
    if (!config)
        return 4;
    if (tutti__config_read(config, argc - 1, argv + 1) != TUTTI_OK)
        code = usage_error();
    else
        code = train(config, n, argc, argv);
    free(config);
    return code;
}
