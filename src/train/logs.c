/* logs.c -- metrics to the files that were asked for.   SPDX-License-Identifier: MIT */
#include "train/logs.h"

void tutti__logs_begin(tutti__logs *logs, tutti__run_folder *folder,
                       const tutti__train_config *config, uint64_t step)
{
    (void)config;
    (void)step;
    *logs = (tutti__logs){.folder = folder};
}

void tutti__logs_step(tutti__logs *logs, const tutti__step_metrics *m)
{
    if (logs->folder)
        tutti__run_folder_line(logs->folder, NULL, tutti__step_table, m);
}

void tutti__logs_eval(tutti__logs *logs, const tutti__eval_metrics *m)
{
    if (logs->folder)
        tutti__run_folder_line(logs->folder, "eval", tutti__eval_table, m);
}

void tutti__logs_end(tutti__logs *logs, const tutti__summary *summary)
{
    (void)summary;
    logs->folder = NULL;
}
