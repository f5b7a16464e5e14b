/* run.c -- `tutti run`: launches a program as N workers.   SPDX-License-Identifier: MIT */
#include "cli/cli.h"
#include "comm/comm.h"
#include "launch/front/flag_text.h"
#include "launch/front/flags.h"
#include "launch/front/launch.h"
#include "launch/process/worker_environment.h"

#include <stdio.h>

/* As Markdown: docs/env.md is this text (tools/make-env-doc). */
static void print_env(void)
{
    printf("Read by Tutti:\n\n| variable | type | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < TUTTI__N_ENV; i++)
        printf("| `%s` | %s | %s | %s |\n", tutti__env_table[i].name, tutti__env_table[i].type,
               tutti__env_table[i].value, tutti__env_table[i].help);
    printf("\nNever read, and never warned of, whatever follows these beginnings:\n\n"
           "| beginning | whose |\n|---|---|\n");
    for (size_t i = 0; i < TUTTI__N_ENV_PREFIXES; i++)
        printf("| `%s` | %s |\n", tutti__env_prefixes[i].prefix, tutti__env_prefixes[i].owner);
    printf("\nSet for every worker by `tutti run`:\n\n| variable | value |\n|---|---|\n");
    tutti__worker_environment_print(stdout);
}

/* ARG if this is one of several processes of another launcher. But srun starts one `tutti run` per node on purpose, and with an
 * explicit number of nodes any launcher may start one on each. */
static int refuse_second(const tutti__launcher *outer, const tutti__nodes *nodes)
{
    if (outer->may_start_agents || nodes->max > 1 ||
        tutti__launcher_refuse(outer, "tutti run", "") == TUTTI_OK)
        return 0;
    if (outer->first_on_host)
        fprintf(stderr, "tutti run: %s\n", tutti_last_error());
    tutti__error_file_write_usage(true, tutti_last_error());
    return 2;
}

int tutti__cli_run(int argc, char **argv)
{
    tutti__run_line line = {0};
    tutti_status status = tutti__run_line_read(&line, argc, argv);
    const tutti__launcher outer = tutti__launcher_find();
    int code = 0;

    if (status != TUTTI_OK) {
        fprintf(stderr, "tutti run: %s\n", tutti_last_error());
        code = tutti_status_exit_code(status);
    } else if (line.help) {
        tutti__run_print_help(stdout);
    } else if (line.env) {
        print_env();
    } else {
        code = refuse_second(&outer, &line.opts.nodes);
        if (code == 0)
            code = tutti__launch(&line.opts);
    }
    tutti__run_line_free(&line);
    return code;
}
