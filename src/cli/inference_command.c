/* inference_command.c -- how `tutti eval` and `tutti predict` begin.   SPDX-License-Identifier: MIT */
#include "cli/inference_command.h"

#include "cli/nproc.h"
#include "train/config/agreement.h"
#include "train/machine/signals.h"

#include <stdlib.h>

static int work(void *line)
{
    tutti_trainer_result result = {.status = ""};

    tutti__signals_begin();
    (void)!tutti__inference_run(line, &result); /* failures were reported */
    return result.exit_code;
}

int tutti__inference_command(tutti__inference_line *line, const char *help, int argc, char **argv)
{
    tutti_status status;
    int64_t n = 0;
    int code;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(help, stdout);
        return 0;
    }
    status = tutti__nproc_take(&argc, argv, &n);
    if (status == TUTTI_OK)
        status = tutti__nproc_check(line->title, n);
    if (status == TUTTI_OK)
        status = tutti__inference_line_read(line, argc - 1, argv + 1);
    if (status != TUTTI_OK)
        code = tutti__report_usage(line->title, status);
    else
        code = tutti__nproc_run(&(tutti__nproc){
            .title = line->title, .argc = argc, .argv = argv, .n = n, .work = work, .user = line});
    free(line->keys);
    return code;
}
