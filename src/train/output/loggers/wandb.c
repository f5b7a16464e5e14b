/* wandb.c -- the key `wandb`.   SPDX-License-Identifier: MIT */
#include "train/output/logger.h"
#include "train/output/loggers/wandb_file.h"

#include <string.h>

static bool is_on(const tutti__train_config *config)
{
    return strcmp(config->wandb, "offline") == 0;
}

static tutti_status open_file(void *self, const tutti__logged_run *run)
{
    char folder[4096];

    ((tutti__wandb_file *)self)->records.fd = -1;
    snprintf(folder, sizeof folder, "%s/wandb", run->folder);
    return tutti__wandb_file_open(self, folder, run->name, run->program, run->config, run->step);
}

static tutti_status write_step(void *self, const tutti__step_metrics *m,
                               const tutti__system_sample *sample)
{
    TUTTI_TRY(tutti__wandb_file_add(self, (uint64_t)m->step, tutti__step_table, m));
    return sample ? tutti__wandb_file_system(self, sample) : TUTTI_OK;
}

static tutti_status write_eval(void *self, tutti__metric_table table, const tutti__eval_metrics *m)
{
    TUTTI_TRY(tutti__wandb_file_add(self, (uint64_t)m->step, table, m));
    return tutti__wandb_file_flush(self);
}

static tutti_status write_end(void *self, const tutti__summary *summary)
{
    return summary ? tutti__wandb_file_end(self, summary) : tutti__wandb_file_flush(self);
}

static void close_file(void *self)
{
    tutti__wandb_file_close(self);
}

const tutti__logger tutti__wandb = {"wandb",    sizeof(tutti__wandb_file),
                                    is_on,      NULL,
                                    open_file,  write_step,
                                    write_eval, NULL,
                                    NULL,       write_end,
                                    close_file};
