/* train_logs.c -- what a log line of a training costs with every log on.   SPDX-License-Identifier: MIT
 *
 *     bench_train_logs [LINES]
 *
 * metrics.jsonl, TensorBoard, wandb offline, samples of the machine and the Prometheus file, in a folder that is removed.
 * Prints the median over the lines (default 2000), in CPU time of the calling thread and by the clock, and the dearest line,
 * which is one with a sample and the Prometheus file. */
#include "train/output/logs.h"
#include "train/config/config_read.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char place[] = "/tmp/tutti-logs-XXXXXX";

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void begin(tutti__run_folder *folder, tutti__train_config *config)
{
    char path[TUTTI__CONFIG_TEXT + 20];

    snprintf(folder->path, sizeof folder->path, "%s", mkdtemp(place));
    snprintf(path, sizeof path, "%s/metrics.jsonl", place);
    folder->metrics = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    TUTTI_MUST(tutti__config_read(config, &(tutti__parts){.title = NULL}, 0, NULL));
    snprintf(config->prometheus, sizeof config->prometheus, "%s/train.prom", place);
    strcpy(config->wandb, "offline");
    config->tensorboard = config->system_metrics = true;
    config->world_size = 2;
}

int main(int argc, char **argv)
{
    const int lines = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 2000;
    static tutti__train_config config;
    tutti__run_folder folder = {.metrics = -1};
    tutti__logs logs;
    double *cpu = malloc((size_t)lines * sizeof *cpu), *wall = malloc((size_t)lines * sizeof *wall);

    if (!cpu || !wall)
        return 4;
    begin(&folder, &config);
    tutti__logs_begin(&logs, &folder, &config, "test", &(tutti__gpus){.n_here = 0}, 0);
    for (int i = 0; i < lines; i++) {
        const double c = cpu_ms(), w = tutti__now_ms();

        tutti__logs_step(&logs, &(tutti__step_metrics){.step = i + 1,
                                                       .epoch = 1,
                                                       .loss = 0.1,
                                                       .lr = 0.1,
                                                       .grad_norm = i % 5 ? i : (double)NAN,
                                                       .images_per_s = 1e6,
                                                       .time_s = i});
        wall[i] = tutti__now_ms() - w;
        cpu[i] = cpu_ms() - c;
    }
    tutti__logs_end(&logs, &(tutti__summary){.status = "completed"});
    close(folder.metrics);
    free(folder.pending);
    qsort(cpu, (size_t)lines, sizeof *cpu, by_value);
    qsort(wall, (size_t)lines, sizeof *wall, by_value);
    printf("a log line: median %.4f ms of CPU, %.4f ms by the clock; dearest %.3f ms of CPU (%d "
           "lines)\n",
           cpu[lines / 2], wall[lines / 2], cpu[lines - 1], lines);
    free(cpu);
    free(wall);
    return nftw(place, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
