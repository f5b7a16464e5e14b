/* inference_command.c -- how `tutti eval` and `tutti predict` begin.   SPDX-License-Identifier: MIT */
#include "cli/inference_command.h"

#include "cli/workers.h"
#include "train/agree.h"

#include <stdlib.h>

int tutti__inference_command(const tutti__inference_command_opts *opts, int argc, char **argv)
{
    tutti__inference_line *line = opts->line;
    tutti_status status;
    int64_t n = 0;
    int code;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(opts->help, stdout);
        return 0;
    }
    status = tutti__workers_take(&argc, argv, &n);
    if (status == TUTTI_OK)
        status = tutti__workers_check(line->title, n);
    if (status == TUTTI_OK)
        status = tutti__inference_line_read(line, opts->own, argc - 1, argv + 1);
    if (status == TUTTI_OK && opts->check)
        status = opts->check(line);
    if (status != TUTTI_OK)
        code = tutti__say_usage(line->title, status);
    else
        code = tutti__workers_run(&(tutti__workers){line->title, argc, argv, n, opts->work, line});
    free(line->keys);
    return code;
}
